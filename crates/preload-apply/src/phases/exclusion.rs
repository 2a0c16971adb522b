//! Keeps the mover (`migrate/`) from touching memory that the program has released.
//!
//! The mover must never touch a range that may belong to another object by now:
//!
//! - *Heap objects* are unmapped by this library only. The mover works on one between two compare-and-exchanges of its
//!   table word; a thread that frees the object in between leaves the unmapping to the mover (`objects/heap_table.rs`).
//!   Neither waits.
//! - *Mappings of the program* are gone when munmap, mremap or mmap(MAP_FIXED) return, so these hooks must wait. The
//!   mover publishes the range of its step here and *then* checks whether the piece is still listed; the hooks take the
//!   piece off the list and *then* check the published range. Both sides have a sequentially consistent fence in
//!   between, so at least one sees the other: either the mover leaves the piece alone, or the program waits until that
//!   step is over: `STEP_PAGES` (512) pages at most.
//! - *Globals of libraries* are gone after dlclose, which increments a counter here before it starts; the mover
//!   publishes its range, then reads the counter. Unloaded globals are forgotten before the counter is decremented.
//!   Globals of the program itself are never unmapped.
//! - *Extents of small objects* are heap objects in this respect.
//!
//! Unmapping by raw system calls is not seen. Then a page of another mapping may be moved to another node, which
//! changes its speed only: neither mbind nor move_pages changes contents or addresses.
//!
//! All of this state lies in a page that a *forked* child finds zeroed (MADV_WIPEONFORK): no mover, no step, no
//! dlclose, whatever the threads of its parent were doing. A *vforked* child shares memory and sees the mover of its
//! parent, which goes on running. The mover takes no lock that a thread of the program could hold while it waits here,
//! and waiting threads sleep, so that a thread of real-time priority lets the mover finish. A *signal handler* may
//! unmap or free: the mover blocks all signals, so a handler never waits for the thread it interrupted. *exec* and
//! *exit_group* end the mover with the process. Before the program *confines itself* the mover is ended
//! ([`end_of_thread`](super::end_of_thread)), since a filter may hold for its thread, too.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use numamma_kernel::{clock, futex, mappings};

use numamma_hook::{sandbox, say, sys};

/// Sleep between two checks whether a step has ended, ns: a small part of the millisecond or two that a step takes.
pub const POLL_NS: u64 = 50_000;
/// Time after which a step counts as dead, ns: its thread was stopped for good (a vforked child that was killed).
/// Afterwards no page is moved.
pub const STEP_TIMEOUT_NS: u64 = 2_000_000_000;

/// The state of the mover, on a page that is wiped on fork.
pub struct Shared {
    /// Process of the mover; 0 in a new child.
    pub pid: AtomicU32,
    /// 1 while the thread of the mover exists or is being created.
    pub running: AtomicU32,
    /// Id of that thread, or of the last one that was the mover's.
    pub thread: AtomicU32,
    /// When the last one set `running` to 0, ns.
    pub ended_ns: AtomicU64,
    /// Number of requests to the mover, which sleeps on this word.
    pub requests: AtomicU32,
    /// 1 once a mover has run in this process, so that `moving` in the heap table is valid.
    pub mover: AtomicU32,
    /// 1 during a pass of the mover, which may have changed a part of an object between two steps.
    pub working: AtomicU32,
    /// 1 when no step may begin any more.
    stopped: AtomicU32,
    /// Odd during a step.
    step: AtomicU32,
    /// Range of the step; written while `step` is even.
    start: AtomicUsize,
    end: AtomicUsize,
    /// Number of dlclose calls in progress.
    unloading: AtomicU32,
}

const _: () = assert!(size_of::<Shared>() <= sys::PAGE);

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(core::ptr::null_mut());

/// Maps the page; called before the first phase can begin. False when the kernel cannot wipe it on fork.
pub fn start() -> bool {
    let Some(page) = mappings::map_wiped_on_fork(sys::PAGE) else { return false };
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

/// Whether a mover has run in this process, so that `moving` in the heap table is valid.
pub fn has_mover() -> bool {
    shared().is_some_and(|s| s.mover.load(Ordering::Acquire) != 0)
}

/// Whether a pass of the mover is going on.
pub fn mover_works() -> bool {
    shared().is_some_and(|s| s.working.load(Ordering::SeqCst) != 0)
}

/// A step of the mover; ends on drop. Its range is published before the caller checks whether the range may be touched.
pub struct Step(&'static Shared);

impl Step {
    /// Publishes a step on `[start, end)`; `None` when no step may begin any more.
    pub fn begin(start: usize, end: usize) -> Option<Step> {
        let shared = shared()?;
        shared.start.store(start, Ordering::Relaxed);
        shared.end.store(end, Ordering::Relaxed);
        // Release: a thread that sees the odd number sees the range.
        shared.step.fetch_add(1, Ordering::Release);
        let step = Step(shared);
        // Pairs with the fences of `wait`, `begin_unloading` and `stop`: see the top of this file.
        fence(Ordering::SeqCst);
        (!shared.is_stopped()).then_some(step)
    }

    /// Whether no library is being unloaded.
    pub fn no_library_unloads(&self) -> bool {
        self.0.unloading.load(Ordering::Acquire) == 0
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        // Release: a thread that sees the even number sees what the step did.
        self.0.step.fetch_add(1, Ordering::Release);
    }
}

/// Waits until no step that began earlier is working in `[start, end)`. The caller has made sure that no later step
/// will.
pub fn wait(start: usize, end: usize) {
    let Some(shared) = shared() else { return };
    fence(Ordering::SeqCst);
    let step = shared.step.load(Ordering::Acquire);
    if step & 1 == 0 {
        return;
    }
    let (from, to) = (shared.start.load(Ordering::Relaxed), shared.end.load(Ordering::Relaxed));
    // If the range is that of a later step, this one is over and the loop ends at once.
    if from < end && start < to {
        wait_for_step(shared, step);
    }
}

fn wait_for_step(shared: &Shared, step: u32) {
    let mut waited = 0;
    while shared.step.load(Ordering::Acquire) == step {
        if sandbox::entered() {
            return spin_for_step(shared, step);
        }
        futex::wait(&shared.step, step, POLL_NS);
        waited += POLL_NS;
        if waited > STEP_TIMEOUT_NS {
            return does_not_go_on(shared);
        }
    }
}

/// As [`wait_for_step`] while the program confines itself in another thread, without a system call.
fn spin_for_step(shared: &Shared, step: u32) {
    let begun = clock::monotonic_ns();
    while shared.step.load(Ordering::Acquire) == step && shared.stopped.load(Ordering::Relaxed) == 0 {
        core::hint::spin_loop();
        if clock::monotonic_ns().saturating_sub(begun) > STEP_TIMEOUT_NS {
            return does_not_go_on(shared);
        }
    }
}

/// Ends moving for good because the mover's thread is stuck.
pub fn does_not_go_on(shared: &Shared) {
    if shared.stopped.swap(1, Ordering::AcqRel) == 0 {
        say!("the thread that moves pages between phases does not go on; nothing is moved any more");
    }
}

/// Announces that a library is unloaded until [`end_unloading`], and waits for the current step.
pub fn begin_unloading() {
    let Some(shared) = shared() else { return };
    shared.unloading.fetch_add(1, Ordering::AcqRel);
    wait(0, usize::MAX);
}

/// See [`begin_unloading`].
pub fn end_unloading() {
    let Some(shared) = shared() else { return };
    // A child that a destructor forked finds 0.
    let _ = shared.unloading.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| n.checked_sub(1));
}

/// Prevents further steps and waits for the current one, before the pages are checked at exit.
pub fn stop() {
    let Some(shared) = shared() else { return };
    shared.stopped.store(1, Ordering::Release);
    wait(0, usize::MAX);
}

/// Ends moving for good, in the thread of the mover, which could not go on for lack of memory and may be inside a step.
pub fn give_up() {
    let Some(shared) = shared() else { return };
    shared.stopped.store(1, Ordering::Release);
    // Objects that the program frees from now on are not left to the mover.
    shared.mover.store(0, Ordering::Release);
    if shared.step.load(Ordering::Relaxed) & 1 == 1 {
        shared.step.fetch_add(1, Ordering::Release);
    }
    say!("memory is short: no page is moved between phases any more");
}

/// Whether no step may begin any more.
pub fn stopped() -> bool {
    shared().is_none_or(Shared::is_stopped)
}

impl Shared {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire) != 0 || sandbox::entered()
    }
}
