//! Calls that change attributes of a range of memory: the next definitions, or else the system calls.
//!
//! The names are POSIX's and Linux' and not C's: a library may have a function of its own under one of them, with other
//! arguments. So all six registers for arguments are handed on, and the whole register of the result.

use super::symbol;

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
    /// mbind(2), which libnuma defines.
    mbind: SYS_mbind;
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
