//! Waiting on a word of memory that the threads of one process share (futex(2)).

use core::sync::atomic::AtomicU32;

/// Sleeps for at most `ns` nanoseconds if `word` is `value`; may return early, for example on a signal.
pub fn wait(word: &AtomicU32, value: u32, ns: u64) {
    let limit = libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the time are readable during the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, &raw const limit) };
}

/// Wakes every thread that sleeps on `word`.
pub fn wake_all(word: &AtomicU32) {
    // SAFETY: only the address of the word is used.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX) };
}
