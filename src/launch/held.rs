//! A child process that is held before `exec` until the kernel's events are open on it.
//!
//! The events and the channel then see the program from its first instruction, and the program starts with the
//! terminal, files, signals and environment that the user gave it.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};

use super::exit::{self, EXIT_FAILURE, Ended, say};
use super::invocation::{Arguments, Invocation};

/// A child that waits for [`Held::release`]. One that is dropped before that reads end of file and exits.
#[derive(Debug)]
pub struct Held {
    /// Its process id.
    pub pid: libc::pid_t,
    go: PipeWriter,
    failure: PipeReader,
}

/// Forks a child that will execute `program`.
///
/// # Errors
/// When a pipe or a process cannot be created, or an argument holds a NUL byte.
pub fn hold(program: &Invocation) -> io::Result<Held> {
    let arguments = program.arguments()?;
    let (wait, go) = io::pipe()?;
    let (failure, report) = io::pipe()?;
    // SAFETY: this process has no other thread that could hold a lock; the child calls only async-signal-safe
    // functions.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(go);
            wait_and_exec(&arguments, wait, report)
        }
        pid => Ok(Held { pid, go, failure }),
    }
}

/// The child's part: read one byte, execute; the errno of a failure goes back through the pipe. It allocates nothing,
/// because it runs between fork and exec.
fn wait_and_exec(arguments: &Arguments, mut wait: PipeReader, mut report: PipeWriter) -> ! {
    if matches!(wait.read(&mut [0]), Ok(1)) {
        let error = arguments.exec();
        // Without a reader there is nobody to tell.
        let _ = report.write(&error.to_ne_bytes());
    }
    // SAFETY: ends the process without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

impl Held {
    /// Lets the child execute the program.
    ///
    /// # Errors
    /// The error of execve.
    pub fn release(&mut self) -> io::Result<()> {
        let mut error = [0; size_of::<i32>()];
        // A child that was killed meanwhile is reported when it is waited for.
        let _ = self.go.write(&[1]);
        // The read ends when exec closes the child's end.
        if self.failure.read_exact(&mut error).is_err() {
            return Ok(());
        }
        self.wait();
        Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error)))
    }

    /// A descriptor that polls readable when the child has ended (Linux 5.3 and later).
    pub fn pidfd(&self) -> Option<OwnedFd> {
        // SAFETY: the child is not reaped yet, so the process id is its own; the result is checked.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid, 0) };
        // SAFETY: the descriptor is new and owned by nothing else.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
    }

    /// How the child ended, if it has; does not wait.
    pub fn poll(&self) -> Option<Ended> {
        self.waitpid(libc::WNOHANG)
    }

    /// Waits until the child has ended.
    pub fn wait(&self) -> Ended {
        loop {
            if let Some(ended) = self.waitpid(0) {
                return ended;
            }
        }
    }

    /// How the child ended, if this wait tells.
    fn waitpid(&self, flags: libc::c_int) -> Option<Ended> {
        let mut status = 0;
        // SAFETY: the status is a valid place to write to.
        let got = unsafe { libc::waitpid(self.pid, &mut status, flags) };
        if got == self.pid {
            let ended = Ended::of_wait_status(status)?;
            exit::note_program_end(ended);
            return Some(ended);
        }
        // Something else has reaped the child, and its status is lost; not the kernel, see
        // `signals::wait_for_children`.
        let gone = got < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD);
        gone.then(|| {
            say("how the program ended is not known: it was reaped by another wait of this process");
            Ended::Exited(i32::from(EXIT_FAILURE))
        })
    }
}
