//! Remembers the first refusal of the kernel to place memory, and reports it once.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};

use numamma_hook::say;

/// Error of this library when populating an object would take more memory than is available; the kernel itself reports
/// ENOMEM.
pub const NO_MEMORY: c_int = libc::ENOSPC;

/// The first error with which the kernel refused placement; 0: none yet.
static REFUSED: AtomicI32 = AtomicI32::new(0);

/// The first error with which the kernel refused placement.
pub fn was_refused() -> Option<c_int> {
    Some(REFUSED.load(Ordering::Relaxed)).filter(|error| *error != 0)
}

/// Prints the first refusal, with its reason.
pub fn report(what: &str, error: c_int) {
    if REFUSED.compare_exchange(0, error, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    let why = match error {
        libc::EPERM => "not permitted (a container's seccomp filter? allow mbind or add CAP_SYS_NICE)",
        libc::ENOSYS => "not known to this kernel or filtered (mbind)",
        libc::ENOMEM => "out of mappings or memory (see vm.max_map_count)",
        NO_MEMORY => "mode = \"populate\" would take more memory than is available to this process; leave the mode out",
        libc::EINVAL => "invalid (a node without memory, or outside the cpuset?)",
        _ => "failed",
    };
    say!("cannot place {what}: {why}, error {error}; it stays where the system puts it");
}
