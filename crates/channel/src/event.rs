//! What the recorder gets from the channel.

/// Which hook reported an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Origin {
    /// malloc, calloc, realloc, reallocarray and the memalign family (operator new arrives through them).
    Heap = 0,
    /// mmap or mremap called by the program.
    Mmap = 1,
}

/// One event, decoded. Addresses and sizes are bytes; `stack` indexes [`crate::reader::Channel::stack`].
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
