//! Signals of a process that waits for a program: those sent to it alone are forwarded, and the program starts with the
//! actions that it would have without this process.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// Signals that a parent forwards to the program it waits for.
const FORWARDED: [libc::c_int; 7] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGCONT];
/// Signals that ask this process to end.
const ENDING: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Process that gets the forwarded signals; 0: none.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// The last of [`ENDING`] that arrived; 0: none.
static ENDED_BY: AtomicI32 = AtomicI32::new(0);
/// Action of SIGXFSZ before [`survive_file_limit`]; SIG_ERR while that was not called.
static FILE_LIMIT_ACTION: AtomicUsize = AtomicUsize::new(libc::SIG_ERR);

/// The signal that asked this process to end since [`forward_signals`] took over, if one did.
pub fn asked_to_end() -> Option<i32> {
    Some(ENDED_BY.load(Ordering::SeqCst)).filter(|s| *s != 0)
}

extern "C" fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // A signal of the terminal (positive si_code) has reached the whole foreground group already.
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let by_process = unsafe { (*info).si_code } <= 0;
    if ENDING.contains(&signal) {
        ENDED_BY.store(signal, Ordering::SeqCst);
    }
    let child = CHILD.load(Ordering::SeqCst);
    if by_process && child > 0 {
        // SAFETY: kill is async-signal-safe and the child is not reaped while CHILD is set.
        unsafe { libc::kill(child, signal) };
    }
}

/// Forwards signals that are sent to this process alone to `child` (0: not known yet); those of the terminal reach it
/// directly. None of them ends this process.
pub fn forward_signals(child: libc::pid_t) {
    CHILD.store(child, Ordering::SeqCst);
    for signal in FORWARDED {
        // SAFETY: an all-zero sigaction is valid; the handler only makes async-signal-safe calls. A signal that
        // is ignored stays ignored (nohup), as it would be for the program alone.
        unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut now) != 0 || now.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = forward as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Stops forwarding: the child is reaped, and its process id may be given to another process.
pub fn forget_child() {
    CHILD.store(0, Ordering::SeqCst);
}

/// Makes a file size limit (`ulimit -f`) an error of this process's writes instead of its end.
/// [`restore_for_program`] takes that back.
pub fn survive_file_limit() {
    // SAFETY: ignoring a signal.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    if before != libc::SIG_ERR {
        FILE_LIMIT_ACTION.store(before, Ordering::Relaxed);
    }
}

/// Gives back the actions that the user's shell set: Rust's start-up ignores SIGPIPE, and [`survive_file_limit`]
/// SIGXFSZ. To be called directly before execve; async-signal-safe.
pub fn restore_for_program() {
    let file_limit = FILE_LIMIT_ACTION.load(Ordering::Relaxed);
    // SAFETY: SIG_DFL, or the action that the kernel returned for the same signal.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if file_limit != libc::SIG_ERR {
            libc::signal(libc::SIGXFSZ, file_limit);
        }
    }
}
