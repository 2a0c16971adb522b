//! The `fault` sampler: now and then all pages of the program are made to fault, so that the first use of each page is
//! seen, with thread, address, read or write, and time.
//!
//! A thread of the process ([`thread`]) works in windows. It moves the resident pages of the program's private memory
//! to side areas of the same process ([`window`]) and moves each back when a thread touches it; at the end of the
//! window it moves back what is left and closes its descriptor, so that between windows nothing is different from a
//! program that is not sampled. As pages, their thread and the descriptor live and die with the process, the end of the
//! recorder cannot take a page away: the thread then ends its window and itself.
//!
//! The thread touches no memory of the program, of its heap or of libc's thread-local storage: a page of it could be
//! moved away, and nobody else would move it back. It calls nothing but system calls and code of this library. It has
//! a table of descriptors of its own, so that a program that closes all of its own does not close the one that brings
//! its pages back.

mod apart;
mod excluded;
mod inherited;
mod others;
mod pages;
mod serve;
mod state;
mod thread;
mod twins;
mod waiting;
mod window;

use core::ffi::c_void;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use numamma_channel::layout::Map;
use numamma_hook::{errno, fork_wiped, sys};

pub use self::excluded::set_stack;
use self::state::{ENDED, HURRY, NONE, OWNER, RUNS, STATE, STOP, Sampled, WINDOW};

/// Times that mremap(2) is tried again.
const MOST_TRIES: usize = 8;
/// Longest that [`stop`] waits at a time; the thread may have ended before the wait began.
const STOP_WAIT_NS: i64 = 1_000_000;

/// Starts the thread if the recorder wants the sampler, in the process `pid`, or again in a forked child. `namespaced`:
/// the recorder knows threads by other numbers than the kernel tells this process.
pub fn start(map: Map, pid: u32, namespaced: bool, forked: bool) {
    let sampled = Sampled { map, pid };
    if sampled.faults().interval_ns.load(Acquire) == 0 {
        return;
    }
    if namespaced {
        return sampled.refuse(0);
    }
    // One that was stopped, because of what the program does, is not wanted in its children either.
    if forked && STATE.load(Acquire) == ENDED {
        return;
    }
    if forked {
        inherited::remember();
    } else {
        excluded::remember_loader();
    }
    for word in [&STOP, &WINDOW, &HURRY] {
        word.store(0, Relaxed);
    }
    OWNER.store(pid, Relaxed);
    STATE.store(RUNS, Release);
    if let Err(errno) = thread::start(sampled) {
        STATE.store(ENDED, Release);
        sampled.refuse(errno);
    }
}

/// Whether the thread works in this process, which may be a child that has only the memory of one where it does.
fn runs() -> bool {
    STATE.load(Acquire) == RUNS && OWNER.load(Relaxed) == fork_wiped::get() as u32
}

/// Whether the sampler works or worked in this process, or in the one that it was forked from.
pub fn have_worked() -> bool {
    STATE.load(Acquire) != NONE
}

/// Ends the sampler for good and returns when all pages are back.
pub fn stop() {
    if !runs() {
        return;
    }
    STOP.store(1, Release);
    sys::wake_all(&STOP);
    while STATE.load(Acquire) == RUNS {
        sys::wait_while(&STATE, RUNS, STOP_WAIT_NS);
    }
}

/// mremap(2) by `call`, while no window is open: then the kernel would refuse a range that is registered in part. A
/// window that begins meanwhile may have such a part; it is ended, and the call made again. So it is when the window in
/// which a parent forked this process is over.
pub fn without_window(call: impl Fn() -> *mut c_void) -> *mut c_void {
    let before = errno::get();
    for _ in 0..MOST_TRIES {
        let (samples, served) = (runs(), inherited::may_be_served());
        if samples {
            end_window();
        } else if !served {
            break;
        }
        errno::set(before);
        let found = call();
        if found != libc::MAP_FAILED || errno::get() != libc::EFAULT {
            return found;
        }
        if served {
            inherited::wait_for_parent();
        } else if WINDOW.load(Acquire) == 0 {
            return found;
        }
    }
    errno::set(before);
    call()
}

/// Returns when no window is open; the next one may begin at once.
fn end_window() {
    while WINDOW.load(Acquire) == 1 {
        HURRY.store(1, Release);
        sys::wait_while(&WINDOW, 1, STOP_WAIT_NS);
    }
}
