//! Programs that use userfaultfd(2) themselves: memory can be registered with one descriptor only, so the sampler ends
//! for good before the program has one that works.

use core::ffi::{c_int, c_long, c_ulong, c_void};

use numamma_hook::{errno, real};

/// UFFDIO_API, the handshake, which comes before all else.
const HANDSHAKE: c_ulong = 0xc018_aa3f;

/// ioctl(2); variadic in C, which passes one argument the same way.
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
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
