//! `bind-block` by where threads really are.
//!
//! An object that is allocated while all threads it counts on are alive, each kept to one node by whoever bound it, takes
//! their nodes, in creation order. Before that (globals, allocations before the threads) it takes what is known ahead,
//! see [`binding::nodes_ahead`]. What was seen first stays: objects of one rule are alike from then on.

use core::sync::atomic::Ordering;
use std::borrow::Cow;

use numamma_kernel::affinity::CpuMask;
use numamma_plan::plan::PagePlan;
use numamma_plan::policy::PolicyKind;
use numamma_plan::threads::node_of_cpus;

use super::binding;
use crate::rules::state::{Placing, Rule, State};

/// The node that a `bind-block` object stores: its blocks go to the nodes of the rule, or to those of the threads as seen.
pub const AHEAD: u32 = 0;
const SEEN: u32 = 1;

/// What an instance of `rule` that is allocated now must remember: its node if it is `local`, for `bind-block` which of the two
/// lists it goes by.
pub fn instance_node(state: &State, rule: &Rule, placing: usize) -> u32 {
    match rule.placings.get(placing).filter(|p| p.place.policy == PolicyKind::BindBlock) {
        Some(placing) if seen(placing).is_some() || look(state, placing) => SEEN,
        Some(_) => AHEAD,
        None => binding::local_node(state, rule.local_nodes()),
    }
}

/// What an instance that remembers `node` must remember once its place is number `placing`. After a phase of `bind-block` the
/// node it was local to is not known any more: it is then the one it remembers, or the first of its list.
pub fn moved_node(rule: &Rule, placing: usize, node: u32) -> u32 {
    match rule.placings.get(placing).filter(|p| p.place.policy == PolicyKind::BindBlock) {
        Some(placing) if seen(placing).is_some() => SEEN,
        Some(_) => AHEAD,
        None => node,
    }
}

/// Gives the plan of an instance in its place number `placing` its nodes.
pub fn apply(plan: &mut PagePlan<'static>, rule: &'static Rule, placing: usize, node: u32) {
    if let Some(placing) = rule.placings.get(placing).filter(|p| p.place.policy == PolicyKind::BindBlock)
        && node == SEEN
        && let Some(nodes) = seen(placing)
    {
        plan.nodes = Cow::Borrowed(nodes);
    }
}

fn seen(placing: &Placing) -> Option<&Vec<u32>> {
    // SAFETY: null or a leaked vector; Acquire pairs with the Release of `look`.
    unsafe { placing.seen.load(Ordering::Acquire).as_ref() }
}

/// Looks where the threads are. False when there are not all of them yet, or one is not kept to a node.
fn look(state: &State, placing: &Placing) -> bool {
    let Some(on) = nodes_of_threads(state, placing.nodes.len()) else { return false };
    let nodes: Vec<u32> = on.iter().zip(&placing.nodes).map(|(&on, &ahead)| placing.or_ahead(on, ahead)).collect();
    let fresh = Box::into_raw(Box::new(nodes));
    // Release: who sees the pointer sees the list.
    if placing.seen.compare_exchange(core::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: another thread was first, and nobody has seen this one.
        drop(unsafe { Box::from_raw(fresh) });
    }
    true
}

/// Nodes of the first `count` live threads in creation order, which is that of their numbers.
fn nodes_of_threads(state: &State, count: usize) -> Option<Vec<u32>> {
    let entries = std::fs::read_dir("/proc/self/task").ok()?;
    let mut threads: Vec<i32> = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    threads.sort_unstable();
    if count < 2 || threads.len() < count {
        return None;
    }
    let node = |&thread: &i32| {
        let mask = CpuMask::of_thread(thread)?;
        let cpus: Vec<u32> = state.machine.online.iter().copied().filter(|&c| mask.contains(c)).collect();
        node_of_cpus(&cpus, &state.machine)
    };
    threads.iter().take(count).map(node).collect()
}
