//! Small blocks with pages of their own (distributions by blocks, phases, alignment) that the program frees and
//! allocates again all the time: each costs three system calls and its page faults, a hundred times what glibc takes.
//! When that takes more than a small part of the program's time, the small blocks of the rule are left where they are
//! from then on. `numamma advise` writes no such rule; somebody who writes one by hand must not get a program that
//! stands still.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use numamma_kernel::sys;

/// Bytes from which objects have pages of their own: M_MMAP_THRESHOLD of mallopt(3), from which glibc gives a block its
/// own mapping. Smaller ones would all begin at a page, which puts the same elements of all rows of a matrix into the
/// same few sets of the caches, and a mapping for each would take longer than what glibc does.
pub const MOST_SHARED: usize = 128 << 10;
/// Blocks that are unmapped between two looks at the clock.
const LOOK: u32 = 1024;
/// Time that one takes, ns: 6.3 us for mmap, mbind and munmap, as `cargo bench --bench bars -- matched` measures them,
/// and the page faults of a few pages.
const BLOCK_NS: u64 = 10_000;
/// Part (1/20) of the CPU time of the process from which it is too much.
const PART: u64 = 20;

/// How often small blocks of one rule come and go.
#[derive(Default)]
pub struct Churn {
    unmapped: AtomicU32,
    /// CPU time of the process at the last look, ns.
    looked: AtomicU64,
    over: AtomicBool,
}

impl Churn {
    /// Whether small blocks are left where they are.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Takes note that a small block was unmapped; true when from now on no more are placed.
    pub fn unmapped(&self) -> bool {
        let count = self.unmapped.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        count.is_multiple_of(LOOK) && sys::cpu_time_ns().is_some_and(|now| self.look(now))
    }

    fn look(&self, now: u64) -> bool {
        let before = self.looked.swap(now, Ordering::Relaxed);
        // The first look only starts the clock: what is freed once, at the end of a step, is no churn.
        let busy = before > 0 && now.saturating_sub(before) < PART * BLOCK_NS * u64::from(LOOK);
        busy && !self.over.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_come_and_go_all_the_time_are_over_and_others_never() {
        let second = 1_000_000_000;
        let seldom = Churn::default();
        assert!((1..1000).all(|n| !seldom.look(n * second)) && !seldom.is_over());
        let often = Churn::default();
        let first = (1..1000).position(|n| often.look(n * second / 10));
        assert_eq!((first, often.is_over()), (Some(1), true));
        assert!(!often.look(200 * second), "it is said once");
    }

    #[test]
    fn the_clock_is_looked_at_now_and_then() {
        let churn = Churn::default();
        assert_eq!((0..10 * LOOK).filter(|_| churn.unmapped()).count(), 1);
    }
}
