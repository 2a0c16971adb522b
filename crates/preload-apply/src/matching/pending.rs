//! Modules that the current matcher does not know, and what a hook may do about them.
//!
//! A hook that the program calls for something else than loading must not wait for a lock of the loader: another
//! thread may hold it and wait for this one (in a callback of `dl_iterate_phdr`), or may have held it when this process
//! was forked. So the loader is asked for its list only where the program itself makes it change that list, in dlopen
//! and dlclose, and by threads of this library. Everywhere else a module is [learnt](learn) from an address of its
//! code, which takes no lock.
//!
//! Resolving places globals (`objects/`), which this folder must not use, so start-up stores the functions to call.

use core::cell::Cell;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use numamma_hook::{fork_wiped, modules};

use super::modules::Counts;

/// One more than the number of modules that the matcher had counted when the mark was set; 0 without a mark.
static PENDING: AtomicU64 = AtomicU64::new(0);
/// Allocations since the mark was set.
static LOOKS: AtomicUsize = AtomicUsize::new(0);
/// Allocations after which the mark is taken away, since nothing is cached as long as it is there. The library may have
/// been loaded before.
const MOST_LOOKS: usize = 10_000;
/// Resolves the loaded modules; null before start-up.
static RESOLVE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// Resolves the module of an address; null before start-up.
static LEARN: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

#[repr(C)]
struct Block {
    /// Stack address of the hook of dlopen that is running on this thread; 0 without one.
    opening_at: Cell<usize>,
}

numamma_hook::static_tls!(fn block() -> Block, "numamma_apply_pending");

/// Stores the functions that resolve the loaded modules and the module of an address.
pub fn start(resolve: fn(), learn: fn(usize)) {
    RESOLVE.store(resolve as *mut (), Ordering::Release);
    LEARN.store(learn as *mut (), Ordering::Release);
}

/// Marks that a library is about to be loaded by a call that does not return to this library. `counts` are those of
/// the current matcher.
pub fn mark(counts: Counts) {
    LOOKS.store(0, Ordering::Relaxed);
    PENDING.store(counts.loaded.wrapping_add(1).max(1), Ordering::Release);
}

/// Whether a library may have been loaded that is not resolved yet.
#[inline]
pub fn is_pending() -> bool {
    PENDING.load(Ordering::Acquire) != 0
}

/// As [`is_pending`], for an allocation that is being matched: after [`MOST_LOOKS`] of them the mark is gone.
pub fn look() -> bool {
    let mark = PENDING.load(Ordering::Acquire);
    if mark != 0 && LOOKS.fetch_add(1, Ordering::Relaxed) >= MOST_LOOKS {
        let _ = PENDING.compare_exchange(mark, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
    mark != 0
}

/// Resolves if a library may have been loaded, in a thread of this library, for which no other thread waits. In a
/// forked child the lock of the loader may never be released.
pub fn resolve_in_own_thread() {
    if is_pending() && !fork_wiped::is_forked_child() {
        resolve();
    }
}

fn resolve() {
    // SAFETY: null becomes None; otherwise `start` stored a function of this type.
    let resolve: Option<fn()> = unsafe { core::mem::transmute(RESOLVE.load(Ordering::Acquire)) };
    if let Some(resolve) = resolve {
        resolve();
    }
}

/// Resolves the module of code at `address`, which cannot be unloaded meanwhile.
///
/// Before glibc 2.35 the loader must be asked. Only a thread that is loading a library may do so: its constructor is
/// running.
pub fn learn(address: usize) {
    if modules::asks_loader() {
        // SAFETY: as in `resolve`.
        let learn: Option<fn(usize)> = unsafe { core::mem::transmute(LEARN.load(Ordering::Acquire)) };
        if let Some(learn) = learn {
            learn(address);
        }
    } else if is_opening() && !fork_wiped::is_forked_child() {
        resolve();
    }
}

/// Whether this thread is inside the hook of dlopen. A constructor that left it by longjmp is not noticed while the
/// stack is deeper than it was there.
fn is_opening() -> bool {
    let here = 0_u8;
    (&raw const here as usize) < block().opening_at.get()
}

/// This thread is inside the hook of dlopen until this is dropped.
pub struct Opening {
    before: usize,
}

impl Opening {
    /// Begins the hook.
    pub fn begin() -> Opening {
        let here = 0_u8;
        Opening { before: block().opening_at.replace(&raw const here as usize) }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        block().opening_at.set(self.before);
    }
}

/// Takes the mark away if a module has been loaded since it was set. `counts` are those of the modules that are
/// resolved.
pub fn resolved(counts: Counts) {
    let mark = PENDING.load(Ordering::Acquire);
    if mark != 0 && counts.loaded.wrapping_add(1).max(1) != mark {
        let _ = PENDING.compare_exchange(mark, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}
