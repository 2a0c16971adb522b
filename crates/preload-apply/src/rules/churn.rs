//! Memory that is mapped, placed and unmapped again all the time: arrays that each step of a program allocates and
//! frees and of which this library may keep too few (see [`crate::objects::released`]), and heaps of small objects that
//! become empty at each turn. Each time costs three system calls and the page faults; glibc takes such a block from
//! what it keeps.
//!
//! So the time that this takes is bounded, for the whole process. What glibc would not have to map and fault is charged
//! to one account: memory for an array or for small objects, when it is mapped, if as much was unmapped before; not for
//! an array that the program's allocator maps each time, too ([`mapped_from`]), and not what is mapped anew a few times
//! until it is kept, because it is freed together and asked for again. Where glibc would have had to map it anew, too,
//! that is found out by a pause, see [`trial`].
//!
//! When more than one part in [`PART`] of the time was charged, the rules that were charged do not place objects of
//! those sizes for a while: four times as long as it takes until what was charged is no more than that part, and twice
//! as long each time that this happens again. The time is the CPU time of all threads: what passes is longer where
//! others use the machine.
//!
//! What is in use by then moves into the allocator's memory, object by object, and each of its pages faults there. So
//! nothing happens before as much as this takes was charged beyond the part: then all costs at most twice as much as if
//! one had known (Karlin and others, Competitive randomized algorithms for nonuniform problems, 1994: renting skis).
//! A forked child charges the account of its parent, and the pauses are those of the parent, too (see [`inherited`]):
//! else the children of a server, which end before as much was charged, would all begin anew. Whether pauses help is
//! found out by each process for itself.
//!
//! After a pause that helped, what is in use is there already: nothing has to be paid, and the next one begins before
//! all of it has moved back, which would take twice the memory: the account is looked at early then.

mod account;
pub mod allocator;
mod inherited;
mod trial;

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use numamma_hook::{fork_wiped, sandbox};
use numamma_kernel::clock;
use numamma_kernel::sys::PAGE;

pub use self::account::moving_ns as faulting_ns;
use self::account::{Cost, FAULT_NS, LOOK_NS, PART, Used, moving_ns, used};
use self::allocator::{ALWAYS_MAPPED, mapped_from};
use self::inherited::{AllZero, Inherited};
use self::trial::{Seen, Trial};
use super::heap_account;

/// Bytes from which objects have pages of their own: M_MMAP_THRESHOLD of mallopt(3), from which glibc gives a block its
/// own mapping. Smaller ones would all begin at a page, which puts the same elements of all rows of a matrix into the
/// same few sets of the caches, and a mapping for each would take longer than what glibc does.
pub const MOST_SHARED: usize = 128 << 10;
/// Sizes that are told apart: what is smaller than [`MOST_SHARED`], each power of two from there to [`ALWAYS_MAPPED`],
/// and what is larger.
const CLASSES: usize = (ALWAYS_MAPPED / MOST_SHARED).ilog2() as usize + 2;
/// Time that a mapping takes, ns: 6.3 us for mmap, mbind and munmap, as `cargo bench --bench bars -- matched` measures
/// them.
const MAPPING_NS: u64 = 6_300;
/// What of that is for munmap, ns, about a third: what is kept may be unmapped in more pieces than it was mapped.
const UNMAPPING_NS: u64 = MAPPING_NS / 3;
/// Time that cutting a kept block for an array of another size takes, and joining the two again, ns: 4 to 5 us in a
/// loop of malloc and free of seven sizes, in which nothing is faulted.
const CUTTING_NS: u64 = 4_000;
/// Bytes that are copied in a ns where both blocks are in memory, at least, and what more it takes, ns: what waits for
/// other programs is not charged.
const COPIED_BYTES_IN_NS: u64 = 2;
const COPYING_NS: u64 = 20_000;
/// A pause that ended this many times its length ago makes the next one half as long.
const CALM: u64 = 8;
/// Part (1/8) of the placed bytes that may have moved back from the allocator's memory before the first look after a
/// pause that helped: that memory stays meanwhile, and a fourth of it more is the most that a policy may cost.
const EARLY: u64 = 8;
/// Charged time of that look at least, ns: 1 MiB of pages.
const EARLY_LEAST_NS: u64 = (1 << 20) / PAGE as u64 * FAULT_NS;
/// Shortest pause, ns: four times what keeps the part, because what is charged is the lower end of what it takes.
const PAUSE_NS: u64 = 4 * PART * LOOK_NS;
/// Times that the pause of a class doubles at most: to an hour.
const MOST_DOUBLINGS: u64 = 12;

/// Bytes that were unmapped and not mapped again.
static FREED: AtomicUsize = AtomicUsize::new(0);

/// Time of other calls than mapping since something was mapped, ns.
static OTHER_CALLS_NS: AtomicU64 = AtomicU64::new(0);

/// Makes the account, before the process may fork.
pub fn start() {
    account::account();
}

/// Notes that memory of `bytes` was unmapped.
pub fn unmapped(bytes: usize) {
    if bytes < mapped_from() {
        also_took(UNMAPPING_NS);
        FREED.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Notes that calls took `ns` that glibc would not have made. They are charged with what is mapped next.
pub fn also_took(ns: u64) {
    OTHER_CALLS_NS.fetch_add(ns, Ordering::Relaxed);
}

/// Notes that `bytes` which were unmapped cost nothing to map and fault again.
pub fn unmapped_for_nothing(bytes: usize) {
    let less = |freed: usize| (bytes < mapped_from()).then(|| freed.saturating_sub(bytes));
    let _ = FREED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// Whether as much as the `bytes` that are mapped was unmapped before.
fn was_freed(bytes: usize) -> bool {
    let take = |freed: usize| freed.checked_sub(bytes).filter(|_| bytes < mapped_from());
    FREED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
}

/// Time that mapping and faulting `bytes` takes, ns, with `others` for other calls.
fn cost(bytes: usize, others: u64) -> Cost {
    Cost { calls: MAPPING_NS - UNMAPPING_NS + others, faults: (bytes / PAGE) as u64 * FAULT_NS }
}

/// Time of calls that leaving an object of `class` where it is saves, ns: the program's allocator may map arrays, too.
fn saved_ns(class: usize) -> u64 {
    if class == 0 { MAPPING_NS } else { 0 }
}

/// The sizes of a rule whose objects are left where they are for a while.
#[derive(Default)]
pub struct Churn {
    /// What forked children know, too.
    learned: Inherited<Learned>,
    /// For each class whether pauses help.
    trials: [Trial; CLASSES],
}

#[derive(Default)]
struct Learned {
    /// For each class of sizes when that ends, ms, and in the lowest byte how often it has begun; 0: never.
    pauses: [AtomicU64; CLASSES],
    /// For each class how long the first pause is, or was when the last one began, ns.
    lengths: [AtomicU64; CLASSES],
    /// For each class before which look it was charged.
    charged: [AtomicU32; CLASSES],
}

// SAFETY: atomic integers, of which zero is a value, and no value depends on another one.
unsafe impl AllZero for Learned {}

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

fn class(bytes: usize) -> usize {
    (bytes / MOST_SHARED).checked_ilog2().map_or(0, |power| power as usize + 1).min(CLASSES - 1)
}

/// What a trial of a class compares. Of what was allocated and freed in heaps, half was asked for.
fn seen(class: usize) -> Seen {
    let Used { faults, placed, cpu_ns, .. } = used();
    let of_heaps = if class == 0 { heap_account::turned_over() as u64 / 2 } else { 0 };
    Seen { faults, of_heaps, placed: placed as u64, cpu_ns }
}

impl Churn {
    /// Notes that an object of `bytes` is asked for that no heap serves.
    #[inline]
    pub fn asked(&self, bytes: usize) {
        self.trials[class(bytes)].asked(bytes);
    }

    /// Whether new memory for an object of `bytes` would be charged too often, so that the object is not placed.
    #[inline]
    pub fn is_over(&self, bytes: usize) -> bool {
        let class = class(bytes);
        let pause = self.learned.pauses[class].load(Ordering::Relaxed);
        let had_part = account::had_part(self.learned.charged[class].load(Ordering::Relaxed));
        (pause > 0 || had_part) && bytes < mapped_from() && self.is_over_now(class, had_part)
    }

    #[cold]
    fn is_over_now(&self, class: usize, had_part: bool) -> bool {
        let now = clock::coarse_ns();
        if had_part {
            self.pause(class, now);
        }
        let pause = self.learned.pauses[class].load(Ordering::Relaxed);
        let lasts = now / 1_000_000 < pause >> COUNT_BITS;
        if lasts || !self.trials[class].is_open() || sandbox::entered() {
            return lasts;
        }
        let times = pause & ((1 << COUNT_BITS) - 1);
        let length_ns = self.learned.lengths[class].load(Ordering::Relaxed) << times.saturating_sub(1);
        if let Some(helped) = self.trials[class].helped(now, seen(class), length_ns) {
            self.trials[class].judge(helped, now, length_ns);
            if helped {
                account::pay_until(now + CALM * length_ns);
                account::begin(now, EARLY_LEAST_NS.max(moving_ns(self.trials[class].moved_at_most()) / EARLY));
            } else {
                // The next one is no longer.
                self.learned.pauses[class].store(pause - 1.min(times), Ordering::Relaxed);
            }
        }
        lasts
    }

    /// Whether objects of any size are left where they are now, and one of `bytes` may be.
    #[cold]
    pub fn is_any_over(&self, bytes: usize) -> bool {
        if bytes >= mapped_from() {
            return false;
        }
        let last = self.learned.pauses.iter().map(|pause| pause.load(Ordering::Relaxed) >> COUNT_BITS).max();
        last.is_some_and(|until_ms| until_ms > 0 && clock::coarse_ns() / 1_000_000 < until_ms)
    }

    /// [`Churn::is_over`] for objects that share memory.
    pub fn is_over_small(&self) -> bool {
        self.is_over(0)
    }

    /// Notes that `bytes` were mapped for an array of this rule, or for what it grew by. `is_rent`: such memory is kept
    /// once some more of it was mapped anew, so it is not charged; but in a forked child, which may end before that.
    pub fn array_mapped(&self, bytes: usize, is_rent: bool) -> Ended {
        self.mapped(class(bytes), bytes, is_rent)
    }

    /// As [`Churn::array_mapped`], for small objects of this rule.
    pub fn extent_mapped(&self, bytes: usize, is_rent: bool) {
        // Under the lock of a heap nothing is given back.
        let _ = self.mapped(0, bytes, is_rent);
    }

    fn mapped(&self, class: usize, bytes: usize, is_rent: bool) -> Ended {
        let others = OTHER_CALLS_NS.swap(0, Ordering::Relaxed);
        let is_charged = was_freed(bytes) && (!is_rent || fork_wiped::is_forked_child());
        if !is_charged {
            return Ended::Well;
        }
        self.charge(class, bytes, saved_ns(class), (cost(bytes, others), clock::monotonic_ns()))
    }

    /// Notes that a kept block was cut for an array of `bytes` of this rule. glibc takes such an array from its heap.
    pub fn array_cut(&self, bytes: usize) -> Ended {
        if bytes >= mapped_from() {
            return Ended::Well;
        }
        let calls = CUTTING_NS + OTHER_CALLS_NS.swap(0, Ordering::Relaxed);
        self.charge(class(bytes), 0, CUTTING_NS, (Cost { calls, faults: 0 }, clock::monotonic_ns()))
    }

    /// Notes that realloc copied `len` bytes from a block of `from` bytes to an array of `to` bytes of this rule, which took
    /// `ns`: glibc may have enlarged the block where it is. The first block must not be placed, either.
    pub fn array_copied(&self, from: usize, to: usize, (len, ns): (usize, u64)) -> Ended {
        if to >= mapped_from() {
            return Ended::Well;
        }
        let ns = ns.min(len as u64 / COPIED_BYTES_IN_NS + COPYING_NS);
        let now = clock::monotonic_ns();
        let half = |class| self.charge(class, 0, ns / 2, (Cost { calls: ns / 2, faults: 0 }, now));
        match half(class(from)) {
            Ended::Well => half(class(to)),
            pause => pause,
        }
    }

    /// Charges what it cost at the time `now`, ns, to map `bytes`; a pause saves `saved_ns` of the calls.
    fn charge(&self, class: usize, bytes: usize, saved_ns: u64, (cost, now): (Cost, u64)) -> Ended {
        if self.trials[class].is_exempt(now, || seen(class)) {
            return Ended::Well;
        }
        let (is_too_much, look) = account::charge(cost, now);
        if self.learned.charged[class].swap(look, Ordering::Relaxed) != look && !is_too_much {
            self.trials[class].count_from(now, seen(class));
        }
        self.trials[class].charged(bytes, saved_ns);
        if is_too_much { self.pause(class, now) } else { Ended::Well }
    }

    fn pause(&self, class: usize, now: u64) -> Ended {
        let pause = &self.learned.pauses[class];
        let before = pause.load(Ordering::Relaxed);
        self.learned.charged[class].store(0, Ordering::Relaxed);
        if now / 1_000_000 < before >> COUNT_BITS {
            return Ended::Well;
        }
        let mut times = before & ((1 << COUNT_BITS) - 1);
        let calm_ns = now.saturating_sub((before >> COUNT_BITS) * 1_000_000);
        let seen = seen(class);
        let length_ns = PAUSE_NS.max(4 * PART * moving_ns(seen.placed as usize));
        self.learned.lengths[class].store(length_ns, Ordering::Relaxed);
        while times > 0 && calm_ns > (CALM * length_ns) << times {
            times -= 1;
        }
        let until_ms = (now + (length_ns << times)) / 1_000_000;
        pause.store(until_ms << COUNT_BITS | (times + 1).min(MOST_DOUBLINGS), Ordering::Relaxed);
        self.trials[class].pauses(now, seen);
        Ended::Pause { first: before == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn arrays_are_charged_for_which_as_much_was_unmapped() {
        const MIB: usize = 1 << 20;
        assert!(!was_freed(MIB), "the first one");
        unmapped(3 * MIB / 2);
        assert!(was_freed(MIB) && !was_freed(MIB) && was_freed(MIB / 2));
        unmapped(ALWAYS_MAPPED);
        assert!(!was_freed(MIB), "glibc maps it, too");
    }

    #[test]
    fn what_is_unmapped_in_pieces_costs_each_of_them() {
        let calls = |pieces: u64| cost(PAGE, pieces * UNMAPPING_NS).calls;
        assert_eq!((calls(1), calls(4)), (MAPPING_NS, 2 * MAPPING_NS));
    }

    #[test]
    fn only_arrays_are_charged_for_a_cut_that_the_allocator_does_not_map() {
        let charged = |bytes: usize| {
            let churn = Churn::default();
            (0..100).for_each(|_| _ = churn.array_cut(bytes));
            churn.learned.charged.iter().any(|look| look.load(Ordering::Relaxed) > 0)
        };
        assert!(charged(MOST_SHARED) && !charged(ALWAYS_MAPPED));
    }

    #[test]
    fn a_pause_is_for_one_class_of_sizes_and_doubles() {
        let churn = Churn::default();
        let now = clock::monotonic_ns();
        let of = class(1 << 20);
        assert!(!churn.is_over(1 << 20) && !churn.is_any_over(PAGE));
        assert_eq!(churn.pause(of, now), Ended::Pause { first: true });
        assert!(churn.is_over((2 << 20) - 1) && !churn.is_over(2 << 20) && !churn.is_over_small());
        assert!(churn.is_any_over(PAGE) && churn.is_any_over(2 << 20) && !churn.is_any_over(ALWAYS_MAPPED));
        assert_eq!(churn.pause(of, now), Ended::Well, "it lasts");
        let mut begin = now;
        for length in (1..20).map(|n| PAUSE_NS << MOST_DOUBLINGS.min(n)) {
            begin += length;
            assert_eq!(churn.pause(of, begin), Ended::Pause { first: false });
        }
        let lasts = |churn: &Churn, now: u64| churn.learned.pauses[of].load(Ordering::Relaxed) >> COUNT_BITS > now / MS;
        begin += 2 * ((CALM * PAUSE_NS) << MOST_DOUBLINGS);
        churn.pause(of, begin);
        assert!(!lasts(&churn, begin + (PAUSE_NS << (MOST_DOUBLINGS - 1))), "shorter after a calm time");
    }

    #[test]
    fn classes_are_powers_of_two() {
        assert_eq!([PAGE, MOST_SHARED - 1, MOST_SHARED, 255 << 10, 256 << 10].map(class), [0, 0, 1, 1, 2]);
        let large = [ALWAYS_MAPPED - 1, ALWAYS_MAPPED, usize::MAX].map(class);
        assert_eq!(large, [CLASSES - 2, CLASSES - 1, CLASSES - 1]);
    }
}
