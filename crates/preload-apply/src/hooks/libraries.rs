//! dlopen and dlclose: globals of a loaded library are placed, globals of an unloaded library are forgotten.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use numamma_hook::{errno, fork_wiped, real, sandbox};

use crate::matching::{call_sites, pending};
use crate::phases::exclusion;
use crate::resolve;
use crate::rules::state;

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

extern "C" fn no_dlopen(_name: *const c_char, _flags: c_int) -> *mut c_void {
    core::ptr::null_mut()
}

/// Calls of dlclose that have begun, and those that have not ended.
static CLOSES: AtomicUsize = AtomicUsize::new(0);
static CLOSING: AtomicUsize = AtomicUsize::new(0);

/// Returns the function that the stub jumps to for a call that returns to `ra`. The loader also searches directories of
/// the module that *calls* dlopen. Where these matter, the call must reach the loader with the return address of the
/// program, and so it does not come back here. All other libraries are resolved before dlopen returns.
unsafe extern "C" fn choose_dlopen(name: *const c_char, _flags: c_int, ra: usize) -> Dlopen {
    let Some(real) = real::symbol::dlopen() else { return no_dlopen };
    if state::get().is_none() || name.is_null() {
        return real;
    }
    // SAFETY: C's contract of dlopen: a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let matcher = call_sites::read();
    let searched = || !name.contains(&b'/') && matcher.as_ref().is_none_or(|m| !m.searches_as_we_do(ra));
    if !name.contains(&b'$') && !searched() {
        return dlopen_then_place;
    }
    pending::mark(matcher.map(|m| m.counts).unwrap_or_default());
    call_sites::expect_library();
    real
}

unsafe extern "C" fn dlopen_then_place(name: *const c_char, flags: c_int) -> *mut c_void {
    let Some(real) = real::symbol::dlopen() else { return core::ptr::null_mut() };
    let (closes, closing) = (CLOSES.load(Ordering::Acquire), CLOSING.load(Ordering::Acquire));
    let opening = pending::Opening::begin();
    // SAFETY: forwarded unchanged.
    let handle = unsafe { real(name, flags) };
    drop(opening);
    let _errno = errno::Saved::now();
    resolve::resolve_opened(handle, closing == 0 && CLOSES.load(Ordering::Acquire) == closes);
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
        "mov rdx, qword ptr [rsp + 24]", // the return address
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
    if state::get().is_none() {
        // SAFETY: forwarded unchanged.
        return unsafe { real(handle) };
    }
    let before = {
        let _errno = errno::Saved::now();
        CLOSES.fetch_add(1, Ordering::AcqRel);
        CLOSING.fetch_add(1, Ordering::AcqRel);
        exclusion::begin_unloading();
        resolve::count_present()
    };
    // SAFETY: forwarded unchanged.
    let rc = unsafe { real(handle) };
    let _errno = errno::Saved::now();
    // If nothing was unloaded, the loader is not asked: see `resolve_opened`. In a sandbox that is not known.
    if resolve::count_present() != before || (sandbox::entered() && !fork_wiped::is_forked_child()) {
        resolve::resolve_modules();
    }
    exclusion::end_unloading();
    CLOSING.fetch_sub(1, Ordering::AcqRel);
    rc
}
