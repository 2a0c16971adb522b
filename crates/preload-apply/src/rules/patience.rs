//! How long a heap for small objects keeps free memory that it has needed again before.
//!
//! A heap gives memory back as soon as it can. Where it needs that again at once, each time costs system calls and page
//! faults: the heap regrets. From then on it gives nothing back for a while, twice as long with each regret, so that
//! this takes a part of the program's time that becomes ever smaller. What a heap keeps is never more than it needed
//! before.

/// Pages that a heap gave back and needed again within [`WINDOW_NS`], from which it regrets: 2 to 8 ms at the 0.5 to 2
/// us that a page fault takes. Fewer take less than one in a hundred of the time.
pub const REGRET_PAGES: usize = 4096;
pub const WINDOW_NS: u64 = 1_000_000_000;
/// Shortest patience, ns: several times what one regret costs.
pub const SHORTEST_NS: u64 = 20_000_000;
/// Longest patience, ns: one regret costs a thousandth of it.
pub const LONGEST_NS: u64 = 8_000_000_000;
/// When a heap has not regretted for this many times its patience, that becomes half as long.
pub const CALM: u64 = 8;
/// Objects that a patient heap frees until it looks at the clock again.
const LOOK: u32 = 256;

/// The patience of a heap.
#[derive(Default)]
pub struct Patience {
    /// Time that nothing is given back after a regret, ns; 0 before the first.
    length: u64,
    /// When it ends.
    until: u64,
    /// Pages that were needed again since `began`.
    needed: usize,
    began: u64,
    /// When `length` last changed.
    changed: u64,
    /// Objects to be freed until the next look at the clock.
    pause: u32,
    /// When the memory of the heap was given up because it was not used; 0 when it has been used since.
    given_up: u64,
}

impl Patience {
    /// Notes that `pages` pages which were given back were needed again.
    pub fn needed_again(&mut self, pages: usize) {
        self.needed += pages;
    }

    /// Notes that all memory of the heap was given up at the time `now` because it was not used.
    pub fn given_up(&mut self, now: u64) {
        self.given_up = now;
    }

    /// Notes that the heap is used; within [`WINDOW_NS`] after its memory was given up it regrets. `now` reads the
    /// clock, ns.
    #[inline]
    pub fn used(&mut self, now: impl Fn() -> u64) {
        if self.given_up > 0 {
            self.used_again(now());
        }
    }

    #[cold]
    fn used_again(&mut self, now: u64) {
        if now.saturating_sub(core::mem::take(&mut self.given_up)) < WINDOW_NS.max(self.length) {
            self.regret(now);
        }
    }

    fn regret(&mut self, now: u64) {
        self.length = (2 * self.length).clamp(SHORTEST_NS, LONGEST_NS);
        (self.until, self.changed) = (now + self.length, now);
    }

    /// Whether memory may be given back, asked when an object is freed. `now` reads the clock, ns.
    pub fn is_over(&mut self, now: impl Fn() -> u64) -> bool {
        self.pause = self.pause.saturating_sub(1);
        self.pause == 0 && self.has_ended(now())
    }

    /// Whether memory may be given back at the time `now`, ns.
    pub fn has_ended(&mut self, now: u64) -> bool {
        let is_recent = now.saturating_sub(self.began) < WINDOW_NS;
        if is_recent && self.needed >= REGRET_PAGES {
            self.regret(now);
        } else if self.length > 0 && now.saturating_sub(self.changed) >= CALM * self.length {
            (self.length, self.changed) = (self.length / 2, now);
        }
        if !is_recent || self.needed >= REGRET_PAGES {
            (self.needed, self.began) = (0, now);
        }
        let ended = now >= self.until;
        self.pause = if ended { 0 } else { LOOK };
        ended
    }

    /// The time that the heap must not have been used before another one gives its memory back, ns.
    pub fn length(&self) -> u64 {
        self.length.max(SHORTEST_NS)
    }

    /// Whether the heap has regretted.
    pub fn has_regretted(&self) -> bool {
        self.length > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn patience_doubles_with_each_regret_and_halves_when_there_is_none() {
        let (mut patience, mut now) = (Patience::default(), 1000 * MS);
        assert!(patience.has_ended(now) && !patience.has_regretted());
        for length in [20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 8000, 8000] {
            patience.needed_again(REGRET_PAGES);
            assert!(!patience.has_ended(now + MS) && patience.has_regretted());
            assert!(!patience.has_ended(now + length * MS), "{length} ms");
            now += (length + 1) * MS;
            assert!(patience.has_ended(now), "{length} ms");
        }
        for length in [8000, 4000, 2000, 1000] {
            assert_eq!(patience.length(), length * MS);
            now += CALM * length * MS;
            assert!(patience.has_ended(now));
        }
        assert_eq!(patience.length(), 500 * MS);
    }

    #[test]
    fn a_heap_that_was_given_up_and_is_used_again_at_once_regrets() {
        let mut patience = Patience::default();
        patience.given_up(1000 * MS);
        patience.used(|| 1010 * MS);
        patience.used(|| 1020 * MS);
        assert_eq!((patience.length, patience.until), (20 * MS, 1030 * MS));
        patience.given_up(3000 * MS);
        patience.used(|| 4001 * MS);
        assert_eq!(patience.length, 20 * MS);
    }

    #[test]
    fn pages_that_are_needed_again_now_and_then_are_no_regret() {
        let mut patience = Patience::default();
        let ended = |second: u64| {
            patience.needed_again(REGRET_PAGES / 2);
            patience.has_ended(second * 1000 * MS)
        };
        assert!((10..100).all(ended) && !patience.has_regretted());
    }

    #[test]
    fn the_clock_is_looked_at_now_and_then() {
        let mut patience = Patience::default();
        patience.needed_again(REGRET_PAGES);
        let looks = core::cell::Cell::new(0);
        let now = || {
            looks.set(looks.get() + 1);
            1
        };
        assert!((0..10 * LOOK).all(|_| !patience.is_over(now)));
        assert!(looks.get() <= 11, "{}", looks.get());
    }
}
