//! The ways out of a program.
//!
//! The report is written by whichever comes first: the destructor of this library (exit, return from main),
//! `_exit`, `_Exit` or quick_exit. A program killed by a signal or leaving by exec writes none.

use core::ffi::{c_int, c_void};

use crate::report::json as report;
use crate::rules::state;

unsafe extern "C" {
    /// What at_quick_exit(3) calls.
    fn __cxa_at_quick_exit(function: extern "C" fn(*mut c_void), dso: *mut c_void) -> c_int;
}

extern "C" fn at_quick_exit(_argument: *mut c_void) {
    report::finish();
}

/// Registers for quick_exit; the first one registered runs last, after the program's own.
pub fn register() {
    if state::get().is_some() {
        // SAFETY: the function lives as long as the process: preloaded libraries are not unloaded.
        unsafe { __cxa_at_quick_exit(at_quick_exit, core::ptr::null_mut()) };
    }
}

fn leave(status: c_int) -> ! {
    // In a vfork child the process id differs, and nothing of the parent's is touched.
    report::finish();
    loop {
        // SAFETY: what glibc's _exit does; it does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// _exit(2).
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    leave(status)
}

/// _Exit(3).
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    leave(status)
}
