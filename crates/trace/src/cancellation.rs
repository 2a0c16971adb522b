//! A thread with asynchronous cancellation (pthread_setcanceltype(3)) may be cancelled at any instruction. The C
//! library then unwinds it from there: Rust's frames do not allow that at all of their instructions, and the process
//! would be aborted; and what a thread keeps would be left half changed. So the functions behind the hooks run with
//! deferred cancellation, and a cancellation that has come meanwhile is acted on behind them.

use core::ffi::c_int;

/// PTHREAD_CANCEL_DEFERRED of glibc's pthread.h.
pub const DEFERRED: c_int = 0;

unsafe extern "C-unwind" {
    /// Returns at once where the type is the same already. Changes no errno.
    pub fn pthread_setcanceltype(new: c_int, old: *mut c_int) -> c_int;
}

/// Defines `$name`, which calls `$function` with the same arguments, at most six in general registers, and returns what
/// it does, in rax.
macro_rules! with_deferred_cancellation {
    ($(#[$attribute:meta])* $name:ident => $function:path) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        extern "C-unwind" fn $name() {
            // With the return address, six registers and the old type the stack is aligned for calls.
            core::arch::naked_asm!(
                ".cfi_startproc",
                "push rdi", ".cfi_adjust_cfa_offset 8",
                "push rsi", ".cfi_adjust_cfa_offset 8",
                "push rdx", ".cfi_adjust_cfa_offset 8",
                "push rcx", ".cfi_adjust_cfa_offset 8",
                "push r8", ".cfi_adjust_cfa_offset 8",
                "push r9", ".cfi_adjust_cfa_offset 8",
                "sub rsp, 8", ".cfi_adjust_cfa_offset 8",
                "mov edi, {deferred}",
                "mov rsi, rsp",
                "call qword ptr [rip + {set}@GOTPCREL]",
                "mov r9, qword ptr [rsp + 8]",
                "mov r8, qword ptr [rsp + 16]",
                "mov rcx, qword ptr [rsp + 24]",
                "mov rdx, qword ptr [rsp + 32]",
                "mov rsi, qword ptr [rsp + 40]",
                "mov rdi, qword ptr [rsp + 48]",
                "call {function}",
                "mov edi, dword ptr [rsp]",
                "cmp edi, {deferred}",
                "je 2f",
                "mov qword ptr [rsp + 8], rax",
                "mov rsi, rsp",
                "call qword ptr [rip + {set}@GOTPCREL]",
                "mov rax, qword ptr [rsp + 8]",
                "2:",
                "add rsp, 56", ".cfi_adjust_cfa_offset -56",
                "ret",
                ".cfi_endproc",
                deferred = const $crate::cancellation::DEFERRED,
                set = sym $crate::cancellation::pthread_setcanceltype,
                function = sym $function,
            )
        }
    };
}

pub(crate) use with_deferred_cancellation;
