//! Bytes of the placed arrays that are in use: objects with pages of their own, and how much of them comes and goes
//! together, see [`swings`]. What heaps of small objects hold is in [`super::heap_account`].

mod swings;

use core::sync::atomic::{AtomicUsize, Ordering};

use self::swings::Swings;
pub use self::swings::TIMES;

/// Now.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// Arrays in use now.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The most at a time, and how the sum falls and rises.
static SWINGS: Swings = Swings::new();

/// Notes that an array of `bytes` is in use from now on, in memory that was mapped for it or not. True if such memory is
/// kept once some more of it was mapped anew.
#[inline(never)]
pub fn began(bytes: usize, mapped: bool) -> bool {
    COUNT.fetch_add(1, Ordering::Relaxed);
    SWINGS.rises(LIVE.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes), bytes, mapped)
}

/// Notes that an array of `bytes` is not in use any more.
#[inline(never)]
pub fn ended(bytes: usize) {
    COUNT.fetch_sub(1, Ordering::Relaxed);
    SWINGS.falls(LIVE.fetch_sub(bytes, Ordering::Relaxed).wrapping_sub(bytes));
}

/// Bytes in use now; 0 at the moments in which the sum wraps, because another thread frees an array before it is added.
pub fn bytes() -> usize {
    Some(LIVE.load(Ordering::Relaxed)).filter(|&live| live <= isize::MAX as usize).unwrap_or(0)
}

/// Arrays in use now.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// Mean size of the arrays in use now, bytes; 0 if there are none.
pub fn mean() -> usize {
    bytes().checked_div(count()).unwrap_or(0)
}

/// Most bytes in use at a time, so far.
pub fn most() -> usize {
    SWINGS.most()
}

/// Bytes that come and go together and would be worth keeping.
pub fn coming_again() -> usize {
    SWINGS.coming_again(bytes())
}

/// Notes that what was kept of them was in the way of others.
pub fn kept_in_vain() {
    SWINGS.forget();
}
