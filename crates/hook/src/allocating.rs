//! Runs work that allocates, which may fail at any allocation.
//!
//! Such work runs on a [stack of the library](own_stack), where the [allocator](alloc) can abandon it, and begins only
//! if there is memory.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::{alloc, own_stack};

/// Memory that is there when work begins, bytes: as much as placing, checking and reporting take, so that only work
/// without a bound, reading the symbols of a library for instance, is ever abandoned.
const ENSURED: usize = alloc::MOST_ENSURED;

/// What abandoned work held is lost to the program, so it is not tried for ever.
const MOST_ABANDONED: u32 = 16;

static ABANDONED: AtomicU32 = AtomicU32::new(0);

/// As [`own_stack::run`], for work that allocates: [`ENSURED`] bytes are available when it begins. `None` also once
/// [`MOST_ABANDONED`] works had to be given up.
pub fn run<T>(work: impl FnOnce() -> T) -> Option<T> {
    if own_stack::is_inside() {
        return Some(work());
    }
    if ABANDONED.load(Ordering::Relaxed) >= MOST_ABANDONED || !alloc::ensure(ENSURED) {
        return None;
    }
    let mut abandoned = true;
    let result = own_stack::run(|| {
        let result = work();
        abandoned = false;
        result
    });
    if abandoned {
        ABANDONED.fetch_add(1, Ordering::Relaxed);
    }
    result
}
