//! Clocks, and what the sampler's thread waits for. It calls nothing of libc, whose functions may be the program's.

use core::ffi::{c_int, c_long};
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use numamma_channel::layout::STOP as RECORDING_ENDED;

use super::state::{HURRY, STOP, Sampled};

/// Longest that it sleeps before it looks whether it is to end.
pub const LOOK_MS: u64 = 5;
pub const MS: u64 = 1_000_000;

/// CLOCK_MONOTONIC from the kernel.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable.
    unsafe { libc::syscall(libc::SYS_clock_gettime, c_long::from(libc::CLOCK_MONOTONIC), &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Time that this thread has waited for a CPU, nanoseconds; 0 where the kernel does not say.
pub fn waited_for_cpu_ns() -> u64 {
    let mut waited = 0;
    numamma_kernel::lines::for_each(c"/proc/thread-self/schedstat", |line| {
        waited = line.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        false
    });
    waited
}

/// What ends a window early.
pub struct Waiting {
    pub sampled: Sampled,
    /// A descriptor of the recorder's process.
    pub recorder: c_int,
}

impl Waiting {
    /// Whether pages are to be brought back now.
    pub fn ends_window(&self) -> bool {
        HURRY.load(Acquire) != 0 || self.is_over()
    }

    /// Whether pages are to be brought back for good.
    pub fn is_over(&self) -> bool {
        let ended = self.sampled.map.header().thin.load(Relaxed) == RECORDING_ENDED;
        ended || STOP.load(Acquire) != 0 || poll(&mut [(self.recorder, false)], 0)
    }
}

/// Sleeps until there is a message, the recorder has ended or `ns` are over; true when there is a message.
pub fn wait_for(fd: c_int, waits: &Waiting, ns: u64) -> bool {
    let mut both = [(fd, false), (waits.recorder, false)];
    poll(&mut both, (ns / MS).clamp(1, LOOK_MS) as c_int);
    both[0].1
}

/// poll(2) for something to read; says for each descriptor whether there is, and whether there is for one.
fn poll<const N: usize>(fds: &mut [(c_int, bool); N], timeout_ms: c_int) -> bool {
    let mut entries = fds.map(|(fd, _)| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: an array of `N` entries.
    let found = unsafe { libc::syscall(libc::SYS_poll, entries.as_mut_ptr(), N, c_long::from(timeout_ms)) };
    for ((_, ready), entry) in fds.iter_mut().zip(&entries) {
        *ready = found > 0 && entry.revents != 0;
    }
    found > 0
}
