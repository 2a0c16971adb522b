//! Whether a pause of placing helps. What glibc would do with memory that a program frees cannot be known: it gives all
//! back when all is freed, and nothing when a small block at the end of its heap stays; other allocators and mallopt(3)
//! differ. So page faults are counted for the bytes that are asked for, before a pause and in it. Where they do not
//! become fewer by half of the pages that were charged, the allocator has to map and fault as well: then the sizes are
//! placed again, and not charged for a multiple of the pause, twice as long each time. What moves into the allocator's
//! memory in the pause faults there once; that says nothing of the time after, so as many are not counted. That time
//! ends at once when there are more page faults than before the pause: something else has changed.
//!
//! Mapping, placing and unmapping a small object takes as long as the faults of some pages, and no allocator does that
//! for it. So of small objects these calls are saved by a pause in any case, and count as page faults that take as
//! long. Where they alone take more than may be charged, there is nothing to be found out: each pause helps.
//!
//! Times would say less: a program works on other things meanwhile, or waits, and other programs use the processors.

use core::sync::atomic::{AtomicU64, Ordering};

use numamma_kernel::sys::PAGE;

use super::account::{FAULT_NS, PART};

/// Pauses for whose length sizes are not charged when the first pause did not help.
const EXEMPT: u64 = 8;
/// Times that this doubles at most: a program may come to a part in which a pause helps.
const MOST_DOUBLINGS: u64 = 4;
const COUNT_BITS: u32 = 8;
/// Part (3/2) of the page faults before a pause from which there are more of them, and how often that is looked at, ms.
const MORE: (u64, u64) = (3, 2);
const WATCH_MS: u64 = 100;
/// What is asked for in a pause must be this part (1/4) of what was before, for a comparison.
const ENOUGH: u64 = 4;
/// A pause counts to its end. Nobody may ask for anything then; up to this many times its length the faults since then
/// are taken for those of the pause.
const OVERDUE: u64 = 2;

/// What is known of one class of sizes of one rule.
#[derive(Default)]
pub(super) struct Trial {
    /// Bytes that were asked for so far, those of them that were charged, and the time of their calls that a pause
    /// saves, ns.
    asked: AtomicU64,
    charged: AtomicU64,
    calls_ns: AtomicU64,
    /// When the count before a pause began: these, with what heaps served, and the page faults of the process.
    before: Count,
    /// Of the time before a pause: bytes that were asked for, and how many page faults a pause may have for as many; 0:
    /// no pause is judged.
    bytes: AtomicU64,
    most: AtomicU64,
    /// Of the time before the last pause: bytes that were asked for, and page faults.
    usual: [AtomicU64; 2],
    /// When the time without charges was last looked at, ms.
    watched_ms: AtomicU64,
    /// Those calls and the CPU time of the process when the count before a pause began, ns, and when that was.
    calls_before: [AtomicU64; 3],
    /// As `before`, when the pause began, ns.
    pause: Count,
    pause_ns: AtomicU64,
    /// Bytes that were placed then.
    placed: AtomicU64,
    /// See [`Trial::moved_at_most`].
    moved: AtomicU64,
    /// Until when nothing is charged, ms, and in the lowest byte how often that was said in turn.
    exempt: AtomicU64,
}

/// What the process has done up to a point in time, beside what a [`Trial`] is told.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    /// Page faults.
    pub faults: u64,
    /// Bytes of the class that were asked for and that heaps served.
    pub of_heaps: u64,
    /// Bytes of all placed objects in use.
    pub placed: u64,
    /// CPU time, ns.
    pub cpu_ns: u64,
}

/// What was counted up to a point in time.
#[derive(Default)]
struct Count {
    asked: AtomicU64,
    charged: AtomicU64,
    faults: AtomicU64,
}

impl Count {
    fn store(&self, asked: u64, charged: u64, faults: u64) {
        self.asked.store(asked, Ordering::Relaxed);
        self.charged.store(charged, Ordering::Relaxed);
        self.faults.store(faults, Ordering::Relaxed);
    }

    /// What was counted since then.
    fn since(&self, asked: u64, charged: u64, faults: u64) -> [u64; 3] {
        let since = |now: u64, then: &AtomicU64| now.saturating_sub(then.load(Ordering::Relaxed));
        [since(asked, &self.asked), since(charged, &self.charged), since(faults, &self.faults)]
    }
}

impl Trial {
    /// Notes that an object of `bytes` is asked for.
    #[inline]
    pub fn asked(&self, bytes: usize) {
        self.asked.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes that `bytes` are charged, and calls that take `calls_ns` and that a pause saves.
    pub fn charged(&self, bytes: usize, calls_ns: u64) {
        self.charged.fetch_add(bytes as u64, Ordering::Relaxed);
        self.calls_ns.fetch_add(calls_ns, Ordering::Relaxed);
    }

    /// All that was asked for, with what heaps served, and charged.
    fn all(&self, of_heaps: u64) -> (u64, u64) {
        (self.asked.load(Ordering::Relaxed) + of_heaps, self.charged.load(Ordering::Relaxed))
    }

    /// Begins to count anew at the time `now`, ns.
    pub fn count_from(&self, now: u64, seen: Seen) {
        let (asked, charged) = self.all(seen.of_heaps);
        self.before.store(asked, charged, seen.faults);
        let calls_ns = self.calls_ns.load(Ordering::Relaxed);
        for (before, now) in self.calls_before.iter().zip([calls_ns, seen.cpu_ns, now]) {
            before.store(now, Ordering::Relaxed);
        }
    }

    /// What was counted until the time `now`, ns: the time of calls that a pause saves, and whether that alone is too
    /// much of the time.
    fn calls(&self, now: u64, seen: Seen) -> (u64, bool) {
        let then = self.calls_before.each_ref().map(|before| before.load(Ordering::Relaxed));
        let calls_ns = self.calls_ns.load(Ordering::Relaxed).saturating_sub(then[0]);
        let (worked, passed) = (seen.cpu_ns.saturating_sub(then[1]), now.saturating_sub(then[2]));
        (calls_ns, worked.max(passed) < PART * calls_ns)
    }

    /// Notes that a pause begins at the time `now`, ns.
    pub fn pauses(&self, now: u64, seen: Seen) {
        let (asked, charged) = self.all(seen.of_heaps);
        let [bytes, charged_since, faulted] = self.before.since(asked, charged, seen.faults);
        // Pages that nobody touched did not fault.
        let of_pages = (charged_since / PAGE as u64).min(faulted);
        let (calls_ns, are_too_many) = self.calls(now, seen);
        let of_calls = calls_ns / FAULT_NS;
        // The faults that may come in a pause: those that there were, with the calls that are saved, less half of both.
        let most = (faulted + of_calls).saturating_sub((of_pages + of_calls) / 2);
        self.pause.store(asked, charged, seen.faults);
        self.placed.store(seen.placed, Ordering::Relaxed);
        let before = if self.has_helped() { self.moved.load(Ordering::Relaxed) } else { 0 };
        self.moved.store(seen.placed.max(before), Ordering::Relaxed);
        self.usual[0].store(bytes, Ordering::Relaxed);
        self.usual[1].store(faulted, Ordering::Relaxed);
        self.pause_ns.store(now, Ordering::Relaxed);
        self.most.store(if are_too_many { u64::MAX } else { most }, Ordering::Relaxed);
        self.bytes.store(if of_pages + of_calls > 0 { bytes } else { 0 }, Ordering::Relaxed);
    }

    /// Whether the pause of `length_ns` that ended helped; none when that was told before, or cannot be told.
    pub fn helped(&self, now: u64, seen: Seen, length_ns: u64) -> Option<bool> {
        let (bytes, most) = (self.bytes.swap(0, Ordering::Relaxed), self.most.load(Ordering::Relaxed));
        let (asked, charged) = self.all(seen.of_heaps);
        let [in_pause, _, faulted] = self.pause.since(asked, charged, seen.faults);
        let moved = self.placed.load(Ordering::Relaxed).saturating_sub(seen.placed);
        let faulted = faulted.saturating_sub(moved / PAGE as u64);
        let is_overdue = now.saturating_sub(self.pause_ns.load(Ordering::Relaxed)) > OVERDUE * length_ns;
        if bytes == 0 || in_pause < bytes / ENOUGH || is_overdue {
            return None;
        }
        Some(u128::from(faulted) * u128::from(bytes) <= u128::from(most) * u128::from(in_pause))
    }

    /// Bytes that were placed when the last pause began, or one before it if all since then helped: what is in the
    /// allocator's memory now.
    pub fn moved_at_most(&self) -> usize {
        self.moved.load(Ordering::Relaxed) as usize
    }

    /// Whether the last pause that was judged helped.
    fn has_helped(&self) -> bool {
        self.exempt.load(Ordering::Relaxed) == 0
    }

    /// Whether a pause is to be judged.
    pub fn is_open(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > 0
    }

    /// Notes what a pause of `pause_ns` showed.
    pub fn judge(&self, helped: bool, now: u64, pause_ns: u64) {
        let times = self.exempt.load(Ordering::Relaxed) & ((1 << COUNT_BITS) - 1);
        let until_ms = (now + ((EXEMPT * pause_ns) << times)) / 1_000_000;
        let exempt = until_ms << COUNT_BITS | (times + 1).min(MOST_DOUBLINGS);
        // The first look only begins to count.
        self.watched_ms.store(0, Ordering::Relaxed);
        self.exempt.store(if helped { 0 } else { exempt }, Ordering::Relaxed);
    }

    /// Whether nothing is charged now. `seen` is called now and then.
    #[inline]
    pub fn is_exempt(&self, now: u64, seen: impl FnOnce() -> Seen) -> bool {
        now / 1_000_000 < self.exempt.load(Ordering::Relaxed) >> COUNT_BITS && !self.became_worse(now, seen)
    }

    /// Ends the time without charges if there were many more page faults than before the pause since the last look.
    fn became_worse(&self, now: u64, seen: impl FnOnce() -> Seen) -> bool {
        let now_ms = now / 1_000_000;
        let last = self.watched_ms.load(Ordering::Relaxed);
        if now_ms < last + WATCH_MS || self.watched_ms.swap(now_ms, Ordering::Relaxed) != last {
            return false;
        }
        let seen = seen();
        let (asked, charged) = self.all(seen.of_heaps);
        let [bytes, _, faults] = self.before.since(asked, charged, seen.faults).map(u128::from);
        let [usual_bytes, usual_faults] = [0, 1].map(|n| u128::from(self.usual[n].load(Ordering::Relaxed)));
        if last > 0 && bytes < usual_bytes / u128::from(ENOUGH) {
            return false;
        }
        let is_worse =
            last > 0 && u128::from(MORE.1) * faults * usual_bytes > u128::from(MORE.0) * usual_faults * bytes;
        self.count_from(now, seen);
        if is_worse {
            self.exempt.store(0, Ordering::Relaxed);
        }
        is_worse
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_pause_helps_where_the_program_faults_less() {
        // Of 100 objects of ten pages each, 80 were mapped anew, and there were 300 other page faults.
        let moved = |left: usize, asked: u32, faults: u64, at_ms: u64| {
            let trial = Trial::default();
            let ask = |times: u32| (0..times).for_each(|_| trial.asked(10 * PAGE));
            let seen = |faults: u64, placed: usize| Seen { faults, placed: (placed * PAGE) as u64, ..Seen::default() };
            trial.count_from(0, seen(5_000, 0));
            ask(100);
            trial.charged(800 * PAGE, 0);
            trial.pauses(1000 * MS, seen(6_100, 900));
            ask(asked);
            let helped = trial.helped(at_ms * MS, seen(6_100 + faults, left), 100 * MS);
            assert_eq!(trial.helped(at_ms * MS, seen(6_100, left), 100 * MS), None, "told before");
            helped
        };
        let tried = |asked, faults, at_ms| moved(900, asked, faults, at_ms);
        assert_eq!(tried(100, 300, 1100), Some(true));
        assert_eq!(tried(100, 1_000, 1100), Some(false));
        assert_eq!(tried(1000, 6_900, 1100), Some(true), "700 for as many");
        assert_eq!(tried(1000, 7_100, 1100), Some(false));
        assert_eq!(tried(20, 0, 1100), None, "too few");
        assert_eq!(tried(100, 1_000, 1300), None, "too long ago");
        assert_eq!(moved(100, 100, 1_000, 1100), Some(true), "800 for what moved");
        assert_eq!(moved(1000, 100, 300, 1100), Some(true), "more is placed");
        let trial = Trial::default();
        trial.asked(PAGE);
        trial.pauses(1000 * MS, Seen::default());
        assert_eq!(trial.helped(1100 * MS, Seen::default(), 100 * MS), None, "nothing charged");
    }

    #[test]
    fn what_a_pause_moved_stays_there_while_pauses_help() {
        let trial = Trial::default();
        let moved = |placed: u64| {
            trial.pauses(0, Seen { placed, ..Seen::default() });
            trial.moved_at_most()
        };
        assert_eq!([moved(900), moved(100), moved(1000)], [900, 900, 1000]);
        trial.judge(false, 0, 0);
        assert_eq!(moved(100), 100);
    }

    #[test]
    fn a_pause_saves_the_calls_of_small_objects() {
        // Of 100 objects of two pages each, all were mapped anew, by calls that take as long as six page faults.
        let helped = |calls: u64, worked_ms: u64, faults: u64| {
            let trial = Trial::default();
            let seen = |faults: u64| Seen { faults, cpu_ns: worked_ms * MS, ..Seen::default() };
            trial.count_from(1000 * MS, Seen::default());
            (0..100).for_each(|_| trial.asked(2 * PAGE));
            trial.charged(200 * PAGE, 100 * calls * FAULT_NS);
            trial.pauses(1001 * MS, seen(200));
            (0..100).for_each(|_| trial.asked(2 * PAGE));
            trial.helped(1100 * MS, seen(200 + faults), 100 * MS)
        };
        assert_eq!((helped(0, 100, 200), helped(0, 100, 100)), (Some(false), Some(true)));
        assert_eq!((helped(6, 100, 400), helped(6, 100, 401)), (Some(true), Some(false)), "half of 800");
        assert_eq!((helped(1, 2, 200), helped(1, 1, 200)), (Some(false), Some(true)), "a twentieth of the time");
    }

    #[test]
    fn the_time_without_charges_ends_when_there_are_more_page_faults() {
        let lasts = |each: u64| {
            let trial = Trial::default();
            trial.count_from(0, Seen::default());
            trial.asked(10 * PAGE);
            trial.charged(10 * PAGE, 0);
            trial.pauses(0, Seen { faults: 10, ..Seen::default() });
            trial.judge(false, 1000 * MS, 1000 * MS);
            (0..50).all(|step| {
                trial.asked(10 * PAGE);
                let seen = || Seen { faults: 10 + step * each, ..Seen::default() };
                trial.is_exempt((1000 + step * WATCH_MS) * MS, seen)
            })
        };
        assert_eq!((lasts(0), lasts(10), lasts(15), lasts(16)), (true, true, true, false));
    }

    #[test]
    fn what_does_not_help_is_tried_less_and_less() {
        let trial = Trial::default();
        let is_exempt = |ms: u64| trial.is_exempt(ms * MS, Seen::default);
        let ends = |ms: u64| (!is_exempt(ms + 1), is_exempt(ms - 1));
        trial.judge(false, 100 * MS, 10 * MS);
        assert_eq!(ends(180), (true, true));
        trial.judge(false, 200 * MS, 10 * MS);
        assert_eq!(ends(360), (true, true));
        trial.judge(true, 400 * MS, 10 * MS);
        assert!(!is_exempt(401));
        (0..20).for_each(|_| trial.judge(false, 400 * MS, 10 * MS));
        assert_eq!(ends(400 + (80 << MOST_DOUBLINGS)), (true, true));
    }
}
