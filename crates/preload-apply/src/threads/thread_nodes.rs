//! Nodes of `bind-block`: where the threads really run.
//!
//! An object that is allocated when all threads of the policy exist, each restricted to one node, uses the nodes of
//! these threads, in creation order. Earlier objects (globals, allocations before the threads) use the expected nodes,
//! see [`binding::expected_nodes`]. The first observation stays, so later objects of a rule are placed alike.

use core::sync::atomic::{AtomicU64, Ordering};
use std::borrow::Cow;

use numamma_hook::{allocating, sys};
use numamma_kernel::affinity::CpuMask;
use numamma_kernel::{clock, threads};
use numamma_plan::plan::PagePlan;
use numamma_plan::policy::PolicyKind;
use numamma_plan::threads::node_of_cpus;

use super::binding;
use crate::rules::state::{Placing, Rule, State};

/// What a `bind-block` object stores as its node: whether its blocks use the expected or the observed nodes.
pub const EXPECTED: u32 = 0;
const OBSERVED: u32 = 1;

/// The value that an object of `rule` allocated now stores as its node: its local node, or for `bind-block` which list
/// of nodes it uses.
pub fn instance_node(state: &State, rule: &Rule, placing: usize) -> u32 {
    match rule.placings.get(placing).filter(|p| p.place.policy == PolicyKind::BindBlock) {
        Some(placing) if observed_nodes(placing).is_some() || try_observe(state, placing) => OBSERVED,
        Some(_) => EXPECTED,
        // Where the thread runs takes a system call.
        None if rule.has_local_place() => binding::local_node(state, rule.local_nodes()),
        None => EXPECTED,
    }
}

/// The value that an object stores as its node once its placing is number `placing`. After a phase of `bind-block` the
/// original local node is not known, so the stored value is used, or the first node of the list.
pub fn moved_node(rule: &Rule, placing: usize, node: u32) -> u32 {
    match rule.placings.get(placing).filter(|p| p.place.policy == PolicyKind::BindBlock) {
        Some(placing) if observed_nodes(placing).is_some() => OBSERVED,
        Some(_) => EXPECTED,
        None => node,
    }
}

/// Sets the nodes of the plan of an object in its placing number `placing`.
pub fn apply(plan: &mut PagePlan<'static>, rule: &'static Rule, placing: usize, node: u32) {
    if let Some(placing) = rule.placings.get(placing).filter(|p| p.place.policy == PolicyKind::BindBlock)
        && node == OBSERVED
        && let Some(nodes) = observed_nodes(placing)
    {
        plan.nodes = Cow::Borrowed(nodes);
    }
}

fn observed_nodes(placing: &Placing) -> Option<&Vec<u32>> {
    // SAFETY: null or a leaked vector; Acquire pairs with the Release of `observe`.
    unsafe { placing.thread_nodes.observed.load(Ordering::Acquire).as_ref() }
}

/// Number of calls of [`created`].
static CREATED: AtomicU64 = AtomicU64::new(0);
/// Time of the last observation that failed, ns, by a clock that ticks every few milliseconds, and [`CREATED`] then.
static FAILED_NS: AtomicU64 = AtomicU64::new(0);
static FAILED_AT: AtomicU64 = AtomicU64::new(u64::MAX);

/// Notes that the program is about to create a thread, or has done so.
pub fn created() {
    CREATED.fetch_add(1, Ordering::Relaxed);
}

/// [`observe`], or false without memory for it. Where it failed and no thread was created since, only once in a tick of
/// the clock: it reads a directory, and each array of a program that allocates all the time would wait for that.
fn try_observe(state: &State, placing: &Placing) -> bool {
    let (now, count) = (clock::coarse_ns(), CREATED.load(Ordering::Relaxed));
    if FAILED_AT.load(Ordering::Relaxed) == count && FAILED_NS.load(Ordering::Relaxed) == now {
        return false;
    }
    let found = allocating::run(|| observe(state, placing)).unwrap_or(false);
    if !found {
        FAILED_NS.store(now, Ordering::Relaxed);
        FAILED_AT.store(count, Ordering::Relaxed);
    }
    found
}

/// Observes the nodes of the threads. False when fewer threads exist, or one is not restricted to a node.
fn observe(state: &State, placing: &Placing) -> bool {
    let Some(on) = nodes_of_threads(state, placing.nodes.len()) else { return false };
    let nodes: Vec<u32> =
        on.iter().zip(&placing.nodes).map(|(&on, &expected)| placing.thread_nodes.allowed_or(on, expected)).collect();
    let fresh = Box::into_raw(Box::new(nodes));
    // Release: a thread that sees the pointer sees the list.
    if placing
        .thread_nodes
        .observed
        .compare_exchange(core::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        // SAFETY: another thread published first, and no other thread has this pointer.
        drop(unsafe { Box::from_raw(fresh) });
    }
    true
}

/// Nodes of the first `count` live threads in creation order, which is the order of their ids.
fn nodes_of_threads(state: &State, count: usize) -> Option<Vec<u32>> {
    // Without a descriptor: most often there are not yet enough of them.
    if sys::thread_count()? < count as u64 {
        return None;
    }
    let mut threads: Vec<i32> = Vec::new();
    if !threads::for_each(|thread| threads.push(thread)) {
        return None;
    }
    threads.sort_unstable();
    if state.teams.as_ref().is_some_and(|teams| !teams.main_works) {
        threads.retain(|&thread| thread != sys::pid() as i32);
    }
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
