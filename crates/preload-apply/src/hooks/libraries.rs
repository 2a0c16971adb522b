//! dlopen and dlclose: globals of a loaded library are placed, globals of an unloaded library are forgotten.

use core::ffi::{CStr, c_char, c_int, c_void};

use numamma_hook::{errno, real};

use crate::matching::{call_sites, pending};
use crate::phases::exclusion;
use crate::resolve;
use crate::rules::state;

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

extern "C" fn no_dlopen(_name: *const c_char, _flags: c_int) -> *mut c_void {
    core::ptr::null_mut()
}

/// Returns the function that the stub jumps to. The loader searches the RUNPATH of the module that *calls* dlopen, so a
/// name without a slash must reach the loader with the return address of the program. The globals of such a library are
/// placed at a later hook. A name with a slash is not searched for, so its globals are placed before dlopen returns.
unsafe extern "C" fn choose_dlopen(name: *const c_char, _flags: c_int) -> Dlopen {
    let Some(real) = real::symbol::dlopen() else { return no_dlopen };
    if state::get().is_none() || name.is_null() {
        return real;
    }
    // SAFETY: C's contract of dlopen: a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    if name.contains(&b'/') && !name.contains(&b'$') {
        return dlopen_then_place;
    }
    pending::mark();
    call_sites::expect_library();
    real
}

unsafe extern "C" fn dlopen_then_place(name: *const c_char, flags: c_int) -> *mut c_void {
    let Some(real) = real::symbol::dlopen() else { return core::ptr::null_mut() };
    // SAFETY: forwarded unchanged.
    let handle = unsafe { real(name, flags) };
    let _errno = errno::Saved::now();
    // Also when it failed: a library whose dependencies are missing was loaded for a moment.
    resolve::resolve_modules();
    handle
}

/// dlopen(3): jumps to the function that [`choose_dlopen`] returns, with arguments and return address unchanged.
///
/// # Safety
/// C's contract of dlopen.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8", // the ABI wants rsp aligned to 16 at the call
        ".cfi_adjust_cfa_offset 8",
        "call {choose}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        choose = sym choose_dlopen,
    )
}

/// dlclose(3): drops the unwinding rules, call sites and globals of the library.
///
/// # Safety
/// C's contract of dlclose.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let Some(real) = real::symbol::dlclose() else { return -1 };
    let active = state::get().is_some();
    if active {
        let _errno = errno::Saved::now();
        exclusion::begin_unloading();
    }
    // SAFETY: forwarded unchanged.
    let rc = unsafe { real(handle) };
    if active {
        let _errno = errno::Saved::now();
        resolve::resolve_modules();
        exclusion::end_unloading();
    }
    rc
}
