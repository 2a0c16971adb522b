//! The account of a process and its forked children: time that was charged, and what the processes used meanwhile.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use numamma_hook::fork_wiped;
use numamma_kernel::sys::PAGE;

use super::inherited::{AllZero, Inherited};
use crate::rules::{heap_account, in_use};

/// Time that a page fault takes, ns: 0.5 us on a machine of its own to 2 us on a virtual one.
pub const FAULT_NS: u64 = 1_000;
/// Part (1/20) of the time that may be charged.
pub const PART: u64 = 20;
/// Charged time from which the clock is compared, ns.
pub const LOOK_NS: u64 = 10_000_000;
/// Times that the time which passed must be longer than what was charged allows, until looks are no longer early: they
/// are short, and what is near the limit may be either.
const CLEARLY: u64 = 2;
/// Time that may be charged in any case, ns: what a program does while it starts says little of what it does then.
const CREDIT_NS: u64 = 20_000_000;
/// Mappings that may be charged in any case: some large temporaries, too, are part of a start.
const CREDIT: u32 = 32;
/// Charged time from which a forked child adds it to the account, ns: many children end before they are charged
/// [`LOOK_NS`], and a call of getrusage takes less than a thousandth of this.
const CHILD_NS: u64 = 1_000_000;

/// What the processes share.
#[derive(Default)]
pub struct Account {
    /// Since the last look, ns: what was charged, as much of it as calls took and pages were touched, and the CPU time
    /// of the processes that were charged.
    charged: AtomicU64,
    touched: AtomicU64,
    worked: AtomicU64,
    /// When that was, ns; 0 before the first, which only starts the clock: what is freed once, at the end of a step, is
    /// no churn.
    looked: AtomicU64,
    /// Charged time between two looks where they are early, ns; else 0. See [`begin`].
    early_ns: AtomicU64,
    /// Number of the next look, less 1, and of the last one that found too much.
    look: AtomicU32,
    too_much: AtomicU32,
    /// What was charged beyond the part of the time, ns: less what was charged less.
    beyond_ns: AtomicU64,
    /// Until when moving has been paid for, ns.
    paid_until: AtomicU64,
    /// What was used of [`CREDIT_NS`] and of [`CREDIT`].
    used_ns: AtomicU64,
    mappings: AtomicU32,
}

// SAFETY: atomic integers, of which zero is a value; what a process that ends leaves undone makes a sum too small.
unsafe impl AllZero for Account {}

/// What a process keeps for itself.
struct Own {
    /// Charged time that the account does not have yet, ns, and the part of it that calls took.
    charged: AtomicU64,
    of_calls: AtomicU64,
    /// Page faults and CPU time of the process when it added to the account last. A forked child begins with those of
    /// its parent, and from 0.
    faults: AtomicU64,
    cpu_ns: AtomicU64,
}

impl Own {
    const fn new() -> Own {
        let (charged, of_calls, faults, cpu_ns) =
            (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Own { charged, of_calls, faults, cpu_ns }
    }
}

static OWN: Own = Own::new();
static ACCOUNT: OnceLock<Inherited<Account>> = OnceLock::new();

/// What memory that is mapped takes, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Its system calls.
    pub calls: u64,
    /// The faults of its pages, if all of them are touched.
    pub faults: u64,
}

/// Charges `cost` at the time `now`, ns. True when that is too much; and the number of the next look.
#[inline(never)]
pub fn charge(cost: Cost, now: u64) -> (bool, u32) {
    let least = if fork_wiped::is_forked_child() { CHILD_NS } else { LOOK_NS };
    account().charge(&OWN, least, cost, now, used)
}

/// Whether who was charged before look number `charged`, or never (0), had a part in what was too much.
#[inline]
pub fn had_part(charged: u32) -> bool {
    charged > 0 && account().had_part(charged)
}

/// Notes that moving has been paid for until the time `until`, ns.
pub fn pay_until(until: u64) {
    account().paid_until.store(until, Ordering::Relaxed);
}

/// Begins to count anew at the time `now`, ns, and looks each time that `early_ns` were charged, if that is less than
/// [`LOOK_NS`], until little is charged: what is charged meanwhile moves back from the allocator's memory, which keeps
/// its pages.
pub fn begin(now: u64, early_ns: u64) {
    account().begin(&OWN, now, early_ns, used());
}

/// The account: made before the process may fork, see [`super::start`].
pub fn account() -> &'static Account {
    ACCOUNT.get_or_init(Inherited::default)
}

impl Account {
    /// Adds `cost` to what the process was charged, and to the account when that is at least `least`; see [`charge`].
    /// `used` tells what the process has used so far.
    fn charge(&self, own: &Own, least: u64, cost: Cost, now: u64, used: impl Fn() -> Used) -> (bool, u32) {
        let look = self.look.load(Ordering::Relaxed).wrapping_add(1).max(1);
        let mappings = self.mappings.load(Ordering::Relaxed);
        if mappings < CREDIT {
            // Threads that do so at the same time count as one.
            self.mappings.store(mappings + 1, Ordering::Relaxed);
        }
        own.of_calls.fetch_add(cost.calls, Ordering::Relaxed);
        let cost = cost.calls + cost.faults;
        let look_ns = self.look_ns();
        if own.charged.fetch_add(cost, Ordering::Relaxed) + cost < least.min(look_ns) {
            return (false, look);
        }
        let placed = self.add(own, used());
        if self.charged.load(Ordering::Relaxed) < look_ns {
            return (false, look);
        }
        (self.is_too_much(now, placed, mappings < CREDIT, look), look)
    }

    /// Charged time until the next look, ns.
    fn look_ns(&self) -> u64 {
        match self.early_ns.load(Ordering::Relaxed) {
            0 => LOOK_NS,
            early_ns => early_ns.min(LOOK_NS),
        }
    }

    /// See [`begin`].
    fn begin(&self, own: &Own, now: u64, early_ns: u64, used: Used) {
        self.add(own, used);
        for count in [&self.charged, &self.touched, &self.worked] {
            count.store(0, Ordering::Relaxed);
        }
        self.looked.store(now, Ordering::Relaxed);
        self.early_ns.store(early_ns, Ordering::Relaxed);
    }

    /// Adds what a process was charged, with what it `used` so far; returns the bytes that it has placed.
    fn add(&self, own: &Own, used: Used) -> usize {
        let Used { faults, cpu_ns, placed } = used;
        let charged = own.charged.swap(0, Ordering::Relaxed);
        let of_calls = own.of_calls.swap(0, Ordering::Relaxed);
        let faulted = since(faults, own.faults.swap(faults, Ordering::Relaxed)) * FAULT_NS;
        let worked = since(cpu_ns, own.cpu_ns.swap(cpu_ns, Ordering::Relaxed));
        // Pages that nobody touched cost nothing.
        let touched = charged.min(faulted + of_calls);
        self.worked.fetch_add(worked, Ordering::Relaxed);
        self.touched.fetch_add(touched, Ordering::Relaxed);
        self.charged.fetch_add(charged, Ordering::Relaxed);
        placed
    }

    /// Whether what was charged up to the time `now`, ns, in look number `look`, is too much.
    fn is_too_much(&self, now: u64, placed: usize, has_credit: bool, look: u32) -> bool {
        self.charged.store(0, Ordering::Relaxed);
        let (all, passed) = (self.touched.swap(0, Ordering::Relaxed), self.worked.swap(0, Ordering::Relaxed));
        let last = self.looked.swap(now, Ordering::Relaxed);
        let used_ns = self.used_ns.load(Ordering::Relaxed).min(CREDIT_NS);
        self.used_ns.store(used_ns + all, Ordering::Relaxed);
        let is_beyond = last > 0 && !has_credit && used_ns + all > CREDIT_NS && passed < PART * all;
        let before = self.beyond_ns.load(Ordering::Relaxed);
        let beyond = if is_beyond { before + (all - passed / PART) } else { before.saturating_sub(passed / PART) };
        let price = if now < self.paid_until.load(Ordering::Relaxed) { 0 } else { moving_ns(placed) };
        let is_too_much = is_beyond && beyond > price;
        self.beyond_ns.store(if is_too_much { 0 } else { beyond }, Ordering::Relaxed);
        if is_too_much || passed >= CLEARLY * PART * all {
            self.early_ns.store(0, Ordering::Relaxed);
        }
        if is_too_much {
            self.too_much.store(look, Ordering::Relaxed);
        }
        self.look.store(look, Ordering::Relaxed);
        is_too_much
    }

    /// See [`had_part`].
    fn had_part(&self, charged: u32) -> bool {
        charged > 0 && charged == self.too_much.load(Ordering::Relaxed)
    }
}

/// Time that it takes to move the `placed` bytes in use into the allocator's memory: its page faults, ns.
pub fn moving_ns(placed: usize) -> u64 {
    (placed / PAGE) as u64 * FAULT_NS
}

/// What the process has used so far.
#[derive(Clone, Copy, Default)]
pub struct Used {
    /// Page faults.
    pub faults: u64,
    /// CPU time of all threads, ns.
    pub cpu_ns: u64,
    /// Bytes of the placed objects in use.
    pub placed: usize,
}

/// What was added since a count was `before`. That of a forked child begins at 0.
fn since(now: u64, before: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

/// By getrusage(2). Not inlined: its structure would be in the stack frame of the caller, too.
#[inline(never)]
pub fn used() -> Used {
    // SAFETY: zeroes are a value of the plain structure.
    let mut used: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: the structure is writable.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut used) };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    let placed = in_use::bytes().saturating_add(heap_account::in_use());
    Used { faults: used.ru_minflt as u64, cpu_ns: ns(used.ru_utime) + ns(used.ru_stime), placed }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn used_of(faults: u64, cpu_ns: u64) -> Used {
        Used { faults, cpu_ns, ..Used::default() }
    }

    /// An account, and the process that it is for.
    #[derive(Default)]
    struct Alone(Account, Own);

    impl Alone {
        /// A twentieth of `cost` is for calls.
        fn charge(&self, cost: u64, now: u64, used: impl Fn() -> Used) -> (bool, u32) {
            let cost = Cost { calls: cost / 20, faults: cost - cost / 20 };
            self.0.charge(&self.1, LOOK_NS, cost, now, used)
        }
    }

    impl Default for Own {
        fn default() -> Own {
            Own::new()
        }
    }

    fn spent() -> Alone {
        let (used_ns, mappings) = (AtomicU64::new(CREDIT_NS), AtomicU32::new(CREDIT));
        Alone(Account { used_ns, mappings, ..Account::default() }, Own::new())
    }

    #[test]
    fn one_part_in_twenty_may_be_charged() {
        let too_much = |account: Alone, each_ms: u64, faults: u64| {
            (1..1000_u64).filter(|n| account.charge(MS, n * MS, || used_of(n * faults, n * each_ms * MS)).0).count()
        };
        let (all, few) = (MS / FAULT_NS, MS / FAULT_NS / 100);
        assert_eq!(too_much(spent(), 20, all), 0);
        assert_eq!(too_much(spent(), 19, all), 98, "a look after every ten, and the first only starts the clock");
        assert_eq!(too_much(Alone::default(), 19, all), 96, "32 mappings are free");
        assert_eq!(too_much(spent(), 19, few), 0, "pages that nobody touched");
    }

    #[test]
    fn what_moves_into_the_memory_of_the_allocator_is_a_price() {
        // A tenth of the time is charged, half of it too much: 5 ms of each look after the first, one in 5 mappings.
        let first = |placed_ms: u64, paid_until: u64| {
            let account = spent();
            account.0.paid_until.store(paid_until, Ordering::Relaxed);
            let placed = (placed_ms * MS / FAULT_NS) as usize * PAGE;
            let used = |n: u64| Used { faults: 2 * n * 1000, placed, cpu_ns: n * 20 * MS };
            (1..1000_u64).find(|n| account.charge(2 * MS, n * 20 * MS, || used(*n)).0)
        };
        assert_eq!((first(0, 0), first(95, 0), first(95, 2000 * MS)), (Some(10), Some(105), Some(10)));
    }

    #[test]
    fn looks_are_early_until_little_is_charged() {
        // Charged before the first look that finds too much, and how much must be charged for a look in the end, ms.
        let first = |each_ms: u64| {
            let account = spent();
            account.0.begin(&account.1, MS, LOOK_NS / 5, Used::default());
            let now = |n: u64| (1 + n * each_ms) * MS;
            let found = (1..100_u64).find(|n| account.charge(MS, now(*n), || used_of(n * 1000, n * each_ms * MS)).0);
            (found, account.0.look_ns() / MS)
        };
        assert_eq!(first(1), (Some(2), 10), "2 ms of 2 ms");
        assert_eq!(first(19), (Some(2), 10), "2 ms of 38 ms");
        assert_eq!((first(20), first(39)), ((None, 2), (None, 2)), "it may be more later");
        assert_eq!(first(40), (None, 10), "little");
    }

    #[test]
    fn all_that_were_charged_since_the_look_before_had_a_part() {
        let account = spent();
        let charge = |cost, ms| account.charge(cost, ms * MS, || used_of(ms * 100_000, ms * MS));
        let (_, early) = charge(LOOK_NS, 1);
        let (_, first) = charge(MS, 2);
        assert!(!account.0.had_part(early) && !account.0.had_part(first));
        let (is_too_much, second) = charge(LOOK_NS, 3);
        assert!(is_too_much && account.0.had_part(first) && account.0.had_part(second));
        assert!(!account.0.had_part(early) && !account.0.had_part(0));
    }

    #[test]
    fn children_that_end_early_are_charged_together() {
        // Each child is charged 3 ms, and its page faults begin at 0; the parent has had some.
        let first = |each_ms: u64| {
            let (account, own) = (spent().0, Own::new());
            own.faults.store(1_000_000, Ordering::Relaxed);
            (1..1000_u64).find(|child| {
                let own = Own { faults: AtomicU64::new(own.faults.load(Ordering::Relaxed)), ..Own::new() };
                (1..4).any(|n| {
                    account
                        .charge(&own, CHILD_NS, Cost { calls: 0, faults: MS }, child * each_ms * MS, || {
                            used_of(n * 1000, n * each_ms * MS / 3)
                        })
                        .0
                })
            })
        };
        assert_eq!((first(59), first(60)), (Some(7), None), "10 ms of four children, once the clock is started");
    }
}
