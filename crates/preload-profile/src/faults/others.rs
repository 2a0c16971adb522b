//! Programs that use userfaultfd(2) themselves: memory can be registered with one descriptor only, so the sampler ends
//! for good before the program has one that works.

use core::ffi::{c_int, c_long, c_ulong, c_void};

use numamma_hook::{errno, real};

/// UFFDIO_API, the handshake, which comes before all else.
const HANDSHAKE: c_ulong = 0xc018_aa3f;

/// ioctl(2); variadic in C, which passes one argument the same way. Any other call than the handshake goes on to the
/// next ioctl and leaves no frame of this library: it may block, and a thread with asynchronous cancellation is unwound
/// there.
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "mov eax, {handshake}",
        "cmp rsi, rax",
        "je {control}",
        "mov rax, qword ptr [rip + {next}@GOTPCREL]",
        "mov rax, qword ptr [rax]",
        "test rax, rax",
        "je {control}",
        "jmp rax",
        ".cfi_endproc",
        handshake = const HANDSHAKE,
        control = sym control,
        next = sym real::symbol::slot::ioctl,
    )
}

/// ioctl(2).
///
/// # Safety
/// C's contract.
unsafe extern "C" fn control(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if request == HANDSHAKE {
        let _errno = errno::Saved::now();
        super::stop();
    }
    match real::symbol::ioctl() {
        // SAFETY: forwarded unchanged.
        Some(next) => unsafe { next(fd, request, argument) },
        // SAFETY: the same call, made directly.
        None => unsafe { libc::syscall(libc::SYS_ioctl, c_long::from(fd), request, argument) as c_int },
    }
}
