//! Runs code on a stack of this library, for what needs more of a stack than a hook may take, or memory.
//!
//! A program may call malloc, free or _exit with a few KiB of stack left: in a thread with a small stack, a coroutine,
//! a handler on an alternate signal stack. A hook takes at most 2 KiB there; what needs more is given to [`run`].
//!
//! Code on such a stack may also be given up at any call, which is how the lack of memory is survived: the
//! [allocator](crate::alloc) does not return there but resumes the caller of [`run`], which gets `None`. What the code
//! held by then (memory, files) is lost. So a guard that must be dropped, for example a mark that other threads wait
//! for, is held by the caller of [`run`], never by the code on the stack.
//!
//! While the code runs, signals are blocked, because a handler of the program may need more stack than there is here,
//! or never return; those that an instruction or a system call raises are not, since the kernel would end the program
//! instead. Code that takes long calls [`breathe`] between two steps, so that pending signals are delivered on the
//! program's own stack. Cancellation of the thread waits, too: the C library cancels threads in calls such as `open`,
//! and no program expects that of malloc and free.
//!
//! Taking a stack needs no lock and never waits. The unwinder is not affected, since it starts from the registers of
//! the hook's caller. Changing the stack pointer would be an error in a process with a hardware shadow stack, which
//! glibc does not enable if a library is not built for it, and this one is not.

mod pool;
mod race_detector;
mod switch;

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::held_signals::HeldSignals;
use crate::reentry::ReentryGuard;
use crate::{errno, sandbox};
use pool::Stack;

pub use pool::BYTES;

/// What the code on a stack wants of the thread that runs it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// The code has returned.
    End,
    /// The code is to be resumed after pending signals have been delivered.
    Breathe,
    /// The code is not to be resumed.
    Abandon,
}

/// The innermost stack of this thread: the one it is on, or was on when a signal interrupted it while it breathed.
#[repr(C)]
struct Block {
    stack: Cell<*const Stack>,
}

crate::static_tls!(fn block() -> Block, "numamma_hook_own_stack");

/// The stack this thread is on, if it is one of this library.
fn inside() -> Option<&'static Stack> {
    // SAFETY: null, or a stack, which is never unmapped.
    let stack = unsafe { block().stack.get().as_ref() }?;
    let here = 0_u8;
    stack.holds(&raw const here as usize).then_some(stack)
}

/// Set by [`start`].
static STARTED: AtomicBool = AtomicBool::new(false);

/// Prepares the first stack. To be called in the constructor of the library, before the program has threads.
pub fn start() {
    STARTED.store(true, Ordering::Relaxed);
    race_detector::start();
    pool::start();
}

/// Whether the calling code is on a stack of this library.
pub fn is_inside() -> bool {
    inside().is_some()
}

/// Runs `work`, which allocates nothing, on a stack of this library, directly if the thread is on one already or the
/// program has confined itself. `None` if there is no stack, or if the work was abandoned or panicked.
#[inline(always)]
pub fn run<T>(work: impl FnOnce() -> T) -> Option<T> {
    // Once the program has confined itself, no signal can be blocked.
    if inside().is_some() || sandbox::entered() {
        return Some(directly(work));
    }
    let mut job = Job { work: Some(work), result: None };
    // SAFETY: `perform` gets the job that it is made for, which outlives the call.
    unsafe { run_job(perform(&job), (&raw mut job).cast()) };
    job.result
}

/// As [`run`], for work that is done where it is called if there is no stack.
#[inline(always)]
pub fn run_or_directly<T>(work: impl Fn() -> T) -> T {
    run(&work).unwrap_or_else(|| directly(&work))
}

/// Not inlined: what the work takes of a stack would be taken by the caller, on whatever stack the work runs.
#[cold]
#[inline(never)]
fn directly<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// The work of one call and what it returned.
struct Job<F, T> {
    work: Option<F>,
    result: Option<T>,
}

type Perform = unsafe fn(*mut c_void);

/// The function that performs jobs of the type of `job`.
fn perform<F: FnOnce() -> T, T>(_job: &Job<F, T>) -> Perform {
    /// # Safety
    /// `job` is a live `Job<F, T>` that no other code uses meanwhile.
    unsafe fn perform<F: FnOnce() -> T, T>(job: *mut c_void) {
        // SAFETY: the caller's promise.
        let job = unsafe { &mut *job.cast::<Job<F, T>>() };
        if let Some(work) = job.work.take() {
            job.result = catch_unwind(AssertUnwindSafe(work)).ok();
        }
    }
    perform::<F, T>
}

/// Calls `perform(job)` on a stack of the pool, if there is one.
///
/// # Safety
/// That call is sound.
#[inline(never)]
unsafe fn run_job(perform: Perform, job: *mut c_void) {
    let _errno = errno::Saved::now();
    let mut quiet = Quiet::begin();
    // Allocations by the C library on the way are not the program's. `None` inside a hook that holds the guard. Not
    // held while signals are delivered: a handler that leaves by siglongjmp would leave the thread inside for ever.
    let mut inside = ReentryGuard::enter();
    let outer = block().stack.get();
    if let Some(stack) = pool::take(outer) {
        stack.prepare(perform, job);
        loop {
            block().stack.set(stack);
            // SAFETY: the stack was prepared above, or its code is waiting in `leave` to be resumed.
            unsafe { switch::switch(stack.caller_sp.as_ptr(), stack.own_sp.get()) };
            if stack.wish.get() != Wish::Breathe {
                break;
            }
            drop(inside);
            drop(quiet);
            quiet = Quiet::begin();
            inside = ReentryGuard::enter();
        }
        block().stack.set(outer);
        pool::give(stack);
    }
    drop(inside);
    drop(quiet);
}

/// First code on a stack.
unsafe extern "C" fn begin(stack: &'static Stack) -> ! {
    // SAFETY: the promise of `run_job`.
    unsafe { (stack.perform.get())(stack.job.get()) };
    leave(stack, Wish::End);
    unreachable_end()
}

/// Continues in [`run_job`]; returns when that resumes the stack.
fn leave(stack: &'static Stack, wish: Wish) {
    stack.wish.set(wish);
    // SAFETY: this thread is on `stack`, and `run_job` saved its registers below `caller_sp` before it came here.
    unsafe { switch::switch(stack.own_sp.as_ptr(), stack.caller_sp.get()) };
}

/// Where a stack ends that is never resumed.
fn unreachable_end() -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// Delivers pending signals if this thread is on a stack of this library. Long work calls it between two steps, holding
/// nothing that the program could wait for.
pub fn breathe() {
    if let Some(stack) = inside() {
        leave(stack, Wish::Breathe);
    }
}

/// Gives up the work that this thread is doing on a stack of this library: its [`run`] returns `None`. Returns if the
/// thread is on no such stack.
pub fn abandon() {
    if let Some(stack) = inside() {
        leave(stack, Wish::Abandon);
        unreachable_end();
    }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// pthread.h: the thread is not cancelled.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Holds signals and cancellation of this thread until dropped.
struct Quiet {
    /// The cancellation state to return to. `None` before [`start`]: there is no second thread that could cancel this
    /// one, and the `pthread_setcancelstate` of a sanitizer, which would be called, is not ready.
    cancel: Option<c_int>,
    /// A race detector overlooks this thread meanwhile.
    overlooked: bool,
    /// Dropped last: a handler of the program may not return.
    _held: HeldSignals,
}

impl Quiet {
    fn begin() -> Quiet {
        let held = HeldSignals::hold_always();
        let mut cancel = STARTED.load(Ordering::Relaxed).then_some(0);
        if let Some(cancel) = &mut cancel {
            // SAFETY: the pointer is to a live number.
            unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, cancel) };
        }
        Quiet { cancel, overlooked: race_detector::overlook(), _held: held }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if self.overlooked {
            race_detector::look();
        }
        if let Some(cancel) = self.cancel {
            let mut now = 0;
            // SAFETY: as above; the state is one that the C library returned.
            unsafe { pthread_setcancelstate(cancel, &raw mut now) };
        }
    }
}

#[cfg(test)]
mod tests;
