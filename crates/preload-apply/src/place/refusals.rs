//! Placement that the kernel refuses: remembered and reported once.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};

use numamma_hook::say;

/// The error when populating an object would take more memory than there is; the kernel's own is ENOMEM.
pub const NO_MEMORY: c_int = libc::ENOSPC;

/// The first error that the kernel refused placement with; 0: none yet.
static REFUSED: AtomicI32 = AtomicI32::new(0);

/// The error that the kernel refused placement with, if it has.
pub fn was_refused() -> Option<c_int> {
    Some(REFUSED.load(Ordering::Relaxed)).filter(|error| *error != 0)
}

/// Says once that the kernel refuses placement, with the reason.
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
