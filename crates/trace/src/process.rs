//! Whether, and in which memory, this process is traced.
//!
//! Decided when the library is loaded, and again in a forked child, in which the word of [`fork_wiped`] is 0.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use numamma_channel::attach::{NAME_BYTES, Name, Open};
use numamma_channel::trace::TRACE_ENV;
use numamma_channel::trace::layout::{DATA_AT, Map};
use numamma_channel::trace::writer::Table;
use numamma_channel::writer::{Role, role_in_trace};
use numamma_hook::beside_recorder::{pid_for_recorder, tid_for_recorder, variable};
use numamma_hook::errno::Saved;
use numamma_hook::sandbox::Reactions;
use numamma_hook::{fork_wiped, sandbox, sys};
use numamma_kernel::mappings::map_wiped_on_fork;

use crate::eras;

/// Not decided yet.
const UNDECIDED: u32 = 0;
/// Being decided; a signal handler must not wait for it.
const DECIDING: u32 = 1;
/// Traced; `fork_wiped` holds the pid. In a forked child, which must decide again, it reads 0.
const TRACED: u32 = 2;
/// Nothing is counted.
const INERT: u32 = 3;

static PHASE: AtomicU32 = AtomicU32::new(UNDECIDED);
/// 1: nothing is counted in this process, for good.
pub static OFF: AtomicU32 = AtomicU32::new(0);
/// Whether this process has another pid in the recorder's process namespace than in its own.
static NAMESPACED: AtomicBool = AtomicBool::new(false);
/// The mapped part of the memory.
static BASE: AtomicPtr<u8> = AtomicPtr::new(null_mut());

struct Kept(UnsafeCell<Option<(Name, u32, u32)>>);

// SAFETY: written once, by the one thread that decides first, before BASE is published; read after that.
unsafe impl Sync for Kept {}

/// The name of the memory, and the pid and parent for which it was accepted.
static NAME: Kept = Kept(UnsafeCell::new(None));

/// A process whose accesses are counted.
#[derive(Clone, Copy)]
pub struct Traced {
    /// The memory.
    pub map: Map,
    /// This process, as the recorder knows it.
    pub pid: u32,
}

/// This process, if its accesses are counted.
#[inline]
pub fn traced() -> Option<Traced> {
    if fork_wiped::get() == 0 && (PHASE.load(Ordering::Acquire) == INERT || !decide()) {
        return None;
    }
    // SAFETY: the word is set after the memory was mapped, and the mapping stays.
    let map = unsafe { Map::new(BASE.load(Ordering::Relaxed)) };
    Some(Traced { map, pid: fork_wiped::get() as u32 })
}

#[cold]
fn decide() -> bool {
    let phase = PHASE.load(Ordering::Acquire);
    if phase == INERT || phase == DECIDING || sandbox::entered() {
        return false;
    }
    if PHASE.compare_exchange(phase, DECIDING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return false;
    }
    let _errno = Saved::now();
    let traced = attach(phase == TRACED);
    OFF.store(u32::from(!traced), Ordering::Relaxed);
    PHASE.store(if traced { TRACED } else { INERT }, Ordering::Release);
    traced
}

/// A forked child has the memory mapped already, and is traced if children are followed.
fn attach(forked: bool) -> bool {
    // SAFETY: the memory was mapped by the parent, and the mapping stays.
    if forked && unsafe { Map::new(BASE.load(Ordering::Relaxed)) }.header().follow == 0 {
        return false;
    }
    let Some(pid) = pid_for_recorder() else { return false };
    if !(forked || open_memory(pid)) {
        return false;
    }
    if forked {
        eras::forget_threads();
    }
    NAMESPACED.store(pid != sys::pid(), Ordering::Relaxed);
    // SAFETY: as above.
    unsafe { Map::new(BASE.load(Ordering::Relaxed)) }.header().attached.fetch_add(1, Ordering::AcqRel);
    fork_wiped::set(u64::from(pid))
}

fn open_memory(pid: u32) -> bool {
    let mut value = [0_u8; NAME_BYTES];
    let name = variable(TRACE_ENV.as_bytes(), &mut value).and_then(|text| Name::parse(text.to_bytes()));
    let Some(name) = name else { return false };
    let parent = sys::parent();
    let Some(open) = open(&name, pid, parent) else { return false };
    let base = sys::map_shared(open.fd, 0, DATA_AT);
    sys::close(open.fd);
    let Some(base) = base else { return false };
    // SAFETY: the mapping was made above, and the advice keeps its contents.
    unsafe { sys::advise(base, DATA_AT, libc::MADV_DONTDUMP) };
    // SAFETY: no thread reads the name before the base is published.
    unsafe { *NAME.0.get() = Some((name, pid, parent)) };
    BASE.store(base.cast(), Ordering::Release);
    true
}

fn open(name: &Name, pid: u32, parent: u32) -> Option<Open> {
    let open = name.open_trace()?;
    if role_in_trace(&open.header, name.nonce, pid, parent) == Role::Record {
        return Some(open);
    }
    sys::close(open.fd);
    None
}

numamma_hook::prctl_entry!(Reactions { before: |_| {}, entered: || {}, refused: || {} });

/// Zeroed memory that a forked child finds zeroed; none once the program has confined itself, which may then be killed
/// for a system call that it does not expect.
pub fn map(bytes: usize) -> Option<*mut c_void> {
    if sandbox::entered() { None } else { map_wiped_on_fork(bytes) }
}

impl Traced {
    /// A table for the calling thread.
    pub fn table(self, shift: u32) -> Option<Table> {
        if sandbox::entered() || self.map.header().stop.load(Ordering::Relaxed) != 0 || !Table::fits(self.map, shift) {
            return None;
        }
        // SAFETY: the name was complete before BASE was published.
        let (name, pid, parent) = unsafe { (*NAME.0.get()).as_ref() }?;
        // A forked child opens it, too, for which the memory was accepted in its parent.
        let open = open(name, *pid, *parent)?;
        let other = if NAMESPACED.load(Ordering::Relaxed) { tid_for_recorder() } else { None };
        let owner = u64::from(self.pid) << 32 | u64::from(other.unwrap_or_else(sys::tid));
        let table = Table::take(self.map, open.fd, owner, shift);
        sys::close(open.fd);
        table
    }
}
