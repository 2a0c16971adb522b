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
use numamma_hook::real::of_libc;
use numamma_hook::thread_start::Started;
use numamma_hook::{own_stack, say, sys};
use numamma_plan::machine::Machine;
use numamma_plan::openmp_places;
use numamma_plan::policy::{Bind, Threads};
use numamma_plan::teams::{Rank, bound_node_of};
use numamma_plan::threads::{bound_node, node_of_cpus};

use super::children;
use super::teams::{self, MOST_INHERITED, Seat, Teams};
use crate::rules::state::{self, State};

/// Variables by which users bind OpenMP threads.
const BINDERS: [&str; 4] = ["OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"];

static ACTIVE: AtomicBool = AtomicBool::new(false);
/// Rank of the next thread; the main thread is 0.
static NEXT: AtomicU32 = AtomicU32::new(1);
static MAIN_BOUND: AtomicBool = AtomicBool::new(false);
/// Whether a thread has been bound.
static HAS_BOUND: AtomicBool = AtomicBool::new(false);

#[repr(C)]
struct Block {
    /// Node + 1 this thread is bound to; 0 when it is not, and where its CPUs are of several nodes.
    node: Cell<u32>,
    /// Number + 1 of the CPUs this thread was bound to, see [`cpus_of`]; 0 when it was not.
    bound: Cell<u32>,
}

numamma_hook::static_tls!(fn block() -> Block, "numamma_apply_binding");

/// Decides at start-up whether threads will be bound.
pub fn start(state: &State) {
    if !wanted(state.policy.threads.as_ref()) {
        return;
    }
    let reason_not_to_bind = reason_not_to_bind(&state.machine);
    match &reason_not_to_bind {
        None => {
            state.teams.iter().for_each(Teams::start);
            children::start();
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
        return u64::from(rank) | u64::from(block().bound.get()) << INHERITED_SHIFT;
    };
    let worked = teams::is_worker();
    // SAFETY: the caller's promise.
    let mut seat = unsafe { teams.take(routine, caller) };
    if !worked && teams::is_worker() {
        bind(teams::own_rank(), None);
    }
    seat.inherits = block().bound.get().checked_sub(1).filter(|cpus| *cpus < MOST_INHERITED);
    seat.token()
}

/// A token of threads in creation order is the rank and, above it, number + 1 of the CPUs that the creator was bound to
/// and that the new thread inherits; 0 when it was not.
const INHERITED_SHIFT: u32 = 32;

/// CPUs of this number: a list of the policy, or where it has none those of a node.
fn cpus_of(state: &State, number: u32) -> Option<&[u32]> {
    let number = number as usize;
    match &state.cpu_lists[..] {
        [] => state.machine.cpu_nodes.get(number).map(|node| node.cpus.as_slice()),
        lists => lists.get(number).map(Vec::as_slice),
    }
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
        bind_in_order(0, None);
    }
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Binds the calling thread as thread number `number`.
fn bind_in_order(number: u32, inherits: Option<u32>) {
    bind_to(number, inherits, |state, threads| bound_node(threads, number, &state.machine));
}

/// Binds the calling thread as a worker.
fn bind(rank: Rank, inherits: Option<u32>) {
    bind_to(rank.rank, inherits, |state, threads| bound_node_of(threads, rank, &state.machine));
}

/// Whether the program has left the CPUs of the calling thread alone: they are all of the machine, which
/// [`reason_not_to_bind`] has seen at start-up, or just those of number `inherits`, to which its creator was bound
/// here.
fn is_free(state: &State, inherits: Option<u32>) -> bool {
    let Some(now) = CpuMask::of_thread(0) else { return false };
    let inherited = inherits.and_then(|number| cpus_of(state, number));
    state.machine.online.iter().all(|cpu| now.contains(*cpu)) || inherited.is_some_and(|cpus| CpuMask::of(cpus) == now)
}

/// Binds the calling thread to list `number` of explicit CPUs, or to a node.
fn bind_to(number: u32, inherits: Option<u32>, node: impl FnOnce(&State, &Threads) -> Option<u32>) {
    let Some(state) = state::get() else { return };
    let chosen = match (state.cpu_lists.len() as u32, &state.policy.threads) {
        (0, Some(threads)) => {
            let node = node(state, threads);
            node.and_then(|node| state.machine.cpu_nodes.iter().position(|n| n.id == node)).map(|at| at as u32)
        }
        (0, None) => None,
        (lists, _) => Some(number % lists),
    };
    let Some((chosen, cpus)) = chosen.and_then(|chosen| Some((chosen, cpus_of(state, chosen)?))) else { return };
    // A mask has 1 KiB, and a thread may have a small stack.
    if own_stack::run(|| is_free(state, inherits) && CpuMask::of(cpus).apply().is_ok()) == Some(true) {
        block().node.set(node_of_cpus(cpus, &state.machine).map_or(0, |n| n + 1));
        block().bound.set(chosen + 1);
        HAS_BOUND.store(true, Ordering::Relaxed);
    }
}

/// Whether the calling thread was bound here, whatever the program did to its CPUs afterwards.
pub fn was_bound() -> bool {
    block().bound.get() != 0
}

/// CPUs to which the calling thread was bound here; `None` for a thread that was not.
fn bound_cpus(state: &State) -> Option<&[u32]> {
    cpus_of(state, block().bound.get().checked_sub(1)?)
}

/// Lets the calling thread use all CPUs if it was bound here and the program has left that alone. Whether it was.
///
/// All means what the thread could use before: only a thread that may use every CPU of the machine is bound.
pub fn lift() -> bool {
    let lift = |cpus| CpuMask::of_thread(0) == Some(CpuMask::of(cpus)) && CpuMask::all().apply().is_ok();
    let cpus = state::get().and_then(bound_cpus);
    cpus.is_some_and(|cpus| own_stack::run(|| lift(cpus)) == Some(true))
}

/// Binds the calling thread as before [`lift`], unless the program has changed its CPUs since.
pub fn bind_again() {
    let Some(state) = state::get() else { return };
    if let Some(cpus) = bound_cpus(state) {
        own_stack::run(|| is_free(state, None) && CpuMask::of(cpus).apply().is_ok());
    }
}

/// Ends the binding in a forked child, if its parent had bound a thread. Other children may exist, each with fewer
/// threads than the parent: the ranks of all of them together would crowd the first nodes.
pub fn end_in_child() {
    if HAS_BOUND.load(Ordering::Relaxed) {
        ACTIVE.store(false, Ordering::Relaxed);
        block().bound.set(0);
        block().node.set(0);
    }
}

/// Binds the calling thread before its start routine runs.
pub fn on_start(started: &Started) {
    let Some(state) = state::get() else { return };
    let Some(teams) = &state.teams else {
        let inherits = (started.token >> INHERITED_SHIFT) as u32;
        return bind_in_order(started.token as u32, inherits.checked_sub(1));
    };
    let seat = Seat::of_token(started.token);
    teams.begin(&seat);
    match seat.rank {
        Some(rank) => bind(rank, seat.inherits),
        // A worker's CPUs are not for a thread that does other things. `reason_not_to_bind` has seen that the process
        // may use all of these.
        None if seat.inherits.is_some() => {
            own_stack::run(|| is_free(state, seat.inherits) && CpuMask::of(&state.machine.online).apply().is_ok());
        }
        None => {}
    }
}

fn current_cpu() -> Option<u32> {
    of_libc::sched_getcpu().or_else(affinity::current_cpu)
}

/// Node of `nodes` that memory of the calling thread is local to: the node it is bound to, else that of its CPU; the
/// first of `nodes` if neither is listed.
pub fn local_node(state: &State, nodes: &[u32]) -> u32 {
    let bound = block().node.get().checked_sub(1);
    let node = bound.or_else(|| current_cpu().and_then(|cpu| state.machine.node_of_cpu(cpu)));
    node.filter(|n| nodes.contains(n)).or_else(|| nodes.first().copied()).unwrap_or(0)
}
