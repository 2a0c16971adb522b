//! mallopt and malloc_trim: the program tells its allocator how much of what was freed it keeps.

use core::ffi::c_int;

use numamma_hook::{errno, real};

use crate::objects::released;
use crate::rules::churn::allocator;

/// mallopt(3).
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallopt(parameter: c_int, value: c_int) -> c_int {
    // SAFETY: forwarded unchanged.
    let done = real::symbol::mallopt().map_or(0, |f| unsafe { f(parameter, value) });
    if done != 0 {
        let _errno = errno::Saved::now();
        let (before, now) = allocator::told(parameter, value);
        released::bounds_change(before, now);
    }
    done
}

/// malloc_trim(3): what this library keeps of freed memory is given back, too.
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_trim(pad: usize) -> c_int {
    let any = released::give_way();
    // SAFETY: forwarded unchanged.
    let done = real::symbol::malloc_trim().map_or(0, |f| unsafe { f(pad) });
    if any { 1 } else { done }
}
