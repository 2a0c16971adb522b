//! The functions that start another program: it may use the CPUs that the thread could use before it was bound here.
//! See [`children`]; fork has a handler there.

use core::ffi::{c_char, c_int, c_void};

use numamma_hook::{errno, real};

use crate::threads::children;

/// Calls `start` while the thread is not bound. No value waits to be dropped: a thread that is cancelled in system(3)
/// is unwound from there.
macro_rules! unbound {
    ($start:expr) => {{
        let lifted = children::before_start();
        let result = $start;
        if lifted {
            children::after_start();
        }
        result
    }};
}

/// A function of the C library, as one through which a cancelled thread is unwound.
macro_rules! unwinding {
    ($next:expr, fn($($ty:ty),*) -> $ret:ty) => {
        // SAFETY: the same function; only what the compiler assumes about unwinding differs.
        unsafe {
            core::mem::transmute::<
                Option<unsafe extern "C" fn($($ty),*) -> $ret>,
                Option<unsafe extern "C-unwind" fn($($ty),*) -> $ret>,
            >($next)
        }
    };
}

/// system(3).
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn system(command: *const c_char) -> c_int {
    let next = unwinding!(real::symbol::system(), fn(*const c_char) -> c_int);
    let Some(next) = next else { return unavailable() };
    // SAFETY: forwarded unchanged.
    unbound!(unsafe { next(command) })
}

/// popen(3).
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    let next = unwinding!(real::symbol::popen(), fn(*const c_char, *const c_char) -> *mut c_void);
    let Some(next) = next else {
        errno::set(libc::ENOSYS);
        return core::ptr::null_mut();
    };
    // SAFETY: forwarded unchanged.
    unbound!(unsafe { next(command, mode) })
}

macro_rules! spawn_entries {
    ($($name:ident)+) => {
        $(
            #[doc = concat!(stringify!($name), "(3): process, file, file actions, attributes, arguments, environment.")]
            ///
            /// # Safety
            /// C's contract.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(
                pid: usize,
                file: usize,
                actions: usize,
                attributes: usize,
                arguments: usize,
                environment: usize,
            ) -> c_int {
                let next = unwinding!(real::symbol::$name(), fn(usize, usize, usize, usize, usize, usize) -> c_int);
                let Some(next) = next else { return libc::ENOSYS };
                // SAFETY: forwarded unchanged.
                unbound!(unsafe { next(pid, file, actions, attributes, arguments, environment) })
            }
        )+
    };
}

spawn_entries! { posix_spawn posix_spawnp }

/// In place of a function that no library has.
extern "C" fn unavailable() -> c_int {
    errno::set(libc::ENOSYS);
    -1
}

/// Functions that replace the program. Those that are variadic read the registers and the stack as their caller left
/// them, so the stub restores them and jumps.
macro_rules! exec_entries {
    ($($name:ident)+) => {
        /// What the stubs call: prepares the thread, and returns where to jump.
        mod prepare {
            use super::{children, real, unavailable};
            $(
                pub extern "C" fn $name() -> usize {
                    children::before_exec();
                    real::symbol::$name().map_or(unavailable as *const () as usize, |next| next as usize)
                }
            )+
        }

        /// The exported names.
        mod exported {
            $(
                #[doc = concat!(stringify!($name), "(3).")]
                ///
                /// # Safety
                /// C's contract.
                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                pub unsafe extern "C" fn $name() -> core::ffi::c_int {
                    // rax holds the number of vector registers of a variadic call. Seven pushes after the return
                    // address leave rsp aligned to 16 for the call.
                    core::arch::naked_asm!(
                        ".cfi_startproc", "endbr64",
                        "push rdi", ".cfi_adjust_cfa_offset 8",
                        "push rsi", ".cfi_adjust_cfa_offset 8",
                        "push rdx", ".cfi_adjust_cfa_offset 8",
                        "push rcx", ".cfi_adjust_cfa_offset 8",
                        "push r8", ".cfi_adjust_cfa_offset 8",
                        "push r9", ".cfi_adjust_cfa_offset 8",
                        "push rax", ".cfi_adjust_cfa_offset 8",
                        "call {prepare}",
                        "mov r11, rax",
                        "pop rax", ".cfi_adjust_cfa_offset -8",
                        "pop r9", ".cfi_adjust_cfa_offset -8",
                        "pop r8", ".cfi_adjust_cfa_offset -8",
                        "pop rcx", ".cfi_adjust_cfa_offset -8",
                        "pop rdx", ".cfi_adjust_cfa_offset -8",
                        "pop rsi", ".cfi_adjust_cfa_offset -8",
                        "pop rdi", ".cfi_adjust_cfa_offset -8",
                        "jmp r11",
                        ".cfi_endproc",
                        prepare = sym super::prepare::$name,
                    )
                }
            )+
        }
    };
}

exec_entries! { execl execlp execle execv execve execvp execvpe fexecve }
