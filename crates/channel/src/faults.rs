//! What the recorder and the `fault` sampler of the preload tell each other in the header of the channel.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Name of the sampler's thread in each process.
pub const THREAD_NAME: &CStr = c"numamma-faults";

/// The sampler has not begun, or is not wanted.
pub const NOT_BEGUN: u32 = 0;
/// It arms pages.
pub const WORKS: u32 = 1;
/// It could not begin.
pub const REFUSED: u32 = 2;
/// It does not begin: room for the pages could take from the program what it needs of a limit of its address space.
pub const LIMITED: u32 = 3;

/// Part of [`crate::layout::Header`].
#[repr(C)]
pub struct Faults {
    /// Least time between two armings, nanoseconds; 0: the sampler is not wanted. Written by the recorder before any
    /// other process opens the channel.
    pub interval_ns: AtomicU64,
    /// Parts per million of the time that the program may wait for its faults; written likewise.
    pub budget_ppm: AtomicU32,
    /// One of the states above, as the last process that began or was refused has it.
    pub state: AtomicU32,
    /// Error code of a refusal; 0 unknown.
    pub errno: AtomicU32,
    /// Windows that began, of all processes.
    pub windows: AtomicU64,
    /// Pages that were armed, in all windows.
    pub armed: AtomicU64,
    /// Pages that could not be armed, in all windows: those that a child shares since a fork, or a device uses.
    pub unarmed: AtomicU64,
    /// Time that threads waited for faults, as calculated, in all windows.
    pub waited_ns: AtomicU64,
}
