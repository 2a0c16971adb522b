//! Holds signals back while a hook changes what the library knows, so that a handler of the program never finds it half
//! done, and never leaves it so by `siglongjmp`.
//!
//! What is held back becomes pending and is delivered when the hook has finished, on the program's own stack.

use core::ffi::c_int;

use crate::{errno, sandbox};

/// Kernel's size of a signal set in bytes.
const SIGSET: usize = 8;

/// Signals that are not held: those raised by an instruction or a system call (the kernel ends a program that blocks
/// such a signal), and two of the C library's own, whose handlers are short.
const RAISED_HERE: [c_int; 8] =
    [libc::SIGILL, libc::SIGTRAP, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV, libc::SIGSYS, 32, 33];

/// All other signals, as the kernel's set.
static HELD: u64 = {
    let (mut set, mut i) = (u64::MAX, 0);
    while i < RAISED_HERE.len() {
        set &= !(1 << (RAISED_HERE[i] - 1));
        i += 1;
    }
    set
};

/// All but the two of the C library's own, which setuid(2) needs, as the kernel's set.
static ALL: u64 = !(1 << (32 - 1) | 1 << (33 - 1));

/// Holds the signals of this thread until dropped. errno stays.
#[must_use]
pub struct HeldSignals {
    before: u64,
}

impl HeldSignals {
    /// `None` in a program that has confined itself, which may be killed for the system call: there none is held.
    pub fn hold() -> Option<HeldSignals> {
        if sandbox::entered() { None } else { Some(HeldSignals::hold_always()) }
    }

    /// As [`HeldSignals::hold`], for a caller that knows that the program has not confined itself.
    pub(crate) fn hold_always() -> HeldSignals {
        HeldSignals::hold_set(&HELD)
    }

    /// Also those raised by an instruction: for a thread that is made meanwhile, and has them blocked then.
    pub fn hold_all() -> HeldSignals {
        HeldSignals::hold_set(&ALL)
    }

    fn hold_set(set: &u64) -> HeldSignals {
        let _errno = errno::Saved::now();
        let mut held = HeldSignals { before: 0 };
        // SAFETY: both pointers are to live 8-byte sets, the size that the kernel is told.
        unsafe {
            let (set, before) = (core::ptr::from_ref(set), &raw mut held.before);
            libc::syscall(libc::SYS_rt_sigprocmask, i64::from(libc::SIG_BLOCK), set, before, SIGSET);
        }
        held
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        let _errno = errno::Saved::now();
        // SAFETY: the pointer is to a live 8-byte set; no set is returned.
        unsafe {
            let (before, none) = (&raw const self.before, core::ptr::null_mut::<u64>());
            libc::syscall(libc::SYS_rt_sigprocmask, i64::from(libc::SIG_SETMASK), before, none, SIGSET);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static HANDLED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn handle(_: c_int) {
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn a_signal_comes_when_it_is_held_no_more() {
        let handled = || HANDLED.load(Ordering::Relaxed);
        // SAFETY: the handler changes an atomic variable.
        unsafe { libc::signal(libc::SIGUSR2, handle as *const () as libc::sighandler_t) };
        // SAFETY: sends the signal to this thread.
        let raise = || assert_eq!(unsafe { libc::raise(libc::SIGUSR2) }, 0);
        {
            let outer = HeldSignals::hold();
            drop(HeldSignals::hold());
            raise();
            assert_eq!((outer.is_some(), handled()), (true, 0), "the inner one leaves them as they were");
        }
        assert_eq!(handled(), 1);
        raise();
        assert_eq!(handled(), 2);
    }
}
