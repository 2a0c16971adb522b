//! The shared memory with the same fields as in `crates/channel/src/layout.rs`, but smaller, and not at fixed offsets:
//! atomics of loom have other sizes.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::MAX_FRAMES;
use crate::atomics::{AtomicU32, AtomicU64, Unshared};
use crate::faults::Faults;

pub const MAGIC: u64 = 2;
pub const VERSION: u32 = 2;
pub const SLOTS: usize = 2;
pub const CHUNK: usize = 2;
pub const CHUNKS: usize = 4;
pub const STACKS: usize = 4;
pub const TABLE: usize = STACKS * 2;
pub const SMALL: usize = 4096;
pub const STOP: u32 = u32::MAX;

pub const ALLOC_HEAP: u32 = 1;
pub const ALLOC_MMAP: u32 = 2;
pub const FREE_HEAP: u32 = 3;
pub const FREE_MMAP: u32 = 4;
pub const THREAD_START: u32 = 5;
pub const THREAD_TASK: u32 = 6;
pub const SAMPLING: u32 = 7;
pub const ACCESS: u32 = 8;
pub const RESIZED: u32 = 1 << 7;
pub const KIND_BITS: u32 = 8;
pub const STACK_UNIT: u64 = 16;

pub struct Header {
    pub clock: u32,
    pub nonce: [u64; 2],
    pub version: u32,
    pub follow: u32,
    pub recorder_pid: u32,
    pub target_pid: AtomicU32,
    pub attached: AtomicU32,
    pub claims: AtomicU64,
    pub high_water: AtomicU32,
    pub free_slot: AtomicU32,
    pub next_stack: AtomicU32,
    pub granted: AtomicU32,
    pub stacks_granted: AtomicU32,
    pub lost: AtomicU64,
    pub thin: AtomicU32,
    pub quota: AtomicU32,
    pub epoch: AtomicU32,
    pub free: Free,
    pub faults: Faults,
}

pub struct Free {
    pub top: AtomicU64,
    pub count: AtomicU32,
}

pub struct SlotHead {
    pub owner: AtomicU64,
    pub claim: AtomicU64,
    pub head: AtomicU64,
    pub lost: AtomicU64,
    pub skipped: AtomicU64,
    pub abandoned: AtomicU32,
    pub first: AtomicU32,
    pub tail: Tail,
}

pub struct Tail(pub AtomicU64);

pub type Frames = [AtomicU64; MAX_FRAMES];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub ticks: u64,
    pub address: u64,
    pub size: u64,
    pub stack: u32,
    pub kind: u32,
}

/// Memory of a channel; it lives for one execution.
pub struct Shared {
    header: Header,
    slots: [SlotHead; SLOTS],
    links: [AtomicU32; CHUNKS],
    table: [AtomicU64; TABLE],
    stacks: [Frames; STACKS],
    /// Addresses of records; what is in them is in `records`.
    pub pool: [[Record; CHUNK]; CHUNKS],
    records: [[Unshared<Record>; CHUNK]; CHUNKS],
}

/// The memory of this execution: a record knows only its address.
static MEMORY: AtomicUsize = AtomicUsize::new(0);

/// The memory of this execution.
pub fn current() -> &'static Shared {
    // SAFETY: the memory of an execution is never freed.
    unsafe { &*(MEMORY.load(Ordering::Relaxed) as *const Shared) }
}

impl Record {
    /// Where loom watches the record at an address of the pool.
    fn watched(at: *const Record) -> &'static Unshared<Record> {
        let shared = current();
        let number = (at as usize - shared.pool.as_ptr() as usize) / size_of::<Record>();
        &shared.records[number / CHUNK][number % CHUNK]
    }

    /// As in the crate; loom reports another thread that reads the record meanwhile.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn store(at: *mut Record, record: Record) {
        // SAFETY: loom looks whether it is so.
        unsafe { Unshared::write(Record::watched(at), record) };
    }

    /// As in the crate; loom reports another thread that writes the record meanwhile.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn load(at: *const Record) -> Record {
        // SAFETY: loom looks whether it is so.
        unsafe { Unshared::read(Record::watched(at)) }
    }
}

fn zeros<T, const N: usize>(new: impl Fn() -> T) -> [T; N] {
    std::array::from_fn(|_| new())
}

impl Shared {
    /// Empty memory, as that which the kernel gives.
    pub fn fresh() -> &'static Shared {
        let (long, word) = (|| AtomicU64::new(0), || AtomicU32::new(0));
        let header = Header {
            clock: 0,
            nonce: [0; 2],
            version: VERSION,
            follow: 0,
            recorder_pid: 0,
            target_pid: word(),
            attached: word(),
            claims: long(),
            high_water: word(),
            free_slot: word(),
            next_stack: AtomicU32::new(1),
            granted: word(),
            stacks_granted: AtomicU32::new(STACKS as u32),
            lost: long(),
            thin: word(),
            quota: word(),
            epoch: word(),
            free: Free { top: long(), count: word() },
            faults: Faults { interval_ns: long(), budget_ppm: word() },
        };
        let slot = || SlotHead {
            owner: long(),
            claim: AtomicU64::new(u64::MAX),
            head: long(),
            lost: long(),
            skipped: long(),
            abandoned: word(),
            first: word(),
            tail: Tail(long()),
        };
        let shared: &Shared = Box::leak(Box::new(Shared {
            header,
            slots: zeros(slot),
            links: zeros(word),
            table: zeros(long),
            stacks: zeros(|| zeros(long)),
            pool: Default::default(),
            records: zeros(|| zeros(|| Unshared::new(Record::default()))),
        }));
        MEMORY.store(std::ptr::from_ref(shared) as usize, Ordering::Relaxed);
        shared
    }
}

#[derive(Clone, Copy)]
pub struct Map(pub &'static Shared);

impl Map {
    pub fn header(&self) -> &Header {
        &self.0.header
    }

    pub fn slot(&self, slot: usize) -> &SlotHead {
        &self.0.slots[slot % SLOTS]
    }

    pub fn table(&self, index: usize) -> &AtomicU64 {
        &self.0.table[index % TABLE]
    }

    pub fn link(&self, chunk: u32) -> &AtomicU32 {
        &self.0.links[chunk as usize % CHUNKS]
    }

    pub fn frames(&self, id: u32) -> &Frames {
        &self.0.stacks[id as usize % STACKS]
    }
}

pub trait Pool: Copy {
    fn chunk(self, index: u32) -> Option<NonNull<Record>>;
}
