//! Whether the `fault` sampler can be used here, and what it needs where it cannot.

use std::time::Duration;

use numamma_kernel::userfault::{Refusal, Userfault};

/// Time between two windows unless the user says otherwise: MOCA re-arms pages every 40 to 60 ms and reports that below
/// 30 ms the cost explodes (INRIA RR-8694).
pub const DEFAULT_INTERVAL: Duration = Duration::from_millis(60);

/// The command that gives what is missing for want of permission.
pub const COMMAND: &str =
    "sudo numamma profile --sampler fault ... (in a container: docker run --cap-add SYS_PTRACE ...)";

/// Says what is missing.
///
/// # Errors
/// The sampler cannot be used.
pub fn usable() -> Result<(), String> {
    Userfault::open().map(Userfault::close).map_err(explain)
}

fn explain(refusal: Refusal) -> String {
    match refusal {
        Refusal::Absent => {
            "this kernel has no userfaultfd (CONFIG_USERFAULTFD), or a filter of system calls hides it".into()
        }
        Refusal::TooOld => "this kernel's userfaultfd cannot move pages; Linux 6.8 or newer can".into(),
        Refusal::NotPermitted => format!(
            "userfaultfd with events of forks needs CAP_SYS_PTRACE: {COMMAND}. The sysctl vm.unprivileged_userfaultfd=1 \
             does not suffice: without these events a forked child could lose memory"
        ),
        Refusal::Other(errno) => format!("userfaultfd: {}", std::io::Error::from_raw_os_error(errno)),
    }
}
