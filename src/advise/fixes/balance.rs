//! Work that is divided unevenly: over the threads of a kind, and over the kinds.

use std::collections::BTreeMap;

use super::fix::{Fix, FixKind, Place};
use super::places::{hottest, of_part};
use crate::detect::{KindLoad, Rank, Roles, counts_work, is_uneven, loads};
use crate::profile::record::TRACE;
use crate::profile::records::ThreadId;
use crate::profile::summary::{Cell, CodePart, Entry, Summary, ratio};

/// Times the mean of its team that a thread's work must be for a finding. Work is counted by samples of CPU time, and a
/// thread that shares its core with another one (SMT) gets on at 0.6 to 0.7 of its speed alone: it takes up to 1.7
/// times the time for the same work.
const UNEVEN: f64 = 1.7;
/// The same where all accesses are counted, which a shared core does not change: the load balance (mean over most) of
/// the POP standard metrics for parallel performance is good from 0.8 on.
const UNEVEN_COUNTS: f64 = 1.25;
/// Standard deviations of counted accesses by which it must be above the mean, so that chance makes none in a team of a
/// thousand threads.
const SURE: f64 = 4.5;

/// Accesses of the workers of one kind.
struct Team {
    kind: usize,
    name: String,
    work: Vec<Worker>,
}

/// A thread that works, or the successive threads that take its place.
struct Worker {
    place: u32,
    /// Number among the workers.
    rank: u32,
    first: ThreadId,
    threads: u32,
    accesses: u64,
}

impl Worker {
    /// Accesses of one of its threads.
    fn of_one(&self) -> f64 {
        self.accesses as f64 / f64::from(self.threads.max(1))
    }
}

impl Team {
    fn mean(&self) -> f64 {
        self.work.iter().map(|worker| worker.accesses).sum::<u64>() as f64 / self.work.len() as f64
    }
}

/// The kind in whose team a thread works: that of its creation, and of a main thread the team that it creates and works
/// in.
fn team_of(roles: &Roles, kind: usize) -> usize {
    let creates = |of: &usize| roles.kinds[*of].creator.is_none() && roles.kinds[*of].creator_works;
    let teams = (MAIN + 1..roles.kinds.len()).filter(creates);
    let most = || teams.max_by(|a, b| roles.kinds[*a].share.total_cmp(&roles.kinds[*b].share));
    if kind == MAIN { most().unwrap_or(MAIN) } else { kind }
}

/// Index of the kind of main threads.
const MAIN: usize = 0;

/// Accesses by the code of an entry: by its parts, and as a whole where there are none.
fn by_code(entry: &Entry) -> Vec<(Option<&CodePart>, &[Cell])> {
    match entry.by_code.as_slice() {
        [] => vec![(None, entry.cells.as_slice())],
        parts => parts.iter().map(|part| (Some(part), part.cells.as_slice())).collect(),
    }
}

fn by_thread(cells: &[Cell]) -> BTreeMap<ThreadId, u64> {
    let mut sums = BTreeMap::<ThreadId, u64>::new();
    cells.iter().for_each(|cell| *sums.entry(cell.thread).or_default() += cell.counters.accesses());
    sums
}

/// Accesses by thread. Of main threads those by code that others run at the same object: what they do before and after
/// their team works is no part of that.
fn work(summary: &Summary, roles: &Roles) -> BTreeMap<ThreadId, u64> {
    let is_main = |thread: ThreadId| roles.of(thread).is_none_or(|role| role.kind == MAIN);
    let mut sums = BTreeMap::<ThreadId, u64>::new();
    for entry in &summary.entries {
        for (_, cells) in by_code(entry) {
            let own = by_thread(cells);
            let is_shared = own.keys().any(|thread| !is_main(*thread));
            let counted = own.into_iter().filter(|(thread, _)| is_shared || !is_main(*thread));
            counted.for_each(|(thread, accesses)| *sums.entry(thread).or_default() += accesses);
        }
        for (thread, counters) in entry.details.unpaged_by.iter().filter(|(thread, _)| !is_main(*thread)) {
            *sums.entry(*thread).or_default() += counters.accesses();
        }
    }
    sums
}

/// Teams of at least a thread that works, by kind.
fn teams(summary: &Summary, roles: &Roles) -> Vec<Team> {
    let mut teams: Vec<Team> = Vec::new();
    for (thread, accesses) in work(summary, roles) {
        let Some((role, place)) = roles.of(thread).zip(roles.place(thread)) else { continue };
        let Some(Rank { rank, .. }) = role.rank else { continue };
        let kind = team_of(roles, role.kind);
        let at = teams.iter().position(|team| team.kind == kind).unwrap_or_else(|| {
            let name = summary.threads.iter().find(|t| t.id == thread).map_or("", |t| &t.name);
            teams.push(Team { kind, name: name.to_owned(), work: Vec::new() });
            teams.len() - 1
        });
        let work = &mut teams[at].work;
        match work.iter_mut().find(|worker| worker.place == place) {
            Some(worker) => (worker.threads, worker.accesses) = (worker.threads + 1, worker.accesses + accesses),
            None => work.push(Worker { place, rank, first: thread, threads: 1, accesses }),
        }
    }
    teams
}

/// The code by which a worker makes most accesses.
fn busiest_code(summary: &Summary, roles: &Roles, worker: &Worker) -> Option<Place> {
    let is_own = |cell: &&Cell| roles.place(cell.thread) == Some(worker.place);
    let own = |cells: &[Cell]| cells.iter().filter(is_own).map(|cell| cell.counters.accesses()).sum::<u64>();
    let all = summary.entries.iter().flat_map(|entry| by_code(entry).into_iter().map(move |code| (entry, code)));
    let (entry, (part, _)) = all.max_by_key(|(_, (_, cells))| own(cells))?;
    match part.filter(|part| part.nest.is_some()) {
        Some(part) => Some(of_part(summary, "use", part)),
        None => hottest(summary, entry),
    }
}

/// Uneven threads of a team, and kinds whose numbers of threads do not fit their work.
pub(super) fn fixes(summary: &Summary, roles: &Roles) -> Vec<Fix> {
    if !counts_work(summary) {
        return Vec::new();
    }
    let teams = teams(summary, roles);
    let mut out: Vec<Fix> = teams.iter().filter_map(|team| uneven(summary, roles, team)).collect();
    out.extend(counts(&loads(summary, roles)));
    out
}

/// Whether a worker makes more accesses only because it got more CPU time than others that wanted as much, as where
/// threads take their work from a queue while other programs have the CPUs: nobody waits for it.
fn is_by_cpu_time(summary: &Summary, roles: &Roles, team: &Team, most: &Worker, limit: f64) -> bool {
    let of = |worker: &Worker| {
        let own = summary.threads.iter().filter(|thread| roles.place(thread.id) == Some(worker.place));
        own.fold((0.0, 0.0), |(ran, wanted), thread| {
            let waits = thread.waits.unwrap_or_default();
            let could_run = waits.seen_ns.saturating_sub(waits.blocked_ns).max(waits.ran_ns);
            (ran + waits.ran_ns as f64, wanted + could_run as f64)
        })
    };
    // A team of OpenMP waits at the end of each loop, often in loops of its own, and what runs is no measure of its
    // work.
    if roles.kinds.get(team.kind).is_some_and(|kind| kind.openmp) {
        return false;
    }
    // A main thread that waits for the others to end does not take part.
    let is_main = |worker: &&Worker| roles.of(worker.first).is_some_and(|role| role.kind == MAIN);
    let workers: Vec<(f64, f64)> = team.work.iter().filter(|worker| !is_main(worker)).map(of).collect();
    if workers.iter().any(|(ran, _)| *ran <= 0.0) {
        return false;
    }
    let mean = |values: fn(&(f64, f64)) -> f64| workers.iter().map(values).sum::<f64>() / workers.len() as f64;
    let (ran, wanted) = of(most);
    let work = most.accesses as f64 / team.mean();
    // On a busy machine the others wait long for a CPU, and end before it all the same.
    work / (ran / mean(|w| w.0)) < limit && wanted / mean(|w| w.1) < UNEVEN_COUNTS
}

fn uneven(summary: &Summary, roles: &Roles, team: &Team) -> Option<Fix> {
    let most = team.work.iter().max_by_key(|worker| worker.accesses)?;
    let (mean, work) = (team.mean(), most.accesses as f64);
    let limit = if summary.header.sampling.sampler == TRACE { UNEVEN_COUNTS } else { UNEVEN };
    if team.work.len() < 2 || work < limit * mean || work - mean < SURE * mean.sqrt() {
        return None;
    }
    // Short threads of one kind take each other's place as they happen to end: more of them in a place are no more work
    // for one thread.
    if most.of_one() < limit * team.work.iter().map(Worker::of_one).sum::<f64>() / team.work.len() as f64 {
        return None;
    }
    if is_by_cpu_time(summary, roles, team, most, limit) {
        return None;
    }
    let what = "divide the work by its cost and not by its number: schedule(dynamic) or (guided), or shorter parts";
    let (who, all) = match most.threads {
        1 => (format!("thread {}", most.first), "threads"),
        n => (format!("worker {} ({n} threads in turn, the first is thread {})", most.rank, most.first), "workers"),
    };
    let why = format!(
        "{who} makes {:.1} times the accesses of the mean of its {} {all} ({})",
        work / mean,
        team.work.len(),
        team.name
    );
    let gain = format!(
        "not in the model: at most {:.1}x for the time in which the others wait for this {}, by the accesses",
        work / mean,
        if most.threads == 1 { "thread" } else { "worker" }
    );
    let places = busiest_code(summary, roles, most).into_iter().collect();
    Some(Fix { places, ..Fix::about_threads(FixKind::Balance, (what.into(), why), gain) })
}

/// Numbers of threads that fit the work of each kind.
fn counts(loads: &[KindLoad]) -> Option<Fix> {
    if !is_uneven(loads) {
        return None;
    }
    let list = |n: fn(&KindLoad) -> usize| {
        let each: Vec<String> = loads.iter().map(|load| format!("{} {}", n(load), load.name)).collect();
        each.join(", ")
    };
    let what = format!("start {} (now {})", list(|load| load.proposed), list(|load| load.threads));
    let all: u64 = loads.iter().map(|load| load.accesses).sum();
    let shares: Vec<String> =
        loads.iter().map(|load| format!("{} {:.0} %", load.name, 100.0 * ratio(load.accesses, all))).collect();
    let why = format!("of the accesses, {}: in this proportion no kind waits for another", shares.join(", "));
    let most = |mean: fn(&KindLoad) -> f64| loads.iter().map(mean).fold(0.0, f64::max);
    let (now, then) = (most(KindLoad::mean), most(KindLoad::proposed_mean));
    let gain = format!(
        "not in the model: at most {:.1}x for the time in which other kinds wait for the one with most work for each \
         thread, by the accesses",
        now / then.max(1.0)
    );
    Some(Fix::about_threads(FixKind::ThreadCounts, (what, why), gain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::tests::{entry, profile};
    use crate::detect::roles;

    /// Thread 0 creates two threads in each of ten rounds; the second makes `times` the accesses of the first, and
    /// those of the last round three times those of the others.
    fn rounds(times: u64) -> Summary {
        let user = move |at: u64, _: &mut _| {
            let part = at / 4096 % (12 * (1 + times));
            let (round, own) = (part / (1 + times), part % (1 + times));
            (1 + 2 * round.min(9) + own.min(1)) as u32
        };
        let mut grid = entry("grid", 64 << 20, 1000, 60_000, user);
        grid.cells.iter_mut().for_each(|cell| cell.slot = ((cell.thread - 1) / 2 * 6) as u16);
        let mut summary = profile(21, "never", vec![grid]);
        let slot_ns = 1_000_000_000;
        summary.stats.duration_ns = 64 * slot_ns;
        for thread in &mut summary.threads[1..] {
            let start = u64::from((thread.id - 1) / 2 * 6) * slot_ns;
            (thread.creator, thread.start_ns, thread.end_ns) = (Some(0), start, Some(start + 5 * slot_ns));
        }
        summary
    }

    /// Threads that live as they happen to be run, so that one place has three of them: each does the same.
    #[test]
    fn equal_threads_are_no_uneven_work_whoever_takes_whose_place() {
        let user = |at: u64, _: &mut _| (1 + at / 4096 % 8) as u32;
        let grid = entry("grid", 64 << 20, 1000, 80_000, user);
        let mut summary = profile(9, "never", vec![grid]);
        summary.header.sampling.sampler = TRACE.into();
        for thread in &mut summary.threads[1..] {
            let (start, end) = match thread.id {
                2..=4 => (thread.id * 10, thread.id * 10 + 5),
                _ => (1, 1000),
            };
            let ns = |ms: u32| u64::from(ms) * 1_000_000;
            (thread.creator, thread.start_ns, thread.end_ns) = (Some(0), ns(start), Some(ns(end)));
        }
        let roles = roles(&summary);
        let work: Vec<u32> = teams(&summary, &roles)[0].work.iter().map(|worker| worker.threads).collect();
        assert!(work.contains(&3), "{work:?}");
        assert_eq!(fixes(&summary, &roles), []);
    }

    /// Two threads take pieces of work from a queue; one waits for a CPU most of the time, or for the other one.
    #[test]
    fn more_work_by_more_cpu_time_is_not_uneven() {
        let user = |at: u64, _: &mut _| if (at / 4096).is_multiple_of(4) { 1 } else { 2 };
        let waiting = |ran_ns: [u64; 2], blocked_ns: u64| {
            let mut summary = profile(3, "never", vec![entry("grid", 64 << 20, 1000, 80_000, user)]);
            summary.header.sampling.sampler = TRACE.into();
            for thread in &mut summary.threads[1..] {
                (thread.creator, thread.end_ns) = (Some(0), Some(1_000));
                let first = thread.id == 1;
                let (ran_ns, blocked_ns) = (ran_ns[usize::from(!first)], if first { blocked_ns } else { 0 });
                let waits = crate::profile::records::Waits { ran_ns, blocked_ns, seen_ns: 1_000, ..Default::default() };
                thread.waits = Some(waits);
            }
            fixes(&summary, &roles(&summary)).len()
        };
        assert_eq!(waiting([250, 750], 0), 0, "a queue on one CPU");
        assert_eq!(waiting([250, 750], 750), 1, "it waits for the other one");
        assert_eq!(waiting([500, 500], 0), 1, "it waits in a loop");
    }

    #[test]
    fn threads_that_are_made_anew_are_compared_by_worker() {
        let even = rounds(1);
        let roles = roles(&even);
        let teams = teams(&even, &roles);
        assert_eq!(teams.iter().map(|team| team.work.len()).collect::<Vec<_>>(), [2], "{:?}", roles.kinds);
        assert_eq!(fixes(&even, &roles), [], "a longer round is no uneven work");
        let uneven = rounds(6);
        let found = fixes(&uneven, &crate::detect::roles(&uneven));
        let why = &found.first().expect("a finding").why;
        assert!(why.contains("worker 1 (10 threads in turn, the first is thread 2) makes 1.7 times"), "{why}");
        let mut faults = uneven;
        faults.header.sampling.sampler = crate::profile::record::FAULT.into();
        assert_eq!(fixes(&faults, &crate::detect::roles(&faults)), [], "first uses of pages are no work");
    }
}
