//! The mark that a library may have been loaded whose names are not resolved yet.
//!
//! Resolving places globals (`objects/`), which this folder must not use, so start-up stores the function to call.

use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use numamma_hook::stackbounds;

use super::modules::Counts;

/// One more than the number of modules that had been loaded when the mark was set; 0 without a mark.
static PENDING: AtomicU64 = AtomicU64::new(0);
/// Thread control block of the thread that set the mark last.
static MARKED_BY: AtomicUsize = AtomicUsize::new(0);
/// Allocations of other threads since the mark was set.
static LOOKS: AtomicUsize = AtomicUsize::new(0);
/// Allocations after which the mark is taken away: to look whether a library was loaded takes 0.2 us each time.
const MOST_LOOKS: usize = 10_000;
/// Resolves the loaded modules; null before start-up.
static RESOLVE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Stores the function that resolves the loaded modules. It does nothing if no module came or went.
pub fn start(resolve: fn()) {
    RESOLVE.store(resolve as *mut (), Ordering::Release);
}

/// Marks that this thread is about to load a library whose globals cannot be placed at once.
pub fn mark() {
    MARKED_BY.store(stackbounds::thread_pointer(), Ordering::Relaxed);
    LOOKS.store(0, Ordering::Relaxed);
    PENDING.store(Counts::now().loaded + 1, Ordering::Release);
}

/// Whether a library may have been loaded that is not resolved yet.
#[inline]
pub fn is_pending() -> bool {
    PENDING.load(Ordering::Acquire) != 0
}

/// Resolves the loaded modules.
pub fn resolve() {
    // SAFETY: null becomes None; otherwise `start` stored a function of this type.
    let resolve: Option<fn()> = unsafe { core::mem::transmute(RESOLVE.load(Ordering::Acquire)) };
    if let Some(resolve) = resolve {
        resolve();
    }
}

/// Resolves if a library may have been loaded. To be called only where the loader cannot be running on this thread.
pub fn resolve_pending() {
    let mark = PENDING.load(Ordering::Acquire);
    if mark == 0 {
        return;
    }
    resolve();
    // The call of dlopen that set the mark has returned. If it loaded anything, the mark is gone already.
    if MARKED_BY.load(Ordering::Relaxed) == stackbounds::thread_pointer() {
        let _ = PENDING.compare_exchange(mark, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Resolves if a library may have been loaded, from a hook that code outside the loader has called if `outside`.
pub fn resolve_in_hook(outside: bool) {
    let mark = PENDING.load(Ordering::Acquire);
    if outside && MARKED_BY.load(Ordering::Relaxed) == stackbounds::thread_pointer() {
        return resolve_pending();
    }
    resolve();
    // The thread that set the mark may never come here.
    if LOOKS.fetch_add(1, Ordering::Relaxed) >= MOST_LOOKS {
        let _ = PENDING.compare_exchange(mark, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Takes the mark away if a module has been loaded since it was set. `counts` are those of the modules that are
/// resolved.
pub fn resolved(counts: Counts) {
    let mark = PENDING.load(Ordering::Acquire);
    if mark != 0 && counts.loaded + 1 != mark {
        let _ = PENDING.compare_exchange(mark, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Marks that the modules could not be resolved, so that it is tried again.
pub fn try_again() {
    PENDING.store(u64::MAX, Ordering::Release);
}
