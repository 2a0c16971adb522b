//! Calls that change attributes of a range of memory: the next definitions, or the system calls.
//!
//! The names are POSIX's and Linux' and not C's: a library may have a function of its own under one of them, with other
//! arguments. So all six registers for arguments are handed on, and the whole register of the result.
//!
//! Only names that every C library has are looked up: a lookup that fails allocates memory for its error, too early for
//! an allocator of the program. The others are system calls: pkey_mprotect(2) and mlock2(2), since glibc 2.27.

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
    /// madvise(2).
    madvise: SYS_madvise;
    /// mlock(2).
    mlock: SYS_mlock;
    /// munlock(2).
    munlock: SYS_munlock;
    /// mlockall(2).
    mlockall: SYS_mlockall;
}

unsafe fn system_call(number: libc::c_long, [a, b, c, d, e, f]: Registers) -> usize {
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(number, a, b, c, d, e, f) as usize }
}

/// pkey_mprotect(2). Without a key it is mprotect(2), as in glibc: old kernels have no other.
///
/// # Safety
/// C's contract.
pub unsafe fn pkey_mprotect(registers: Registers) -> usize {
    // SAFETY: forwarded unchanged.
    unsafe {
        match registers[3] as i32 {
            -1 => mprotect(registers),
            _ => system_call(libc::SYS_pkey_mprotect, registers),
        }
    }
}

/// mlock2(2). Without flags it is mlock(2), as in glibc.
///
/// # Safety
/// C's contract.
pub unsafe fn mlock2(registers: Registers) -> usize {
    // SAFETY: forwarded unchanged.
    unsafe {
        match registers[2] as u32 {
            0 => mlock(registers),
            _ => system_call(libc::SYS_mlock2, registers),
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
