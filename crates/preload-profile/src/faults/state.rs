//! What the threads of the process know of the sampler, and where it tells what it sees.

use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use numamma_channel::faults::{Faults, REFUSED, WORKS};
use numamma_channel::layout::Map;

/// No thread.
pub const NONE: u32 = 0;
/// The thread works.
pub const RUNS: u32 = 1;
/// The thread has ended, for good.
pub const ENDED: u32 = 2;

/// One of the states above.
pub static STATE: AtomicU32 = AtomicU32::new(NONE);
/// 1: the thread is to end its window and itself.
pub static STOP: AtomicU32 = AtomicU32::new(0);
/// 1: a window is open.
pub static WINDOW: AtomicU32 = AtomicU32::new(0);
/// 1: the window is to end.
pub static HURRY: AtomicU32 = AtomicU32::new(0);
/// Time in which a thread wakes another one and is woken by it, nanoseconds.
pub static ROUND_TRIP_NS: AtomicU64 = AtomicU64::new(0);

/// Process in which the thread was started.
pub static OWNER: AtomicU32 = AtomicU32::new(0);

/// The process, and where it tells what it sees.
#[derive(Clone, Copy)]
pub struct Sampled {
    pub map: Map,
    pub pid: u32,
}

impl Sampled {
    pub fn faults(&self) -> &Faults {
        &self.map.header().faults
    }

    pub fn refuse(&self, errno: i32) {
        self.faults().errno.store(errno.unsigned_abs(), Relaxed);
        self.faults().state.store(REFUSED, Release);
    }

    pub fn works(&self) {
        self.faults().state.store(WORKS, Release);
    }
}
