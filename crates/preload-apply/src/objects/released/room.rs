//! How much may be kept beside the arrays that are in use: so much that both together take little more than the arrays
//! took at a time before. A program whose arrays are most of its memory would otherwise take twice as much.
//!
//! What is kept is given back when the program goes on to allocate large arrays that no rule places, for which glibc
//! would use that memory. How much it allocates so before it needs again what is kept is learned from what it did
//! before, so that a program that does both in every step loses what is kept once.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Part (1/4) of the most bytes at a time by which what is in use and what is kept may together be more.
const MORE_DIVISOR: usize = 4;
/// Bytes that may be kept beside that in any case: what the library takes itself.
const ALWAYS: usize = 2 << 20;

/// Bytes allocated for arrays that no rule places since something was kept or what is kept served, and the most so far.
static ELSEWHERE: AtomicUsize = AtomicUsize::new(0);
static GAP: AtomicUsize = AtomicUsize::new(0);

/// Notes that an array of `bytes` was allocated that no rule places; true when the `kept` bytes are to be given back.
pub fn is_needed_elsewhere(bytes: usize, kept: usize) -> bool {
    let since = ELSEWHERE.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
    kept > 0 && since > patience(GAP.load(Ordering::Relaxed), kept)
}

/// Notes that something is kept, or that what is kept served.
pub fn serves() {
    let since = ELSEWHERE.load(Ordering::Relaxed);
    if since > 0 {
        // What another thread adds meanwhile may be lost: it need not be exact.
        ELSEWHERE.store(0, Ordering::Relaxed);
        GAP.fetch_max(since, Ordering::Relaxed);
    }
}

fn patience(gap: usize, kept: usize) -> usize {
    gap.saturating_mul(2).saturating_add(kept / MORE_DIVISOR).saturating_add(ALWAYS)
}

/// Bytes of the arrays that are in use, and the most of them at a time.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// Notes that an array of `bytes` is in use from now on.
pub fn began(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if live > MOST.load(Ordering::Relaxed) {
        MOST.fetch_max(live, Ordering::Relaxed);
    }
}

/// Notes that an array of `bytes` is not in use any more.
pub fn ended(bytes: usize) {
    LIVE.fetch_sub(bytes, Ordering::Relaxed);
}

/// Bytes that may be kept now.
pub fn left() -> usize {
    beside(LIVE.load(Ordering::Relaxed), MOST.load(Ordering::Relaxed))
}

fn beside(live: usize, most: usize) -> usize {
    most.saturating_add(most / MORE_DIVISOR).saturating_add(ALWAYS).saturating_sub(live)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_and_in_use_is_little_more_than_was_in_use() {
        const MIB: usize = 1 << 20;
        assert_eq!(beside(0, 0), 2 * MIB);
        assert_eq!(beside(0, 8 * MIB), 12 * MIB);
        assert_eq!(beside(8 * MIB, 8 * MIB), 4 * MIB);
        assert_eq!(beside(usize::MAX, usize::MAX), 0);
    }

    #[test]
    fn what_is_kept_is_given_back_when_the_program_goes_on_with_others() {
        const MIB: usize = 1 << 20;
        let steps = |n: usize, kept: usize| (0..n).filter(|_| is_needed_elsewhere(MIB, kept)).count();
        assert_eq!((steps(9, 28 * MIB), steps(1, 28 * MIB)), (0, 1));
        assert_eq!(steps(20, 0), 0, "nothing is kept any more");
        serves();
        assert_eq!(steps(30, 28 * MIB), 0, "as many as in the step before");
        serves();
        assert!(steps(90, 28 * MIB) > 0, "three times as many");
    }
}
