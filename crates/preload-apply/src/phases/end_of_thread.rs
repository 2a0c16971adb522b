//! The end of the mover's thread: whether the kernel has it no more, so that it makes no system call.
//!
//! The thread says that it ends before it makes its last system calls, those of the C library among them: it is gone
//! only when its id is.

use core::sync::atomic::Ordering;

use numamma_hook::sys;
use numamma_kernel::{clock, futex};

use super::exclusion::{self, POLL_NS, STEP_TIMEOUT_NS, Shared};

/// Called by the mover's thread when it begins; there may be a former one, which has said that it ends.
pub fn begin(shared: &Shared) {
    while !is_gone(shared) {
        let seen = shared.requests.load(Ordering::Relaxed);
        futex::wait(&shared.requests, seen, POLL_NS);
    }
    shared.thread.store(sys::tid(), Ordering::SeqCst);
}

/// Called by the mover's thread: it ends unless it finds another request.
pub fn announce(shared: &Shared) {
    shared.ended_ns.store(clock::monotonic_ns(), Ordering::SeqCst);
    shared.running.store(0, Ordering::SeqCst);
}

/// Waits until the mover, which has been told to end, is gone. If it does not go on, it is left, and nothing is moved
/// any more.
pub fn wait(shared: &Shared) {
    let begun = clock::monotonic_ns();
    loop {
        let running = shared.running.load(Ordering::SeqCst);
        if running == 0 && is_gone(shared) {
            return;
        }
        if clock::monotonic_ns().saturating_sub(begun) > STEP_TIMEOUT_NS {
            return exclusion::does_not_go_on(shared);
        }
        futex::wait(&shared.running, running, POLL_NS);
    }
}

/// Whether the last thread of the mover that said that it ends is gone. After [`STEP_TIMEOUT_NS`] it is, and its id may
/// be another thread's.
fn is_gone(shared: &Shared) -> bool {
    let thread = shared.thread.load(Ordering::SeqCst);
    let ended_ns = shared.ended_ns.load(Ordering::SeqCst);
    if thread == 0 || clock::monotonic_ns().saturating_sub(ended_ns) > STEP_TIMEOUT_NS {
        return true;
    }
    // SAFETY: signal 0 is none: the call says whether there is such a thread.
    unsafe { libc::syscall(libc::SYS_tgkill, i64::from(sys::pid()), i64::from(thread), 0_i64) != 0 }
}
