//! Binds threads to nodes, and knows the node a thread is local to: the workers of the policy's teams by their ranks
//! ([`super::teams`]), or without teams all threads in creation order.
//!
//! A thread is bound to all CPUs of its node, so that the scheduler can still balance within the node. Explicit lists
//! give each thread the CPUs of its list.
//! A binding made otherwise (OpenMP variables, taskset, sched_setaffinity or thread attributes of the program) is not
//! overridden: a thread is bound only when its CPUs are all of the machine, or those to which its creator was bound
//! here.
//! The main thread is bound when the first other thread is created, not before `main`: OpenMP runtimes count the CPUs
//! the process may use at start-up and would start too few threads.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use numamma_kernel::affinity;
use numamma_kernel::affinity::CpuMask;

use numamma_hook::entry::Caller;
use numamma_hook::thread_start::Started;
use numamma_hook::{own_stack, say, sys};
use numamma_plan::machine::Machine;
use numamma_plan::openmp_places;
use numamma_plan::policy::{Bind, Threads};
use numamma_plan::teams::{Rank, bound_node_of};
use numamma_plan::threads::{bound_node, node_of_cpus};

use super::teams::{self, Seat, Teams};
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
        None => {
            state.teams.iter().for_each(Teams::start);
            ACTIVE.store(true, Ordering::Relaxed);
        }
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
    has_teams: bool,
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
    let by_rank = |t: u32| if has_teams { bound_node_of(threads, Rank { rank: t, of: count }, machine) } else { None };
    let node = |t: u32| match lists.get(t as usize % lists.len().max(1)) {
        Some(cpus) => node_of_cpus(cpus, machine),
        None => by_rank(t).or_else(|| bound_node(threads, t, machine)),
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

/// What the calling thread, which is about to create a thread with `routine`, hands it for [`on_start`].
///
/// # Safety
/// `caller` comes from the entry stub of a hook that has not returned yet.
pub unsafe fn token(routine: usize, caller: &Caller) -> u64 {
    let Some(teams) = state::get().and_then(|state| state.teams.as_ref()) else {
        let rank = next_rank();
        return u64::from(rank) | if is_bound() { INHERITS } else { 0 };
    };
    let worked = teams::is_worker();
    // SAFETY: the caller's promise.
    let mut seat = unsafe { teams.take(routine, caller) };
    if !worked && teams::is_worker() {
        bind(teams::own_rank(), false);
    }
    seat.inherits = is_bound();
    seat.token()
}

/// Bit of a token of threads in creation order: the creator is bound, and the new thread inherits its CPUs.
const INHERITS: u64 = 1 << 32;

/// Whether the calling thread was bound here.
fn is_bound() -> bool {
    block().node.get() != 0
}

/// The thread of this token was not created.
pub fn not_created(token: u64) {
    if let Some(teams) = state::get().and_then(|state| state.teams.as_ref()) {
        teams.give(&Seat::of_token(token));
    }
}

/// Rank of a thread that is about to be created. The first call on the main thread also binds the main thread.
fn next_rank() -> u32 {
    if sys::pid() == sys::tid() && !MAIN_BOUND.swap(true, Ordering::Relaxed) {
        bind_in_order(0, false);
    }
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Binds the calling thread as thread number `number`.
fn bind_in_order(number: u32, inherits: bool) {
    bind_to(number, inherits, |state, threads| bound_node(threads, number, &state.machine));
}

/// Binds the calling thread as a worker.
fn bind(rank: Rank, inherits: bool) {
    bind_to(rank.rank, inherits, |state, threads| bound_node_of(threads, rank, &state.machine));
}

/// Whether the program has left the CPUs of the calling thread alone: they are all of the machine, which
/// [`reason_not_to_bind`] has seen at start-up, or those of a thread bound here from which it `inherits` them.
fn is_free(state: &State, inherits: bool) -> bool {
    let Some(now) = CpuMask::of_thread(0) else { return false };
    let all = state.machine.online.iter().all(|cpu| now.contains(*cpu));
    all || inherits && {
        let nodes = state.machine.cpu_nodes.iter().map(|n| n.cpus.as_slice());
        let mut given = nodes.chain(state.cpu_lists.iter().map(Vec::as_slice));
        given.any(|cpus| CpuMask::of(cpus) == now)
    }
}

/// Binds the calling thread to list `number` of explicit CPUs, or to a node.
fn bind_to(number: u32, inherits: bool, node: impl FnOnce(&State, &Threads) -> Option<u32>) {
    let Some(state) = state::get() else { return };
    let explicit = state.cpu_lists.get(number as usize % state.cpu_lists.len().max(1));
    let (cpus, node) = match (explicit, &state.policy.threads) {
        (Some(cpus), _) => (cpus, node_of_cpus(cpus, &state.machine)),
        (None, Some(threads)) => {
            let Some(node) = node(state, threads) else { return };
            let Some(found) = state.machine.cpu_nodes.iter().find(|n| n.id == node) else { return };
            (&found.cpus, Some(node))
        }
        (None, None) => return,
    };
    // A mask has 1 KiB, and a thread may have a small stack.
    if own_stack::run(|| is_free(state, inherits) && CpuMask::of(cpus).apply().is_ok()) == Some(true) {
        block().node.set(node.map_or(0, |n| n + 1));
    }
}

/// Binds the calling thread before its start routine runs.
pub fn on_start(started: &Started) {
    let Some(state) = state::get() else { return };
    let Some(teams) = &state.teams else {
        return bind_in_order(started.token as u32, started.token & INHERITS != 0);
    };
    let seat = Seat::of_token(started.token);
    teams.begin(&seat);
    match seat.rank {
        Some(rank) => bind(rank, seat.inherits),
        // A worker's CPUs are not for a thread that does other things. `reason_not_to_bind` has seen that the process
        // may use all of these.
        None if seat.inherits => {
            own_stack::run(|| is_free(state, true) && CpuMask::of(&state.machine.online).apply().is_ok());
        }
        None => {}
    }
}

/// Node of `nodes` that memory of the calling thread is local to: the node it is bound to, else that of its CPU; the
/// first of `nodes` if neither is listed.
pub fn local_node(state: &State, nodes: &[u32]) -> u32 {
    let bound = block().node.get().checked_sub(1);
    let node = bound.or_else(|| affinity::current_cpu().and_then(|cpu| state.machine.node_of_cpu(cpu)));
    node.filter(|n| nodes.contains(n)).or_else(|| nodes.first().copied()).unwrap_or(0)
}
