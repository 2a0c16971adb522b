//! How many threads ran at the same time. Threads that take turns on a CPU take no line from each other, whatever they
//! share: a profile of them does not tell what they do beside each other.

use std::collections::BTreeMap;

use super::roles::Roles;
use super::roles::activity::SERIAL;
use crate::profile::record::TRACE;
use crate::profile::records::Waits;
use crate::profile::summary::Summary;

/// Share of the time in which threads could run that they must wait for a CPU, to have run in turns for lack of CPUs:
/// with two threads on one CPU it is a half. Half of that is far from what a machine with enough CPUs shows.
const WAITED: f64 = 0.25;

/// Threads that hardly ran at the same time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InTurn {
    /// Workers.
    pub threads: usize,
    /// How many of them ran at a time, on average.
    pub at_a_time: f64,
    /// Share of the time in which they could run that they waited for a CPU, 0 to 1.
    pub waited: f64,
}

impl InTurn {
    /// What follows for cache lines that they share.
    pub fn remark(&self) -> String {
        format!(
            "Whether threads take cache lines from each other could not be judged: the {} that work hardly ran at the same \
             time, {:.1} of them on average, and waited for a CPU for {:.0} % of the time in which they could run. Profile \
             again where each has a CPU that nothing else uses.",
            self.threads,
            self.at_a_time,
            100.0 * self.waited
        )
    }
}

/// The workers of a process of a traced program, the most if there are several such, if they ran in turns for lack of
/// CPUs; none where that is not known, and for other samplers, which do not judge shared lines. Processes share no
/// lines in a profile.
pub fn in_turn(summary: &Summary, roles: &Roles) -> Option<InTurn> {
    if summary.header.sampling.sampler != TRACE {
        return None;
    }
    let mut by_process: BTreeMap<u32, Vec<Waits>> = BTreeMap::new();
    for thread in summary.threads.iter().filter(|thread| roles.rank(thread.id).is_some()) {
        let known = thread.waits.filter(|waits| waits.seen_ns > 0);
        known.into_iter().for_each(|waits| by_process.entry(thread.pid).or_default().push(waits));
    }
    by_process.values().filter_map(|workers| of_process(workers)).max_by_key(|found| found.threads)
}

/// The same for the workers of one process.
fn of_process(known: &[Waits]) -> Option<InTurn> {
    let could_run = |waits: &Waits| waits.seen_ns.saturating_sub(waits.blocked_ns).max(waits.ran_ns) as f64;
    let longest = known.iter().map(could_run).fold(0.0, f64::max);
    let ran: f64 = known.iter().map(|waits| waits.ran_ns as f64).sum();
    let could: f64 = known.iter().map(could_run).sum();
    if known.len() < 2 || longest <= 0.0 {
        return None;
    }
    let (at_a_time, waited) = (ran / longest, 1.0 - ran / could);
    (at_a_time < SERIAL && waited >= WAITED).then_some(InTurn { threads: known.len(), at_a_time, waited })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::roles::tests::Run;
    use crate::profile::records::Frame;

    /// Two threads that could run all of the time and ran that share of it.
    fn pair(ran: f64, blocked_ns: u64) -> Option<InTurn> {
        in_processes(ran, blocked_ns, [7, 7])
    }

    /// The same, in the processes of these ids.
    fn in_processes(ran: f64, blocked_ns: u64, pids: [u32; 2]) -> Option<InTurn> {
        let mut run = Run::new();
        for thread in run.team(2, Frame { module: 0, offset: 0x100 }, (0, 640)) {
            run.works(thread, 0..64, 1000);
        }
        let mut summary = run.summary();
        summary.header.sampling.sampler = TRACE.into();
        let life = 1_000_000_000;
        let ran_ns = ((life - blocked_ns) as f64 * ran) as u64;
        for (thread, pid) in summary.threads[1..].iter_mut().zip(pids) {
            thread.pid = pid;
            thread.waits = Some(Waits { seen_ns: life, ran_ns, blocked_ns, ..Waits::default() });
        }
        in_turn(&summary, &crate::detect::roles(&summary))
    }

    #[test]
    fn threads_on_busy_cpus_run_in_turns() {
        let found = pair(0.5, 0).expect("turns");
        assert_eq!((found.threads, found.at_a_time, found.waited), (2, 1.0, 0.5));
        assert!(found.remark().contains("1.0 of them on average, and waited for a CPU for 50 %"), "{}", found.remark());
        assert!(pair(0.5, 800_000_000).is_some(), "in the time in which they do not sleep");
        assert_eq!(in_processes(0.5, 0, [7, 8]), None, "they share no lines");
        assert_eq!(pair(0.95, 0), None);
        assert_eq!(pair(1.0, 900_000_000), None, "they wait for each other, and run at the same time");
    }
}
