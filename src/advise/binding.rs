//! Decides whether the policy binds the threads of the target, and gives the reason.
//!
//! The workers of each team are bound by their ranks, a share of them per node; without the start routines that tell
//! teams apart, all threads are bound in creation order. Binding helps when placement follows threads, or when
//! threads moved away from memory that they had touched first. It does harm when the order of creation does not show
//! which threads run at the same time (thread pools that are created repeatedly, of unknown start routines), or when
//! several processes would all start on node 0.

use std::collections::HashMap;

use numamma_plan::policy::{ObjectRule, PolicyKind};

use super::scene::Scene;
use super::teams;
use crate::detect::{Pattern, PatternKind};
use crate::profile::records::{Thread, ThreadId};
use crate::profile::summary::Entry;

/// Share of the run's cost that was remote in memory first touched by the same thread from which threads are bound: on
/// two to eight nodes it costs a few per cent of the run at the usual NUMA factors of 1.5 to 2.
const LEFT_BEHIND: f64 = 0.05;
/// Share of the samples in one process from which other processes (launchers, shells) are ignored.
pub(super) const ONE_PROCESS: f64 = 0.9;
/// Threads alive at a time over threads in all, below which threads come and go in generations.
const GENERATIONS: f64 = 0.5;

/// Whether a rule is only useful while threads stay on their nodes.
fn relies_on_binding(scene: &Scene<'_>, rule: &ObjectRule) -> bool {
    use PolicyKind::{Bind, Block, BlockCyclic, Interleave, Local, Map};
    let by_thread = match rule.place.policy {
        Bind | Block | BlockCyclic | Local | Map => true,
        // Over some of the nodes that threads may run on.
        Interleave => {
            let homes = scene.world.homes_of_cpus();
            let homes: Vec<u32> = homes.iter().map(|n| scene.world.model().nodes[*n].id).collect();
            let nodes = rule.place.nodes.as_deref().unwrap_or("all");
            nodes != "all" && nodes != numamma_plan::nodes::format(&homes)
        }
        _ => false,
    };
    by_thread || rule.instances.is_some()
}

/// Share of the accesses to a private object that were remote although the thread that uses it touched it first, which
/// happens when threads move between nodes; none for other objects.
fn remote_after_own_touch(scene: &Scene<'_>, entry: &Entry, pattern: &Pattern) -> Option<f64> {
    let applies =
        pattern.kind == PatternKind::Private && entry.total.placed > 0 && scene.touched_by_user(entry, pattern);
    applies.then(|| entry.total.remote as f64 / entry.total.placed as f64)
}

/// Whether a private object is near to its user only while that thread and the one of another kind that touches it
/// first are on one node.
pub(super) fn is_handed_on(scene: &Scene<'_>, entry: &Entry, pattern: &Pattern) -> bool {
    pattern.kind == PatternKind::Private
        && scene.roles.user_kind_of_others(entry).is_some()
        && scene.touched_by_user(entry, pattern)
}

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Binding {
    /// Whether to bind compactly.
    pub bind: bool,
    /// Remark for the top of the policy.
    pub remark: Option<String>,
}

pub(super) fn decide(scene: &Scene<'_>, patterns: &[Pattern], shares: &[f64], rules: &[ObjectRule]) -> Binding {
    let by_rule = rules.iter().any(|rule| relies_on_binding(scene, rule));
    let entries = || scene.summary.entries.iter().zip(patterns).zip(shares);
    let handed_on: f64 =
        entries().filter(|((e, p), _)| is_handed_on(scene, e, p)).fold(0.0, |sum, (_, share)| sum + share);
    let by_kinds = handed_on >= LEFT_BEHIND && keeps_workers(scene);
    let left: f64 = entries()
        .filter_map(|((e, p), share)| Some(share * remote_after_own_touch(scene, e, p)?))
        .fold(0.0, |sum, part| sum + part);
    let wanted = scene.target.nodes > 1 && scene.roles.workers > 1 && (by_rule || by_kinds || left >= LEFT_BEHIND);
    if !wanted {
        return Binding { bind: false, remark: None };
    }
    if let Some(why) = obstacle(scene, are_named(scene)) {
        return Binding { bind: false, remark: Some(why) };
    }
    let remark = if by_rule {
        "Placement by thread only helps while each thread stays on its node, hence bind = \"compact\" (OMP_PROC_BIND \
         and OMP_PLACES take precedence)."
            .to_owned()
    } else if by_kinds {
        format!(
            "{:.0} % of the cost is in memory that threads of one kind touch first and those of another use: it is local \
             while threads of one number are on one node, hence bind = \"compact\" (OMP_PROC_BIND and OMP_PLACES take \
             precedence).",
            100.0 * handed_on
        )
    } else {
        format!(
            "{:.0} % of the cost was remote in memory that its only user had touched first: threads moved to other \
             nodes than their memory, hence bind = \"compact\" (OMP_PROC_BIND and OMP_PLACES take precedence).",
            100.0 * left
        )
    };
    Binding { bind: true, remark: Some(remark) }
}

/// Whether the policy can name the teams, so that it binds their workers and no other thread.
fn are_named(scene: &Scene<'_>) -> bool {
    !teams::teams(scene.summary, scene.roles, scene.target).is_empty()
}

/// Why no policy can bind the threads of this program.
fn obstacle(scene: &Scene<'_>, named: bool) -> Option<String> {
    let threads: Vec<&Thread> = scene.summary.threads.iter().filter(|t| scene.roles.rank(t.id).is_some()).collect();
    several_processes(&threads).or_else(|| if named { None } else { generations(&threads) })
}

/// Whether a policy can keep the workers on the nodes that they have in the model, and does not make some of them wait
/// there for a CPU while others are idle.
pub(super) fn keeps_workers(scene: &Scene<'_>) -> bool {
    obstacle(scene, are_named(scene)).is_none() && !scene.world.crowds()
}

/// Whether a policy that binds would bind all threads that allocate instances of an entry. A main thread that only
/// starts the workers of named teams is on any node, another one in each run.
pub(super) fn binds_allocators(scene: &Scene<'_>, entry: &Entry) -> bool {
    let named = are_named(scene);
    let is_bound = |thread: ThreadId| !named || scene.roles.rank(thread).is_some();
    let mut allocators = entry.seen.iter().map(|instance| instance.thread);
    !entry.seen.is_empty() && allocators.all(|t| t.is_some_and(is_bound)) && obstacle(scene, named).is_none()
}

/// Whether a policy that binds would leave all threads but the workers on any node.
pub(super) fn binds_only_workers(scene: &Scene<'_>) -> bool {
    !scene.target.portable && are_named(scene) && obstacle(scene, true).is_none()
}

fn several_processes(threads: &[&Thread]) -> Option<String> {
    let mut samples: HashMap<u32, u64> = HashMap::new();
    for t in threads {
        *samples.entry(t.pid).or_default() += t.samples;
    }
    let (all, most) = (samples.values().sum::<u64>(), samples.values().copied().max().unwrap_or(0));
    ((most as f64) < ONE_PROCESS * all as f64).then(|| {
        format!(
            "The work is spread over {} processes: threads are not bound, because each process would start on the \
             first node; let the launcher bind the processes to nodes (mpirun --map-by numa, numactl).",
            samples.values().filter(|n| **n > 0).count()
        )
    })
}

fn generations(threads: &[&Thread]) -> Option<String> {
    let most = most_at_a_time(threads);
    // 0 at a time: the profile does not hold the start and end of threads.
    (most > 0 && (most as f64) < GENERATIONS * threads.len() as f64).then(|| {
        format!(
            "At most {most} of {} threads ran at a time: threads are not bound, because the order of their creation \
             does not show which threads run at the same time.",
            threads.len()
        )
    })
}

fn most_at_a_time(threads: &[&Thread]) -> usize {
    // Of changes in the same nanosecond, ends sort before starts.
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
