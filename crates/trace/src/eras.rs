//! Eras: what a thread did alone is to be told from what it does beside others, but a count has no time. When a second
//! thread begins to count, or one of several is left, a new era begins, in which each thread goes on with a new table.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use numamma_hook::sandbox;
use numamma_kernel::clock::monotonic_ns;

/// Least time between two eras: a program that makes a team for each step does not spend its time on new tables. The
/// recorder gives memory back once a second.
const ERA_NS: u64 = 250_000_000;

/// Threads of this process that count.
static COUNTING: AtomicU32 = AtomicU32::new(0);
/// Number of the era.
static ERA: AtomicU32 = AtomicU32::new(0);
/// When it began.
static ERA_BEGAN: AtomicU64 = AtomicU64::new(0);

/// Number of the era.
pub fn current() -> u32 {
    ERA.load(Ordering::Relaxed)
}

/// A thread begins to count.
pub fn thread_begins() {
    if COUNTING.fetch_add(1, Ordering::Relaxed) == 1 {
        begin();
    }
}

/// A thread that counted ends.
pub fn thread_ends() {
    if COUNTING.fetch_sub(1, Ordering::Relaxed) == 2 {
        begin();
    }
}

/// In a forked child, before it counts: the threads of the parent are not there.
pub fn forget_threads() {
    COUNTING.store(0, Ordering::Relaxed);
}

/// Not once the program has confined itself: the clock may be a system call that it does not expect.
fn begin() {
    if sandbox::entered() {
        return;
    }
    let (now, began) = (monotonic_ns(), ERA_BEGAN.load(Ordering::Relaxed));
    let is_late = began == 0 || now >= began.saturating_add(ERA_NS);
    if is_late && ERA_BEGAN.compare_exchange(began, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        ERA.fetch_add(1, Ordering::Relaxed);
    }
}
