//! One line to stderr from inside the program.
//!
//! Names of policies, files and functions may hold anything: what a terminal would obey or not show is escaped.
//!
//! A line that a full pipe or a stopped terminal has no room for is dropped: the reader may be waiting for the program
//! to end.
//!
//! Formatted in a fixed buffer, written with one raw `write(2)`, so it works without malloc and stdio. Silent
//! when the stderr the process started with is closed or replaced: descriptor 2 may have become one of
//! the program's data files. Neither a closed pipe nor a log file at its size limit may kill the program:
//! SIGPIPE and SIGXFSZ are blocked.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};

use numamma_kernel::terminal;

use crate::blocked_signal::BlockedSignal;
use crate::own_stack;

/// Bytes of the longest line, prefix and newline included; the rest is cut.
const MAX: usize = 512;
const PREFIX: &str = "numamma: ";

/// Identity of stderr when first looked at: 0 unknown, [`SILENT`], else a mix of device and inode.
static STDERR: AtomicU64 = AtomicU64::new(0);
/// It is closed, or nothing is to be written.
const SILENT: u64 = 1;

/// Writes one line to stderr: `numamma_hook::say!("cannot place {}: {}", what, why)`.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => { $crate::message::line(core::format_args!($($arg)*)) };
}

/// As [`say!`], the first time that the calling line is reached.
#[macro_export]
macro_rules! say_once {
    ($($arg:tt)*) => {{
        static SAID: ::core::sync::atomic::AtomicBool = ::core::sync::atomic::AtomicBool::new(false);
        if !SAID.swap(true, ::core::sync::atomic::Ordering::Relaxed) {
            $crate::say!($($arg)*);
        }
    }};
}

struct Buffer {
    bytes: [u8; MAX],
    len: usize,
}

impl Write for Buffer {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        // Most pieces are the fixed words between the names.
        if s.bytes().all(|b| (b' '..=b'~').contains(&b)) {
            self.push(s);
            return Ok(());
        }
        for c in s.chars() {
            if terminal::is_shown(c) {
                self.push(c.encode_utf8(&mut [0; 4]));
            } else {
                c.escape_default().for_each(|c| self.push(c.encode_utf8(&mut [0; 4])));
            }
        }
        Ok(())
    }
}

impl Buffer {
    /// Appends what fits, cut between two characters.
    fn push(&mut self, s: &str) {
        let room = MAX - 1 - self.len; // the newline always fits
        let mut n = s.len().min(room);
        while !s.is_char_boundary(n) {
            n -= 1;
        }
        self.bytes[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
    }
}

/// Remembers which file stderr is; call once at start-up, before the program can replace it.
pub fn remember_stderr() {
    let _errno = crate::errno::Saved::now();
    // Only the first call stores the identity.
    let _ = STDERR.compare_exchange(0, identity(), Ordering::Relaxed, Ordering::Relaxed);
}

/// Lets this process write no line, nor its forked children.
pub fn say_nothing() {
    STDERR.store(SILENT, Ordering::Relaxed);
}

fn identity() -> u64 {
    // SAFETY: an all-zero stat is valid, and fstat fills it.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: `stat` is writable; descriptor 2 may be closed, which fails with EBADF.
    if unsafe { libc::syscall(libc::SYS_fstat, 2_i64, &raw mut stat) } != 0 {
        return SILENT;
    }
    (stat.st_dev.rotate_left(32) ^ stat.st_ino).max(2)
}

/// Writes `numamma: <text>\n` to stderr, unless the program has confined itself. Preserves `errno`.
pub fn line(text: fmt::Arguments<'_>) {
    if crate::sandbox::entered() {
        return;
    }
    // The stack of the program may have no room for the buffer.
    own_stack::run(|| write(text)).unwrap_or_else(|| write(text));
}

fn write(text: fmt::Arguments<'_>) {
    let _errno = crate::errno::Saved::now();
    remember_stderr();
    let started_with = STDERR.load(Ordering::Relaxed);
    if started_with == SILENT || identity() != started_with {
        return;
    }
    let mut buffer = Buffer { bytes: [0; MAX], len: 0 };
    // A Display that fails leaves the text before the failure in the buffer, which is printed.
    let _ = buffer.write_str(PREFIX);
    let _ = buffer.write_fmt(text);
    buffer.bytes[buffer.len] = b'\n';
    if !has_room() {
        return;
    }
    // Dropped in reverse order, so that each restores the mask that it found.
    let _pipe = BlockedSignal::block(libc::SIGPIPE);
    let _size = BlockedSignal::block(libc::SIGXFSZ);
    // SAFETY: the buffer is readable for its length; a failure cannot be reported anywhere.
    unsafe { libc::syscall(libc::SYS_write, 2_i64, buffer.bytes.as_ptr(), buffer.len + 1) };
}

/// Whether a line can be written to stderr without waiting: of a pipe, whether a page is free (pipe(7), PIPE_BUF).
fn has_room() -> bool {
    let mut stderr = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let no_mask = core::ptr::null::<libc::sigset_t>();
    // SAFETY: one entry that is writable, and a time that is readable; the signal mask stays.
    unsafe { libc::syscall(libc::SYS_ppoll, &raw mut stderr, 1_i64, &raw const at_once, no_mask, 0_i64) != 0 }
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
    fn a_line_stays_one_line_that_a_terminal_only_shows() {
        let mut buffer = Buffer { bytes: [0; MAX], len: 0 };
        write!(buffer, "a\nnumamma: forged\x1b[2J\u{202e}\u{9b}: Gr\u{f6}\u{df}e").unwrap();
        let text = core::str::from_utf8(&buffer.bytes[..buffer.len]).unwrap();
        assert_eq!(text, "a\\nnumamma: forged\\u{1b}[2J\\u{202e}\\u{9b}: Gr\u{f6}\u{df}e");
        (0..300).for_each(|_| buffer.write_str("\u{6f22}").unwrap());
        assert!(core::str::from_utf8(&buffer.bytes[..buffer.len]).is_ok(), "cut between two characters");
    }

    #[test]
    fn errno_survives() {
        crate::errno::set(42);
        line(format_args!("a line of the unit tests"));
        assert_eq!(crate::errno::get(), 42);
    }
}
