//! Terminals, and the end of a process whose terminal is closed.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// A terminal of 24 lines of 80 columns: the side of a person, and the side of a program. No child of another test
/// inherits one, which would keep the terminal open.
pub fn terminal() -> (File, OwnedFd) {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let owned = |fd: libc::c_int| {
        assert!(fd >= 0, "a terminal: {}", io::Error::last_os_error());
        // SAFETY: the descriptor is new and owned by nothing else.
        unsafe { OwnedFd::from_raw_fd(fd) }
    };
    // SAFETY: a system call.
    let person = owned(unsafe { libc::posix_openpt(flags) });
    // SAFETY: calls on the terminal, of which one reads the size.
    let program = owned(unsafe {
        libc::unlockpt(person.as_raw_fd());
        libc::ioctl(person.as_raw_fd(), libc::TIOCSWINSZ, &raw const size);
        libc::ioctl(person.as_raw_fd(), libc::TIOCGPTPEER, flags)
    });
    (File::from(person), program)
}

/// Makes a command the leader of a session of its own, with this terminal.
pub fn leads_session<'c>(command: &'c mut Command, side: &OwnedFd) -> &'c mut Command {
    let terminal = side.try_clone().expect("a descriptor is left");
    // SAFETY: all calls may be made between fork and exec.
    unsafe {
        command.pre_exec(move || {
            // Tests that nohup runs hand on that it is ignored, and a shell cannot trap that.
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            libc::setsid();
            match libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        })
    }
}

/// Waits for a process that must end within half a minute, and returns how it did. One that does not is killed, and the
/// test fails.
pub fn soon(child: &mut Child) -> ExitStatus {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        if let Some(status) = child.try_wait().expect("a child of this process") {
            return status;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().expect("it has not been waited for");
    child.wait().expect("it was killed");
    panic!("process {} did not end", child.id());
}
