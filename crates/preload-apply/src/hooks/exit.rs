//! The functions that end a process: each writes the report.
//!
//! Whichever runs first writes the report: the destructor of this library (exit, return from main), `_exit`, `_Exit` or
//! quick_exit. A process that ends by a signal or calls exec writes none.

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

/// Registers the report for quick_exit. Handlers run in reverse order, so the report comes after all handlers of the
/// program.
pub fn register() {
    if state::get().is_some() {
        // SAFETY: the function lives as long as the process: preloaded libraries are not unloaded.
        unsafe { __cxa_at_quick_exit(at_quick_exit, core::ptr::null_mut()) };
    }
}

fn exit_group(status: c_int) -> ! {
    // A vfork child shares memory with its parent but has another process id, so `finish` does nothing there.
    report::finish();
    loop {
        // SAFETY: what glibc's _exit does; it does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// _exit(2).
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    exit_group(status)
}

/// _Exit(3).
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    exit_group(status)
}
