//! The shared memory, byte by byte. All numbers are little-endian and naturally aligned.
//!
//! ```text
//! offset                size                  what
//! 0                     4096                  Header
//! SLOTS_AT              SLOTS * 128           SlotHead of every slot
//! TABLE_AT              TABLE * 8             hash table of call stacks: hash << 32 | stack id, 0 empty
//! STACKS_AT             STACKS * 128          frames of every stack, innermost first, ended by 0; id 0 unused
//! RINGS_AT              SLOTS * 1 MiB         ring of every slot: 32768 records of 32 bytes
//! TOTAL (about 4.04 GiB, sparse: only what is written takes memory)
//!
//! Record                Alloc           Free            ThreadStart
//!  0  u64 ticks         time stamp      time stamp      time stamp
//!  8  u64 address       address         address         start routine
//! 16  u64 size          size            size            lowest address of the stack
//! 24  u32 stack         stack id        0               (high - low) / 16
//! 28  u32 kind          kind and origin: see Kind
//! ```
//!
//! A slot is claimed by exchanging `owner` from 0, written by that thread only, and freed (owner = 0) by the
//! recorder only, when the thread is gone and its ring is empty. `head` and `tail` count records and never
//! go back; record n lies at n mod 32768.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::MAX_FRAMES;

/// First eight bytes of the channel.
pub const MAGIC: u64 = u64::from_le_bytes(*b"NMMACHAN");
/// Changes with every change of this layout.
pub const VERSION: u32 = 1;

/// Threads that can be recorded at once.
pub const SLOTS: usize = 4096;
/// Records a ring holds: three milliseconds of a thread that makes ten million events a second, about the maximum,
/// and a third of a second at the more usual hundred thousand.
pub const RING: usize = 32768;
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

/// Offsets of the parts.
pub const SLOTS_AT: usize = size_of::<Header>();
/// See [`SLOTS_AT`].
pub const TABLE_AT: usize = SLOTS_AT + SLOTS * size_of::<SlotHead>();
/// See [`SLOTS_AT`].
pub const STACKS_AT: usize = TABLE_AT + TABLE * size_of::<AtomicU64>();
/// See [`SLOTS_AT`].
pub const RINGS_AT: usize = STACKS_AT + STACKS * size_of::<Frames>();
/// Bytes of the whole channel.
pub const TOTAL: usize = RINGS_AT + SLOTS * Ring::BYTES;

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
    /// Claims of slots so far: a later claim has a larger number.
    pub claims: AtomicU64,
    /// One more than the highest slot ever claimed.
    pub high_water: AtomicU32,
    /// Next free stack id.
    pub next_stack: AtomicU32,
    /// Events dropped for lack of a slot.
    pub lost: AtomicU64,
    /// Thinning of small allocations, see [`kept`]; written by the recorder, only ever grows.
    pub thin: AtomicU32,
}

/// One slot: two cache lines, so that writer and recorder do not share one.
#[repr(C, align(64))]
pub struct SlotHead {
    /// `pid << 32 | tid` of the thread that owns it; 0 free.
    pub owner: AtomicU64,
    /// Number of the claim; `u64::MAX` while free and until the new owner has set it.
    pub claim: AtomicU64,
    /// Records written.
    pub head: AtomicU64,
    /// Records dropped because the ring was full.
    pub lost: AtomicU64,
    /// 1: its process image is gone (exec), so it has no writer any more.
    pub abandoned: AtomicU32,
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
/// Unit of the stack size in a ThreadStart record.
pub const STACK_UNIT: u64 = 16;

const _: () = {
    assert!(size_of::<Header>() == 4096);
    assert!(size_of::<SlotHead>() == 128);
    assert!(size_of::<Record>() == 32);
    assert!(size_of::<Frames>() == 128);
    assert!(RING.is_power_of_two() && TABLE.is_power_of_two());
    assert!(TABLE_AT.is_multiple_of(4096) && STACKS_AT.is_multiple_of(4096) && RINGS_AT.is_multiple_of(4096));
    assert!(core::mem::offset_of!(SlotHead, tail) == 64);
};

/// The mapped channel up to its rings ([`RINGS_AT`] bytes). The rings are mapped separately, because 4 GiB of
/// address space in the program could be refused by `ulimit -v` and would be filled by mlockall(2).
#[derive(Clone, Copy)]
pub struct Map(*const u8);

// SAFETY: all memory behind the pointer that changes is atomic.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// # Safety
    /// `base` is a shared mapping of the first [`RINGS_AT`] bytes of a channel that lives as long as every copy
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

    /// Frames of a stack; the id is reduced to the table.
    #[inline(always)]
    pub fn frames(&self, id: u32) -> &Frames {
        // SAFETY: the index is reduced to the table.
        unsafe { &*self.0.add(STACKS_AT).cast::<Frames>().add(id as usize % STACKS) }
    }
}

/// One slot's ring. Never null, so all zero bytes are `None` of an `Option<Ring>`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Ring(NonNull<Record>);

impl Ring {
    /// Bytes of a ring.
    pub const BYTES: usize = RING * size_of::<Record>();

    /// # Safety
    /// `base` is a shared mapping of a slot's [`Ring::BYTES`] that lives as long as every copy of the result.
    pub unsafe fn new(base: NonNull<u8>) -> Ring {
        Ring(base.cast())
    }

    /// Cell of record number `n`.
    #[inline(always)]
    pub fn cell(self, n: u64) -> *mut Record {
        // SAFETY: the index is reduced to the ring.
        unsafe { self.0.as_ptr().add(n as usize % RING) }
    }
}
