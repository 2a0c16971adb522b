//! The end of a program whose threads end one by one, without exit(3): the mover may be the last thread that is left.
//!
//! The exit status of such a process is that of its last thread since Linux 5.18, before that of its main thread. glibc
//! counts its threads, so after a pthread_exit of the main thread the last one runs the handlers of exit, with status
//! 0; that may as well be the mover. A main thread that ended by the system call `exit`, or that seccomp(2) has killed
//! alone, has a status of its own, with which the mover then ends ([`end_as_main_thread`]). The status of another
//! thread that ended by the system call is not to be had from the kernel: if the mover outlives that thread, the status
//! of the process is the main thread's. So it is if that thread ended, however, before the mover looked again.

use core::sync::atomic::{AtomicU32, Ordering};

use numamma_kernel::{own_stat, sys};

/// Process in which a thread of the program was seen to outlive the main thread; 0: none.
static OUTLIVED_IN: AtomicU32 = AtomicU32::new(0);

/// What /proc says of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    /// The main thread has ended.
    main_ended: bool,
    threads: u32,
    main: Status,
}

/// How the main thread ended, if it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// By the system call `exit`, with this value.
    Exited(u8),
    /// By this signal.
    Killed(i32),
}

impl Process {
    fn now() -> Option<Process> {
        Process::parse(own_stat::read(&mut [0; own_stat::LONGEST])?)
    }

    /// The name in parentheses may contain any character. The state follows it, 17 fields later the number of threads,
    /// and 32 after that the wait status of the main thread: proc_pid_stat(5), fields 3, 20 and 52.
    fn parse(stat: &str) -> Option<Process> {
        let mut fields = stat.rsplit(')').next()?.split_ascii_whitespace();
        let main_ended = fields.next()? == "Z";
        let threads = fields.nth(16)?.parse().ok()?;
        let status: i32 = fields.nth(31).and_then(|s| s.parse().ok()).unwrap_or(0);
        let main = match libc::WIFSIGNALED(status) {
            true => Status::Killed(libc::WTERMSIG(status)),
            false => Status::Exited(libc::WEXITSTATUS(status) as u8),
        };
        Some(Process { main_ended, threads, main })
    }

    /// Whether of all threads only the calling one and the main thread, which nobody has waited for yet, are left.
    fn ends_with_this_thread(self) -> bool {
        self.main_ended && self.threads <= 2
    }
}

/// Whether all threads of the program have ended, so that the process ends with this thread.
pub fn program_ended() -> bool {
    let Some(now) = Process::now() else { return false };
    let ended = now.ends_with_this_thread();
    if now.main_ended && !ended {
        OUTLIVED_IN.store(sys::pid(), Ordering::Relaxed);
    }
    ended
}

/// Ends this thread with the status of the main thread, if that is the status that the process would have without this
/// thread. Called by the mover when it has nothing more to do.
pub fn end_as_main_thread() {
    let Some(now) = Process::now() else { return };
    let outlived = OUTLIVED_IN.load(Ordering::Relaxed) == sys::pid();
    if !now.ends_with_this_thread() || outlived {
        return;
    }
    // No handler of exit runs, as none would without this thread: the main thread has skipped them.
    match now.main {
        Status::Exited(0) => {}
        // SAFETY: ends this thread, the last one, and with it the process.
        Status::Exited(status) => unsafe {
            libc::syscall(libc::SYS_exit, i64::from(status));
        },
        Status::Killed(signal) => die_of(signal),
    }
}

/// Ends the process by a signal, whatever the program does with it.
fn die_of(signal: i32) {
    // SAFETY: zeroes are a value of the plain structures: the default action, and no signals; they outlive the calls.
    unsafe {
        let default: libc::sigaction = core::mem::zeroed();
        libc::sigaction(signal, &raw const default, core::ptr::null_mut());
        let mut only: libc::sigset_t = core::mem::zeroed();
        libc::sigaddset(&raw mut only, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, core::ptr::null_mut());
        libc::syscall(libc::SYS_kill, i64::from(sys::pid()), i64::from(signal));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_those_of_the_kernel() {
        let own = Process::now().expect("this process has a stat file");
        assert!(!own.main_ended && own.threads >= 1 && own.main == Status::Exited(0), "{own:?}");
        let line = |state: &str, threads: u32, status: i32| {
            let zeroes = |n: usize| "0 ".repeat(n);
            format!("7 (a) Z b) {state} {}{threads} {}{status}\n", zeroes(16), zeroes(31))
        };
        let read = |text: &str| Process::parse(text).unwrap();
        let ended = read(&line("Z", 2, 7 << 8));
        assert_eq!(ended, Process { main_ended: true, threads: 2, main: Status::Exited(7) });
        assert!(ended.ends_with_this_thread());
        assert!(!read(&line("Z", 3, 7 << 8)).ends_with_this_thread());
        assert!(!read(&line("S", 2, 0)).ends_with_this_thread());
        assert_eq!(read(&line("Z", 2, libc::SIGKILL)).main, Status::Killed(libc::SIGKILL));
    }
}
