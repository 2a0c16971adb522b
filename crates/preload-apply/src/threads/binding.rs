//! Binds threads to nodes in creation order, and knows the node a thread is local to.
//!
//! A thread is bound to all CPUs of its node, so that the scheduler can still balance within the node. Explicit lists
//! give each thread the CPUs of its list.
//! A binding made otherwise (OpenMP variables, taskset, thread attributes of the program) is not overridden.
//! The main thread is bound when the first other thread is created, not before `main`: OpenMP runtimes count the CPUs
//! the process may use at start-up and would start too few threads.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use numamma_kernel::affinity;
use numamma_kernel::affinity::CpuMask;

use numamma_hook::thread_start::Started;
use numamma_hook::{own_stack, say, sys};
use numamma_plan::machine::Machine;
use numamma_plan::openmp_places;
use numamma_plan::policy::{Bind, Threads};
use numamma_plan::threads::{bound_node, node_of_cpus};

use crate::rules::state::{self, State};

/// Variables by which users bind OpenMP threads.
const BINDERS: [&str; 4] = ["OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"];

static ACTIVE: AtomicBool = AtomicBool::new(false);
/// Rank of the next thread; the main thread is 0.
static NEXT: AtomicU32 = AtomicU32::new(1);
static MAIN_BOUND: AtomicBool = AtomicBool::new(false);

#[repr(C)]
struct Block {
    /// Node + 1 this thread is bound to; 0 when it is not.
    node: Cell<u32>,
}

numamma_hook::static_tls!(fn block() -> Block, "numamma_apply_binding");

/// A number that differs between most threads, to spread them over shards.
pub fn thread_number() -> usize {
    // Thread-local blocks of two threads are at least a stack apart.
    let at = core::ptr::from_ref(block()) as usize;
    (at >> 12) ^ (at >> 17) ^ (at >> 23)
}

/// Decides at start-up whether threads will be bound.
pub fn start(state: &State) {
    if !wanted(state.policy.threads.as_ref()) {
        return;
    }
    let reason_not_to_bind = reason_not_to_bind(&state.machine);
    match &reason_not_to_bind {
        None => ACTIVE.store(true, Ordering::Relaxed),
        Some(why) if state.verbose => say!("threads are left where they are: {why}"),
        Some(_) => {}
    }
}

fn wanted(threads: Option<&Threads>) -> bool {
    threads.is_some_and(|t| t.bind != Bind::None)
}

/// Node of each of the first `count` threads, as far as it is known before they exist: by the OpenMP variables, else by
/// the binding of the policy if it will be used.
pub fn expected_nodes(
    threads: Option<&Threads>,
    count: u32,
    machine: &Machine,
    lists: &[Vec<u32>],
) -> Vec<Option<u32>> {
    let by_user = openmp_places::of_threads(count, |name| std::env::var(name).ok());
    if let Some(cpus) = by_user {
        return cpus.iter().map(|cpus| node_of_cpus(cpus, machine)).collect();
    }
    let Some(threads) = threads.filter(|t| wanted(Some(t)) && reason_not_to_bind(machine).is_none()) else {
        return Vec::new();
    };
    let node = |t: u32| match lists.get(t as usize % lists.len().max(1)) {
        Some(cpus) => node_of_cpus(cpus, machine),
        None => bound_node(threads, t, machine),
    };
    (0..count).map(node).collect()
}

/// Whether the user asks an OpenMP runtime to bind threads.
pub fn is_asked_of_openmp() -> bool {
    BINDERS.iter().any(|name| std::env::var_os(name).is_some())
}

fn reason_not_to_bind(machine: &Machine) -> Option<String> {
    if let Some(name) = BINDERS.iter().find(|name| std::env::var_os(name).is_some()) {
        return Some(format!("{name} is set"));
    }
    let allowed = CpuMask::of_thread(0)?;
    let missing = machine.online.iter().find(|&&cpu| !allowed.contains(cpu));
    missing.map(|cpu| format!("the process may not use CPU {cpu}, so it is bound already"))
}

/// Whether threads are bound.
pub fn active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Rank of a thread that is about to be created. The first call on the main thread also binds the main thread.
pub fn next_rank() -> u32 {
    if sys::pid() == sys::tid() && !MAIN_BOUND.swap(true, Ordering::Relaxed) {
        bind(0);
    }
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Binds the calling thread as thread number `rank`.
fn bind(rank: u32) {
    let Some(state) = state::get() else { return };
    let explicit = state.cpu_lists.get(rank as usize % state.cpu_lists.len().max(1));
    let (cpus, node) = match (explicit, &state.policy.threads) {
        (Some(cpus), _) => (cpus, node_of_cpus(cpus, &state.machine)),
        (None, Some(threads)) => {
            let Some(node) = bound_node(threads, rank, &state.machine) else { return };
            let Some(found) = state.machine.cpu_nodes.iter().find(|n| n.id == node) else { return };
            (&found.cpus, Some(node))
        }
        (None, None) => return,
    };
    // A mask has 1 KiB, and a thread may have a small stack.
    if own_stack::run(|| CpuMask::of(cpus).apply().is_ok()) == Some(true) {
        block().node.set(node.map_or(0, |n| n + 1));
    }
}

/// Binds the calling thread before its start routine runs.
pub fn on_start(started: &Started) {
    bind(started.token as u32);
}

/// Node of `nodes` that memory of the calling thread is local to: the node it is bound to, else that of its CPU; the
/// first of `nodes` if neither is listed.
pub fn local_node(state: &State, nodes: &[u32]) -> u32 {
    let bound = block().node.get().checked_sub(1);
    let node = bound.or_else(|| affinity::current_cpu().and_then(|cpu| state.machine.node_of_cpu(cpu)));
    node.filter(|n| nodes.contains(n)).or_else(|| nodes.first().copied()).unwrap_or(0)
}
