//! How much is freed together and then asked for again: the temporaries of each step of a program. What the program's
//! allocator would do with that memory cannot be known: it keeps all of it below a small block that stays, and nothing
//! where none does.
//!
//! A swing is a rise of the bytes in use from a low to a high, below the most so far: only then had as much been freed.
//! A fall ends it that takes half of it back. So of a cache, in which arrays replace one another, the swings are small,
//! however much is replaced; and arrays that take turns have large ones.
//!
//! Memory is worth keeping if mapping and faulting it anew costs more than it costs to keep it. What the program will
//! do is not known, so what it did decides, as where one rents skis until the rent has reached their price: as much may
//! be kept as the largest swing, once [`TIMES`] as much was mapped anew in swings; nothing before that is enough for
//! the last of them, since a part that is kept leaves the rest to be mapped for longer. Until then that is the rent,
//! and placing them is not given up for its sake: memory that is kept costs nothing any more. When the bytes in use
//! fall below where such swings begin, the program ends what it did, and less is kept by as much.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Times that what is kept must have been mapped anew before. With one, what is freed a second time would be kept,
/// such as the results of two parts of a program; each more costs as many page faults once.
pub const TIMES: usize = 4;
/// Times that [`TIMES`] doubles at most, once for each time that what was kept was in the way of others.
const MOST_DOUBLINGS: u32 = 4;

/// Bytes in use: what they have been, and their swings. Several threads may overwrite what one of them notes; that
/// makes swings of other sizes, and what is kept is bounded elsewhere.
pub struct Swings {
    most: AtomicUsize,
    /// Where the last swing began, and how high it was so far.
    low: AtomicUsize,
    high: AtomicUsize,
    /// The largest swing, and where the last one began that was at least half as large.
    largest: AtomicUsize,
    floor: AtomicUsize,
    /// How high the last one was that ended.
    last: AtomicUsize,
    /// Bytes that were mapped anew in all swings, and those that may be kept for that.
    mapped: AtomicUsize,
    paid: AtomicUsize,
    /// Bytes that were mapped anew as rent.
    rent: AtomicUsize,
    /// How often what was kept was in the way of others.
    in_vain: AtomicU32,
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
            last: AtomicUsize::new(0),
            paid: AtomicUsize::new(0),
            rent: AtomicUsize::new(0),
            in_vain: AtomicU32::new(0),
        }
    }

    /// Notes that `live` bytes are in use after an array of `bytes` was added, whose memory was `mapped` for it or not.
    /// True if all of them are rent: what is mapped anew until it may be kept.
    #[inline]
    pub fn rises(&self, live: usize, bytes: usize, mapped: bool) -> bool {
        let high = self.high.load(Ordering::Relaxed);
        if live <= high || live > isize::MAX as usize {
            return false;
        }
        self.high.store(live, Ordering::Relaxed);
        if live > self.most.load(Ordering::Relaxed) {
            self.most.fetch_max(live, Ordering::Relaxed);
            self.low.store(live, Ordering::Relaxed);
            return false;
        }
        let low = self.low.load(Ordering::Relaxed);
        let (rise, largest) = (live.saturating_sub(low), self.largest.load(Ordering::Relaxed));
        if rise > largest {
            self.largest.store(rise, Ordering::Relaxed);
        }
        if rise > largest / 2 && self.floor.load(Ordering::Relaxed) != low {
            self.floor.store(low, Ordering::Relaxed);
        }
        if !mapped {
            return false;
        }
        self.pay(live - high, rise);
        let rent = self.rent.load(Ordering::Relaxed);
        let is_rent = live - high >= bytes
            && rent / TIMES < largest.max(rise)
            && self.paid.load(Ordering::Relaxed) == 0
            && self.in_vain.load(Ordering::Relaxed) == 0;
        if is_rent {
            self.rent.store(rent + bytes, Ordering::Relaxed);
        }
        is_rent
    }

    /// Notes that `more` bytes were mapped anew in a swing that is `rise` high now.
    fn pay(&self, more: usize, rise: usize) {
        let mapped = self.mapped.load(Ordering::Relaxed).saturating_add(more);
        self.mapped.store(mapped, Ordering::Relaxed);
        let (before, largest) = (self.paid.load(Ordering::Relaxed), self.largest.load(Ordering::Relaxed));
        let worth = mapped / (TIMES << self.in_vain.load(Ordering::Relaxed).min(MOST_DOUBLINGS));
        if worth > before && before < largest && worth >= rise.max(self.last.load(Ordering::Relaxed)) {
            self.paid.store(worth.min(largest), Ordering::Relaxed);
        }
    }

    /// Notes that `live` bytes are in use after an array was freed.
    #[inline]
    pub fn falls(&self, live: usize) {
        let (low, high) = (self.low.load(Ordering::Relaxed), self.high.load(Ordering::Relaxed));
        if live < low || high.saturating_sub(live) > high.saturating_sub(low) / 2 {
            if high > low {
                self.last.store(high - low, Ordering::Relaxed);
            }
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
        let again = self.paid.load(Ordering::Relaxed);
        let below = self.floor.load(Ordering::Relaxed).saturating_sub(live);
        again.saturating_sub(below).min(self.most().saturating_sub(live))
    }

    /// Begins to count anew what is mapped, because what was kept was in the way of others. It is no rent from now on.
    pub fn forget(&self) {
        if self.paid.swap(0, Ordering::Relaxed) > 0 {
            self.in_vain.fetch_add(1, Ordering::Relaxed);
        }
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
            swings.rises(*live, 1, mapped);
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
        assert_eq!(kept, [0, 0, 0, 0, 40, 40], "the first one made the sum higher than before");
        let below = [1000, 1010, 1030, 990, 970, 900].map(|live| swings.coming_again(live));
        assert_eq!(below, [40, 30, 10, 30, 10, 0], "beside the most so far, and below where they begin");
        swings.forget();
        swing(&swings, &mut live, 40, 40, false);
        assert_eq!(swings.coming_again(live), 0, "what is served by kept memory costs nothing");
        let kept = [(); 9].map(|()| {
            swing(&swings, &mut live, 40, 40, true);
            swings.coming_again(live)
        });
        assert_eq!(kept, [0, 0, 0, 0, 0, 0, 0, 40, 40], "twice as much as before it was in the way");
    }

    #[test]
    fn what_is_mapped_until_it_is_kept_is_rent() {
        let swings = Swings::new();
        let rent = || {
            let rises = (1..=40).filter(|&now| swings.rises(now, 1, true)).count();
            (0..40).rev().for_each(|now| swings.falls(now));
            rises
        };
        assert_eq!([(); 7].map(|()| rent()), [0, 40, 40, 40, 39, 0, 0], "the last byte is kept");
        swings.forget();
        assert_eq!([(); 3].map(|()| rent()), [0; 3], "what is kept may be in the way again");
        let swings = Swings::new();
        let rent = || {
            swings.forget();
            let rises = (1..=40).filter(|&now| swings.rises(now, 1, true)).count();
            (0..40).rev().for_each(|now| swings.falls(now));
            rises
        };
        assert_eq!([(); 7].map(|()| rent()), [0, 40, 40, 40, 40, 0, 0], "others are in the way each time");
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
                swings.rises(live, 1, true);
            }
            (swings.coming_again(live - 100), swings.coming_again(0))
        };
        let (in_use, emptied) = again(false);
        assert!(in_use < 100 && emptied == 0, "{in_use} {emptied}");
        let (in_use, emptied) = again(true);
        assert!(in_use <= 300 && emptied <= 300, "a part of the second filling: {in_use} {emptied}");
    }
}
