//! How the work is divided over the kinds of threads that run beside each other, as the stages of a pipeline, and how
//! many threads of each kind its work needs.
//!
//! As NumaPerf does (Zhao et al.: NumaPerf: Predictive NUMA Profiling, ICS 2021), work is counted in memory accesses,
//! and the threads that there are are dealt out in that proportion. A kind counts if it runs beside the one with most
//! work: kinds of different phases do not wait for each other. Main threads do not count, of which there is one, nor
//! teams of OpenMP, whose size is no decision of the program, nor threads that spend their time in sleeping or reading:
//! more of them do not work faster. Nor do those that do next to nothing, and where records of threads were lost
//! nothing is known of who lived beside whom.

use std::collections::{BTreeMap, BTreeSet};

use super::lifetimes::{Stretches, length, life, shared_by};
use super::limits::HOT_SHARE;
use super::roles::{Kind, Roles};
use crate::profile::record::FAULT;
use crate::profile::records::{Thread, ThreadId, Waits};
use crate::profile::summary::Summary;

/// Times the most work of a thread with the proposed numbers that it must be now: a quarter of the time is worth a
/// change.
const KINDS_UNEVEN: f64 = 1.25;
/// Standard deviations of counted accesses by which it must be above, so that chance makes no difference.
const SURE: f64 = 4.5;

/// Part of their life that the threads of a kind must wait for others, blocked or in loops, to be a stage that lacks
/// work: what [`KINDS_UNEVEN`] would take off the time.
const WAITING: f64 = 1.0 - 1.0 / KINDS_UNEVEN;

/// A kind of threads that runs beside others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindLoad {
    /// Index into [`Roles::kinds`].
    pub kind: usize,
    /// What its threads run, or are called.
    pub name: String,
    /// Threads at a time.
    pub threads: usize,
    /// Their accesses.
    pub accesses: u64,
    /// Threads that its work needs, of as many as all kinds have together.
    pub proposed: usize,
    /// Whether its threads wait for others, as a stage without work does; also where that is not known.
    pub waits: bool,
}

impl KindLoad {
    /// Accesses of each of its threads.
    pub fn mean(&self) -> f64 {
        self.accesses as f64 / self.threads.max(1) as f64
    }

    /// The same with as many threads as are proposed.
    pub fn proposed_mean(&self) -> f64 {
        self.accesses as f64 / self.proposed.max(1) as f64
    }
}

/// The kinds that run beside each other, in the order of their first threads; empty where that is one, and where starts
/// or ends of threads may be among the records that were lost, or where accesses are no measure of work.
pub fn loads(summary: &Summary, roles: &Roles) -> Vec<KindLoad> {
    if summary.stats.events.mappings_lost > 0 || summary.stats.events.starts_lost > 0 || !counts_work(summary) {
        return Vec::new();
    }
    let accesses = accesses_by_thread(summary);
    let kinds = roles.kinds.iter().enumerate().skip(1);
    let mut rows: Vec<Row> = kinds.filter_map(|(kind, of)| Row::of(summary, roles, (kind, of), &accesses)).collect();
    let all: u64 = rows.iter().map(|row| row.accesses).fold(0, u64::saturating_add);
    rows.retain(|row| row.accesses as f64 >= HOT_SHARE * all as f64);
    let Some(most) = rows.iter().max_by_key(|row| row.accesses).map(|row| row.alive.clone()) else { return Vec::new() };
    rows.retain(|row| {
        let both = length(&shared_by(2, row.alive.iter().chain(&most).copied()));
        both >= length(&row.alive).min(length(&most)) / 2
    });
    if rows.len() < 2 {
        return Vec::new();
    }
    let work: Vec<u64> = rows.iter().map(|row| row.accesses).collect();
    let proposed = proportional(&work, rows.iter().map(|row| row.places.len()).sum());
    let names = names(summary, roles, &rows);
    let load = |((row, proposed), name): ((&Row, usize), String)| KindLoad {
        kind: row.kind,
        name,
        threads: row.places.len(),
        accesses: row.accesses,
        proposed,
        waits: row.waits,
    };
    rows.iter().zip(proposed).zip(names).map(load).collect()
}

/// Whether the accesses of a thread are in proportion to its work: not those of the `fault` sampler, which counts first
/// uses of pages.
pub fn counts_work(summary: &Summary) -> bool {
    summary.header.sampling.sampler != FAULT
}

/// Whether the threads with most work have so much that other numbers of threads fit better, and threads that others
/// can do without wait for them. Not of kinds of one name, which no advice can tell apart.
pub fn is_uneven(loads: &[KindLoad]) -> bool {
    let names: BTreeSet<&str> = loads.iter().map(|load| load.name.as_str()).collect();
    if names.len() < loads.len() {
        return false;
    }
    let Some(most) = loads.iter().max_by(|a, b| a.mean().total_cmp(&b.mean())) else { return false };
    let then = loads.iter().map(KindLoad::proposed_mean).fold(0.0, f64::max);
    let deviation = (most.accesses as f64).sqrt() / most.threads.max(1) as f64;
    let waits = loads.iter().any(|load| load.waits && load.proposed < load.threads);
    waits && most.mean() >= KINDS_UNEVEN * then && most.mean() - then >= SURE * deviation
}

/// What is known of a kind.
struct Row {
    kind: usize,
    /// Its threads: those that take the place of one that ended are one.
    places: BTreeSet<u32>,
    first: ThreadId,
    accesses: u64,
    alive: Stretches,
    waits: bool,
}

impl Row {
    /// None for a kind that does not count.
    fn of(
        summary: &Summary,
        roles: &Roles,
        (kind, of): (usize, &Kind),
        accesses: &BTreeMap<ThreadId, u64>,
    ) -> Option<Row> {
        let own = || summary.threads.iter().filter(|t| roles.of(t.id).is_some_and(|role| role.kind == kind));
        // Of a kind that works the threads that do.
        let works = |t: &&Thread| roles.of(t.id).is_some_and(|role| of.slots.contains(&role.slot));
        let counts = |t: &&Thread| of.slots.is_empty() || works(t);
        let places: BTreeSet<u32> = own().filter(counts).filter_map(|t| roles.place(t.id)).collect();
        if of.openmp || is_elsewhere(own()) {
            return None;
        }
        Some(Row {
            kind,
            places,
            first: own().next()?.id,
            accesses: own().filter_map(|t| accesses.get(&t.id)).fold(0, |sum, n| n.saturating_add(sum)),
            alive: shared_by(1, own().map(|t| life(t, summary.duration_ns()))),
            waits: waits_for_others(own(), |id| spun_ns(summary, id)),
        })
    }
}

/// Whether threads spend most of their time in waiting for something else than each other.
fn is_elsewhere<'a>(threads: impl Iterator<Item = &'a Thread>) -> bool {
    let mut sum = Waits::default();
    threads.filter_map(|t| t.waits).for_each(|waits| sum.add(&waits));
    // Not by the time that they live: on a busy machine the others wait for a CPU.
    sum.otherwise > sum.for_threads && sum.blocked_ns > sum.ran_ns
}

/// Whether threads spend a part of their time in waiting for others that counts, or that is not known. `spun_ns` is
/// what a thread spent in loops.
fn waits_for_others<'a>(threads: impl Iterator<Item = &'a Thread>, spun_ns: impl Fn(ThreadId) -> u64) -> bool {
    let (mut sum, mut spun) = (Waits::default(), 0);
    for (id, waits) in threads.filter_map(|t| Some((t.id, t.waits?))) {
        sum.add(&waits);
        spun += spun_ns(id);
    }
    let blocked = if sum.all > 0 { sum.blocked_ns } else { 0 };
    sum.seen_ns == 0 || (blocked + spun) as f64 >= WAITING * sum.seen_ns as f64
}

/// CPU time that a thread waited for others in loops.
fn spun_ns(summary: &Summary, thread: ThreadId) -> u64 {
    summary.spinning.cells.iter().filter(|cell| cell.thread == thread).map(|cell| cell.counters.cost_ns).sum()
}

fn accesses_by_thread(summary: &Summary) -> BTreeMap<ThreadId, u64> {
    let mut by_thread = BTreeMap::new();
    for (thread, counters) in summary.entries.iter().flat_map(|e| e.threads()) {
        *by_thread.entry(thread).or_default() += counters.accesses();
    }
    by_thread
}

/// The function that each kind runs, or the place that creates it; with the name of its threads, where no other kind
/// has that.
fn names(summary: &Summary, roles: &Roles, rows: &[Row]) -> Vec<String> {
    let called = |row: &Row| summary.threads.get(row.first as usize).map_or("", |t| &t.name);
    let name = |row: &Row| {
        let origin = roles.kinds.get(row.kind).and_then(|kind| kind.origins.first().copied());
        let frame = origin.and_then(|(routine, site)| site.or(routine));
        let own = called(row);
        let is_own = rows.iter().filter(|other| called(other) == own).count() == 1 && !own.is_empty();
        match frame.map(|frame| summary.frame_name(frame)) {
            Some(runs) if is_own => format!("{runs} ({own})"),
            Some(runs) => runs,
            None => own.to_owned(),
        }
    };
    rows.iter().map(name).collect()
}

/// As many threads as there are, in the proportion of the work of their kinds, at least one of each.
fn proportional(work: &[u64], threads: usize) -> Vec<usize> {
    let all: u64 = work.iter().sum();
    let mut counts = vec![1; work.len()];
    for _ in work.len()..threads {
        // The next thread goes where each has most work.
        let load = |k: usize| work[k] as f64 / counts[k] as f64;
        let next = (0..work.len()).max_by(|a, b| load(*a).total_cmp(&load(*b)));
        match next {
            Some(next) if all > 0 => counts[next] += 1,
            _ => break,
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::super::roles::tests::Run;
    use super::*;
    use crate::profile::records::Frame;

    #[test]
    fn threads_are_dealt_in_proportion_to_the_work() {
        assert_eq!(proportional(&[100, 300], 4), [1, 3]);
        assert_eq!(proportional(&[1, 1_000_000, 1], 8), [1, 6, 1], "one of each at least");
        assert_eq!(proportional(&[0, 0], 5), [1, 1]);
        // The worst load is the least that whole threads allow.
        let (work, counts) = ([50_u64, 120, 330], proportional(&[50, 120, 330], 10));
        assert_eq!(counts.iter().sum::<usize>(), 10);
        let worst = |c: &[usize]| work.iter().zip(c).map(|(w, n)| *w as f64 / *n as f64).fold(0.0, f64::max);
        for a in 1..9 {
            for b in 1..10 - a {
                assert!(worst(&counts) <= worst(&[a, b, 10 - a - b]), "{counts:?}");
            }
        }
    }

    fn load(threads: usize, accesses: u64, proposed: usize) -> KindLoad {
        KindLoad { kind: 1, name: format!("{threads} {accesses}"), threads, accesses, proposed, waits: true }
    }

    #[test]
    fn stages_of_one_thread_each_are_in_the_table_however_light() {
        let mut run = Run::new();
        for (offset, threads, accesses) in [(0x100, 2, 50), (0x200, 1, 2000), (0x300, 1, 100)] {
            for thread in run.team(threads, Frame { module: 0, offset }, (0, 640)) {
                run.works(thread, 0..64, accesses);
            }
        }
        let summary = run.summary();
        let loads = loads(&summary, &crate::detect::roles(&summary));
        let found: Vec<_> = loads.iter().map(|load| (load.threads, load.proposed)).collect();
        assert_eq!(found, [(2, 1), (1, 2), (1, 1)]);
    }

    /// Four threads that make `light` accesses in each time slot beside four that make a thousand.
    fn stages(light: u64) -> Summary {
        let mut run = Run::new();
        for (offset, accesses) in [(0x100, light), (0x200, 1000)] {
            for thread in run.team(4, Frame { module: 0, offset }, (0, 640)) {
                run.works(thread, 0..64, accesses);
            }
        }
        run.summary()
    }

    fn threads_of(summary: &Summary) -> Vec<usize> {
        loads(summary, &crate::detect::roles(summary)).iter().map(|load| load.threads).collect()
    }

    #[test]
    fn lost_records_of_threads_leave_it_open_who_lived_beside_whom() {
        let mut summary = stages(400);
        assert_eq!(threads_of(&summary), [4, 4]);
        summary.stats.events.mappings_lost = 1;
        assert_eq!(threads_of(&summary), [0; 0]);
    }

    #[test]
    fn first_uses_of_pages_are_no_work() {
        let mut summary = stages(400);
        summary.header.sampling.sampler = FAULT.into();
        assert_eq!(threads_of(&summary), [0; 0]);
    }

    #[test]
    fn threads_that_do_next_to_nothing_are_no_stage() {
        assert_eq!(threads_of(&stages(2)), [0; 0]);
    }

    #[test]
    fn kinds_of_one_name_are_not_compared() {
        let mut loads = [load(3, 3_000, 1), load(1, 6_000, 3)];
        assert!(is_uneven(&loads));
        loads.iter_mut().for_each(|load| load.name = "minimap2+0x11a90".into());
        assert!(!is_uneven(&loads));
    }

    #[test]
    fn what_is_uneven() {
        assert!(is_uneven(&[load(3, 3_000, 1), load(1, 6_000, 3)]));
        assert!(!is_uneven(&[load(3, 1_900, 2), load(3, 2_900, 4), load(1, 100, 1)]), "nearly even");
        assert!(is_uneven(&[load(3, 30, 1), load(3, 300, 5)]) && !is_uneven(&[load(3, 3, 1), load(3, 30, 5)]), "few");
        assert!(!is_uneven(&[load(1, 100, 1), load(1, 9_000, 1)]), "no thread to spare");
        assert!(!is_uneven(&[load(4, 9_000, 4)]), "one kind");
    }

    #[test]
    fn threads_that_never_wait_for_each_other_are_no_stages() {
        let of = |all, blocked_ns, seen_ns| Thread {
            waits: Some(Waits { all, for_threads: all, blocked_ns, seen_ns, ..Waits::default() }),
            ..Thread::default()
        };
        assert!(waits_for_others([of(9, 75, 100), of(9, 60, 100)].iter(), |_| 0), "a stage without work");
        assert!(!waits_for_others([of(1, 2, 100)].iter(), |_| 0), "a barrier at the start");
        assert!(!waits_for_others([of(0, 0, 100)].iter(), |_| 0));
        assert!(waits_for_others([of(0, 0, 100)].iter(), |_| 75), "a queue without locks");
        assert!(waits_for_others([Thread::default()].iter(), |_| 0), "not known");
        let mut loads = [load(3, 3_000, 1), load(1, 6_000, 3)];
        loads[0].waits = false;
        assert!(!is_uneven(&loads), "the one with most work waits for nobody");
        let [light, heavy] = loads;
        assert!(!is_uneven(&[light, heavy, load(1, 100, 1)]), "the one that waits is the only one of its kind");
    }

    #[test]
    fn threads_that_sleep_are_told_from_threads_that_wait_for_others() {
        let of = |for_threads, otherwise, blocked_ns| Thread {
            waits: Some(Waits { for_threads, otherwise, blocked_ns, ran_ns: 20, ..Waits::default() }),
            ..Thread::default()
        };
        assert!(is_elsewhere([of(0, 9, 90)].iter()));
        assert!(!is_elsewhere([of(9, 0, 90)].iter()), "a stage without work");
        assert!(!is_elsewhere([of(0, 9, 10)].iter()), "a few page faults");
        assert!(!is_elsewhere([Thread::default()].iter()));
    }
}
