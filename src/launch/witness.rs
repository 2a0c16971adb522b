//! Tells a signal that was sent to the whole process group (`kill -USR1 %1`, killpg, timeout(1)) from one that was sent
//! to this process alone, which the siginfo does not: the first has reached the program already.
//!
//! A child of this process, in the same group, blocks all signals. Those that it gets stay pending, and the kernel shows
//! them in /proc/PID/status. kill(2) reaches the newest processes of a group first (`__kill_pgrp_info` of kernel/signal.c,
//! `attach_pid` of kernel/pid.c), so what reached the group is pending there before this process gets it.
//! Without such a child (no process or descriptor to be had) every signal counts as sent to this process alone.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// Descriptor of /proc/PID/status of the child; -1: there is none.
static STATUS: AtomicI32 = AtomicI32::new(-1);
/// End of a pipe: a byte asks the child to take what is pending; it ends when this process has ended.
static REQUESTS: AtomicI32 = AtomicI32::new(-1);

/// Bytes of /proc/PID/status, of which the kernel writes some 1,500.
const STATUS_BYTES: usize = 4096;

/// Starts the child, once.
pub(super) fn start() {
    if STATUS.load(Ordering::SeqCst) >= 0 {
        return;
    }
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors; the sets are initialised before they are read. The child of the
    // fork makes only async-signal-safe calls, and no handler of this process runs in it.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return;
        }
        libc::fcntl(ends[1], libc::F_SETFL, libc::O_NONBLOCK);
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let pid = libc::fork();
        if pid == 0 {
            keep_signals(ends[0], all.as_ptr());
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        libc::close(ends[0]);
        REQUESTS.store(ends[1], Ordering::SeqCst);
        if pid > 0 {
            STATUS.store(open_status(pid), Ordering::SeqCst);
        }
    }
}

fn open_status(pid: libc::pid_t) -> libc::c_int {
    let path = format!("/proc/{pid}/status\0");
    // SAFETY: the path ends with a NUL byte.
    unsafe { libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) }
}

/// The child: holds nothing open but the pipe, and takes what is pending when it is asked to.
///
/// # Safety
/// For the child of a fork, with all signals blocked; `all` is a set of all signals.
unsafe fn keep_signals(requests: libc::c_int, all: *const libc::sigset_t) -> ! {
    let (now, mut bytes) = (libc::timespec { tv_sec: 0, tv_nsec: 0 }, [0u8; 64]);
    // SAFETY: async-signal-safe calls on valid places.
    unsafe {
        libc::dup2(requests, 0);
        libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
        while libc::read(0, bytes.as_mut_ptr().cast(), bytes.len()) > 0 {
            while libc::sigtimedwait(all, ptr::null_mut(), &raw const now) > 0 {}
        }
        libc::_exit(0)
    }
}

/// Whether `signal`, which this process got just now, was sent to the group; later it may be a new one.
/// Async-signal-safe.
pub(super) fn reached_the_group(signal: libc::c_int) -> bool {
    let status = STATUS.load(Ordering::SeqCst);
    if status < 0 {
        return false;
    }
    let mut text = [0u8; STATUS_BYTES];
    // SAFETY: a buffer with its length, and a byte that is read.
    let read = unsafe {
        let read = libc::pread(status, text.as_mut_ptr().cast(), text.len(), 0);
        libc::write(REQUESTS.load(Ordering::SeqCst), [0u8].as_ptr().cast(), 1);
        read
    };
    let text = text.get(..usize::try_from(read).unwrap_or(0)).unwrap_or_default();
    pending(text).is_some_and(|set| set >> (signal - 1) & 1 != 0)
}

/// Signals pending for a process, a bit each from signal 1 on, by the text of its /proc/PID/status.
fn pending(status: &[u8]) -> Option<u64> {
    const FIELD: &[u8] = b"\nShdPnd:\t";
    let at = status.windows(FIELD.len()).position(|part| part == FIELD)? + FIELD.len();
    let digits = status[at..].iter().map_while(|byte| (*byte as char).to_digit(16));
    Some(digits.fold(0, |set, digit| set << 4 | u64::from(digit)))
}

#[cfg(test)]
mod tests {
    use super::pending;

    #[test]
    fn signals_of_a_status_file() {
        let status = b"Name:\tx\nSigQ:\t1/95\nSigPnd:\t0000000000000001\nShdPnd:\t8000000000000200\nSigBlk:\t0\n";
        assert_eq!(pending(status), Some(1 << 63 | 1 << 9));
        assert_eq!((pending(b"Name:\tx\n"), pending(b"")), (None, None));
    }
}
