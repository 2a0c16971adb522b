//! Memory that populating may still take from the process.
//!
//! Populating allocates memory that the program may never touch, and the kernel kills a process that exceeds its limit.
//! So the available memory is read first, and again when an eighth of it has been taken.

use core::sync::atomic::{AtomicU64, Ordering};

use numamma_kernel::cgroup;

/// Share (1/8) of the available memory that stays free, and that may be taken before the memory is read again: the
/// numbers are estimates, and other processes allocate, too.
const MARGIN: u64 = 8;

/// Bytes that may be taken before the available memory is read again.
static LEFT: AtomicU64 = AtomicU64::new(0);

/// Whether `bytes` more can be taken; counts them as taken. Sometimes reads a few files; takes no lock.
pub fn may_take(bytes: u64) -> bool {
    let less = |left: u64| left.checked_sub(bytes);
    if LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
        return true;
    }
    let Some(available) = cgroup::available() else { return true };
    let fits = bytes <= available - available / MARGIN;
    LEFT.store(available.saturating_sub(bytes) / MARGIN, Ordering::Relaxed);
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory_but_not_all_of_it() {
        assert!(may_take(4096) && !may_take(1 << 50));
    }
}
