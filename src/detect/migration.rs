//! How likely threads are to move to other CPUs: the thread-migration score of NumaPerf (Zhao et al.: NumaPerf:
//! Predictive NUMA Profiling, ICS 2021).
//!
//! A thread that waits for a lock, a condition or a barrier is a possible migration: it may be woken on another CPU, on
//! another node than its memory. NumaPerf counts calls that may wait; here those count in which the thread gave its CPU
//! away, as the kernel says. A barrier that is passed by spinning moves no thread.
//!
//! OpenMP runtimes pass barriers by spinning, but for teams that have more threads than there are CPUs: then a thread
//! that waits gives its CPU to those it waits for (libgomp's manual, GOMP_SPINCOUNT). Such waits say nothing about the
//! program where each thread has a CPU.

use std::collections::{BTreeMap, BTreeSet};

use super::lifetimes::{Stretches, length, life, shared_by};
use super::roles::is_openmp;
use crate::profile::records::{Thread, ThreadId, Waits};
use crate::profile::summary::{Summary, ratio};

/// Waits for other threads, per thread and second, above which migration is reported (NumaPerf, section 5).
pub const MIGRATION_SCORE: f64 = 150.0;
/// Seconds that a run has at least: in a shorter one the starts and ends of threads alone would pass the threshold.
const LEAST_SECONDS: f64 = 1.0;
/// Part of the life of an OpenMP team in which it has more threads than there are CPUs, from which on its waits are
/// laid to that: most.
const CROWDED: f64 = 0.5;

/// The score of a run, and what it is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Migration {
    /// Waits x parallel part / (threads x seconds).
    pub score: f64,
    /// Waits of all threads for other threads.
    pub waits: f64,
    /// Threads.
    pub threads: usize,
    /// Length of the run; of several profiles the sum.
    pub seconds: f64,
    /// Part of the run in which a process has several threads, 0 to 1.
    pub parallel: f64,
    /// Part of the waits that threads have which are bound to a CPU or a node and stay there, 0 to 1.
    pub bound: f64,
    /// Part of the waits that others have in teams of OpenMP with more threads than there are CPUs, 0 to 1.
    pub crowded: f64,
    /// CPUs of the machine.
    pub cpus: usize,
}

impl Migration {
    /// Whether threads that may move wait so often that they are likely to do so.
    pub fn is_reported(&self) -> bool {
        self.score * (1.0 - self.bound - self.crowded) > MIGRATION_SCORE
    }

    /// Whether that could not be judged: threads would be reported but for waits in teams with more threads than CPUs.
    pub fn is_unjudged(&self) -> bool {
        !self.is_reported() && self.score * (1.0 - self.bound) > MIGRATION_SCORE
    }

    /// What is said where it could not be judged.
    pub fn remark(&self) -> String {
        format!(
            "Whether threads wait for each other so often that they may move to other CPUs could not be judged: {:.0} % of \
             their waits are of OpenMP teams with more threads than the {} CPUs of the machine, where a thread gives its CPU \
             to those that it waits for. Profile again with a CPU for each thread.",
            100.0 * self.crowded,
            self.cpus
        )
    }
}

/// The score; none where waits are not known (an earlier version, a kernel that does not tell), where those whose
/// reason is not known would decide, or there is one thread.
pub fn migration(summary: &Summary) -> Option<Migration> {
    let (threads, cpus) = (&summary.threads, summary.header.topology.cpu_count());
    let found = of_threads(threads, summary.duration_ns(), summary.profiles.max(1))?;
    let crowded = crowded(threads, |thread| is_openmp(summary, thread), cpus, summary.duration_ns());
    let unbound = |thread: &Thread| thread.waits.is_some_and(|waits| !waits.bound);
    let own = waits_for_threads(threads).into_iter().zip(threads);
    let waits: f64 = own.filter(|(_, t)| crowded.contains(&t.id) && unbound(t)).filter_map(|(own, _)| own).sum();
    Some(Migration { crowded: if waits > 0.0 { waits / found.waits } else { 0.0 }, cpus, ..found })
}

/// The threads of OpenMP teams, with their creators, of processes that have more of them than CPUs most of the time.
fn crowded(threads: &[Thread], is_openmp: impl Fn(&Thread) -> bool, cpus: usize, run_ns: u64) -> BTreeSet<ThreadId> {
    let mut by_process: BTreeMap<u32, BTreeSet<ThreadId>> = BTreeMap::new();
    for thread in threads.iter().filter(|thread| is_openmp(thread)) {
        let team = by_process.entry(thread.pid).or_default();
        team.insert(thread.id);
        let main = || threads.iter().find(|t| t.pid == thread.pid).map(|t| t.id);
        team.extend(thread.creator.or_else(main));
    }
    let is_crowded = |team: &BTreeSet<ThreadId>| {
        let lives = || threads.iter().filter(|t| team.contains(&t.id)).map(|t| life(t, run_ns));
        let [several, more] = [2, cpus as u32 + 1].map(|least| length(&shared_by(least, lives())) as f64);
        cpus > 0 && several > 0.0 && more > CROWDED * several
    };
    by_process.into_values().filter(is_crowded).flatten().collect()
}

/// The same of the threads of `runs` runs that are laid over each other, of `run_ns` each.
fn of_threads(threads: &[Thread], run_ns: u64, runs: u32) -> Option<Migration> {
    let waits = waits_for_threads(threads);
    if threads.len() < 2 || threads.iter().all(|t| t.waits.is_none()) {
        return None;
    }
    let all: f64 = waits.iter().flatten().sum();
    let seconds = run_ns as f64 / 1e9 * f64::from(runs);
    let parallel = ratio(length(&parallel(threads, run_ns)), run_ns).min(1.0);
    let score = |waits: f64| waits * parallel / (threads.len() as f64 * seconds.max(LEAST_SECONDS));
    let of_thread = || threads.iter().zip(&waits).filter_map(|(thread, own)| Some((thread.waits?, *own)));
    let unknown: u64 =
        of_thread().filter(|(_, own)| own.is_none()).map(|(waits, _)| waits.all).fold(0, u64::saturating_add);
    if (score(all) > MIGRATION_SCORE) != (score(all + unknown as f64) > MIGRATION_SCORE) {
        return None;
    }
    let bound: f64 = of_thread().filter(|(waits, _)| waits.bound).filter_map(|(_, own)| own).sum();
    Some(Migration {
        score: score(all),
        waits: all,
        threads: threads.len(),
        seconds,
        parallel,
        bound: if all > 0.0 { bound / all } else { 0.0 },
        crowded: 0.0,
        cpus: 0,
    })
}

/// Waits of each thread for other threads: of all its waits as many as of those whose reason was seen, or of those of
/// all threads where none of its own was. None where nothing is known.
pub fn waits_for_threads(threads: &[Thread]) -> Vec<Option<f64>> {
    let seen = |waits: &Waits| waits.for_threads.saturating_add(waits.otherwise);
    let mut sum = Waits::default();
    threads.iter().filter_map(|t| t.waits).for_each(|waits| sum.add(&waits));
    let of = |thread: &Thread| {
        let waits = thread.waits?;
        if waits.all == 0 {
            return Some(0.0);
        }
        let part = [&waits, &sum].into_iter().find(|waits| seen(waits) > 0)?;
        Some(waits.all as f64 * ratio(part.for_threads, seen(part)))
    };
    threads.iter().map(of).collect()
}

/// The time in which a process has several threads.
fn parallel(threads: &[Thread], run_ns: u64) -> Stretches {
    let mut by_process: BTreeMap<u32, Stretches> = BTreeMap::new();
    for thread in threads {
        by_process.entry(thread.pid).or_default().push(life(thread, run_ns));
    }
    shared_by(1, by_process.into_values().flat_map(|lives| shared_by(2, lives)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn thread(life: (u64, u64), (all, for_threads, otherwise): (u64, u64, u64)) -> Thread {
        let waits = Some(Waits { all, for_threads, otherwise, ..Waits::default() });
        Thread { start_ns: life.0 * S, end_ns: Some(life.1 * S), waits, ..Thread::default() }
    }

    /// Main works alone for half of ten seconds.
    #[test]
    fn the_score_is_that_of_numaperf() {
        let threads = [thread((0, 10), (0, 0, 0)), thread((5, 10), (9_000, 10, 0)), thread((5, 10), (3_000, 5, 5))];
        let found = of_threads(&threads, 10 * S, 1).expect("a score");
        assert_eq!((found.waits, found.parallel, found.threads), (10_500.0, 0.5, 3));
        assert_eq!(found.score, 10_500.0 * 0.5 / (3.0 * 10.0));
        assert!(found.is_reported() && found.score > MIGRATION_SCORE);
        // Three runs with as many waits in all.
        assert!(!of_threads(&threads, 10 * S, 3).expect("a score").is_reported());
    }

    /// Main and three threads of an OpenMP runtime, and another one of the program, on two or four CPUs.
    #[test]
    fn waits_of_a_team_with_more_threads_than_cpus_are_not_judged() {
        let of = |cpus: u32, others: u64| {
            let mut summary = crate::detect::roles::tests::Run::new().summary();
            summary.stats.duration_ns = 10 * S;
            let node = crate::topology::Node { id: 0, cpus: (0..cpus).collect(), memory: 0, distances: vec![10] };
            summary.header.topology.nodes = vec![node];
            let of_team = |id| Thread { id, creator: Some(0), ..thread((0, 10), (3_000, 9, 0)) };
            let gomp = summary.modules.iter().position(|m| m.path.contains("gomp")).expect("the runtime") as u32;
            let start_routine = Some(crate::profile::records::Frame { module: gomp, offset: 1 });
            let main = Thread { creator: None, ..of_team(0) };
            let team = (1..4).map(|id| Thread { start_routine, ..of_team(id) });
            let other = Thread { id: 4, creator: Some(0), ..thread((0, 10), (others, 9, 0)) };
            summary.threads = std::iter::once(main).chain(team).chain([other]).collect();
            migration(&summary).expect("a score")
        };
        let found = of(2, 0);
        assert_eq!((found.crowded, found.is_reported(), found.is_unjudged()), (1.0, false, true));
        assert!(found.remark().contains("2 CPUs"), "{}", found.remark());
        let found = of(4, 0);
        assert_eq!((found.crowded, found.is_reported(), found.is_unjudged()), (0.0, true, false));
        let found = of(2, 9_000);
        assert_eq!((found.is_reported(), found.is_unjudged()), (true, false), "the waits of the other one alone");
    }

    #[test]
    fn threads_that_are_bound_do_not_move() {
        // Main waits for the end of the other one.
        let mut threads = [thread((0, 10), (1, 1, 0)), thread((0, 10), (9_000, 10, 0))];
        threads[1].waits.iter_mut().for_each(|waits| waits.bound = true);
        let found = of_threads(&threads, 10 * S, 1).expect("a score");
        assert!(found.score > MIGRATION_SCORE && found.bound > 0.999 && !found.is_reported());
    }

    #[test]
    fn waits_without_a_reason_count_as_those_of_the_others() {
        let threads = [thread((0, 1), (100, 3, 1)), thread((0, 1), (100, 0, 0)), Thread::default()];
        assert_eq!(waits_for_threads(&threads), [Some(75.0), Some(75.0), None]);
        let unknown = |all| [thread((0, 1), (all, 0, 0)), thread((0, 1), (0, 0, 0))];
        assert_eq!(waits_for_threads(&unknown(9)), [None, Some(0.0)]);
        assert_eq!(of_threads(&unknown(1000), S, 1), None, "it may be above the threshold, or not");
        assert_eq!(of_threads(&unknown(9), S, 1).map(|found| found.score), Some(0.0), "it is not");
        assert_eq!(of_threads(&threads[..1], S, 1), None, "one thread");
    }

    /// A team of a program of some ms starts and ends.
    #[test]
    fn a_short_run_is_not_reported() {
        let team: Vec<Thread> = (0..8).map(|_| thread((0, 1), (40, 40, 0))).collect();
        assert!(!of_threads(&team, S / 50, 1).expect("a score").is_reported());
    }
}
