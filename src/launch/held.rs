//! Starting the program: forked, held until the kernel's events are open on it, then executed.
//!
//! The child is held before `exec`, so the events and the channel see the program from its first instruction, and the
//! program itself starts with the terminal, files, signals and environment the user gave it.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What SIGXFSZ did before [`survive_file_limit`].
static FILE_LIMIT_ACTION: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

/// From now on a file size limit (`ulimit -f`) is an error of this process's writes and not its end. The program finds
/// what was there before.
pub fn survive_file_limit() {
    // SAFETY: ignoring a signal.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    if before != libc::SIG_ERR {
        FILE_LIMIT_ACTION.store(before, Ordering::Relaxed);
    }
}

/// A child that waits for [`Held::release`].
#[derive(Debug)]
pub struct Held {
    /// Its process id.
    pub pid: libc::pid_t,
    go: libc::c_int,
    failure: libc::c_int,
}

/// How a child ended, from waitpid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// exit(code)
    Exited(i32),
    /// Killed by a signal.
    Signalled(i32),
}

impl Ended {
    /// Exit status for a shell: the code, or 128 + signal.
    pub fn code(self) -> u8 {
        match self {
            Ended::Exited(code) => code as u8,
            Ended::Signalled(signal) => (128 + signal) as u8,
        }
    }
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a NUL byte in an argument"))
}

fn pipe() -> io::Result<[libc::c_int; 2]> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(ends)
}

/// Forks a child that will execute `path` with `argv` and this process's environment changed by `env`.
///
/// # Errors
/// When a pipe or a process cannot be had.
pub fn hold(path: &Path, argv: &[OsString], env: &[(OsString, OsString)]) -> io::Result<Held> {
    let file = c_string(path.as_os_str())?;
    let argv = argv.iter().map(|a| c_string(a)).collect::<io::Result<Vec<_>>>()?;
    let kept = std::env::vars_os().filter(|(k, _)| !env.iter().any(|(n, _)| n == k));
    let env = kept
        .chain(env.iter().cloned())
        .map(|(k, v)| {
            let mut pair = k;
            pair.push("=");
            pair.push(v);
            c_string(&pair)
        })
        .collect::<io::Result<Vec<_>>>()?;
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, env) = (pointers(&argv), pointers(&env));
    let go = pipe()?;
    let failure = pipe()?;
    // SAFETY: no other thread of ours runs or holds a lock here; the child calls only async-signal-safe functions.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => wait_and_exec(&file, &argv, &env, go, failure),
        pid => {
            // SAFETY: ends that only the child uses.
            unsafe { (libc::close(go[0]), libc::close(failure[1])) };
            Ok(Held { pid, go: go[1], failure: failure[0] })
        }
    }
}

/// The child's part: read one byte, execute; the number of a failure goes back through the pipe.
fn wait_and_exec(
    file: &CString,
    argv: &[*const libc::c_char],
    env: &[*const libc::c_char],
    go: [libc::c_int; 2],
    failure: [libc::c_int; 2],
) -> ! {
    // SAFETY: between fork and exec: raw system calls on descriptors and strings that were prepared before the fork.
    unsafe {
        libc::close(go[1]);
        let mut byte = 0u8;
        if libc::read(go[0], (&raw mut byte).cast(), 1) == 1 {
            // Rust ignores SIGPIPE in this process; the program must find the default.
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::signal(libc::SIGXFSZ, FILE_LIMIT_ACTION.load(Ordering::Relaxed));
            libc::execve(file.as_ptr(), argv.as_ptr(), env.as_ptr());
            let error = *libc::__errno_location();
            libc::write(failure[1], (&raw const error).cast(), size_of::<i32>());
        }
        libc::_exit(127)
    }
}

impl Held {
    /// Lets the child execute the program.
    ///
    /// # Errors
    /// What execve said.
    pub fn release(&mut self) -> io::Result<()> {
        let mut error = 0i32;
        // SAFETY: our ends of the pipes; `error` has room for what the child writes. The read ends when exec closes the
        // child's end.
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
        // SAFETY: the child is not reaped yet, so the number is its own; the result is checked.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid, 0) };
        // SAFETY: the descriptor is new and ours.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
    }

    /// The child's end, if it has ended; does not wait.
    pub fn poll(&self) -> Option<Ended> {
        self.waitpid(libc::WNOHANG)
    }

    /// Waits for the child's end.
    pub fn wait(&self) -> Ended {
        loop {
            if let Some(ended) = self.waitpid(0) {
                return ended;
            }
        }
    }

    fn waitpid(&self, flags: libc::c_int) -> Option<Ended> {
        let mut status = 0;
        // SAFETY: our child; the status is ours.
        let got = unsafe { libc::waitpid(self.pid, &mut status, flags) };
        if got == self.pid {
            return Some(if libc::WIFSIGNALED(status) {
                Ended::Signalled(libc::WTERMSIG(status))
            } else {
                Ended::Exited(libc::WEXITSTATUS(status))
            });
        }
        // Somebody else has reaped it (SIGCHLD ignored by our parent): the status is not to be had.
        let gone = got < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD);
        gone.then_some(Ended::Exited(0))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: our ends of the pipes; a child that still waits reads the end of the file and leaves.
        unsafe { (libc::close(self.go), libc::close(self.failure)) };
    }
}
