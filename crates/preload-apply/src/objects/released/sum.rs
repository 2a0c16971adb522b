//! Bytes of all kept blocks.

use core::sync::atomic::{AtomicUsize, Ordering};

static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Bytes of all kept blocks.
#[inline]
pub fn bytes() -> usize {
    KEPT.load(Ordering::Relaxed)
}

/// Counts `more` bytes as kept, before they are stored; returns the sum.
pub fn count(more: usize) -> usize {
    KEPT.fetch_add(more, Ordering::Relaxed) + more
}

/// Takes back what [`count`] counted.
pub fn discount(less: usize) {
    KEPT.fetch_sub(less, Ordering::Relaxed);
}
