//! Whether the program has confined itself with seccomp.
//!
//! A filter may kill the process for any system call that the program does not need itself, and nobody can ask a filter
//! what it allows. So both preloads make no system call of their own once the program has called prctl(2) for
//! PR_SET_NO_NEW_PRIVS or PR_SET_SECCOMP. The first comes before seccomp(2) in every program without privileges
//! (libseccomp, OpenSSH, Chromium). A filter that was inherited through exec, or set by a system call instruction
//! alone, is not seen.

use core::ffi::{c_int, c_ulong};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::{real, static_tls};

static ENTERED: AtomicBool = AtomicBool::new(false);

/// Whether system calls that the program does not make itself must be avoided. Threads are not told apart.
#[inline(always)]
pub fn entered() -> bool {
    ENTERED.load(Ordering::Relaxed)
}

/// What a library does when the program confines itself.
pub struct Reactions {
    /// Before that, the last time with true if the program is about to enter SECCOMP_MODE_STRICT, under which the
    /// kernel also ends a thread that reads the time stamp counter.
    pub before: fn(bool),
    /// When [`entered`] is true and the program has not confined itself yet: ends the threads of the library, which a
    /// filter may reach, too (SECCOMP_FILTER_FLAG_TSYNC).
    pub entered: fn(),
    /// The kernel refused, and [`entered`] is false again.
    pub refused: fn(),
}

/// Whether prctl confines the program. A filter at no address is how it is found out whether there are filters: the
/// kernel refuses it.
fn confines(operation: c_int, [first, second, ..]: [c_ulong; 4]) -> bool {
    match operation {
        libc::PR_SET_NO_NEW_PRIVS => first == 1,
        libc::PR_SET_SECCOMP => first != c_ulong::from(libc::SECCOMP_MODE_FILTER) || second != 0,
        _ => false,
    }
}

/// prctl(2). What a task without thread-local storage confines is itself.
///
/// # Safety
/// C's contract of prctl.
pub unsafe fn prctl(operation: c_int, arguments: [c_ulong; 4], reactions: &Reactions) -> c_int {
    let own = static_tls::exists();
    let first = own && confines(operation, arguments) && !entered();
    let strict = operation == libc::PR_SET_SECCOMP && arguments[0] == c_ulong::from(libc::SECCOMP_MODE_STRICT);
    if first || strict && own {
        let _errno = crate::errno::Saved::now();
        (reactions.before)(strict);
        ENTERED.store(true, Ordering::SeqCst);
        if first {
            (reactions.entered)();
        }
    }
    let [a, b, c, d] = arguments;
    let rc = match real::symbol::prctl() {
        // SAFETY: forwarded unchanged.
        Some(f) => unsafe { f(operation, a, b, c, d) },
        // SAFETY: the same call, made directly.
        None => unsafe { libc::syscall(libc::SYS_prctl, operation, a, b, c, d) as c_int },
    };
    if first && rc == -1 {
        let _errno = crate::errno::Saved::now();
        ENTERED.store(false, Ordering::Release);
        (reactions.refused)();
    }
    rc
}

/// Defines the exported prctl; `$reactions` are [`Reactions`].
#[macro_export]
macro_rules! prctl_entry {
    ($reactions:expr) => {
        $crate::deferred_entry! {
            /// prctl(2); variadic in C, which passes integers the same way.
            fn prctl(operation: ::core::ffi::c_int, a: ::core::ffi::c_ulong, b: ::core::ffi::c_ulong,
                     c: ::core::ffi::c_ulong, d: ::core::ffi::c_ulong) -> ::core::ffi::c_int => prctl_and_react;
        }

        unsafe extern "C" fn prctl_and_react(
            operation: ::core::ffi::c_int,
            a: ::core::ffi::c_ulong,
            b: ::core::ffi::c_ulong,
            c: ::core::ffi::c_ulong,
            d: ::core::ffi::c_ulong,
        ) -> ::core::ffi::c_int {
            // SAFETY: forwarded unchanged.
            unsafe { $crate::sandbox::prctl(operation, [a, b, c, d], &$reactions) }
        }
    };
}
