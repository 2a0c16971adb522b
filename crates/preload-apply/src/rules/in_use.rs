//! Bytes of the placed arrays that are in use: objects with pages of their own, and how much of them comes and goes
//! together, see [`swings`]. What heaps of small objects hold is in [`super::heap_account`].

mod swings;

use core::sync::atomic::{AtomicUsize, Ordering};

use self::swings::Swings;
pub use self::swings::TIMES;

/// Now.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// Bytes that the program is expected to touch of them, now and the most at a time.
static TOUCHED: AtomicUsize = AtomicUsize::new(0);
static MOST_TOUCHED: AtomicUsize = AtomicUsize::new(0);
/// Arrays in use now.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The most at a time, and how the sum falls and rises.
static SWINGS: Swings = Swings::new();

/// Notes that an array of `bytes` is in use from now on, of which the program will touch `touched`, in memory that was
/// mapped for it or not. True if such memory is
/// kept once some more of it was mapped anew.
#[inline(never)]
pub fn began(bytes: usize, touched: usize, mapped: bool) -> bool {
    let all = TOUCHED.fetch_add(touched, Ordering::Relaxed).wrapping_add(touched);
    if all > MOST_TOUCHED.load(Ordering::Relaxed) && all <= isize::MAX as usize {
        MOST_TOUCHED.fetch_max(all, Ordering::Relaxed);
    }
    COUNT.fetch_add(1, Ordering::Relaxed);
    SWINGS.rises(LIVE.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes), bytes, mapped)
}

/// Notes that an array of `bytes` is not in use any more, of which the program was expected to touch `touched`.
#[inline(never)]
pub fn ended(bytes: usize, touched: usize) {
    TOUCHED.fetch_sub(touched, Ordering::Relaxed);
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

/// The most bytes of arrays in use that the program was expected to touch at a time.
pub fn most_touched() -> usize {
    MOST_TOUCHED.load(Ordering::Relaxed)
}

/// Notes that `bytes` of an array were not touched that were expected to be. Where it was not in use with the most of
/// them, that is too little until there are as many again.
pub fn touched_less(bytes: usize) {
    if bytes > 0 {
        let less = |most: usize| Some(most.saturating_sub(bytes));
        let _ = MOST_TOUCHED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// Bytes that come and go together and would be worth keeping.
pub fn coming_again() -> usize {
    SWINGS.coming_again(bytes())
}

/// Notes that what was kept of them was in the way of others.
pub fn kept_in_vain() {
    SWINGS.forget();
}
