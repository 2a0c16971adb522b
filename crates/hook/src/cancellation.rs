//! A thread with asynchronous cancellation (pthread_setcanceltype(3)) may be cancelled at any instruction. The C
//! library then unwinds it from there: Rust's frames do not allow that at all of their instructions, and the process
//! would be aborted; and what this library keeps would be left half changed. So hooks of functions that such a thread
//! may call, since they are system calls without a hook, run with deferred cancellation, and a cancellation that has
//! come meanwhile is acted on when they have finished. Allocating is not among them: glibc's malloc, too, may not be
//! left half done.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

unsafe extern "C-unwind" {
    /// Returns at once where the type is the same already. Changes no errno.
    fn pthread_setcanceltype(new: c_int, old: *mut c_int) -> c_int;
}

/// PTHREAD_CANCEL_DEFERRED of glibc's pthread.h.
pub const DEFERRED: c_int = 0;

/// `pthread_setcanceltype` of the C library; null before [`start`]: there is no second thread that could cancel the
/// first one. It stays null where the program or a sanitizer has a function of that name, which may call a hook itself.
pub static SET_TYPE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// To be called in the constructor of the library, before the program has threads.
pub fn start() {
    let set_type = pthread_setcanceltype as *mut c_void;
    // What no library but the C library defines.
    unsafe extern "C" {
        fn gnu_get_libc_version() -> *const c_char;
    }
    let (own, libc) = (object_of(set_type), object_of(gnu_get_libc_version as *mut c_void));
    if own.0 == libc.0 || own.1 == Some(LIBPTHREAD) {
        SET_TYPE.store(set_type, Ordering::Relaxed);
    }
}

/// The library that has the functions of threads before glibc 2.34.
const LIBPTHREAD: &CStr = c"libpthread.so.0";

/// Base address and file name of the object that has `address`.
fn object_of(address: *mut c_void) -> (usize, Option<&'static CStr>) {
    // SAFETY: an all-zero structure is valid, and the loader fills it; the name lives as long as the object, which is
    // not unloaded.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        if libc::dladdr(address, &raw mut info) == 0 || info.dli_fname.is_null() {
            return (0, None);
        }
        let path = CStr::from_ptr(info.dli_fname).to_bytes_with_nul();
        let name = path.iter().rposition(|byte| *byte == b'/').map_or(path, |slash| &path[slash + 1..]);
        (info.dli_fbase as usize, CStr::from_bytes_with_nul(name).ok())
    }
}

/// Defines exported C functions that run with deferred cancellation: `deferred_entry! { fn munmap(addr: *mut c_void,
/// len: usize) -> c_int => imp; }`, of at most six arguments in general registers.
///
/// The implementation is an `unsafe extern "C" fn` of the same arguments. One that has six gets the return address, the
/// CFA and rbp of its caller behind them, as from [`entry!`](crate::entry!), and may declare these, too. Tasks without
/// the C library's thread-local storage ([`static_tls::exists`](crate::static_tls::exists)) reach it as they are.
#[macro_export]
macro_rules! deferred_entry {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),+ $(,)?) $(-> $ret:ty)? => $imp:path;)+) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// C's contract of the function of this name.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C-unwind" fn $name($($arg: $ty),+) $(-> $ret)? {
                core::arch::naked_asm!(
                    ".cfi_startproc",
                    "endbr64",
                    "push rdi", ".cfi_adjust_cfa_offset 8",
                    "push rsi", ".cfi_adjust_cfa_offset 8",
                    "push rdx", ".cfi_adjust_cfa_offset 8",
                    "push rcx", ".cfi_adjust_cfa_offset 8",
                    "push r8", ".cfi_adjust_cfa_offset 8",
                    "push r9", ".cfi_adjust_cfa_offset 8",
                    // The old type. With the return address and six registers the stack is aligned for calls.
                    "push {deferred}", ".cfi_adjust_cfa_offset 8",
                    // glibc's control block of a thread has its own address at both places. Without it there is no type
                    // to set.
                    "mov rax, qword ptr fs:[0]",
                    "test rax, rax",
                    "je 2f",
                    "cmp rax, qword ptr fs:[16]",
                    "jne 2f",
                    "mov rax, qword ptr [rip + {set}@GOTPCREL]",
                    "mov rax, qword ptr [rax]",
                    "test rax, rax",
                    "je 2f",
                    "mov edi, {deferred}",
                    "mov rsi, rsp",
                    "call rax",
                    "2:",
                    "mov r9, qword ptr [rsp + 8]",
                    "mov r8, qword ptr [rsp + 16]",
                    "mov rcx, qword ptr [rsp + 24]",
                    "mov rdx, qword ptr [rsp + 32]",
                    "mov rsi, qword ptr [rsp + 40]",
                    "mov rdi, qword ptr [rsp + 48]",
                    "mov r10, qword ptr [rsp + 56]",
                    "lea rax, [rsp + 64]",
                    "sub rsp, 8", ".cfi_adjust_cfa_offset 8",
                    "push rbp", ".cfi_adjust_cfa_offset 8",
                    "push rax", ".cfi_adjust_cfa_offset 8",
                    "push r10", ".cfi_adjust_cfa_offset 8",
                    "call {imp}",
                    "add rsp, 32", ".cfi_adjust_cfa_offset -32",
                    "mov edi, dword ptr [rsp]",
                    "cmp edi, {deferred}",
                    "je 3f",
                    // Another type was read through this pointer, so it is not null.
                    "mov qword ptr [rsp + 8], rax",
                    "mov rsi, rsp",
                    "mov rax, qword ptr [rip + {set}@GOTPCREL]",
                    "call qword ptr [rax]",
                    "mov rax, qword ptr [rsp + 8]",
                    "3:",
                    "add rsp, 56", ".cfi_adjust_cfa_offset -56",
                    "ret",
                    ".cfi_endproc",
                    deferred = const $crate::cancellation::DEFERRED,
                    set = sym $crate::cancellation::SET_TYPE,
                    imp = sym $imp,
                )
            }
        )+
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicUsize;

    /// PTHREAD_CANCEL_ASYNCHRONOUS.
    const ASYNCHRONOUS: c_int = 1;

    static CALLER: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

    fn set(new: c_int) -> c_int {
        let mut old = -1;
        // SAFETY: a type of pthread.h and a live number.
        assert_eq!(unsafe { pthread_setcanceltype(new, &raw mut old) }, 0);
        old
    }

    #[allow(clippy::too_many_arguments)]
    unsafe extern "C" fn six(
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        e: usize,
        f: usize,
        ra: usize,
        cfa: usize,
        rbp: usize,
    ) -> usize {
        for (slot, value) in CALLER.iter().zip([ra, cfa, rbp]) {
            slot.store(value, Ordering::Relaxed);
        }
        [a, b, c, d, e, f].iter().fold(set(DEFERRED) as usize, |n, x| n * 10 + x)
    }

    unsafe extern "C" fn two(a: usize, b: usize) -> usize {
        usize::MAX - 10 * a - b - 100 * set(DEFERRED) as usize
    }

    crate::deferred_entry! {
        /// A hook of six arguments, with its caller.
        fn numamma_test_deferred_six(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> usize => six;
        /// A hook of two arguments.
        fn numamma_test_deferred_two(a: usize, b: usize) -> usize => two;
    }

    #[test]
    fn a_hook_runs_with_deferred_cancellation_and_the_type_of_its_caller_comes_back() {
        start();
        for before in [DEFERRED, ASYNCHRONOUS] {
            set(before);
            // SAFETY: the functions of this test.
            let results = unsafe { (numamma_test_deferred_six(1, 2, 3, 4, 5, 6), numamma_test_deferred_two(3, 4)) };
            assert_eq!(set(DEFERRED), before);
            assert_eq!(results, (123_456, usize::MAX - 34));
        }
        let [ra, cfa] = [0, 1].map(|i| CALLER[i].load(Ordering::Relaxed));
        let (local, this) =
            (0_usize, a_hook_runs_with_deferred_cancellation_and_the_type_of_its_caller_comes_back as fn());
        assert!(ra.abs_diff(this as usize) < 1 << 16, "called from this function");
        assert!(cfa.abs_diff((&raw const local) as usize) < 1 << 16, "whose frame is this one");
    }
}
