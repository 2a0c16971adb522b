//! Calls that change attributes of a range of memory: the next definitions, or else the system calls.
//!
//! The names are POSIX's and Linux' and not C's: a library may have a function of its own under one of them, with other
//! arguments. So all six registers for arguments are handed on, and the whole register of the result.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::symbol;
use crate::errno;

type Next = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize;

/// The registers for arguments as a call finds them; those behind the arguments of a function hold anything.
pub type Registers = [usize; 6];

macro_rules! range_calls {
    ($($(#[$doc:meta])* $name:ident: $number:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// C's contract.
            pub unsafe fn $name(registers: Registers) -> usize {
                let [a, b, c, d, e, f] = registers;
                // SAFETY: forwarded unchanged, or the same call, made directly.
                unsafe {
                    match symbol::$name() {
                        Some(next) => next(a, b, c, d, e, f),
                        None => libc::syscall(libc::$number, a, b, c, d, e, f) as usize,
                    }
                }
            }
        )*
    };
}

range_calls! {
    /// mprotect(2).
    mprotect: SYS_mprotect;
    /// pkey_mprotect(2).
    pkey_mprotect: SYS_pkey_mprotect;
    /// madvise(2).
    madvise: SYS_madvise;
    /// mlock(2).
    mlock: SYS_mlock;
    /// mlock2(2).
    mlock2: SYS_mlock2;
    /// munlock(2).
    munlock: SYS_munlock;
    /// mlockall(2).
    mlockall: SYS_mlockall;
}

/// mbind(2). Looked up when it is first called, as only libnuma defines it: a lookup at start-up that finds nothing
/// allocates, which a sanitizer's runtime does not survive while it starts.
///
/// # Safety
/// C's contract.
pub unsafe fn mbind(registers: Registers) -> usize {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    static LOOKED: AtomicBool = AtomicBool::new(false);
    if !LOOKED.load(Ordering::Acquire) {
        let _errno = errno::Saved::now();
        NEXT.store(symbol::next(c"mbind"), Ordering::Relaxed);
        LOOKED.store(true, Ordering::Release);
    }
    let [a, b, c, d, e, f] = registers;
    // SAFETY: null, or a function of that name; forwarded unchanged, or the same call, made directly.
    unsafe {
        match core::mem::transmute::<*mut c_void, Option<Next>>(NEXT.load(Ordering::Relaxed)) {
            Some(next) => next(a, b, c, d, e, f),
            None => libc::syscall(libc::SYS_mbind, a, b, c, d, e, f) as usize,
        }
    }
}

/// posix_madvise(3). Without a definition the advice is not taken.
///
/// # Safety
/// C's contract.
pub unsafe fn posix_madvise(registers: Registers) -> usize {
    let [a, b, c, d, e, f] = registers;
    // SAFETY: forwarded unchanged.
    symbol::posix_madvise().map_or(0, |next| unsafe { next(a, b, c, d, e, f) })
}
