//! Keeps the mover of pages and those who take memory away out of each other's way.
//!
//! The mover (`migrate/`) must never touch a range that may belong to somebody else. Why it does not:
//!
//! - *Heap objects* are unmapped by this library alone. The mover works on one between two compare-and-exchanges of its
//!   table word; who frees it meanwhile leaves the unmapping to the mover (`objects/heap_table.rs`). Nobody waits.
//! - *Mappings of the program* go when munmap, mremap or mmap(MAP_FIXED) return, so these must be synchronous. The mover
//!   publishes the range of its step here and *then* looks whether the piece is still listed; they take the piece off the
//!   list and *then* look here. Both sides have a sequentially consistent fence in between, so at least one sees the other:
//!   either the mover leaves the piece alone, or the program waits until that step is over: `STEP_PAGES` (512) pages at most.
//! - *Variables of libraries* go with dlclose, which counts itself in here before it starts; the mover publishes, then looks
//!   at the count. What was unloaded is forgotten before the count goes down. The program's own variables never go.
//! - *Extents of small objects* are never unmapped.
//!
//! What the program unmaps by raw system calls is not seen; then a page of another mapping may come to another node, which
//! no program can notice but by its speed: neither mbind nor move_pages changes contents or addresses.
//!
//! All of it lies in a page that a *forked* child finds empty (MADV_WIPEONFORK): no mover, no step, nobody unloading,
//! whatever its parent's threads were doing. A *vforked* child shares memory and sees the parent's mover, which goes on
//! running. The mover takes no lock that a thread of the program could hold while it waits here, and those sleep, so that a
//! program thread of real-time priority lets the mover finish. A *signal handler* may unmap or free: the mover blocks all
//! signals, so that it is never its own thread it waits for. *exec* and *exit_group* end the mover with the process.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};
use numamma_kernel::{futex, mappings};

use numamma_hook::{say, sys};

/// Sleep between two looks at a step that is in the way, ns: a part of the millisecond or two that a step takes.
const LOOK_NS: u64 = 50_000;
/// Time after which a step counts as dead, ns: its thread was stopped for good (a vforked child that was killed). Then
/// nothing is moved any more.
const DEAD_NS: u64 = 2_000_000_000;

/// What lies in the page.
pub struct Shared {
    /// The process whose threads are counted here; 0 in a new child.
    pub pid: AtomicU32,
    /// A mover's thread exists or is being created.
    pub running: AtomicU32,
    /// Counts requests to the mover; it sleeps on it.
    pub requests: AtomicU32,
    /// A mover has run in this process: `moving` in the table means what it says.
    pub mover: AtomicU32,
    /// No more steps.
    stopped: AtomicU32,
    /// Odd during a step.
    step: AtomicU32,
    /// Range of the step; written while `step` is even.
    start: AtomicUsize,
    end: AtomicUsize,
    /// Calls of dlclose under way.
    unloading: AtomicU32,
}

const _: () = assert!(size_of::<Shared>() <= sys::PAGE);

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(core::ptr::null_mut());

/// Makes the page, before the first phase can begin; false when the kernel cannot.
pub fn start() -> bool {
    let Some(page) = mappings::map_wiped_on_fork(sys::PAGE) else { return false };
    // All zero is a valid state: nothing is going on.
    SHARED.store(page.cast(), Ordering::Release);
    if let Some(shared) = shared() {
        shared.pid.store(sys::pid(), Ordering::Relaxed);
    }
    true
}

/// The page; `None` when the policy has no phases.
#[inline]
pub fn shared() -> Option<&'static Shared> {
    // SAFETY: null, or a page of zeroes that is never unmapped; its fields are atomics.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

/// A mover has run in this process, and what the table says of it holds.
pub fn has_mover() -> bool {
    shared().is_some_and(|s| s.mover.load(Ordering::Acquire) != 0)
}

/// A step of the mover, while it lives. The range is published; whether it may be touched is for the caller to look up now.
pub struct Step(&'static Shared);

impl Step {
    /// Publishes a step on `[start, end)`; `None` when there shall be no more.
    pub fn begin(start: usize, end: usize) -> Option<Step> {
        let shared = shared()?;
        shared.start.store(start, Ordering::Relaxed);
        shared.end.store(end, Ordering::Relaxed);
        // Release: who sees the odd number sees the range.
        shared.step.fetch_add(1, Ordering::Release);
        let step = Step(shared);
        // Pairs with the fences of `wait`, `begin_unloading` and `stop`: see the top of this file.
        fence(Ordering::SeqCst);
        (shared.stopped.load(Ordering::Relaxed) == 0).then_some(step)
    }

    /// No library is being unloaded.
    pub fn nothing_unloads(&self) -> bool {
        self.0.unloading.load(Ordering::Acquire) == 0
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        // Release: who sees the even number finds the step's work done.
        self.0.step.fetch_add(1, Ordering::Release);
    }
}

/// Waits until no step that began before is at work in `[start, end)`; the caller has seen to it that no later one will be.
pub fn wait(start: usize, end: usize) {
    let Some(shared) = shared() else { return };
    fence(Ordering::SeqCst);
    let step = shared.step.load(Ordering::Acquire);
    if step & 1 == 0 {
        return;
    }
    let (from, to) = (shared.start.load(Ordering::Relaxed), shared.end.load(Ordering::Relaxed));
    // Should the range be a later step's, this one is over, and the loop ends at once.
    if from < end && start < to {
        over(shared, step);
    }
}

fn over(shared: &Shared, step: u32) {
    let mut waited = 0;
    while shared.step.load(Ordering::Acquire) == step {
        futex::wait(&shared.step, step, LOOK_NS);
        waited += LOOK_NS;
        if waited > DEAD_NS {
            if shared.stopped.swap(1, Ordering::AcqRel) == 0 {
                say!("the thread that moves pages between phases does not go on; nothing is moved any more");
            }
            return;
        }
    }
}

/// A library may be unloaded until [`end_unloading`]: waits for the step at work.
pub fn begin_unloading() {
    let Some(shared) = shared() else { return };
    shared.unloading.fetch_add(1, Ordering::AcqRel);
    wait(0, usize::MAX);
}

/// See [`begin_unloading`].
pub fn end_unloading() {
    let Some(shared) = shared() else { return };
    // A child that was forked by a destructor finds 0.
    let _ = shared.unloading.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| n.checked_sub(1));
}

/// Ends all moving: for the check at the program's end.
pub fn stop() {
    let Some(shared) = shared() else { return };
    shared.stopped.store(1, Ordering::Release);
    wait(0, usize::MAX);
}

/// Whether there shall be no more steps.
pub fn stopped() -> bool {
    shared().is_none_or(|s| s.stopped.load(Ordering::Acquire) != 0)
}
