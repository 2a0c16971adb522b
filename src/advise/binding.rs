//! Whether the threads of the target are to be bound, and the words that go with the answer.
//!
//! Threads are bound in creation order, a share of them per node. That helps when placement follows threads, or when
//! threads left memory behind that they had touched first; it does harm when the order of creation says nothing about
//! who runs at the same time (pools made anew again and again) or when several processes would all begin with node 0.

use std::collections::HashMap;

use numamma_plan::policy::ObjectRule;

use super::place::{self, Scene};
use crate::detect::Pattern;
use crate::profile::model::Thread;

/// Share of the run's cost that was remote in memory of the thread's own first touch from which threads are bound:
/// on two to eight nodes it costs a few per cent of the run at the usual NUMA factors of 1.5 to 2.
const LEFT_BEHIND: f64 = 0.05;
/// Share of the samples in one process from which the others do not count (launchers, shells).
const ONE_PROCESS: f64 = 0.9;
/// Threads alive at a time over threads in all, below which threads come and go in generations.
const GENERATIONS: f64 = 0.5;

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Binding {
    /// Bind compactly.
    pub bind: bool,
    /// For the top of the policy.
    pub remark: Option<String>,
}

pub(super) fn decide(scene: &Scene<'_>, patterns: &[Pattern], shares: &[f64], rules: &[ObjectRule]) -> Binding {
    let by_rule = rules.iter().any(place::relies_on_binding);
    let entries = scene.summary.entries.iter().zip(patterns).zip(shares);
    let left: f64 = entries
        .filter_map(|((e, p), share)| Some(share * place::left_behind(scene, e, p)?))
        .fold(0.0, |sum, part| sum + part);
    let wanted = scene.target.nodes > 1 && scene.ranks.len() > 1 && (by_rule || left >= LEFT_BEHIND);
    if !wanted {
        return Binding { bind: false, remark: None };
    }
    let threads: Vec<&Thread> = scene.summary.threads.iter().filter(|t| scene.ranks.contains_key(&t.id)).collect();
    if let Some(why) = several_processes(&threads).or_else(|| generations(&threads)) {
        return Binding { bind: false, remark: Some(why) };
    }
    let remark = if by_rule {
        "Placement by thread only helps while thread t stays on its node, hence bind = \"compact\" (OMP_PROC_BIND and \
         OMP_PLACES go first)."
            .to_owned()
    } else {
        format!(
            "{:.0} % of the cost was remote in memory that its only user had touched first: threads moved between nodes and \
             left it behind, hence bind = \"compact\" (OMP_PROC_BIND and OMP_PLACES go first).",
            100.0 * left
        )
    };
    Binding { bind: true, remark: Some(remark) }
}

fn several_processes(threads: &[&Thread]) -> Option<String> {
    let mut samples: HashMap<u32, u64> = HashMap::new();
    for t in threads {
        *samples.entry(t.pid).or_default() += t.samples;
    }
    let (all, most) = (samples.values().sum::<u64>(), samples.values().copied().max().unwrap_or(0));
    ((most as f64) < ONE_PROCESS * all as f64).then(|| {
        format!(
            "The work is spread over {} processes: threads are not bound, because each process would begin with the first \
             node; let the launcher bind the processes to nodes (mpirun --map-by numa, numactl).",
            samples.values().filter(|n| **n > 0).count()
        )
    })
}

fn generations(threads: &[&Thread]) -> Option<String> {
    let most = most_at_a_time(threads);
    // None at a time: a profile that does not know when threads lived.
    (most > 0 && (most as f64) < GENERATIONS * threads.len() as f64).then(|| {
        format!(
            "At most {most} of {} threads ran at a time: threads are not bound, because the order of their creation does \
             not say who runs beside whom.",
            threads.len()
        )
    })
}

fn most_at_a_time(threads: &[&Thread]) -> usize {
    // At the same nanosecond ends go before starts.
    let mut changes: Vec<(u64, i64)> =
        threads.iter().flat_map(|t| [Some((t.start_ns, 1)), t.end_ns.map(|end| (end, -1))]).flatten().collect();
    changes.sort_unstable();
    let (mut now, mut most) = (0i64, 0i64);
    for (_, change) in changes {
        now += change;
        most = most.max(now);
    }
    most.max(0) as usize
}
