//! Exit statuses, how a program ended, the error of a command, and diagnostics on stderr.

use std::ffi::c_int;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::{fmt, io};

use numamma_kernel::terminal;
use serde::{Deserialize, Serialize};

use super::signals;

/// Exit status of a command that could not do its work.
pub const EXIT_FAILURE: u8 = 1;
/// Exit status of a command line or input that cannot be used.
pub const EXIT_USAGE: u8 = 2;
/// Exit status when the program cannot be executed (as shells do).
pub const EXIT_CANNOT_EXECUTE: u8 = 126;
/// Exit status when the program does not exist (as shells do).
pub const EXIT_NOT_FOUND: u8 = 127;

/// Added to the number of a signal in an exit status, as shells do.
const SIGNAL_STATUS: i32 = 128;

/// Exit status of the program that was waited for, and 1 more; 0: there was none.
static PROGRAM_STATUS: AtomicU16 = AtomicU16::new(0);

/// Notes how the program ended that the command runs, for [`out_of_memory`].
pub fn note_program_end(ended: Ended) {
    PROGRAM_STATUS.store(u16::from(ended.code()) + 1, Ordering::SeqCst);
}

/// Ends the command because `bytes` of memory could not be had. Allocates nothing. A program that the command started
/// goes on, so it is waited for, and its exit status is the command's.
pub fn out_of_memory(bytes: usize) -> ! {
    static FIRST: AtomicBool = AtomicBool::new(true);
    if !FIRST.swap(false, Ordering::SeqCst) {
        // Another thread is about to end the command.
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    }
    let mut line = [0u8; 200];
    let mut rest = &mut line[..];
    let _ = writeln!(
        rest,
        "numamma: out of memory: the system refused {bytes} bytes; raise the limit (ulimit -v, ulimit -d, the container's \
         memory) or give fewer or smaller inputs"
    );
    let unused = rest.len();
    let text = &line[..line.len() - unused];
    // SAFETY: a buffer with its length; then nothing of this process runs any more.
    unsafe {
        libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        // The child must not wait for this process: for its leave to execute, or for a reader of its output.
        libc::syscall(libc::SYS_close_range, libc::STDERR_FILENO + 1, libc::c_uint::MAX, 0);
        if let Some(ended) = signals::child().and_then(wait_for) {
            note_program_end(ended);
        }
        let status = PROGRAM_STATUS.load(Ordering::SeqCst).checked_sub(1);
        libc::_exit(status.unwrap_or(EXIT_FAILURE.into()).into())
    }
}

/// Ends this process as `ended` says, if that is by a signal: a shell ends a loop only where a command died of Ctrl-C.
/// Returns the exit status where it is not by a signal, or where the signal does not end this process, as in the first
/// process of a container.
pub fn end_as(ended: Ended) -> u8 {
    let _ = io::stdout().flush();
    if let Ended::Signalled(signal) = ended {
        signals::end_by(signal);
    }
    ended.code()
}

/// Waits until the child `pid` has ended; `None` when it is no child that can be waited for. Allocates nothing.
fn wait_for(pid: libc::pid_t) -> Option<Ended> {
    let mut status = 0;
    loop {
        // SAFETY: the status is a valid place to write to.
        let got = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        if got == pid
            && let Some(ended) = Ended::of_wait_status(status)
        {
            return Some(ended);
        }
        // SAFETY: errno is this thread's.
        if got != pid && unsafe { *libc::__errno_location() } != libc::EINTR {
            return None;
        }
    }
}

/// Waits until the child `pid` has ended and does not reap it, so that its process id stays its own.
pub fn wait_unreaped(pid: u32) {
    let wait = |flags| {
        // SAFETY: an all-zero siginfo is valid and only written to; the process is a child of this one.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (libc::waitid(libc::P_PID, pid, &raw mut info, flags), info.si_code)
        }
    };
    loop {
        match wait(libc::WEXITED | libc::WNOWAIT) {
            // A stop, see `Ended::of_wait_status`. It is reported until a call takes it, and this one cannot reap.
            (0, libc::CLD_TRAPPED | libc::CLD_STOPPED) => {
                wait(libc::WSTOPPED | libc::WNOHANG);
            }
            (0, _) => return,
            _ if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted => return,
            _ => {}
        }
    }
}

/// How a program ended; also a record of the profile file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// exit(code)
    Exited(i32),
    /// Killed by a signal.
    Signalled(i32),
    /// It has not ended yet: the recording ended before it did.
    Runs,
    /// It ended, and only its parent knows how.
    Unknown,
}

impl Ended {
    /// From the status that waitpid(2) gives; `None` for a process that has stopped. Stops of a child that wants to be
    /// traced by its parent (PTRACE_TRACEME) are reported whether the parent asks for them or not.
    pub fn of_wait_status(status: libc::c_int) -> Option<Ended> {
        if libc::WIFSIGNALED(status) {
            Some(Ended::Signalled(libc::WTERMSIG(status)))
        } else {
            libc::WIFEXITED(status).then(|| Ended::Exited(libc::WEXITSTATUS(status)))
        }
    }

    /// With an exit status.
    pub fn with(code: u8) -> Ended {
        Ended::Exited(code.into())
    }

    /// Exit status for a shell: the code, or 128 + signal; 0 where there is none.
    pub fn code(self) -> u8 {
        match self {
            Ended::Exited(code) => code as u8,
            Ended::Signalled(signal) => (SIGNAL_STATUS + signal) as u8,
            Ended::Runs | Ended::Unknown => 0,
        }
    }
}

impl From<ExitStatus> for Ended {
    fn from(status: ExitStatus) -> Ended {
        status.signal().map_or_else(|| Ended::Exited(status.code().unwrap_or(1)), Ended::Signalled)
    }
}

impl fmt::Display for Ended {
    /// Continues a sentence about the program.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Exited(code) => write!(f, "exited with status {code}"),
            Ended::Signalled(signal) => write!(f, "was killed by signal {signal}"),
            Ended::Runs => write!(f, "went on"),
            Ended::Unknown => write!(f, "ended"),
        }
    }
}

/// A command that failed: the diagnostic, and how it ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// How this process ends: with a status, which is [`EXIT_FAILURE`], [`EXIT_USAGE`], [`EXIT_CANNOT_EXECUTE`],
    /// [`EXIT_NOT_FOUND`] or that of a program; or by the signal with which the user ended it.
    pub end: Ended,
    /// One line.
    pub message: String,
}

impl Failure {
    /// A command line or input that cannot be used.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { end: Ended::with(EXIT_USAGE), message: message.into() }
    }

    /// A command that could not do its work, with inputs that can be used.
    pub fn of_work(message: impl Into<String>) -> Failure {
        Failure { end: Ended::with(EXIT_FAILURE), message: message.into() }
    }

    /// A program that cannot be executed.
    pub fn cannot_execute(message: impl Into<String>) -> Failure {
        Failure { end: Ended::with(EXIT_CANNOT_EXECUTE), message: message.into() }
    }

    /// The error of execve(2), or of spawning `program`.
    pub fn of_exec(program: &Path, error: &io::Error) -> Failure {
        let exit = if error.kind() == io::ErrorKind::NotFound { EXIT_NOT_FOUND } else { EXIT_CANNOT_EXECUTE };
        Failure { end: Ended::with(exit), message: format!("{}: cannot execute: {error}", program.display()) }
    }

    /// A program that does not exist.
    pub fn not_found(message: impl Into<String>) -> Failure {
        Failure { end: Ended::with(EXIT_NOT_FOUND), message: message.into() }
    }
}

impl From<String> for Failure {
    /// [`Failure::usage`]: what a command says of its input.
    fn from(message: String) -> Failure {
        Failure::usage(message)
    }
}

/// Prints one diagnostic on stderr. What a terminal would obey is escaped, and lines behind the first are indented: no
/// text from outside can look like a diagnostic of its own.
pub fn say(message: impl fmt::Display) {
    show(&format!("numamma: {}", message.to_string().replace('\n', "\n  ")));
}

/// Time that a diagnostic waits for a full pipe: a program that ended is not to be kept from its parent, which may read
/// the pipe when it knows that.
const PATIENCE_MS: c_int = 2000;

/// Prints lines on stderr, with escapes for what a terminal would obey. They are lost where nobody reads what is there.
pub fn show(text: &str) {
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // A terminal that the user has stopped (Ctrl-S) goes on when the user wants. SAFETY: one entry that is writable.
    if !io::stderr().is_terminal() && unsafe { libc::poll(&raw mut stderr, 1, PATIENCE_MS) } == 0 {
        return;
    }
    // One write: of several processes, such as the ranks of a job, each has its own lines then. Without a reader nobody
    // can be told.
    let _ = io::stderr().lock().write_all((terminal::block(text, false) + "\n").as_bytes());
}

/// Replaces the last line of a terminal on stderr by `text`, which is shorter than [`PROGRESS`] characters.
pub fn show_progress(text: &str) {
    let _ = write!(io::stderr().lock(), "\r{:PROGRESS$}\r{}", "", terminal::line(text));
}

/// Columns of a line that is replaced.
const PROGRESS: usize = 40;
