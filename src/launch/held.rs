//! A child process that is held before `exec` until the kernel's events are open on it.
//!
//! The events and the channel then see the program from its first instruction, and the program starts with the
//! terminal, files, signals and environment that the user gave it.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::exit::Ended;
use super::invocation::{Arguments, Invocation};

/// A child that waits for [`Held::release`].
#[derive(Debug)]
pub struct Held {
    /// Its process id.
    pub pid: libc::pid_t,
    go: libc::c_int,
    failure: libc::c_int,
}

fn pipe() -> io::Result<[libc::c_int; 2]> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(ends)
}

/// Forks a child that will execute `program`.
///
/// # Errors
/// When a pipe or a process cannot be created, or an argument holds a NUL byte.
pub fn hold(program: &Invocation) -> io::Result<Held> {
    let arguments = program.arguments()?;
    let go = pipe()?;
    let failure = pipe()?;
    // SAFETY: this process has no other thread that could hold a lock; the child calls only async-signal-safe
    // functions.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => wait_and_exec(&arguments, go, failure),
        pid => {
            // SAFETY: these are the child's ends, which this process does not use.
            unsafe { (libc::close(go[0]), libc::close(failure[1])) };
            Ok(Held { pid, go: go[1], failure: failure[0] })
        }
    }
}

/// The child's part: read one byte, execute; the errno of a failure goes back through the pipe.
fn wait_and_exec(arguments: &Arguments, go: [libc::c_int; 2], failure: [libc::c_int; 2]) -> ! {
    // SAFETY: between fork and exec: raw system calls on descriptors and strings that were prepared before the fork.
    unsafe {
        libc::close(go[1]);
        let mut byte = 0u8;
        if libc::read(go[0], (&raw mut byte).cast(), 1) == 1 {
            let error = arguments.exec();
            libc::write(failure[1], (&raw const error).cast(), size_of::<i32>());
        }
        libc::_exit(127)
    }
}

impl Held {
    /// Lets the child execute the program.
    ///
    /// # Errors
    /// The error of execve.
    pub fn release(&mut self) -> io::Result<()> {
        let mut error = 0i32;
        // SAFETY: both descriptors are this process's ends of the pipes; `error` has room for what the child writes.
        // The read ends when exec closes the child's end.
        let got = unsafe {
            libc::write(self.go, [1u8].as_ptr().cast(), 1);
            loop {
                let n = libc::read(self.failure, (&raw mut error).cast(), size_of::<i32>());
                if n >= 0 || *libc::__errno_location() != libc::EINTR {
                    break n;
                }
            }
        };
        if got == size_of::<i32>() as isize {
            self.wait();
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(())
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

    fn waitpid(&self, flags: libc::c_int) -> Option<Ended> {
        let mut status = 0;
        // SAFETY: the status is a valid place to write to.
        let got = unsafe { libc::waitpid(self.pid, &mut status, flags) };
        if got == self.pid {
            return Some(if libc::WIFSIGNALED(status) {
                Ended::Signalled(libc::WTERMSIG(status))
            } else {
                Ended::Exited(libc::WEXITSTATUS(status))
            });
        }
        // SIGCHLD is ignored, as the parent of this process set it: the kernel reaped the child, and its status is
        // lost.
        let gone = got < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD);
        gone.then_some(Ended::Exited(0))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: this process's ends of the pipes, not used again; a child that still waits reads end of file and
        // exits.
        unsafe { (libc::close(self.go), libc::close(self.failure)) };
    }
}
