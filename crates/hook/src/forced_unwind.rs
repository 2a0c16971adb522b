//! Lets forced unwinding pass the frames of a library. pthread_exit(3), and a cancellation that is acted on in write(2)
//! or another such point, unwind the thread to its beginning. Where a signal handler of the program does that and has
//! interrupted a hook, that goes through Rust's frames. These let no foreign unwinder through at all of their
//! instructions, and a frame that catches panics keeps it: the process was aborted, by Rust or by the C library.
//!
//! So these frames are left as `siglongjmp` leaves them, without a look at what they would do: a hook holds signals
//! where it must not be left. What would take too long with that, a heap for small objects, finds out that nobody lets
//! its lock go.

/// Defines what the linker puts in place of Rust's personality routine (Itanium C++ ABI: Exception Handling, 1.6.2),
/// for a library that is linked with `--wrap=rust_eh_personality`. Panics of the library itself reach Rust's routine.
#[macro_export]
macro_rules! pass_forced_unwinding {
    () => {
        core::arch::global_asm!(
            ".pushsection .text.numamma_personality,\"ax\",@progbits",
            ".globl __wrap_rust_eh_personality",
            ".hidden __wrap_rust_eh_personality",
            ".type __wrap_rust_eh_personality,@function",
            "__wrap_rust_eh_personality:",
            ".cfi_startproc",
            "endbr64",
            "test esi, {forced}",
            "jne 2f",
            "jmp {next}",
            "2:",
            "mov eax, {goes_on}",
            "ret",
            ".cfi_endproc",
            ".size __wrap_rust_eh_personality, . - __wrap_rust_eh_personality",
            ".popsection",
            forced = const $crate::forced_unwind::FORCE_UNWIND,
            goes_on = const $crate::forced_unwind::CONTINUE_UNWIND,
            next = sym __real_rust_eh_personality,
        );

        unsafe extern "C" {
            fn __real_rust_eh_personality();
        }
    };
}

/// `_UA_FORCE_UNWIND` of unwind.h.
pub const FORCE_UNWIND: i32 = 8;
/// `_URC_CONTINUE_UNWIND` of unwind.h.
pub const CONTINUE_UNWIND: i32 = 8;
