//! One line to stderr from inside a stranger's process.
//!
//! Formatted in a fixed buffer, written with one raw `write(2)`, so it works without malloc and stdio. Silent
//! when the stderr the process started with is closed or replaced: descriptor 2 may have become one of
//! the program's data files. A reader that went away must not kill the program, so SIGPIPE is held back.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};

/// Longest line, prefix and newline included; the rest is cut.
const MAX: usize = 512;
const PREFIX: &str = "numamma: ";
/// Kernel's size of a signal set in bytes.
const SIGSET: usize = 8;

/// Identity of stderr when first looked at: 0 unknown, 1 closed, else a mix of device and inode.
static STDERR: AtomicU64 = AtomicU64::new(0);

/// Writes one line to stderr: `numamma_hook::say!("cannot place {}: {}", what, why)`.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => { $crate::message::line(core::format_args!($($arg)*)) };
}

struct Buffer {
    bytes: [u8; MAX],
    len: usize,
}

impl Write for Buffer {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let room = MAX - 1 - self.len; // the newline always fits
        let n = s.len().min(room);
        self.bytes[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

/// Remembers which file stderr is; call once at start-up, before the program can replace it.
pub fn remember_stderr() {
    let _errno = crate::errno::Saved::now();
    // The first caller decides; others keep its answer.
    let _ = STDERR.compare_exchange(0, identity(), Ordering::Relaxed, Ordering::Relaxed);
}

fn identity() -> u64 {
    // SAFETY: an all-zero stat is valid, and fstat fills it.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: `stat` is writable; descriptor 2 may be closed, which fails with EBADF.
    if unsafe { libc::syscall(libc::SYS_fstat, 2_i64, &raw mut stat) } != 0 {
        return 1;
    }
    (stat.st_dev.rotate_left(32) ^ stat.st_ino).max(2)
}

/// Writes `numamma: <text>\n` to stderr. Preserves `errno`.
pub fn line(text: fmt::Arguments<'_>) {
    let _errno = crate::errno::Saved::now();
    remember_stderr();
    let started_with = STDERR.load(Ordering::Relaxed);
    if started_with == 1 || identity() != started_with {
        return;
    }
    let mut buffer = Buffer { bytes: [0; MAX], len: 0 };
    // A Display that fails still leaves the text so far, which is worth printing.
    let _ = buffer.write_str(PREFIX);
    let _ = buffer.write_fmt(text);
    buffer.bytes[buffer.len] = b'\n';
    write_quietly(&buffer.bytes[..=buffer.len]);
}

/// Writes with SIGPIPE blocked, and takes the signal away again if this write raised it.
fn write_quietly(bytes: &[u8]) {
    let sigpipe: u64 = 1 << (libc::SIGPIPE - 1);
    let (mut before, mut pending): (u64, u64) = (0, 0);
    // SAFETY: all pointers are to live 8-byte sets, the size the kernel is told.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            i64::from(libc::SIG_BLOCK),
            &raw const sigpipe,
            &raw mut before,
            SIGSET,
        );
        libc::syscall(libc::SYS_rt_sigpending, &raw mut pending, SIGSET);
        let rc = libc::syscall(libc::SYS_write, 2_i64, bytes.as_ptr(), bytes.len());
        if rc == -1 && crate::errno::get() == libc::EPIPE && pending & sigpipe == 0 {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::syscall(libc::SYS_rt_sigtimedwait, &raw const sigpipe, 0_i64, &raw const now, SIGSET);
        }
        libc::syscall(libc::SYS_rt_sigprocmask, i64::from(libc::SIG_SETMASK), &raw const before, 0_i64, SIGSET);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_and_keeps_room_for_the_newline() {
        let mut buffer = Buffer { bytes: [0; MAX], len: 0 };
        for _ in 0..100 {
            buffer.write_str("0123456789").unwrap();
        }
        assert_eq!(buffer.len, MAX - 1);
    }

    #[test]
    fn errno_survives() {
        crate::errno::set(42);
        line(format_args!("a line of the unit tests"));
        assert_eq!(crate::errno::get(), 42);
    }
}
