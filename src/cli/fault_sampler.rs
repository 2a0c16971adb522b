//! Whether the `fault` sampler can be used here, and what it needs where it cannot.

use std::time::Duration;

use numamma_kernel::userfault::{Refusal, Userfault};

/// Time between two windows unless the user says otherwise: MOCA re-arms pages every 40 to 60 ms and reports that below
/// 30 ms the cost explodes (INRIA RR-8694).
pub const DEFAULT_INTERVAL: Duration = Duration::from_millis(60);

/// What is missing.
pub struct Lack {
    /// In a sentence.
    pub why: String,
    /// The command that gives it, or what else to try.
    pub enable: &'static str,
}

/// Tries what the sampler in the program will do.
///
/// # Errors
/// The sampler cannot be used.
pub fn usable() -> Result<(), Lack> {
    Userfault::open().map(Userfault::close).map_err(explain)
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
}
