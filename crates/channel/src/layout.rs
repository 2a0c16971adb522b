//! The shared memory, byte by byte. All numbers are little-endian and naturally aligned.
//!
//! ```text
//! offset                size                  what
//! 0                     4096                  Header
//! SLOTS_AT              SLOTS * 128           SlotHead of every slot
//! LINKS_AT              MAX_CHUNKS * 4        for every chunk, 1 + the chunk that follows it; 0 none
//! TABLE_AT              TABLE * 8             hash table of call stacks: hash << 32 | stack id, 0 empty
//! STACKS_AT             STACKS * 128          frames of every stack, innermost first, ended by 0; id 0 unused
//! POOL_AT               chunks * 4096         chunks of 128 records of 32 bytes
//! the size of the file never changes (seals), and decides the number of chunks
//!
//! Record                Alloc           Free            ThreadStart
//!  0  u64 ticks         time stamp      time stamp      time stamp
//!  8  u64 address       address         address         start routine
//! 16  u64 size          size            size            lowest address of the stack
//! 24  u32 stack         stack id        0               (high - low) / 16
//! 28  u32 kind          kind and origin (see Kind), and in the upper 24 bits of an Alloc the allocations that were
//!                       left out and that this record stands for besides its own, of a ThreadStart the id of the
//!                       stack that created the thread
//!
//! A ThreadTask, behind the ThreadStart of its thread, has two words of the start routine's argument in place of address
//! and size, and the index of the first one in place of the stack id.
//! ```
//!
//! realloc and mremap make an Alloc of a Free: both records have [`RESIZED`] in their kind then, and follow each other
//! among those of their thread.
//!
//! An Access record, of the `fault` sampler, has the address, in place of the size the thread that accessed it
//! (id << 1 | write), and in place of the stack id the number of the window.
//!
//! A Sampling record has a time stamp, as its address 1 or 0 (whether the program wants samples from then on), and
//! zeros.
//!
//! The recorder allocates the memory of chunks and stacks before it grants them to the program (`granted`,
//! `stacks_granted`), so that a store of the program never allocates a page of the file: where that fails, the kernel
//! sends SIGBUS.
//!
//! A slot is claimed by exchanging `owner` from 0, written by that thread only, and freed (owner = 0) by the
//! recorder only, when the thread is gone and its records are read. The records of a slot lie in a list of chunks that
//! begins at `first`. The thread takes a chunk from the stack of free chunks when its last one is full; the recorder
//! puts a chunk back when it has read it. `head` and `tail` count records of one owner.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::MAX_FRAMES;
use crate::faults::Faults;

/// First eight bytes of the channel.
pub const MAGIC: u64 = u64::from_le_bytes(*b"NMMACHAN");
/// Changes with every change of this layout.
pub const VERSION: u32 = 7;

/// Threads that can be recorded at once.
pub const SLOTS: usize = 1 << 14;
/// Records of a chunk.
pub const CHUNK: usize = 128;
/// Bytes of a chunk: one page, which is what a thread of few events takes.
pub const CHUNK_BYTES: usize = CHUNK * size_of::<Record>();
/// Most chunks of a channel: 1 GiB.
pub const MAX_CHUNKS: usize = 1 << 18;
/// Distinct call stacks of one run; real programs have a few thousand.
pub const STACKS: usize = 1 << 18;
/// Entries of the hash table; at most half are ever used.
pub const TABLE: usize = STACKS * 2;

/// Allocations below this are small: they may be thinned. One page, the unit of placement.
pub const SMALL: usize = 4096;

/// Whether the small block at `address` is recorded at a thinning of `mask` (0: all are, 2^k - 1: one in 2^k). Only
/// the address decides, so that allocation and deallocation agree without a table.
#[inline(always)]
pub fn kept(address: u64, mask: u32) -> bool {
    // Fibonacci hashing (Knuth, TAOCP 6.4) of the 16-byte granule, which scatters neighbours.
    let hash = (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    hash as u32 & mask == 0
}

/// The thinning that asks the program to record nothing any more, for good; no other has all bits set.
pub const STOP: u32 = u32::MAX;

/// Offsets of the parts.
pub const SLOTS_AT: usize = size_of::<Header>();
/// See [`SLOTS_AT`].
pub const LINKS_AT: usize = SLOTS_AT + SLOTS * size_of::<SlotHead>();
/// See [`SLOTS_AT`].
pub const TABLE_AT: usize = LINKS_AT + MAX_CHUNKS * size_of::<AtomicU32>();
/// See [`SLOTS_AT`].
pub const STACKS_AT: usize = TABLE_AT + TABLE * size_of::<AtomicU64>();
/// See [`SLOTS_AT`].
pub const POOL_AT: usize = STACKS_AT + STACKS * size_of::<Frames>();

/// Chunks of a channel of `bytes` bytes; `None` when no channel has that size.
pub fn chunks_in(bytes: u64) -> Option<usize> {
    let pool = usize::try_from(bytes).ok()?.checked_sub(POOL_AT)?;
    let chunks = pool / CHUNK_BYTES;
    (pool.is_multiple_of(CHUNK_BYTES) && (1..=MAX_CHUNKS).contains(&chunks)).then_some(chunks)
}

/// Time stamps are the processor's time stamp counter.
pub const CLOCK_TSC: u32 = 0;
/// Time stamps are CLOCK_MONOTONIC in nanoseconds.
pub const CLOCK_MONOTONIC: u32 = 1;

/// The first page. Plain fields are written by the recorder before any other process opens the channel.
#[repr(C, align(4096))]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// [`CLOCK_TSC`] or [`CLOCK_MONOTONIC`].
    pub clock: u32,
    /// Whether children of the target are recorded too.
    pub follow: u32,
    /// The recorder, whose child the target is.
    pub recorder_pid: u32,
    /// The process to record; 0 until the recorder knows it.
    pub target_pid: AtomicU32,
    /// Process images that attached so far.
    pub attached: AtomicU32,
    /// A random number that is in the environment of the program, too: by it a process knows this channel.
    pub nonce: [u64; 2],
    /// Claims of slots so far: a later claim has a larger number.
    pub claims: AtomicU64,
    /// One more than the highest slot ever claimed.
    pub high_water: AtomicU32,
    /// Where the search for a free slot begins.
    pub free_slot: AtomicU32,
    /// Next free stack id.
    pub next_stack: AtomicU32,
    /// Chunks that have memory; written by the recorder.
    pub granted: AtomicU32,
    /// Stack ids from here on have no memory yet; written by the recorder.
    pub stacks_granted: AtomicU32,
    /// Events dropped for lack of a slot.
    pub lost: AtomicU64,
    /// Thinning of small allocations, see [`kept`], or [`STOP`]; written by the recorder, only ever grows.
    pub thin: AtomicU32,
    /// Large allocations that a call site may have recorded in each [`Header::epoch`]; 0: all. Written by the recorder.
    pub quota: AtomicU32,
    /// A number that the recorder changes now and then.
    pub epoch: AtomicU32,
    /// What threads change when they take a chunk.
    pub free: Free,
    /// Of the `fault` sampler.
    pub faults: Faults,
}

/// The free chunks.
#[repr(C, align(128))]
pub struct Free {
    /// Number of changes << 32 | 1 + the chunk on top of the stack of free chunks; 0 in the lower half: none.
    pub top: AtomicU64,
    /// Chunks on the stack.
    pub count: AtomicU32,
}

/// One slot: two cache lines, so that writer and recorder do not share one.
#[repr(C, align(64))]
pub struct SlotHead {
    /// `pid << 32 | tid` of the thread that owns it; 0 free.
    pub owner: AtomicU64,
    /// Number of the claim; `u64::MAX` while free and until the new owner has set it.
    pub claim: AtomicU64,
    /// Records written by this owner.
    pub head: AtomicU64,
    /// Records dropped because there was no chunk for them.
    pub lost: AtomicU64,
    /// Allocations that were left out at the recorder's request.
    pub skipped: AtomicU64,
    /// 1: its process image is gone (exec), so it has no writer any more.
    pub abandoned: AtomicU32,
    /// 1 + the chunk with this owner's first record; 0 none.
    pub first: AtomicU32,
    /// Records read; written by the recorder.
    pub tail: Tail,
}

/// The recorder's position, on a cache line of its own.
#[repr(C, align(64))]
pub struct Tail(pub AtomicU64);

/// One call stack.
pub type Frames = [AtomicU64; MAX_FRAMES];

/// One event in a ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Time stamp, see [`Header::clock`].
    pub ticks: u64,
    /// See the table at the top of the file.
    pub address: u64,
    /// See the table at the top of the file.
    pub size: u64,
    /// See the table at the top of the file.
    pub stack: u32,
    /// One of the constants below.
    pub kind: u32,
}

impl Record {
    /// Writes a record into a chunk.
    ///
    /// # Safety
    /// `at` is a record of a mapped chunk that belongs to this thread.
    #[inline(always)]
    pub unsafe fn store(at: *mut Record, record: Record) {
        // SAFETY: the caller's promise.
        unsafe { at.write(record) };
    }

    /// Reads a record of a chunk.
    ///
    /// # Safety
    /// `at` is a record of a mapped chunk. A well-behaved writer does not write it meanwhile, and from another one any
    /// bits are a valid record.
    #[inline(always)]
    pub unsafe fn load(at: *const Record) -> Record {
        // SAFETY: the caller's promise.
        unsafe { at.read_volatile() }
    }
}

/// Kinds of records.
pub const ALLOC_HEAP: u32 = 1;
/// See [`ALLOC_HEAP`].
pub const ALLOC_MMAP: u32 = 2;
/// See [`ALLOC_HEAP`].
pub const FREE_HEAP: u32 = 3;
/// See [`ALLOC_HEAP`].
pub const FREE_MMAP: u32 = 4;
/// See [`ALLOC_HEAP`].
pub const THREAD_START: u32 = 5;
/// See [`ALLOC_HEAP`].
pub const THREAD_TASK: u32 = 6;
/// Whether samples are wanted: the address is 1 or 0.
pub const SAMPLING: u32 = 7;
/// A thread used a page for the first time in a window, or wrote to it for the first time.
pub const ACCESS: u32 = 8;
/// Flag of the kinds of an Alloc and a Free.
pub const RESIZED: u32 = 1 << 7;
/// Bits of `kind` that hold one of the constants above; those above count allocations, or hold a stack id.
pub const KIND_BITS: u32 = 8;
const _: () = assert!(STACKS <= 1 << (u32::BITS - KIND_BITS));
/// Unit of the stack size in a ThreadStart record.
pub const STACK_UNIT: u64 = 16;

const _: () = {
    assert!(size_of::<Header>() == 4096);
    assert!(size_of::<SlotHead>() == 128);
    assert!(size_of::<Record>() == 32);
    assert!(size_of::<Frames>() == 128);
    assert!(CHUNK_BYTES == 4096 && TABLE.is_power_of_two());
    assert!(LINKS_AT.is_multiple_of(4096) && TABLE_AT.is_multiple_of(4096));
    assert!(STACKS_AT.is_multiple_of(4096) && POOL_AT.is_multiple_of(4096));
    assert!(core::mem::offset_of!(SlotHead, tail) == 64);
};

/// The mapped channel up to its pool ([`POOL_AT`] bytes). The pool is mapped in parts as it is needed, because its
/// address space could be refused by `ulimit -v`.
#[derive(Clone, Copy)]
pub struct Map(*const u8);

// SAFETY: all memory behind the pointer that changes is atomic.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// # Safety
    /// `base` is a shared mapping of the first [`POOL_AT`] bytes of a channel that lives as long as every copy
    /// of the result.
    pub unsafe fn new(base: *const u8) -> Map {
        Map(base)
    }

    /// The first page.
    pub fn header(&self) -> &Header {
        // SAFETY: the mapping begins with the header, page aligned.
        unsafe { &*self.0.cast() }
    }

    /// Head of a slot; `slot` < [`SLOTS`].
    #[inline(always)]
    pub fn slot(&self, slot: usize) -> &SlotHead {
        debug_assert!(slot < SLOTS);
        // SAFETY: slot heads lie at SLOTS_AT, and the mapping covers all of them.
        unsafe { &*self.0.add(SLOTS_AT).cast::<SlotHead>().add(slot % SLOTS) }
    }

    /// Entry of the hash table, modulo its size.
    #[inline(always)]
    pub fn table(&self, index: usize) -> &AtomicU64 {
        // SAFETY: the index is reduced to the table.
        unsafe { &*self.0.add(TABLE_AT).cast::<AtomicU64>().add(index % TABLE) }
    }

    /// What follows a chunk; the index is reduced to the largest pool.
    #[inline(always)]
    pub fn link(&self, chunk: u32) -> &AtomicU32 {
        // SAFETY: the index is reduced to the links.
        unsafe { &*self.0.add(LINKS_AT).cast::<AtomicU32>().add(chunk as usize % MAX_CHUNKS) }
    }

    /// Frames of a stack; the id is reduced to the table.
    #[inline(always)]
    pub fn frames(&self, id: u32) -> &Frames {
        // SAFETY: the index is reduced to the table.
        unsafe { &*self.0.add(STACKS_AT).cast::<Frames>().add(id as usize % STACKS) }
    }
}

/// The records of all chunks, wherever the process has them mapped.
pub trait Pool: Copy {
    /// First record of a chunk; `None` when the chunk is out of range or cannot be mapped.
    fn chunk(self, index: u32) -> Option<NonNull<Record>>;
}
