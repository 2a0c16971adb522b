//! The thread of the mover: created when pages are to be moved or a phase begins at a time, ended when there is
//! neither.
//!
//! A sleeping thread would keep a process alive whose other threads all ended by pthread_exit. [`super::pass`] is what
//! the thread executes when it is awake.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use numamma_hook::sys;
use numamma_kernel::{clock, futex};

use super::pass::{END_CHECK_NS, Mover};
use super::program_end::{end_as_main_thread, program_ended};
use super::steps::Pace;
use crate::matching::pending;
use crate::objects::{heap_table, released};
use crate::phases::exclusion::{self, Shared};
use crate::phases::{begin, end_of_thread};
use crate::rules::state::{self, State};

/// Sleep before globals are tried again that could not be touched because a library was being unloaded, ns.
const RETRY_NS: u64 = 10_000_000;
/// Number of such tries: for a second.
const TRIES: u32 = 100;

/// What the mover's thread executes.
pub fn run(shared: &'static Shared) {
    move_until_idle(shared);
    end_as_main_thread();
}

fn move_until_idle(shared: &'static Shared) {
    let Some(state) = state::get() else { return };
    if shared.mover.load(Ordering::Acquire) == 0 {
        // In a forked child an object may still be marked by its parent's mover.
        heap_table::for_each(|object, moving| {
            if moving
                && let Some(marked) = heap_table::begin_step(object.base)
                && !heap_table::end_step(&marked, &marked)
            {
                released::examine_and_unmap(state, &marked, false);
            }
        });
        shared.mover.store(1, Ordering::Release);
    }
    let (mut pace, mut tries) = (Pace::default(), 0);
    loop {
        if exclusion::stopped() {
            return end_of_thread::announce(shared);
        }
        // Outside a step, so that a thread with the lock of the loader never waits for this thread.
        pending::resolve_in_own_thread();
        let seen = shared.requests.load(Ordering::SeqCst);
        let ticket = begin::last_ticket();
        let (end_checked_ns, retry) = (clock::monotonic_ns(), Cell::new(false));
        let mut mover = Mover { state, shared, seen, pace, end_checked_ns, retry, program_has_ended: false };
        // SeqCst: before the first step on an object.
        shared.working.store(1, Ordering::SeqCst);
        mover.set_policies();
        mover.move_all_pages();
        shared.working.store(0, Ordering::SeqCst);
        let (interrupted, retry) = (mover.interrupted(), mover.retry.get());
        pace = mover.pace;
        if retry && !interrupted && tries < TRIES {
            tries += 1;
            futex::wait(&shared.requests, seen, RETRY_NS);
            continue;
        }
        tries = 0;
        if !interrupted && !retry {
            begin::mark_finished(state, ticket);
        }
        if !wait_for_request(shared, state, seen) {
            return;
        }
    }
}

/// Waits for the next request after `seen`; false when the thread shall end.
fn wait_for_request(shared: &Shared, state: &State, seen: u32) -> bool {
    loop {
        if exclusion::stopped() {
            end_of_thread::announce(shared);
            return false;
        }
        // In a forked child times begin no phases.
        let next = if sys::pid() == state.pid { begin::begin_due() } else { None };
        if shared.requests.load(Ordering::SeqCst) != seen {
            return true;
        }
        if let Some(ns) = next.filter(|_| !program_ended()) {
            futex::wait(&shared.requests, seen, ns.min(END_CHECK_NS));
            continue;
        }
        end_of_thread::announce(shared);
        // A request before that relied on this thread; a request after that creates another.
        let late = shared.requests.load(Ordering::SeqCst) != seen;
        return late && shared.running.swap(1, Ordering::SeqCst) == 0;
    }
}
