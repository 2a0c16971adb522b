//! Placing the instances of one call site by their number: buffers that one thread allocates for all others.
//!
//! The policy `local` would place them on the node of the allocating thread. Their order of allocation belongs to one
//! run, so such rules are made only where it is reproducible: one thread allocates all instances, the profile contains
//! all of them, each has one user, and the team of the users has as many workers on the
//! target as in the run.

use numamma_plan::callsite::abridged;
use numamma_plan::nodes::format_runs;
use numamma_plan::policy::{ObjectRule, Place, PolicyKind};

use super::Target;
use super::scene::{Choice, Scene, Simplicity};
use crate::detect::{Pattern, known_order};
use crate::profile::summary::Entry;

/// Largest number of ranges in the lists of all nodes together, some 5 KB of text. Users that alternate give one range
/// per instance.
const MOST_RANGES: usize = 1024;
/// Longest period that is looked for, in instances.
const LONGEST_PERIOD: usize = 64;

/// Part of the instances whose users the samples must show: of fewer, the order of the others is a guess.
const KNOWN: f64 = 0.75;
/// Largest part of the instances whose users are not known because they lie between instances of two nodes. The first
/// half of such a run goes to the node before it, the second to the node behind it. They are the rows at the edges of a
/// thread's rows that no sample hit, which are few.
const BETWEEN: f64 = 0.05;
/// Part of the instances that a cycle must place on the node of their users where a list of all would be too long.
const IN_TURN: f64 = 0.95;

/// The placement by number, or the reason why there is none, which completes the phrase "by number, because".
pub(super) fn choice(scene: &Scene<'_>, entry: &Entry, pattern: &Pattern) -> Result<Choice, &'static str> {
    let target = scene.target;
    if target.portable {
        return Err("a portable policy knows no nodes (`--nodes N` makes one that does)");
    }
    let users = scene.roles.team_of(entry);
    if scene.world.teams.on_target(users) != users {
        return Err("the threads that use them are more or fewer on the target than in the run");
    }
    known_order(scene.summary, entry)?;
    let mut nodes = vec![None; entry.seen.len()];
    for owner in &pattern.owners {
        if let Some(node) = nodes.get_mut(owner.instance as usize) {
            *node = Some(scene.node_of_seen(owner.thread, users));
        }
    }
    let nodes = completed(&nodes).ok_or("the users of several instances are not known")?;
    let is_long = nodes.chunk_by(|a, b| a == b).count() > MOST_RANGES;
    let nodes = match cycle(&nodes, IN_TURN).filter(|_| is_long) {
        Some(period) => most_in_turn(&nodes, period),
        None if is_long => return Err("their users alternate too often for a list"),
        None => nodes,
    };
    let groups = groups(&nodes, target);
    let words: Vec<String> = groups.iter().map(|(list, node)| format!("{} on node {node}", abridged(list))).collect();
    let remark = format!(
        "one thread allocates them for others: by number, in the order of the profiled run, {}; only right with \
         {users} threads",
        words.join(", ")
    );
    let place = place(groups.first().map_or(0, |g| g.1));
    Ok(Choice { place, remark: Some(remark), simplicity: Simplicity::Pattern, numbered: Some(nodes) })
}

/// The nodes with those of instances that no sample hit: where the known ones repeat, as the period says; otherwise
/// that of the nearer neighbour. None when less than [`KNOWN`] are known, or more than [`BETWEEN`] have neighbours that
/// differ.
fn completed(nodes: &[Option<u32>]) -> Option<Vec<u32>> {
    let known = nodes.iter().flatten().count();
    if (known as f64) < KNOWN * nodes.len() as f64 {
        return None;
    }
    let of = |i: usize, period: usize| nodes.iter().skip(i % period).step_by(period).flatten();
    let by_period = |i: usize, period: usize| of(i, period).next().copied();
    let same = |i: usize, period: usize| of(i, period).all(|node| Some(*node) == by_period(i, period));
    let period = (1..=LONGEST_PERIOD.min(nodes.len() / 2)).find(|&period| (0..period).all(|i| same(i, period)));
    let mut open = 0;
    let mut nearer = |i: usize| {
        let before = nodes[..i].iter().rev().zip(1..).find_map(|(node, away)| Some((away, (*node)?)));
        let behind = nodes[i..].iter().zip(0..).find_map(|(node, away)| Some((away, (*node)?)));
        open += usize::from(before.zip(behind).is_some_and(|(before, behind)| before.1 != behind.1));
        before.into_iter().chain(behind).min_by_key(|(away, _)| *away).map(|(_, node)| node)
    };
    let node = |i: usize| nodes[i].or_else(|| period.map_or_else(|| nearer(i), |p| by_period(i, p)));
    let all: Option<Vec<u32>> = (0..nodes.len()).map(node).collect();
    all.filter(|_| open as f64 <= BETWEEN * nodes.len() as f64)
}

/// The nodes of `period` instances that repeat: at each place the node of most of the instances there.
fn most_in_turn(nodes: &[u32], period: usize) -> Vec<u32> {
    let most = |place: usize| {
        let mut users: Vec<u32> = nodes.iter().skip(place).step_by(period).copied().collect();
        users.sort_unstable();
        users.chunk_by(|a, b| a == b).max_by_key(|run| run.len()).map_or(0, |run| run[0])
    };
    let places: Vec<u32> = (0..period).map(most).collect();
    places.iter().cycle().take(nodes.len()).copied().collect()
}

/// The shortest period of the nodes that repeats and places the part `least` of the instances right.
fn cycle(nodes: &[u32], least: f64) -> Option<usize> {
    let right = |period: usize| most_in_turn(nodes, period).iter().zip(nodes).filter(|(a, b)| a == b).count();
    (1..=LONGEST_PERIOD.min(nodes.len() / 2)).find(|&period| right(period) as f64 >= least * nodes.len() as f64)
}

/// Preferred rather than bound, so that the kernel does not kill the program when the node is full.
fn place(node: u32) -> Place {
    Place { policy: PolicyKind::Preferred, nodes: Some(node.to_string()), ..Place::default() }
}

/// Numbers of the instances of each node and the node's number, in the order of each node's first instance: those of
/// the first period, `1-2/8`, where all repeat. `nodes` are indices into the target's nodes.
fn groups(nodes: &[u32], target: &Target) -> Vec<(String, u32)> {
    let period = cycle(nodes, 1.0).filter(|period| *period > 1);
    let nodes = &nodes[..period.unwrap_or(nodes.len())];
    let every = period.map(|period| format!("/{period}")).unwrap_or_default();
    let mut order: Vec<u32> = Vec::new();
    nodes.iter().for_each(|n| {
        if !order.contains(n) {
            order.push(*n)
        }
    });
    let of = |node: &u32| {
        let numbers: Vec<u64> = (1..).zip(nodes).filter(|(_, n)| *n == node).map(|(i, _)| i).collect();
        (format_runs(&numbers) + &every, target.ids.get(*node as usize).copied().unwrap_or(0))
    };
    order.iter().map(of).collect()
}

/// Splits `rule` into one rule for the instances of each node. The first one replaces `rule`, the others are returned.
pub(super) fn split(rule: &mut ObjectRule, nodes: &[u32], target: &Target) -> Vec<ObjectRule> {
    let numbered = |(list, node): (String, u32)| {
        let why = Some("by number, see the rule before".to_owned());
        ObjectRule { instances: Some(list), place: place(node), why, ..rule.clone() }
    };
    let mut rules: Vec<ObjectRule> = groups(nodes, target).into_iter().map(numbered).collect();
    if rules.is_empty() {
        return rules;
    }
    let why = rule.why.take();
    *rule = rules.remove(0);
    rule.why = why;
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_repeat_are_a_cycle_in_spite_of_a_few_others() {
        let mut nodes: Vec<u32> = (0..4096).map(|i| i / 2 % 4).collect();
        assert_eq!((cycle(&nodes, 1.0), cycle(&nodes[..15], 1.0)), (Some(8), None));
        let whole = nodes.clone();
        (nodes[7], nodes[1000]) = (0, 3);
        assert_eq!((cycle(&nodes, 1.0), cycle(&nodes, IN_TURN)), (None, Some(8)));
        assert_eq!(most_in_turn(&nodes, 8), whole);
    }

    #[test]
    fn instances_without_a_sample_follow_the_others() {
        let some = |list: &[u32]| list.iter().map(|&n| (n < 9).then_some(n)).collect::<Vec<_>>();
        assert_eq!(completed(&some(&[0, 1, 2, 9, 0, 1, 2, 3])), Some(vec![0, 1, 2, 3, 0, 1, 2, 3]), "a period");
        assert_eq!(completed(&some(&[0, 9, 0, 1, 1, 1, 9])), None, "less than three quarters");
        assert_eq!(completed(&some(&[0, 9, 0, 0, 1, 1, 1, 9])), Some(vec![0, 0, 0, 0, 1, 1, 1, 1]));
        assert_eq!(completed(&some(&[0, 0, 0, 9, 1, 1, 1, 1])), None, "it may be of either");
        assert_eq!(completed(&some(&[0, 2, 1, 3, 3, 1])), Some(vec![0, 2, 1, 3, 3, 1]));
        assert_eq!(completed(&some(&[9, 9, 9])), None);
        // The rows of four threads; those at the edges have no samples.
        let rows: Vec<u32> = (0..400).map(|i| if matches!(i % 100, 0 | 99) { 9 } else { i / 100 }).collect();
        assert_eq!(completed(&some(&rows)), Some((0..400).map(|i| i / 100).collect::<Vec<_>>()), "edges");
    }
}
