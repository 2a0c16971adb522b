//! Whether a pause of placing helps. What glibc would do with memory that a program frees cannot be known: it gives all
//! back when all is freed, and nothing when a small block at the end of its heap stays; other allocators and mallopt(3)
//! differ. So the objects that are asked for are counted, before a pause and in it. Where the program does not become
//! faster by half of what was charged, the allocator has to map and fault as well, or the time goes elsewhere: then the
//! sizes are placed again, and not charged for a multiple of the pause, twice as long each time.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Pauses for whose length sizes are not charged when the first pause did not help.
const EXEMPT: u64 = 8;
/// Times that this doubles at most.
const MOST_DOUBLINGS: u64 = 10;
const COUNT_BITS: u32 = 8;

/// What is known of one class of sizes of one rule.
#[derive(Default)]
pub(super) struct Trial {
    /// Objects that were asked for so far, modulo 2^32.
    asked: AtomicU32,
    /// How many that were when the count before a pause began, and when that was, ns.
    before: AtomicU32,
    before_ns: AtomicU64,
    /// How many a pause must have in 1,000 s to help; 0: no pause is judged.
    needed: AtomicU64,
    /// As `before`, for the pause.
    pause: AtomicU32,
    pause_ns: AtomicU64,
    /// Until when nothing is charged, ms, and in the lowest byte how often that was said in turn.
    exempt: AtomicU64,
}

/// Objects in 1,000 s.
fn rate(objects: u32, ns: u64) -> u64 {
    u64::from(objects.min(1 << 20)) * 1_000_000_000_000 / ns.max(1)
}

impl Trial {
    /// Notes that an object is asked for.
    #[inline]
    pub fn asked(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// Begins to count anew.
    pub fn count_from(&self, now: u64) {
        self.before.store(self.asked.load(Ordering::Relaxed), Ordering::Relaxed);
        self.before_ns.store(now, Ordering::Relaxed);
    }

    /// Notes that a pause begins, because `part` (per mille) of the time was charged.
    pub fn pauses(&self, now: u64, part: u32) {
        let (asked, from) = (self.asked.load(Ordering::Relaxed), self.before_ns.load(Ordering::Relaxed));
        let objects = asked.wrapping_sub(self.before.load(Ordering::Relaxed));
        let rate = if from > 0 && objects > 1 { rate(objects, now.saturating_sub(from)) } else { 0 };
        self.pause.store(asked, Ordering::Relaxed);
        self.pause_ns.store(now, Ordering::Relaxed);
        self.needed.store(rate + rate / 1000 * u64::from(part) / 2, Ordering::Relaxed);
    }

    /// Whether the pause that ended helped; none when that was told before, or cannot be told.
    pub fn helped(&self, now: u64) -> Option<bool> {
        let needed = self.needed.swap(0, Ordering::Relaxed);
        let objects = self.asked.load(Ordering::Relaxed).wrapping_sub(self.pause.load(Ordering::Relaxed));
        let rate = rate(objects, now.saturating_sub(self.pause_ns.load(Ordering::Relaxed)));
        (needed > 0).then_some(rate >= needed)
    }

    /// Notes what a pause of `pause_ns` showed.
    pub fn judge(&self, helped: bool, now: u64, pause_ns: u64) {
        let times = self.exempt.load(Ordering::Relaxed) & ((1 << COUNT_BITS) - 1);
        let until_ms = (now + ((EXEMPT * pause_ns) << times)) / 1_000_000;
        let exempt = until_ms << COUNT_BITS | (times + 1).min(MOST_DOUBLINGS);
        self.exempt.store(if helped { 0 } else { exempt }, Ordering::Relaxed);
    }

    /// Whether nothing is charged now.
    #[inline]
    pub fn is_exempt(&self, now: u64) -> bool {
        now / 1_000_000 < self.exempt.load(Ordering::Relaxed) >> COUNT_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn asked(trial: &Trial, times: u32) {
        (0..times).for_each(|_| trial.asked());
    }

    #[test]
    fn a_pause_helps_where_the_program_becomes_faster() {
        for (faster, helps) in [(2, true), (1, false)] {
            let trial = Trial::default();
            trial.count_from(1000 * MS);
            asked(&trial, 100);
            trial.pauses(1100 * MS, 500);
            assert_eq!(trial.helped(1000 * MS), Some(false), "nothing yet");
            trial.pauses(1100 * MS, 500);
            asked(&trial, 800 * faster);
            assert_eq!((trial.helped(1900 * MS), trial.helped(1900 * MS)), (Some(helps), None));
        }
        let trial = Trial::default();
        trial.pauses(1100 * MS, 500);
        assert_eq!(trial.helped(1900 * MS), None, "not counted before");
    }

    #[test]
    fn what_does_not_help_is_tried_less_and_less() {
        let trial = Trial::default();
        let ends = |ms: u64| (!trial.is_exempt((ms + 1) * MS), trial.is_exempt((ms - 1) * MS));
        trial.judge(false, 100 * MS, 10 * MS);
        assert_eq!(ends(180), (true, true));
        trial.judge(false, 200 * MS, 10 * MS);
        assert_eq!(ends(360), (true, true));
        trial.judge(true, 400 * MS, 10 * MS);
        assert!(!trial.is_exempt(401 * MS));
        (0..20).for_each(|_| trial.judge(false, 400 * MS, 10 * MS));
        assert_eq!(ends(400 + (80 << MOST_DOUBLINGS)), (true, true));
    }
}
