//! munmap(2), madvise(2) and sched_getcpu(3) of the C library itself, whoever else defines functions of these names.
//!
//! The names are POSIX's and not C's: a library of the program may have a function of its own called `munmap`, or one
//! that takes its lock. The free of the C library calls neither of these. Libraries that keep registrations of memory
//! for a network card (libucm of UCX, Open MPI, libfabric) change the code of the C library's, and are told.

use core::ffi::{CStr, c_int, c_long, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use super::behind;

static MUNMAP: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static MADVISE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static SCHED_GETCPU: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Looks them up among the symbols of the C library, once [`behind::find`] has found that.
pub(super) fn find() {
    let Some(libc) = behind::allocators().last() else { return };
    let look_up = |name: &CStr, slot: &AtomicPtr<c_void>| {
        libc.functions(name, |found| {
            if !found.is_indirect {
                slot.store(found.address as *mut c_void, Ordering::Release);
            }
        });
    };
    look_up(c"munmap", &MUNMAP);
    look_up(c"madvise", &MADVISE);
    look_up(c"sched_getcpu", &SCHED_GETCPU);
}

/// munmap(2) of the C library; the system call before that is found.
///
/// # Safety
/// C's contract.
pub unsafe fn munmap(addr: *mut c_void, len: usize) -> c_int {
    let found = MUNMAP.load(Ordering::Acquire);
    // SAFETY: null, or the C library's munmap, which has this prototype; or the same call, made directly.
    unsafe {
        match core::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn(*mut c_void, usize) -> c_int>>(found) {
            Some(f) => f(addr, len),
            None => libc::syscall(libc::SYS_munmap, addr, len) as c_int,
        }
    }
}

/// madvise(2) of the C library; the system call before that is found.
///
/// # Safety
/// The advice may discard the contents of the range; the caller owns it.
pub unsafe fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    type Madvise = unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;
    let found = MADVISE.load(Ordering::Acquire);
    // SAFETY: null, or the C library's madvise, which has this prototype; or the same call, made directly.
    unsafe {
        match core::mem::transmute::<*mut c_void, Option<Madvise>>(found) {
            Some(f) => f(addr, len, advice),
            None => libc::syscall(libc::SYS_madvise, addr, len, c_long::from(advice)) as c_int,
        }
    }
}

/// The CPU the calling thread runs on, without a system call where the C library needs none; `None` before the C
/// library's function is found, and when it fails.
pub fn sched_getcpu() -> Option<u32> {
    let found = SCHED_GETCPU.load(Ordering::Acquire);
    // SAFETY: null, or the C library's sched_getcpu, which has this prototype and may be called anywhere.
    let cpu = unsafe {
        core::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn() -> c_int>>(found).map(|getcpu| getcpu())
    };
    cpu.and_then(|cpu| u32::try_from(cpu).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_found_in_the_c_library() {
        behind::find();
        let libc = behind::allocators().last().unwrap();
        for slot in [&MUNMAP, &MADVISE, &SCHED_GETCPU] {
            assert!(libc.contains(slot.load(Ordering::Acquire) as usize));
        }
        // SAFETY: a null range of no bytes.
        assert_eq!(unsafe { madvise(core::ptr::null_mut(), 0, libc::MADV_NORMAL) }, 0);
        assert!(sched_getcpu().is_some());
    }
}
