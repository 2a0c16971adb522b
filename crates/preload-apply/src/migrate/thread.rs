//! The thread of the mover: made when there is something to move or a time to wait for, ended when there is not.
//!
//! A thread that slept for ever would keep a program alive whose threads all ended by pthread_exit. What it does when it is awake:
//! [`super::pass`].

use core::cell::Cell;
use core::sync::atomic::Ordering;

use numamma_hook::sys;
use numamma_kernel::{clock, futex};

use super::pass::{LOOK_NS, Mover, program_ended};
use super::steps::Pace;
use crate::matching::pending;
use crate::objects::{heap, heap_table};
use crate::phases::begin;
use crate::phases::exclusion::{self, Shared};
use crate::rules::state::{self, State};

/// Sleep before variables of libraries are tried again that could not be touched because a library was being unloaded, ns.
const RETRY_NS: u64 = 10_000_000;
/// How often that is tried: for a second.
const TRIES: u32 = 100;

/// What the mover's thread executes.
pub fn run(shared: &'static Shared) {
    let Some(state) = state::get() else { return };
    if shared.mover.load(Ordering::Acquire) == 0 {
        // In a forked child an object may still be marked by its parent's mover.
        heap_table::for_each(|object, moving| {
            if moving
                && let Some(marked) = heap_table::begin_step(object.base)
                && !heap_table::end_step(&marked, &marked)
            {
                heap::discard(&marked);
            }
        });
        shared.mover.store(1, Ordering::Release);
    }
    let (mut pace, mut tries) = (Pace::default(), 0);
    loop {
        // Not inside a step, so that nobody who holds the loader's lock waits for this thread.
        pending::catch_up_now();
        let seen = shared.requests.load(Ordering::SeqCst);
        let ticket = begin::last_ticket();
        let (looked_ns, again) = (clock::monotonic_ns(), Cell::new(false));
        let mut mover = Mover { state, shared, seen, pace, looked_ns, again, ended: false };
        mover.policies();
        mover.pages();
        let (interrupted, again) = (mover.interrupted(), mover.again.get());
        pace = mover.pace;
        if again && !interrupted && tries < TRIES {
            tries += 1;
            futex::wait(&shared.requests, seen, RETRY_NS);
            continue;
        }
        tries = 0;
        if !interrupted && !again {
            begin::finished(state, ticket);
        }
        if !another(shared, state, seen) {
            return;
        }
    }
}

/// Waits for the next request after `seen`; false when the thread shall end.
fn another(shared: &Shared, state: &State, seen: u32) -> bool {
    loop {
        if exclusion::stopped() {
            return false;
        }
        // A forked child has the times of its parent behind it.
        let next = if sys::pid() == state.pid { begin::begin_due() } else { None };
        if shared.requests.load(Ordering::SeqCst) != seen {
            return true;
        }
        if let Some(ns) = next.filter(|_| !program_ended()) {
            futex::wait(&shared.requests, seen, ns.min(LOOK_NS));
            continue;
        }
        shared.running.store(0, Ordering::SeqCst);
        // Who asked before that relied on this thread; who asks after it makes another.
        let late = shared.requests.load(Ordering::SeqCst) != seen;
        return late && shared.running.swap(1, Ordering::SeqCst) == 0;
    }
}
