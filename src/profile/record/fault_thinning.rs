//! Keeps the recording of page faults within the overhead the user allowed.
//!
//! A program that maps, touches and unmaps memory in every step faults hundreds of thousands of times a second, and the
//! record of a fault costs as much as the fault. When faults have cost more than their share, only one in
//! [`FAULT_PERIOD`] of each thread is recorded, and when even looking at them costs more, that only in a part of the
//! time, until their rate allows all again. The kernel cannot tell the faults of one mapping or call site from those of
//! another before it records them (the event has no filter by address or by code), so all are thinned alike, each with
//! the same probability: the shares of first touchers stay what they were, and [`crate::profile::summary`] fills in the
//! pages between two faults of one thread. What tells memory that stays from memory that is unmapped again is the
//! program's resident memory: while that grows, some faults are always seen.

use std::time::Duration;

use crate::profile::perf::attr::FAULT_PERIOD;
use crate::profile::perf::calibrate::{Costs, FAULT_RECORDER_NS};
use crate::profile::perf::session::Faults;

/// Part of the allowed overhead that page faults may use. Samples take a quarter by calibration, allocations half.
const SHARE: f64 = 0.25;
/// What the record of a fault costs the program where that was not measured, nanoseconds (a nested virtual machine,
/// docs/measurements.md; on bare metal 100 to 200).
const DEFAULT_NS: u64 = 700;
/// What the event costs for a fault that it does not record, where that was not measured, as a part of what the record
/// costs (docs/measurements.md: 55 to 70 ns more than a disabled event, where a record takes 460 to 700).
const PASSED: f64 = 0.1;
/// Faults that may come at once, as the CPU time over which they would be allowed, as of allocations: 33,000 faults,
/// 130 MiB of memory, at the default bound and cost. They take 30 ms.
const CREDIT_NS: u64 = 4_000_000_000;
/// Faults are thinned so long before that is judged: two of the clock ticks in which CPU time is counted.
const LEAST_SOME: Duration = Duration::from_millis(20);
/// Faults are not seen at most so long: at least a sixth of the time has some.
const NONE: Duration = Duration::from_millis(100);
/// Part of the faults that must have made the program larger than it ever was, so that some go on being seen.
const GROWING: f64 = 0.5;
/// Longest wait for that, milliseconds: in it a thread fills some 10 MiB.
const UNSEEN_ROUND_MS: u64 = 4;
/// Pages that the program grows while faults are not seen, upon which some are seen again: 4 MiB.
const GROWN: u64 = 1024;

/// Watches the rate of page faults.
#[derive(Debug)]
pub struct FaultThinning {
    /// Part of the program's CPU time that faults may cost.
    share: f64,
    /// Cost of a fault that is recorded, nanoseconds.
    each_ns: f64,
    /// Cost of a fault that is not recorded while one in [`FAULT_PERIOD`] is, nanoseconds.
    passed_ns: f64,
    which: Faults,
    /// What was counted when that began.
    began: Counted,
    /// Largest number of resident pages, and what it was when `which` began.
    most: u64,
    most_before: u64,
    /// Finished times with some or no faults, and those with none.
    thinned_ns: u64,
    unseen_ns: u64,
}

/// What is known at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// CLOCK_MONOTONIC.
    pub now_ns: u64,
    /// CPU time of the program, ns.
    pub cpu_ns: u64,
    /// Page faults recorded or lost while all were recorded.
    pub faults: u64,
    /// Page faults recorded while some were.
    pub sampled: u64,
    /// Pages of the program in memory.
    pub resident: u64,
}

impl FaultThinning {
    /// For a bound of the overhead (a fraction), where faults cost the program so much. What they cost beside events
    /// that are switched off cannot be saved, and does not count.
    pub fn new(max_overhead: f64, costs: &Costs) -> FaultThinning {
        let fault_ns = if costs.fault_ns > 0 { costs.fault_ns } else { DEFAULT_NS };
        let each_ns = (fault_ns + FAULT_RECORDER_NS) as f64;
        let recorded = fault_ns as f64 / f64::from(FAULT_PERIOD);
        let passed_ns = match costs.fault_passed_ns {
            0 => each_ns * PASSED,
            ns => (ns as f64 - recorded).clamp(0.0, each_ns),
        };
        FaultThinning {
            share: max_overhead * SHARE,
            each_ns,
            passed_ns,
            which: Faults::All,
            began: Counted::default(),
            most: 0,
            most_before: 0,
            thinned_ns: 0,
            unseen_ns: 0,
        }
    }

    /// Which faults are to be recorded from now on; none when that does not change.
    pub fn watch(&mut self, now: Counted) -> Option<Faults> {
        let elapsed = Duration::from_nanos(now.now_ns.saturating_sub(self.began.now_ns));
        self.most = self.most.max(now.resident);
        let grown = self.most - self.most_before;
        let over = self.cost_ns(now) > self.share * (now.cpu_ns + CREDIT_NS) as f64;
        let next = match self.which {
            Faults::All if over => Faults::Some,
            Faults::Some if elapsed < LEAST_SOME => Faults::Some,
            Faults::Some if self.is_calm(now) => Faults::All,
            Faults::Some if grown as f64 >= GROWING * self.seen_since(now) => {
                // The next judgement is about the time from here on.
                self.change(Faults::Some, now)
            }
            Faults::Some if over => Faults::None,
            Faults::None if elapsed >= NONE || grown >= GROWN => Faults::Some,
            same => same,
        };
        (next != self.which).then(|| self.change(next, now))
    }

    fn change(&mut self, next: Faults, now: Counted) -> Faults {
        (self.thinned_ns, self.unseen_ns) = (self.thinned_ns(now.now_ns), self.unseen_ns(now.now_ns));
        (self.which, self.began, self.most_before) = (next, now, self.most);
        next
    }

    /// What faults have cost so far.
    fn cost_ns(&self, now: Counted) -> f64 {
        let passed = now.sampled as f64 * f64::from(FAULT_PERIOD) * self.passed_ns;
        (now.faults + now.sampled) as f64 * self.each_ns + passed
    }

    /// What each page fault costs the program now, nanoseconds, recorded or not.
    pub fn each_fault_ns(&self, costs: &Costs) -> u64 {
        costs.fault_off_ns
            + match self.which {
                Faults::All => costs.fault_ns,
                Faults::Some => costs.fault_passed_ns,
                Faults::None => 0,
            }
    }

    /// Whether all faults could have been recorded since some are.
    fn is_calm(&self, now: Counted) -> bool {
        // A program that waits has little CPU time; it is judged as if it used one CPU.
        let elapsed = now.now_ns.saturating_sub(self.began.now_ns);
        let used = now.cpu_ns.saturating_sub(self.began.cpu_ns).max(elapsed);
        self.seen_since(now) * self.each_ns <= self.share * used as f64
    }

    /// Faults since some are recorded, from those.
    fn seen_since(&self, now: Counted) -> f64 {
        now.sampled.saturating_sub(self.began.sampled) as f64 * f64::from(FAULT_PERIOD)
    }

    /// How often [`FaultThinning::watch`] is to be called at least, milliseconds between two calls.
    pub fn longest_round_ms(&self) -> u64 {
        if self.which == Faults::None { UNSEEN_ROUND_MS } else { u64::MAX }
    }

    /// Time in which not all faults were recorded, up to `now_ns`.
    pub fn thinned_ns(&self, now_ns: u64) -> u64 {
        self.thinned_ns + if self.which == Faults::All { 0 } else { now_ns.saturating_sub(self.began.now_ns) }
    }

    /// Time in which none was, up to `now_ns`.
    pub fn unseen_ns(&self, now_ns: u64) -> u64 {
        self.unseen_ns + if self.which == Faults::None { now_ns.saturating_sub(self.began.now_ns) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const STEP: u64 = 20_000_000;

    /// Where a fault costs so much; the rest is not known.
    fn new(max_overhead: f64, fault_ns: u64) -> FaultThinning {
        FaultThinning::new(max_overhead, &Costs { fault_ns, ..Costs::default() })
    }

    /// A program that uses one CPU and faults `rate` times a second until `to_ns`: how often what was decided.
    fn run(thinning: &mut FaultThinning, counted: &mut Counted, rate: u64, to_ns: u64) -> [u32; 3] {
        let mut decided = [0; 3];
        while counted.now_ns < to_ns {
            let faults = rate * STEP / SECOND;
            match thinning.which {
                Faults::All => counted.faults += faults,
                Faults::Some => counted.sampled += faults / u64::from(FAULT_PERIOD),
                Faults::None => {}
            }
            counted.now_ns += STEP;
            counted.cpu_ns += STEP;
            if let Some(which) = thinning.watch(*counted) {
                decided[which as usize] += 1;
            }
        }
        decided
    }

    #[test]
    fn storms_are_thinned_and_what_follows_is_recorded_again() {
        let (mut thinning, mut counted) = (new(0.03, 700), Counted::default());
        assert_eq!(run(&mut thinning, &mut counted, 8_000, 2 * SECOND), [0; 3], "the allowed rate");
        let [all, some, none] = run(&mut thinning, &mut counted, 300_000, 12 * SECOND);
        assert!(all == 0 && some > 10 && none > 10, "{all} {some} {none}");
        // The looks at faults that are needed to see the end of the storm may exceed the share a little.
        let cost = thinning.cost_ns(counted);
        let bound = 0.03 * SHARE * (counted.cpu_ns + CREDIT_NS) as f64;
        assert!((0.9 * bound..1.1 * bound).contains(&cost), "{cost} of {bound}");
        let unseen = thinning.unseen_ns(counted.now_ns);
        assert!((4 * SECOND..8 * SECOND).contains(&unseen), "{unseen}");
        let [all, ..] = run(&mut thinning, &mut counted, 100, 13 * SECOND);
        assert_eq!((all, thinning.which), (1, Faults::All), "once, after the storm");
        assert_eq!(thinning.thinned_ns(counted.now_ns), thinning.thinned_ns(u64::MAX));
        assert!(run(&mut thinning, &mut counted, 300_000, 14 * SECOND)[Faults::Some as usize] > 0, "the next storm");
    }

    #[test]
    fn some_faults_are_seen_in_any_storm() {
        let (mut thinning, mut counted) = (new(0.001, 5_000), Counted::default());
        run(&mut thinning, &mut counted, 2_000_000, 10 * SECOND);
        let unseen = thinning.unseen_ns(counted.now_ns) as f64 / counted.now_ns as f64;
        assert!((0.7..0.86).contains(&unseen), "{unseen}");
    }

    #[test]
    fn memory_that_stays_is_always_seen() {
        let (mut thinning, mut counted) = (new(0.03, 700), Counted::default());
        // A second of a storm, then the program fills memory.
        run(&mut thinning, &mut counted, 300_000, SECOND);
        let mut unseen = Vec::new();
        for _ in 0..20 {
            counted.resident += 10_000;
            let to_ns = counted.now_ns + STEP;
            run(&mut thinning, &mut counted, 500_000, to_ns);
            unseen.push(thinning.unseen_ns(counted.now_ns));
        }
        assert!(unseen[0] < unseen[19] || thinning.which == Faults::Some);
        assert!(unseen[2..].iter().all(|ns| *ns == unseen[2]), "{unseen:?}");
        // Not when it frees what it fills.
        let to_ns = counted.now_ns + SECOND;
        run(&mut thinning, &mut counted, 300_000, to_ns);
        assert!(thinning.unseen_ns(counted.now_ns) > unseen[19] + SECOND / 2);
    }

    #[test]
    fn the_cost_of_a_fault_decides() {
        let thinned = |cost| {
            let (mut thinning, mut counted) = (new(0.03, cost), Counted::default());
            run(&mut thinning, &mut counted, 20_000, 6 * SECOND)[Faults::Some as usize]
        };
        assert_eq!(thinned(0), thinned(DEFAULT_NS));
        assert!(thinned(100) == 0 && thinned(700) > 0);
    }

    #[test]
    fn what_a_fault_costs_depends_on_the_events() {
        let costs = Costs { fault_ns: 610, fault_passed_ns: 90, fault_off_ns: 40, ..Costs::default() };
        let mut thinning = FaultThinning::new(0.03, &costs);
        let mut each = |which| {
            thinning.which = which;
            thinning.each_fault_ns(&costs)
        };
        assert_eq!([each(Faults::All), each(Faults::Some), each(Faults::None)], [650, 130, 40]);
        let counted = Counted { sampled: 1, ..Counted::default() };
        // 80 for each of the 61 that pass, and the record of one with what the recorder does with it.
        assert!((thinning.cost_ns(counted) - (61.0 * 80.0 + 810.0)).abs() < 1.0, "{}", thinning.cost_ns(counted));
    }
}
