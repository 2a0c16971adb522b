//! How much is freed together and then asked for again: the temporaries of each step of a program. What the program's
//! allocator would do with that memory cannot be known: it keeps all of it below a small block that stays, and nothing
//! where none does.
//!
//! A swing is a rise of the bytes in use from a low to a high, below the most so far: only then had as much been freed.
//! A fall ends it that takes half of it back. So of a cache, in which arrays replace one another, the swings are small,
//! however much is replaced; and arrays that take turns have large ones.
//!
//! Memory is worth keeping if mapping and faulting it anew costs more than it costs to keep it. What the program will do
//! is not known, so what it did decides, as where one rents skis until the rent has reached their price: as much may be
//! kept as the largest swing, once [`TIMES`] as much was mapped anew in swings. When the bytes in use fall below where
//! such swings begin, the program ends what it did, and less is kept by as much.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Times that what is kept must have been mapped anew before. With one, what is freed a second time would be kept,
/// such as the results of two parts of a program; each more costs as many page faults once.
const TIMES: usize = 4;

/// Bytes in use: what they have been, and their swings. Several threads may overwrite what one of them notes; that makes
/// swings of other sizes, and what is kept is bounded elsewhere.
pub struct Swings {
    most: AtomicUsize,
    /// Where the last swing began, and how high it was so far.
    low: AtomicUsize,
    high: AtomicUsize,
    /// The largest swing, and where the last one began that was at least half as large.
    largest: AtomicUsize,
    floor: AtomicUsize,
    /// Bytes that were mapped anew in all swings.
    mapped: AtomicUsize,
}

impl Swings {
    pub const fn new() -> Swings {
        Swings {
            most: AtomicUsize::new(0),
            low: AtomicUsize::new(0),
            high: AtomicUsize::new(0),
            largest: AtomicUsize::new(0),
            floor: AtomicUsize::new(0),
            mapped: AtomicUsize::new(0),
        }
    }

    /// Notes that `live` bytes are in use after an array was added, whose memory was `mapped` for it or not.
    #[inline]
    pub fn rises(&self, live: usize, mapped: bool) {
        let high = self.high.load(Ordering::Relaxed);
        if live <= high || live > isize::MAX as usize {
            return;
        }
        self.high.store(live, Ordering::Relaxed);
        if live > self.most.load(Ordering::Relaxed) {
            self.most.fetch_max(live, Ordering::Relaxed);
            self.low.store(live, Ordering::Relaxed);
            return;
        }
        let low = self.low.load(Ordering::Relaxed);
        let (rise, largest) = (live.saturating_sub(low), self.largest.load(Ordering::Relaxed));
        if rise > largest {
            self.largest.store(rise, Ordering::Relaxed);
        }
        if rise > largest / 2 && self.floor.load(Ordering::Relaxed) != low {
            self.floor.store(low, Ordering::Relaxed);
        }
        if mapped {
            let so_far = self.mapped.load(Ordering::Relaxed);
            self.mapped.store(so_far.saturating_add(live - high), Ordering::Relaxed);
        }
    }

    /// Notes that `live` bytes are in use after an array was freed.
    #[inline]
    pub fn falls(&self, live: usize) {
        let (low, high) = (self.low.load(Ordering::Relaxed), self.high.load(Ordering::Relaxed));
        if live < low || high.saturating_sub(live) > high.saturating_sub(low) / 2 {
            self.low.store(live, Ordering::Relaxed);
            self.high.store(live, Ordering::Relaxed);
        }
    }

    /// The most bytes in use so far.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Bytes that are worth keeping while `live` bytes are in use.
    pub fn coming_again(&self, live: usize) -> usize {
        let again = self.largest.load(Ordering::Relaxed).min(self.mapped.load(Ordering::Relaxed) / TIMES);
        let below = self.floor.load(Ordering::Relaxed).saturating_sub(live);
        again.saturating_sub(below).min(self.most().saturating_sub(live))
    }

    /// Begins to count anew what is mapped.
    pub fn forget(&self) {
        self.mapped.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arrays of one byte: `up` are added, then `down` are freed.
    fn swing(swings: &Swings, live: &mut usize, up: usize, down: usize, mapped: bool) {
        (0..up).for_each(|_| {
            *live += 1;
            swings.rises(*live, mapped);
        });
        (0..down).for_each(|_| {
            *live -= 1;
            swings.falls(*live);
        });
    }

    #[test]
    fn what_comes_and_goes_together_is_kept_after_some_turns() {
        let (swings, mut live) = (Swings::new(), 0);
        swing(&swings, &mut live, 1000, 0, true);
        assert_eq!((swings.most(), swings.coming_again(900)), (1000, 0), "what comes first is no swing");
        let kept = [0, 1, 2, 3, 4, 5].map(|_| {
            swing(&swings, &mut live, 40, 40, true);
            swings.coming_again(live)
        });
        assert_eq!(kept, [0, 10, 20, 30, 40, 40], "the first one made the sum higher than before");
        let below = [1000, 1010, 1030, 990, 970, 900].map(|live| swings.coming_again(live));
        assert_eq!(below, [40, 30, 10, 30, 10, 0], "beside the most so far, and below where they begin");
        swings.forget();
        swing(&swings, &mut live, 40, 40, false);
        assert_eq!(swings.coming_again(live), 0, "what is served by kept memory costs nothing");
        swing(&swings, &mut live, 40, 40, true);
        assert_eq!(swings.coming_again(live), 10);
    }

    #[test]
    fn swings_of_a_cache_are_small() {
        let again = |refilled: bool| {
            let (swings, mut live) = (Swings::new(), 0);
            if refilled {
                swing(&swings, &mut live, 1000, 1000, true);
            }
            swing(&swings, &mut live, 900, 0, true);
            // One of 5 to 9 bytes replaces one of 5 to 9.
            let mut random = 1_u32;
            for _ in 0..10_000 {
                let mut size = || {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    5 + (random >> 16) as usize % 5
                };
                live -= size();
                swings.falls(live);
                live += size().min(1000 - live);
                swings.rises(live, true);
            }
            (swings.coming_again(live - 100), swings.coming_again(0))
        };
        let (in_use, emptied) = again(false);
        assert!(in_use < 100 && emptied == 0, "{in_use} {emptied}");
        let (in_use, emptied) = again(true);
        assert!(in_use <= 300 && emptied <= 300, "a part of the second filling: {in_use} {emptied}");
    }
}
