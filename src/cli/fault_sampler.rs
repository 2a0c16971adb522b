//! Whether the `fault` sampler can be used here, and what it needs where it cannot.

use std::time::Duration;

use numamma_kernel::userfault::{Refusal, Userfault};

use crate::topology::{self, Topology};

/// Time between two windows unless the user says otherwise: MOCA re-arms pages every 40 to 60 ms and reports that below
/// 30 ms the cost explodes (INRIA RR-8694).
pub const DEFAULT_INTERVAL: Duration = Duration::from_millis(60);

/// What is missing.
#[derive(Debug)]
pub struct Lack {
    /// In a sentence.
    pub why: String,
    /// The command that gives it, or what else to try.
    pub enable: &'static str,
}

/// What makes pages fault here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The profile preload in the program.
    Moving,
    /// NUMA balancing of the kernel.
    Balancing,
}

/// Tries what the sampler in the program will do, and else whether the kernel does it. `by_preload`: there may be a
/// preload library in the program.
///
/// # Errors
/// The sampler cannot be used.
pub fn usable(by_preload: bool) -> Result<Way, Lack> {
    if by_preload && Userfault::open().map(Userfault::close).is_ok() {
        return Ok(Way::Moving);
    }
    let topology = Topology::this_machine();
    match balancing(topology.nodes.len(), topology::numa_balancing()) {
        Ok(()) => Ok(Way::Balancing),
        Err(lack) if !by_preload => Err(lack),
        Err(_) => Userfault::open().map(|opened| (opened.close(), Way::Moving).1).map_err(explain),
    }
}

/// Whether the kernel makes pages fault by itself, on `nodes` nodes with this state of the sysctl.
fn balancing(nodes: usize, is_on: Option<bool>) -> Result<(), Lack> {
    let (why, enable) = match is_on {
        Some(true) if nodes > 1 => return Ok(()),
        Some(false) if nodes > 1 => (
            "NUMA balancing, which makes pages fault, is off (kernel.numa_balancing)",
            "sudo sysctl kernel.numa_balancing=1",
        ),
        _ => (
            "only a machine of several nodes makes pages fault by NUMA balancing",
            "numamma profile --sampler fault -- PROGRAM",
        ),
    };
    Err(Lack { why: why.into(), enable })
}

fn explain(refusal: Refusal) -> Lack {
    const NEWER: &str = "Linux 6.8 or newer with CONFIG_USERFAULTFD=y";
    let (why, enable) = match refusal {
        Refusal::Absent => {
            ("this kernel has no userfaultfd (CONFIG_USERFAULTFD), or a filter of system calls hides it".into(), NEWER)
        }
        Refusal::TooOld => ("the userfaultfd of this kernel cannot move pages; Linux 6.8 and newer can".into(), NEWER),
        // Without the events a forked child could lose memory.
        Refusal::NotPermitted => (
            "userfaultfd with events of forks is forbidden without CAP_SYS_PTRACE (vm.unprivileged_userfaultfd=1 does \
             not suffice)"
                .into(),
            "sudo numamma profile --sampler fault ... (in a container: docker run --cap-add SYS_PTRACE --security-opt \
             seccomp=unconfined ...)",
        ),
        Refusal::Other(errno) => (
            format!("userfaultfd fails: {}", std::io::Error::from_raw_os_error(errno)),
            "ulimit -n 4096 where descriptors are short",
        ),
    };
    Lack { why, enable }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do() {
        assert!(explain(Refusal::NotPermitted).why.contains("CAP_SYS_PTRACE"));
        assert!(explain(Refusal::NotPermitted).enable.starts_with("sudo "));
        assert!(explain(Refusal::TooOld).enable.contains("6.8"));
    }

    #[test]
    fn the_kernel_balances_several_nodes_only() {
        assert!(balancing(2, Some(true)).is_ok() && balancing(1, Some(true)).is_err());
        let off = balancing(4, Some(false)).expect_err("it is off");
        assert!(off.enable.ends_with("kernel.numa_balancing=1"));
        assert!(balancing(2, None).is_err());
    }
}
