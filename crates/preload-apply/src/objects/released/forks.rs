//! What is kept is given back before the process forks: fork protects each page against writing, and each then faults
//! at its next write in parent and child, as a new page does. So it saves little from then on, and a parent that only
//! waits for its children would hold it beside theirs. But such a fault takes half of the time of a new page if the
//! child has ended by then, and there are no calls that map and place: so little stays, see [`LEAST`]. vfork and
//! posix_spawn protect no pages, and are not seen here.

use numamma_hook::{errno, sandbox};

use super::{LIMIT_LOWEST, kept, sum, unmap_unseen};
use crate::rules::{churn, coming_again, heap_account, state};

/// Bytes up to which what is kept stays: a program that forks all the time needs its buffers again each time.
const LEAST: usize = LIMIT_LOWEST;

/// Registers what is done before a fork.
pub fn start() {
    // SAFETY: the function lives as long as the process: preloaded libraries are not unloaded.
    unsafe { libc::pthread_atfork(Some(before_fork), None, None) };
}

/// Before a fork, in the parent. Waits for nothing, and calls nothing that the program may replace: other libraries may
/// have taken their locks for the fork already.
unsafe extern "C" fn before_fork() {
    let Some(state) = state::get().filter(|_| !sandbox::entered()) else { return };
    let of_heaps = coming_again::kept().saturating_add(heap_account::kept());
    if sum::bytes().saturating_add(of_heaps) <= LEAST {
        return;
    }
    let _errno = errno::Saved::now();
    kept::remove_all(|_| true).for_each(|block| {
        unmap_unseen(state, &block);
        churn::unmapped_for_nothing(block.bytes());
    });
    let before = heap_account::extents();
    if coming_again::release_before_fork() {
        churn::unmapped_for_nothing(before.saturating_sub(heap_account::extents()));
    }
}
