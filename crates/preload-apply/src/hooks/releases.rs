//! Other functions that release or resize a block: those of C23, and the C library's own entries.
//!
//! A placed object is released by this library. Any other block goes to the next definition of the same function.

use core::ffi::c_void;

use numamma_hook::entry::Caller;
use numamma_hook::real;

use super::malloc::realloc::resize;
use super::malloc::release;

type Ptr = *mut c_void;

numamma_hook::sized_release_entries!();

/// free(3) under the C library's own name, for programs that wrap it.
///
/// # Safety
/// C's contract of free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_free(ptr: Ptr) {
    // SAFETY: C's contract; a block that is no placed object is forwarded unchanged.
    unsafe {
        if !release(ptr) {
            real::symbol::__libc_free().map_or_else(|| real::free(ptr), |f| f(ptr));
        }
    }
}

/// free(3) under a name that glibc dropped in 2.26, for older programs.
///
/// # Safety
/// C's contract of free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(ptr: Ptr) {
    // SAFETY: forwarded unchanged: in glibc both names are one function.
    unsafe { __libc_free(ptr) }
}

unsafe extern "C" fn resize_or_forward(ptr: Ptr, size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    // SAFETY: C's contract of realloc; a block that is no placed object is forwarded unchanged.
    unsafe {
        let resized = resize(ptr, size, &Caller { ra, cfa, rbp });
        resized.unwrap_or_else(|| match real::symbol::__libc_realloc() {
            Some(f) => f(ptr, size),
            None => real::realloc(ptr, size),
        })
    }
}

numamma_hook::entry! {
    /// realloc(3) under the C library's own name, for programs that wrap it.
    fn __libc_realloc(ptr: Ptr, size: usize) -> Ptr => resize_or_forward;
}
