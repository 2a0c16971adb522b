//! Placing the instances of one call site by their number: buffers that one thread allocates for all others.
//!
//! The policy `local` would place them on the node of the allocating thread. Their order of allocation belongs to one
//! run, so such rules are made only where it is reproducible: one thread allocates all instances, the profile contains
//! all of them, each has one user, and the target has as many threads as the run had.

use numamma_plan::nodes::format_runs;
use numamma_plan::policy::{ObjectRule, Place, PolicyKind};

use super::Target;
use super::scene::{Choice, Scene, Simplicity};
use crate::detect::Pattern;
use crate::profile::records::ObjectKind;
use crate::profile::summary::{Entry, Summary};

/// Largest number of ranges in a list of instances, so that the list stays readable. Users that alternate give one
/// range per instance.
const MOST_RANGES: usize = 64;

/// The placement by number, or the reason why there is none, which completes the phrase "by number, because".
pub(super) fn choice(scene: &Scene<'_>, entry: &Entry, pattern: &Pattern) -> Result<Choice, &'static str> {
    let target = scene.target;
    if target.portable {
        return Err("a portable policy knows no nodes (`--nodes N` makes one that does)");
    }
    if target.threads != scene.roles.team_of(entry) {
        return Err("the run had another number of threads than the target");
    }
    if entry.kind != ObjectKind::Heap || !is_alone(scene.summary, entry) {
        return Err("other allocations have the same call site");
    }
    if entry.instances != entry.seen.len() as u64 {
        return Err("the profile does not contain all of them");
    }
    let allocator = entry.seen.first().and_then(|i| i.thread);
    if allocator.is_none() || entry.seen.iter().any(|i| i.thread != allocator) {
        return Err("several threads allocate them, in an order that may change");
    }
    // Instances are in order of allocation; the order of those with equal times is unknown.
    if entry.seen.windows(2).any(|two| two[0].born_ns >= two[1].born_ns) {
        return Err("the order of their allocation is not known");
    }
    let mut nodes = vec![None; entry.seen.len()];
    for owner in &pattern.owners {
        if let Some(node) = nodes.get_mut(owner.instance as usize) {
            *node = Some(target.home_of(owner.thread));
        }
    }
    let nodes: Vec<u32> =
        nodes.into_iter().collect::<Option<_>>().ok_or("the users of several instances are not known")?;
    if nodes.chunk_by(|a, b| a == b).count() > MOST_RANGES {
        return Err("their users alternate too often for a list");
    }
    let groups = groups(&nodes, target);
    let words: Vec<String> = groups.iter().map(|(list, node)| format!("{list} on node {node}")).collect();
    let remark = format!(
        "one thread allocates them for others: by number, in the order of the profiled run, {}; only right with {} \
         threads",
        words.join(", "),
        target.threads
    );
    let place = place(groups.first().map_or(0, |g| g.1));
    Ok(Choice { place, remark: Some(remark), simplicity: Simplicity::Pattern, numbered: Some(nodes) })
}

/// Preferred rather than bound, so that the kernel does not kill the program when the node is full.
fn place(node: u32) -> Place {
    Place { policy: PolicyKind::Preferred, nodes: Some(node.to_string()), ..Place::default() }
}

/// Numbers of the instances of each node and the node's number, in the order of each node's first instance. `nodes` are
/// indices into the target's nodes.
fn groups(nodes: &[u32], target: &Target) -> Vec<(String, u32)> {
    let mut order: Vec<u32> = Vec::new();
    nodes.iter().for_each(|n| {
        if !order.contains(n) {
            order.push(*n)
        }
    });
    let of = |node: &u32| {
        let numbers: Vec<u64> = (1..).zip(nodes).filter(|(_, n)| *n == node).map(|(i, _)| i).collect();
        (format_runs(&numbers), target.ids.get(*node as usize).copied().unwrap_or(0))
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

/// Whether no other object of the profile is allocated at this call site.
fn is_alone(summary: &Summary, entry: &Entry) -> bool {
    let Some(site) = &entry.site else { return false };
    let own = site.frames.get(..=summary.user_frame(site)).unwrap_or(&site.frames);
    let same = |e: &&Entry| e.site.as_ref().is_some_and(|s| s.frames.starts_with(own));
    summary.entries.iter().filter(same).count() == 1
}
