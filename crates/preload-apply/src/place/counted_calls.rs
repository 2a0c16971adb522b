//! mbind calls that are counted: what placing costs the program, per rule, in calls, time, and refusals by the kernel.
//!
//! Costs are counted only where memory is placed, so that an allocation that matches no rule is not slower.

use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use std::time::Instant;

use numamma_kernel::policy::{self, Mode};

use crate::rules::counters::{Counters, add};

#[repr(C)]
struct Calls {
    /// mbind calls of this thread, ever.
    mbind: Cell<u64>,
}

numamma_hook::static_tls!(fn calls() -> Calls, "numamma_apply_calls");

/// [`policy::mbind`], counted for [`measure`].
///
/// # Errors
/// As [`policy::mbind`].
pub fn mbind(start: usize, len: usize, mode: Mode, nodes: &[u32], move_pages: bool) -> Result<(), c_int> {
    count_mbind();
    policy::mbind(start, len, mode, nodes, move_pages)
}

/// [`policy::mbind_shared`], counted for [`measure`].
///
/// # Errors
/// As [`policy::mbind_shared`].
pub fn mbind_shared(start: usize, len: usize, mode: Mode, nodes: &[u32]) -> Result<(), c_int> {
    count_mbind();
    policy::mbind_shared(start, len, mode, nodes)
}

fn count_mbind() {
    let calls = &calls().mbind;
    calls.set(calls.get() + 1);
}

/// Runs `place` and adds its mbind calls, its time and a refusal by the kernel to `counters`.
pub fn measure(counters: &Counters, place: impl FnOnce() -> Result<(), c_int>) -> Result<(), c_int> {
    let (start, before) = (Instant::now(), calls().mbind.get());
    let outcome = place();
    add(&counters.mbind_calls, calls().mbind.get().wrapping_sub(before));
    add(&counters.place_ns, start.elapsed().as_nanos() as u64);
    if let Err(error) = outcome {
        add(&counters.refused, 1);
        counters.error.store(u64::from(error.unsigned_abs()), Ordering::Relaxed);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_time_and_refusals_add_up() {
        let counters = Counters::default();
        let twice = || {
            count_mbind();
            count_mbind();
            Ok(())
        };
        assert_eq!(measure(&counters, twice), Ok(()));
        assert_eq!(measure(&counters, || Err(libc::EPERM)), Err(libc::EPERM));
        let read = |c: &core::sync::atomic::AtomicU64| c.load(Ordering::Relaxed);
        assert_eq!((read(&counters.mbind_calls), read(&counters.refused), read(&counters.error)), (2, 1, 1));
        assert!(read(&counters.place_ns) > 0);
    }
}
