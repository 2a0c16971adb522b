//! The shared memory of a trace, byte by byte. All numbers are little-endian and naturally aligned.
//!
//! ```text
//! offset       size                      what
//! 0            4096                      Header, whose first 48 bytes are those of the channel's
//! SITES_AT     SITES * 8                 hash table of instructions: address << 1 | write, 0 empty; its index is the site
//! HEADS_AT     TABLES * 64               TableHead of every table
//! LINES_AT     BLOCKS * 49152            PageLines of pages that several threads share, see the module lines
//! DATA_AT      TABLES * MOST_BYTES       slots of every table, 2^shift of 16 bytes from its beginning
//!
//! Slot
//!  0  u64 key      page number << 29 | site << 12 | offset in the page of the first access that was counted; 0 empty
//!  8  u64 count    accesses so far by the thread that owns the table
//! ```
//!
//! The file is sparse: a thread allocates the pages of a table (fallocate) before it writes to them, and the recorder
//! gives them back when it has read the table for the last time. A count only ever grows, so the recorder reads tables
//! while threads write to them, and adds what is new since it read them before.

use std::sync::atomic::{AtomicU32, AtomicU64};

use super::lines::{BLOCKS, PageLines};

/// First eight bytes of the memory of a trace.
pub const MAGIC: u64 = u64::from_le_bytes(*b"NMMATRAC");
/// Changes with every change of this layout.
pub const VERSION: u32 = 5;

/// Bits of an address below its page.
pub const PAGE_SHIFT: u32 = 12;
/// Bits of a key below its site.
pub const OFFSET_BITS: u32 = PAGE_SHIFT;
/// Bits of a site.
pub const SITE_BITS: u32 = 17;
/// One past the highest address that is counted: user space with four levels of page tables
/// (Documentation/arch/x86/x86_64/mm.rst).
pub const END: u64 = 1 << 47;
const _: () = assert!(47 - PAGE_SHIFT + SITE_BITS + OFFSET_BITS == u64::BITS);

/// Instructions that can be told apart; accesses by others count for the first two sites, [`site_of_others`].
pub const SITES: usize = 1 << SITE_BITS;
/// Tables at once: two for each of four thousand threads.
pub const TABLES: usize = 1 << 13;
/// Logarithm of the slots of the first table of a thread: 64 KiB.
pub const FIRST_SHIFT: u32 = 12;
/// Logarithm of the slots of the largest table: 32 MiB, for a million pages of one instruction.
pub const MOST_SHIFT: u32 = 21;
/// Bytes of the largest table.
pub const MOST_BYTES: usize = size_of::<Slot>() << MOST_SHIFT;

/// Offsets of the parts.
pub const SITES_AT: usize = size_of::<Header>();
/// See [`SITES_AT`].
pub const HEADS_AT: usize = SITES_AT + SITES * size_of::<AtomicU64>();
/// See [`SITES_AT`].
pub const LINES_AT: usize = HEADS_AT + TABLES * size_of::<TableHead>();
/// See [`SITES_AT`]. Also the bytes that are mapped as a whole.
pub const DATA_AT: usize = LINES_AT + BLOCKS * size_of::<PageLines>();
/// Bytes of the file.
pub const FILE_BYTES: usize = DATA_AT + TABLES * MOST_BYTES;

/// Where the slots of a table are in the file.
pub fn offset(table: usize) -> usize {
    DATA_AT + table % TABLES * MOST_BYTES
}

/// Site of the accesses for which there is no room in the table of instructions, or in the table of their thread.
pub fn site_of_others(write: bool) -> u32 {
    write.into()
}

/// The first page. Plain fields are written by the recorder before any other process opens the memory.
#[repr(C, align(4096))]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Not used.
    pub clock: u32,
    /// Whether children of the target are traced too.
    pub follow: u32,
    /// The recorder, whose child the target is.
    pub recorder_pid: u32,
    /// The process to trace; 0 until the recorder knows it.
    pub target_pid: AtomicU32,
    /// Process images that attached so far.
    pub attached: AtomicU32,
    /// A random number that is in the environment of the program, too.
    pub nonce: [u64; 2],
    /// Most bytes that all tables may take.
    pub limit: u64,
    /// Bytes that they take.
    pub bytes: AtomicU64,
    /// Of these, the bytes of tables to which nothing more is written: the recorder gives them back.
    pub ended: AtomicU64,
    /// Accesses that were not counted, for lack of memory or as their address is beyond [`END`].
    pub lost: AtomicU64,
    /// One more than the highest table ever taken.
    pub high_water: AtomicU32,
    /// Not 0: nothing more is to be counted.
    pub stop: AtomicU32,
    /// Blocks of lines that have memory: only these may be taken.
    pub blocks_ready: AtomicU32,
    /// Blocks of lines that were asked for; those from `blocks_ready` on were refused.
    pub blocks_taken: AtomicU32,
    /// Not 0: some accesses were counted for [`site_of_others`], as their thread's table had no room for more
    /// instructions.
    pub merged: AtomicU32,
}

/// One table.
#[repr(C, align(64))]
pub struct TableHead {
    /// `pid << 32 | tid` of the thread that has it.
    pub owner: AtomicU64,
    /// When it was taken, CLOCK_MONOTONIC in nanoseconds.
    pub born_ns: AtomicU64,
    /// When its thread went on with another one, CLOCK_MONOTONIC in nanoseconds; 0 before.
    pub left_ns: AtomicU64,
    /// One of the states below.
    pub state: AtomicU32,
    /// Logarithm of its slots.
    pub shift: AtomicU32,
}

/// Nobody has the table.
pub const FREE: u32 = 0;
/// A thread prepares it.
pub const TAKEN: u32 = 1;
/// A thread writes to it.
pub const LIVE: u32 = 2;
/// Nothing more is written to it.
pub const ENDED: u32 = 3;

/// Accesses of one thread by one instruction to one page.
#[repr(C)]
pub struct Slot {
    /// See the table at the top of the file.
    pub key: AtomicU64,
    /// See the table at the top of the file.
    pub count: AtomicU64,
}

const _: () = {
    assert!(size_of::<Header>() == 4096 && size_of::<TableHead>() == 64 && size_of::<Slot>() == 16);
    assert!(HEADS_AT.is_multiple_of(4096) && LINES_AT.is_multiple_of(4096) && DATA_AT.is_multiple_of(4096));
};

/// The mapped memory up to the slots ([`DATA_AT`] bytes).
#[derive(Clone, Copy, Debug)]
pub struct Map(*const u8);

// SAFETY: all memory behind the pointer that changes is atomic.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// # Safety
    /// `base` is a shared mapping of the first [`DATA_AT`] bytes that lives as long as every copy of the result.
    pub unsafe fn new(base: *const u8) -> Map {
        Map(base)
    }

    /// The first page.
    pub fn header(&self) -> &Header {
        // SAFETY: the mapping begins with the header, page aligned.
        unsafe { &*self.0.cast() }
    }

    /// Word of an instruction; the index is reduced to the table.
    pub fn site(&self, index: usize) -> &AtomicU64 {
        // SAFETY: the index is reduced to the table.
        unsafe { &*self.0.add(SITES_AT).cast::<AtomicU64>().add(index % SITES) }
    }

    /// Head of a table; the index is reduced to their number.
    pub fn head(&self, index: usize) -> &TableHead {
        // SAFETY: the index is reduced to the heads.
        unsafe { &*self.0.add(HEADS_AT).cast::<TableHead>().add(index % TABLES) }
    }

    /// Lines of a shared page; the index is reduced to the blocks. Only one below [`Header::blocks_ready`] has memory.
    pub fn lines(&self, index: usize) -> &PageLines {
        // SAFETY: the index is reduced to the blocks, which are in the mapping.
        unsafe { &*self.0.add(LINES_AT).cast::<PageLines>().add(index % BLOCKS) }
    }
}
