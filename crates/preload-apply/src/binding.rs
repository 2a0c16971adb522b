//! Binding threads to nodes in creation order, and the node a thread is local to.
//!
//! A thread is bound to all CPUs of its node, not to one: the scheduler can still balance within the node.
//! Whoever binds threads already (OpenMP variables, taskset, the program's own attributes) is not overridden.
//! The main thread is bound when the first other thread is created, not before `main`: OpenMP runtimes
//! count the CPUs the process may use at start-up and would start too few threads.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use numamma_hook::threads::{self, Started};
use numamma_hook::{errno, real, say, sys};
use numamma_plan::policy::Bind;
use numamma_plan::threads::bound_node;

use crate::kernel::{self, CpuMask};
use crate::state::{self, State};

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

/// A number that tells threads apart well enough to spread them.
pub fn thread_number() -> usize {
    // Thread-local storage of threads lies a stack apart.
    let at = core::ptr::from_ref(block()) as usize;
    (at >> 12) ^ (at >> 17) ^ (at >> 23)
}

/// Decides at start-up whether threads will be bound.
pub fn start(state: &State) {
    let bind = state.policy.threads.as_ref().map_or(Bind::None, |t| t.bind);
    if bind == Bind::None {
        return;
    }
    let why_not = why_not(state);
    match &why_not {
        None => ACTIVE.store(true, Ordering::Relaxed),
        Some(why) if state.verbose => say!("threads are left where they are: {why}"),
        Some(_) => {}
    }
}

fn why_not(state: &State) -> Option<String> {
    if let Some(name) = BINDERS.iter().find(|name| std::env::var_os(name).is_some()) {
        return Some(format!("{name} is set"));
    }
    let allowed = kernel::affinity()?;
    let missing = state.machine.online.iter().find(|&&cpu| !holds(&allowed, cpu));
    missing.map(|cpu| format!("the process may not use CPU {cpu}, so somebody bound it already"))
}

fn holds(mask: &CpuMask, cpu: u32) -> bool {
    mask.get(cpu as usize / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
}

/// Binds the calling thread as thread number `rank`.
fn bind(rank: u32) {
    let Some(state) = state::get() else { return };
    let Some(node) = state.policy.threads.as_ref().and_then(|t| bound_node(t, rank, &state.machine)) else { return };
    let Some(found) = state.machine.cpu_nodes.iter().find(|n| n.id == node) else { return };
    if kernel::set_affinity(&found.cpus).is_ok() {
        block().node.set(node + 1);
    }
}

fn on_start(started: &Started) {
    bind(started.token as u32);
}

/// pthread_create(3).
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attr: *const libc::pthread_attr_t,
    routine: real::StartRoutine,
    arg: *mut c_void,
) -> c_int {
    {
        let _errno = errno::Saved::now();
        crate::resolve::catch_up_now();
    }
    // SAFETY: C's contract of the attributes.
    if !ACTIVE.load(Ordering::Relaxed) || unsafe { binds_itself(attr) } {
        // SAFETY: forwarded unchanged.
        return real::symbol::pthread_create().map_or(libc::EAGAIN, |f| unsafe { f(thread, attr, routine, arg) });
    }
    if sys::pid() == sys::tid() && !MAIN_BOUND.swap(true, Ordering::Relaxed) {
        let _errno = errno::Saved::now();
        bind(0);
    }
    let rank = NEXT.fetch_add(1, Ordering::Relaxed);
    // SAFETY: forwarded unchanged, with a callback that runs before the start routine.
    unsafe { threads::create(thread, attr, routine, arg, u64::from(rank), on_start) }
}

/// The program asked for CPUs itself (glibc gives all ones when it did not).
unsafe fn binds_itself(attr: *const libc::pthread_attr_t) -> bool {
    if attr.is_null() {
        return false;
    }
    // SAFETY: an all-zero set is valid; `attr` is initialised by C's contract.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        let rc = libc::pthread_attr_getaffinity_np(attr, size_of::<libc::cpu_set_t>(), &raw mut set);
        rc == 0 && libc::CPU_COUNT(&set) < 8 * size_of::<libc::cpu_set_t>() as c_int
    }
}

/// Node that memory of the calling thread is local to, among `nodes`: its binding's, else its CPU's; the first
/// of the list when it runs on none of them.
pub fn local_node(state: &State, nodes: &[u32]) -> u32 {
    let bound = block().node.get().checked_sub(1);
    let node = bound.or_else(|| kernel::current_cpu().and_then(|cpu| state.machine.node_of_cpu(cpu)));
    node.filter(|n| nodes.contains(n)).or_else(|| nodes.first().copied()).unwrap_or(0)
}
