//! What this process was given when it started: the CPUs and the memory that `all` in a node list is computed from.
//!
//! That is the affinity at exec ([`at_exec`]), unless the process inherited it from a thread that an OpenMP runtime of
//! an earlier program had bound ([`handed_on`]).

pub mod at_exec;
pub mod handed_on;

use numamma_kernel::affinity::CpuMask;
use numamma_kernel::{lists, sys};
use numamma_plan::machine::Given;

use handed_on::HandedOn;

/// What this process was given. The first call happens in the constructor.
pub fn now() -> Given {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = lists::allowed_nodes(&status).unwrap_or_default();
    let at_exec = match at_exec::cpus() {
        Some(mask) => mask.cpus().collect(),
        None => lists::allowed_cpus(&status).unwrap_or_default(),
    };
    let (cpus, inherited) = handed_on::given_cpus(at_exec);
    let bound_memory = at_exec::memory_policy().and_then(|policy| policy.bound_nodes(&allowed));
    Given { cpus, bound_memory: bound_memory.unwrap_or_default(), inherited }
}

/// Tells the programs that this process starts what it was given. On a machine with one memory node nothing depends on
/// it, and the environment is left as it is.
pub fn hand_on(given: &Given) {
    let nodes = std::fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    if lists::parse_list(nodes.trim()).len() < 2 || given.cpus.is_empty() {
        return;
    }
    let before_main = CpuMask::of_thread(0).map_or_else(Vec::new, |mask| mask.cpus().collect());
    handed_on::export(&HandedOn { process: sys::pid(), given: given.cpus.clone(), before_main });
}
