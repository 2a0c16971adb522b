//! Blocks the signal that a failing write of a preload would raise in the program: SIGPIPE when the reader is gone,
//! SIGXFSZ when the file size limit is reached.

use core::ffi::c_int;

/// Kernel's size of a signal set in bytes.
const SIGSET: usize = 8;

/// Blocks one signal in this thread until dropped. A signal that became pending in between is discarded.
pub struct BlockedSignal {
    set: u64,
    before: u64,
    pending: u64,
}

impl BlockedSignal {
    /// Blocks `signal` (1 to 64), which the kernel sends to the thread that causes it.
    pub fn block(signal: c_int) -> BlockedSignal {
        let mut blocked = BlockedSignal { set: 1 << (signal - 1), before: 0, pending: 0 };
        // SAFETY: all pointers are to live 8-byte sets, the size the kernel is told.
        unsafe {
            let (set, before) = (&raw const blocked.set, &raw mut blocked.before);
            libc::syscall(libc::SYS_rt_sigprocmask, i64::from(libc::SIG_BLOCK), set, before, SIGSET);
            libc::syscall(libc::SYS_rt_sigpending, &raw mut blocked.pending, SIGSET);
        }
        blocked
    }
}

impl Drop for BlockedSignal {
    fn drop(&mut self) {
        let _errno = crate::errno::Saved::now();
        let mut pending: u64 = 0;
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: as above; the wait has a timeout of 0 and takes a signal that is pending.
        unsafe {
            libc::syscall(libc::SYS_rt_sigpending, &raw mut pending, SIGSET);
            if pending & !self.pending & self.set != 0 {
                libc::syscall(libc::SYS_rt_sigtimedwait, &raw const self.set, 0_i64, &raw const now, SIGSET);
            }
            let before = &raw const self.before;
            libc::syscall(libc::SYS_rt_sigprocmask, i64::from(libc::SIG_SETMASK), before, 0_i64, SIGSET);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_to_a_closed_pipe_raises_no_signal() {
        let mut ends = [0; 2];
        // SAFETY: pipe writes two descriptors, which belong to this test.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            libc::close(ends[0]);
            let handler = libc::signal(libc::SIGPIPE, libc::SIG_DFL); // Rust ignores it
            {
                let _blocked = BlockedSignal::block(libc::SIGPIPE);
                assert_eq!(libc::write(ends[1], ends.as_ptr().cast(), 4), -1);
                assert_eq!(crate::errno::get(), libc::EPIPE);
            }
            libc::signal(libc::SIGPIPE, handler);
            libc::close(ends[1]);
        }
    }
}
