//! Memory that is mapped, placed and unmapped again all the time: arrays that each step of a program allocates and
//! frees and of which this library may keep too few (see [`crate::objects::released`]), and heaps of small objects that
//! become empty at each turn. Each time costs three system calls and the page faults; glibc takes such a block from
//! what it keeps.
//!
//! So the time that this takes is bounded, for the whole process. What glibc would not have to map and fault is charged
//! to one account:
//!
//! - An array, when it is mapped, if as much was unmapped before. Where glibc would have had to map it anew, too, that
//!   is found out by a pause, see [`trial`].
//! - Memory for small objects, when it is unmapped, if it served for less than [`PART`] times as long as it took to map
//!   and fault it.
//!
//! When more than one part in [`PART`] of the time was charged, the rules that were charged do not place objects of
//! those sizes for a while: four times as long as it takes until what was charged is no more than that part, and twice
//! as long each time that this happens again. The time is the CPU time of all threads where that is more than what
//! passed.

mod trial;

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use numamma_kernel::clock;
use numamma_kernel::sys::PAGE;

use self::trial::Trial;

/// Bytes from which objects have pages of their own: M_MMAP_THRESHOLD of mallopt(3), from which glibc gives a block its
/// own mapping. Smaller ones would all begin at a page, which puts the same elements of all rows of a matrix into the
/// same few sets of the caches, and a mapping for each would take longer than what glibc does.
pub const MOST_SHARED: usize = 128 << 10;
/// Bytes from which nothing is charged: glibc maps each such block itself (DEFAULT_MMAP_THRESHOLD_MAX of mallopt(3)).
const LARGEST: usize = 32 << 20;
/// Sizes that are told apart: what is smaller than [`MOST_SHARED`], and each power of two from there to [`LARGEST`].
const CLASSES: usize = (LARGEST / MOST_SHARED).ilog2() as usize + 1;
/// Time that a mapping takes, ns: 6.3 us for mmap, mbind and munmap, as `cargo bench --bench bars -- matched` measures
/// them.
const MAPPING_NS: u64 = 6_300;
/// Time that a page fault takes, ns: 0.5 us on a machine of its own to 2 us on a virtual one.
const FAULT_NS: u64 = 1_000;
/// Part (1/20) of the time that may be charged.
const PART: u64 = 20;
/// Charged time from which the clock is compared, ns.
const LOOK_NS: u64 = 10_000_000;
/// Time that may be charged in any case, ns: what a program does while it starts says little of what it does then.
const CREDIT_NS: u64 = 20_000_000;
/// Mappings that may be charged in any case: some large temporaries, too, are part of a start.
const CREDIT: u32 = 32;
/// A pause that ended this many times its length ago makes the next one half as long.
const CALM: u64 = 8;
/// Shortest pause, ns: four times what keeps the part, because what is charged is the lower end of what it takes.
const PAUSE_NS: u64 = 4 * PART * LOOK_NS;
/// Times that the pause of a class doubles at most: to an hour.
const MOST_DOUBLINGS: u64 = 12;

/// The account of the process.
static ACCOUNT: Account = Account::new();

/// Bytes of arrays that were unmapped and not mapped again.
static FREED: AtomicUsize = AtomicUsize::new(0);

/// Notes that an array of `bytes` was unmapped.
pub fn array_unmapped(bytes: usize) {
    if bytes < LARGEST {
        FREED.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Whether as much as an array of `bytes` that is mapped was unmapped before.
fn was_freed(bytes: usize) -> bool {
    let take = |freed: usize| freed.checked_sub(bytes).filter(|_| bytes < LARGEST);
    FREED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
}

/// Mappings for small objects of which is remembered when they were made; a newer one replaces an older one.
const REMEMBERED: usize = 4096;
/// The address of a mapping, and in the bits below a page the ms at which it was made.
static MADE: [AtomicUsize; REMEMBERED] = [const { AtomicUsize::new(0) }; REMEMBERED];

fn made(base: usize) -> &'static AtomicUsize {
    // Addresses of extents differ in higher bits only.
    let page = base / PAGE;
    &MADE[(page ^ page >> 12 ^ page >> 20) % REMEMBERED]
}

fn in_ms(now: u64) -> usize {
    (now / 1_000_000) as usize % PAGE
}

/// Notes that memory for small objects was mapped at `base`.
pub fn mapped(base: usize) {
    made(base).store(base | in_ms(clock::monotonic_ns()), Ordering::Relaxed);
}

/// Forgets when the memory at `base` was mapped: it is not charged.
pub fn forget(base: usize) {
    made(base).store(0, Ordering::Relaxed);
}

/// Time that mapping and faulting `bytes` takes, ns.
fn cost_ns(bytes: usize) -> u64 {
    MAPPING_NS + (bytes / PAGE) as u64 * FAULT_NS
}

/// What is charged for `bytes` for small objects at `base` that are unmapped at the time `now`, ns; 0 when they served
/// long enough, or nobody knows.
fn charge(base: usize, bytes: usize, now: u64) -> u64 {
    let note = made(base);
    let found = note.load(Ordering::Relaxed);
    if found & !(PAGE - 1) != base {
        return 0;
    }
    note.store(0, Ordering::Relaxed);
    // What lived a multiple of four seconds counts as brief, too.
    let lived_ms = in_ms(now).wrapping_sub(found) % PAGE;
    let cost = cost_ns(bytes);
    if (lived_ms as u64) * 1_000_000 < PART * cost { cost } else { 0 }
}

/// Charged time.
struct Account {
    /// Since the last look, ns.
    charged: AtomicU64,
    /// When that was, ns; 0 before the first, which only starts the clock: what is freed once, at the end of a step, is
    /// no churn.
    looked: AtomicU64,
    /// Number of the next look, from 1, and of the last one that found too much.
    look: AtomicU32,
    too_much: AtomicU32,
    /// Part of the time that this one found, per mille.
    part: AtomicU32,
    /// Page faults and CPU time of the process before the last look.
    faults: AtomicU64,
    cpu_ns: AtomicU64,
    /// What is left of [`CREDIT_NS`] and of [`CREDIT`].
    credit_ns: AtomicU64,
    credit: AtomicU32,
}

impl Account {
    const fn new() -> Account {
        Account {
            charged: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            look: AtomicU32::new(1),
            too_much: AtomicU32::new(0),
            part: AtomicU32::new(0),
            faults: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
            credit_ns: AtomicU64::new(CREDIT_NS),
            credit: AtomicU32::new(CREDIT),
        }
    }

    /// Charges `cost` at the time `now`, ns. True when that is too much; and the number of the next look. `used` tells
    /// what the process has used so far.
    fn charge(&self, cost: u64, now: u64, used: impl Fn() -> Used) -> (bool, u32) {
        let look = self.look.load(Ordering::Relaxed);
        let left = self.credit.load(Ordering::Relaxed);
        if left > 0 {
            // Threads that do so at the same time count as one.
            self.credit.store(left - 1, Ordering::Relaxed);
        }
        if self.charged.fetch_add(cost, Ordering::Relaxed) + cost < LOOK_NS {
            return (false, look);
        }
        let charged = self.charged.swap(0, Ordering::Relaxed);
        let (last, Used { faults, cpu_ns }) = (self.looked.swap(now, Ordering::Relaxed), used());
        let faulted = faults.saturating_sub(self.faults.swap(faults, Ordering::Relaxed)) * FAULT_NS;
        let worked = cpu_ns.saturating_sub(self.cpu_ns.swap(cpu_ns, Ordering::Relaxed));
        let passed = now.saturating_sub(last).max(worked);
        // Pages that nobody touched cost nothing. A twentieth of what is charged stands for the mappings.
        let all = charged.min(faulted + charged / PART);
        let credit_ns = self.credit_ns.load(Ordering::Relaxed);
        self.credit_ns.store(credit_ns.saturating_sub(all), Ordering::Relaxed);
        let is_too_much = last > 0 && left == 0 && credit_ns < all && passed < PART * all;
        if is_too_much {
            self.part.store((1000 * all / passed.max(1)).min(1000 * PART) as u32, Ordering::Relaxed);
            self.too_much.store(look, Ordering::Relaxed);
        }
        self.look.store(look.wrapping_add(1).max(1), Ordering::Relaxed);
        (is_too_much, look)
    }

    /// Whether who was charged before look number `charged`, or never (0), had a part in what was too much.
    fn had_part(&self, charged: u32) -> bool {
        charged > 0 && charged == self.too_much.load(Ordering::Relaxed)
    }
}

/// The sizes of a rule whose objects are left where they are for a while.
#[derive(Default)]
pub struct Churn {
    /// For each class of sizes when that ends, ms, and in the lowest byte how often it has begun; 0: never.
    pauses: [AtomicU64; CLASSES],
    /// For each class before which look it was charged.
    charged: [AtomicU32; CLASSES],
    /// For each class whether pauses help.
    trials: [Trial; CLASSES],
}

const COUNT_BITS: u32 = 8;

/// What follows from what was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing.
    Well,
    /// A pause of its class begins.
    Pause {
        /// The first one.
        first: bool,
    },
}

/// What the process has used so far.
#[derive(Clone, Copy, Default)]
struct Used {
    /// Page faults.
    faults: u64,
    /// CPU time of all threads, ns.
    cpu_ns: u64,
}

/// By getrusage(2).
fn used() -> Used {
    // SAFETY: zeroes are a value of the plain structure.
    let mut used: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: the structure is writable.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut used) };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    Used { faults: used.ru_minflt as u64, cpu_ns: ns(used.ru_utime) + ns(used.ru_stime) }
}

fn class(bytes: usize) -> usize {
    (bytes / MOST_SHARED).checked_ilog2().map_or(0, |power| power as usize + 1).min(CLASSES - 1)
}

impl Churn {
    /// Notes that an array of `bytes` is asked for.
    #[inline]
    pub fn asked(&self, bytes: usize) {
        self.trials[class(bytes)].asked();
    }

    /// Whether new memory for an object of `bytes` would be charged too often, so that the object is not placed.
    #[inline]
    pub fn is_over(&self, bytes: usize) -> bool {
        let class = class(bytes);
        let pause = self.pauses[class].load(Ordering::Relaxed);
        let had_part = ACCOUNT.had_part(self.charged[class].load(Ordering::Relaxed));
        (pause > 0 || had_part) && bytes < LARGEST && self.is_over_now(class, had_part)
    }

    #[cold]
    fn is_over_now(&self, class: usize, had_part: bool) -> bool {
        let now = clock::coarse_ns();
        if had_part {
            self.pause(class, now);
        }
        let pause = self.pauses[class].load(Ordering::Relaxed);
        let lasts = now / 1_000_000 < pause >> COUNT_BITS;
        if !lasts && let Some(helped) = self.trials[class].helped(now) {
            let times = pause & ((1 << COUNT_BITS) - 1);
            self.trials[class].judge(helped, now, PAUSE_NS << times.saturating_sub(1));
            if !helped {
                // The next one is no longer.
                self.pauses[class].store(pause - 1.min(times), Ordering::Relaxed);
            }
        }
        lasts
    }

    /// [`Churn::is_over`] for objects that share memory.
    pub fn is_over_small(&self) -> bool {
        self.is_over(0)
    }

    /// Notes that `bytes` were mapped for an array of this rule, or for what it grew by.
    pub fn array_mapped(&self, bytes: usize) -> Ended {
        if was_freed(bytes) { self.charge(class(bytes), cost_ns(bytes), clock::monotonic_ns()) } else { Ended::Well }
    }

    /// Notes that the `bytes` at `base`, mapped for small objects of this rule that share them, are unmapped.
    pub fn unmapped(&self, base: usize, bytes: usize) -> Ended {
        let now = clock::monotonic_ns();
        let cost = charge(base, bytes, now);
        if cost == 0 { Ended::Well } else { self.charge(0, cost, now) }
    }

    fn charge(&self, class: usize, cost: u64, now: u64) -> Ended {
        if self.trials[class].is_exempt(now) {
            return Ended::Well;
        }
        let (is_too_much, look) = ACCOUNT.charge(cost, now, used);
        if self.charged[class].swap(look, Ordering::Relaxed) != look {
            self.trials[class].count_from(now);
        }
        if is_too_much { self.pause(class, now) } else { Ended::Well }
    }

    fn pause(&self, class: usize, now: u64) -> Ended {
        let pause = &self.pauses[class];
        let before = pause.load(Ordering::Relaxed);
        self.charged[class].store(0, Ordering::Relaxed);
        if now / 1_000_000 < before >> COUNT_BITS {
            return Ended::Well;
        }
        let mut times = before & ((1 << COUNT_BITS) - 1);
        let calm_ns = now.saturating_sub((before >> COUNT_BITS) * 1_000_000);
        while times > 0 && calm_ns > (CALM * PAUSE_NS) << times {
            times -= 1;
        }
        let until_ms = (now + (PAUSE_NS << times)) / 1_000_000;
        pause.store(until_ms << COUNT_BITS | (times + 1).min(MOST_DOUBLINGS), Ordering::Relaxed);
        self.trials[class].pauses(now, ACCOUNT.part.load(Ordering::Relaxed));
        Ended::Pause { first: before == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_serves_long_enough_is_not_charged() {
        let base = 77 * PAGE;
        let charged = |bytes: usize, ms: u64| {
            made(base).store(base | in_ms(5_000 * MS), Ordering::Relaxed);
            charge(base, bytes, (5_000 + ms) * MS)
        };
        assert_eq!(charged(1 << 20, 1), cost_ns(1 << 20));
        assert_eq!(charged(1 << 20, 6), 0, "20 times 262 us are over");
        assert_eq!(charge(base, 1 << 20, 5_000 * MS), 0, "charged before");
        assert_eq!(charge(base + 4096 * PAGE, 1 << 20, 5_000 * MS), 0, "never mapped");
    }

    #[test]
    fn arrays_are_charged_for_which_as_much_was_unmapped() {
        const MIB: usize = 1 << 20;
        assert!(!was_freed(MIB), "the first one");
        array_unmapped(3 * MIB / 2);
        assert!(was_freed(MIB) && !was_freed(MIB) && was_freed(MIB / 2));
        array_unmapped(LARGEST);
        assert!(!was_freed(MIB), "glibc maps it, too");
    }

    fn used_of(faults: u64) -> Used {
        Used { faults, cpu_ns: 0 }
    }

    fn spent() -> Account {
        Account { credit_ns: AtomicU64::new(0), credit: AtomicU32::new(0), ..Account::new() }
    }

    #[test]
    fn one_part_in_twenty_may_be_charged() {
        let too_much = |account: Account, each_ms: u64, faults: u64| {
            (1..1000_u64).filter(|n| account.charge(MS, n * each_ms * MS, || used_of(n * faults)).0).count()
        };
        let (all, few) = (MS / FAULT_NS, MS / FAULT_NS / 100);
        assert_eq!(too_much(spent(), 20, all), 0);
        assert_eq!(too_much(spent(), 19, all), 98, "a look after every ten, and the first only starts the clock");
        assert_eq!(too_much(Account::new(), 19, all), 96, "32 mappings are free");
        assert_eq!(too_much(spent(), 19, few), 0, "pages that nobody touched");
        let of_threads = |cpu_ms: u64| {
            let account = spent();
            let used = |n: u64| Used { faults: n * all, cpu_ns: n * cpu_ms * MS };
            (1..1000_u64).filter(|n| account.charge(MS, n * 5 * MS, || used(*n)).0).count()
        };
        assert_eq!((of_threads(19), of_threads(20)), (98, 0), "of the CPU time of four threads");
    }

    #[test]
    fn all_that_were_charged_since_the_look_before_had_a_part() {
        let account = spent();
        let charge = |cost, ms| account.charge(cost, ms * MS, || used_of(ms * 100_000));
        let (_, early) = charge(LOOK_NS, 1);
        let (_, first) = charge(MS, 2);
        assert!(!account.had_part(early) && !account.had_part(first));
        let (is_too_much, second) = charge(LOOK_NS, 3);
        assert!(is_too_much && account.had_part(first) && account.had_part(second));
        assert!(!account.had_part(early) && !account.had_part(0));
    }

    #[test]
    fn a_pause_is_for_one_class_of_sizes_and_doubles() {
        let churn = Churn::default();
        let now = clock::monotonic_ns();
        let of = class(1 << 20);
        assert!(!churn.is_over(1 << 20));
        assert_eq!(churn.pause(of, now), Ended::Pause { first: true });
        assert!(churn.is_over((2 << 20) - 1) && !churn.is_over(2 << 20) && !churn.is_over_small());
        assert_eq!(churn.pause(of, now), Ended::Well, "it lasts");
        let mut begin = now;
        for length in (1..20).map(|n| PAUSE_NS << MOST_DOUBLINGS.min(n)) {
            begin += length;
            assert_eq!(churn.pause(of, begin), Ended::Pause { first: false });
        }
        let lasts = |churn: &Churn, now: u64| churn.pauses[of].load(Ordering::Relaxed) >> COUNT_BITS > now / MS;
        begin += 2 * ((CALM * PAUSE_NS) << MOST_DOUBLINGS);
        churn.pause(of, begin);
        assert!(!lasts(&churn, begin + (PAUSE_NS << (MOST_DOUBLINGS - 1))), "shorter after a calm time");
    }

    #[test]
    fn classes_are_powers_of_two() {
        assert_eq!([PAGE, MOST_SHARED - 1, MOST_SHARED, 255 << 10, 256 << 10].map(class), [0, 0, 1, 1, 2]);
        assert_eq!([LARGEST - 1, LARGEST, usize::MAX].map(class), [CLASSES - 1; 3]);
    }
}
