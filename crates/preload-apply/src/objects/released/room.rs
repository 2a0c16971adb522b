//! How much may be kept beside the arrays that are in use: so much that both together take little more than the arrays
//! took at a time before. A program whose arrays are most of its memory would otherwise take twice as much.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Part (1/4) of the most bytes at a time by which what is in use and what is kept may together be more.
const MORE_DIVISOR: usize = 4;
/// Bytes that may be kept beside that in any case: what the library takes itself.
const ALWAYS: usize = 2 << 20;

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

/// Bytes of the arrays that are in use.
pub fn in_use() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// Bytes that may be kept now.
pub fn left() -> usize {
    beside(in_use(), MOST.load(Ordering::Relaxed))
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
}
