//! Shared-memory channel from the profile preload (inside the program) to the recorder (`numamma profile`).
//!
//! The recorder creates a sealed memfd and names it in `NUMAMMA_CHANNEL` as `/proc/<pid>/fd/<n>`, with its inode and a
//! random number. The preload opens that path without touching what lies behind it, and maps it only when all of size,
//! inode, seals, magic, version and number are right: a program may inherit the variable long after the recorder is
//! gone, and then the path may lead anywhere ([`attach`]). Each thread of the program claims a slot, to which it alone
//! writes records and which the recorder alone drains, so threads share no lock, and a crash of the program loses
//! nothing that was written. When the memory of the channel is full the event is dropped and counted: the program never
//! waits for the recorder.
//!
//! Nothing here allocates, prints or exits on the writing side.
//!
//! [`layout`] is the shared memory as a table, [`writer`] the preload's side, [`reader`] the recorder's, and [`clock`]
//! turns the time stamps into CLOCK_MONOTONIC. [`trace`] is a second memory, for the hooks of traced programs.

pub mod attach;
pub mod clock;
pub mod faults;
pub mod layout;
mod memory;
pub mod reader;
pub mod trace;
pub mod writer;

/// Environment variable that names the channel: `/proc/<recorder pid>/fd/<fd>:<inode>:<nonce>:<nonce>`, the inode in
/// decimal, the nonce in hexadecimal digits.
pub const CHANNEL_ENV: &str = "NUMAMMA_CHANNEL";
/// Environment variable set to `1` when children are followed.
pub const FOLLOW_ENV: &str = "NUMAMMA_FOLLOW";
/// Return addresses kept per call stack, innermost first.
pub const MAX_FRAMES: usize = 16;

/// Which hook reported an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Origin {
    /// malloc, calloc, realloc, reallocarray and the memalign family (operator new arrives through them).
    Heap = 0,
    /// mmap or mremap called by the program.
    Mmap = 1,
}

/// One event, decoded. Addresses and sizes are bytes; `stack` indexes [`reader::Channel::stack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub time_ns: u64,
    /// Process that wrote it.
    pub pid: u32,
    /// Kernel thread id that wrote it.
    pub tid: u32,
    /// What happened.
    pub what: EventKind,
}

/// What an [`Event`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// `size` bytes at `addr` now belong to the program.
    Alloc {
        /// First byte.
        addr: u64,
        /// Bytes asked for.
        size: u64,
        /// Call stack of the caller; 0 not recorded.
        stack: u32,
        /// Which hook.
        origin: Origin,
        /// Allocations from the same place that were left out and that this one stands for, too.
        left_out: u32,
        /// Whether realloc or mremap made it of the memory whose end is the event before of this thread.
        resized: bool,
    },
    /// The block at `addr` was freed, or `size` bytes from `addr` were unmapped.
    Free {
        /// First byte.
        addr: u64,
        /// Bytes unmapped; 0 for heap blocks.
        size: u64,
        /// Which hook.
        origin: Origin,
        /// Whether realloc or mremap is going to make other memory of it.
        resized: bool,
    },
    /// A thread used a page for the first time in a window of the `fault` sampler, or wrote to it for the first time.
    Access {
        /// The address.
        addr: u64,
        /// The thread; the event's own is the sampler's.
        tid: u32,
        /// Whether it wrote.
        write: bool,
        /// Number of the window in its process.
        window: u32,
    },
    /// The program says whether samples are wanted from now on.
    Sampling {
        /// Whether they are.
        on: bool,
    },
    /// This thread starts.
    ThreadStart {
        /// Address of the routine given to pthread_create; 0 for the main thread and threads made otherwise.
        start_routine: u64,
        /// Lowest address of the stack; 0 unknown.
        stack_low: u64,
        /// One past its highest address; 0 unknown.
        stack_high: u64,
        /// Call stack of pthread_create; 0 not recorded.
        created_at: u32,
    },
    /// Words of the object that tells this thread of std::thread what to run. Those behind the object's end are
    /// whatever is there.
    ThreadTask {
        /// Index of the first word.
        first: u32,
        /// The words.
        words: [u64; 2],
    },
}
