//! Where the channel lies in this process: its fixed part, and its chunks in blocks as threads need them.
//!
//! Most programs have a few threads; mapping the whole pool could be refused by `ulimit -v`. A block stays mapped,
//! because chunks are used again. Each thread of a slot has a [`Private`] of its own, in this process only. No
//! allocation, no locks.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use numamma_channel::attach::{Name, Open};
use numamma_channel::layout::{CHUNK_BYTES, MAX_CHUNKS, POOL_AT, Pool, Record, SLOTS};
use numamma_channel::writer::{Role, role};
use numamma_hook::sys;
use numamma_hook::unwind::memo::Memos;

/// Chunks that are mapped together: 4 MiB of address space.
const BLOCK: usize = 1024;
const BLOCKS: usize = MAX_CHUNKS / BLOCK;
/// Slots whose private parts are mapped together.
const GROUP: usize = 16;
const GROUPS: usize = SLOTS / GROUP;

static FIXED: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Chunks that the file has.
static CHUNKS: AtomicUsize = AtomicUsize::new(0);
static POOL: [AtomicPtr<u8>; BLOCKS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; BLOCKS];
static PRIVATE: [AtomicPtr<Private>; GROUPS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; GROUPS];

struct Kept(UnsafeCell<Option<(Name, u32, u32)>>);

// SAFETY: written once, by the one thread that attaches the process, before FIXED is published; read after that.
unsafe impl Sync for Kept {}

/// The name of the channel, and the pid and parent for which it was accepted.
static NAME: Kept = Kept(UnsafeCell::new(None));

/// What the thread of a slot keeps in this process. All zero bytes are empty.
#[repr(C)]
pub struct Private {
    /// Remembered walks.
    pub memos: Memos,
    /// Counts of large allocations, see [`crate::quota`].
    pub sites: crate::quota::Sites,
}

/// Base of the fixed part; null before [`map`].
#[inline(always)]
pub fn fixed() -> *mut u8 {
    FIXED.load(Ordering::Relaxed)
}

/// Maps the fixed part of the channel of that name if it is there and meant for this process, and keeps the name for
/// the pool. Only called by the one thread that attaches the process.
pub fn map(name: Name, pid: u32, parent: u32) -> bool {
    let Some(open) = open(&name, pid, parent) else { return false };
    let base = shared(open.fd, 0, POOL_AT);
    sys::close(open.fd);
    let Some(base) = base else { return false };
    // SAFETY: no thread reads the name before FIXED is published.
    unsafe { *NAME.0.get() = Some((name, pid, parent)) };
    CHUNKS.store(open.chunks, Ordering::Relaxed);
    FIXED.store(base, Ordering::Release);
    true
}

fn open(name: &Name, pid: u32, parent: u32) -> Option<Open> {
    let open = name.open()?;
    if role(&open.header, name.nonce, pid, parent) == Role::Record {
        return Some(open);
    }
    sys::close(open.fd);
    None
}

/// The chunks of this process's channel.
#[derive(Clone, Copy)]
pub struct Mapped;

impl Pool for Mapped {
    fn chunk(self, index: u32) -> Option<NonNull<Record>> {
        let index = index as usize;
        if index >= CHUNKS.load(Ordering::Relaxed) {
            return None;
        }
        // Acquire pairs with the Release of `publish`.
        let base = match NonNull::new(POOL.get(index / BLOCK)?.load(Ordering::Acquire)) {
            Some(base) => base,
            None => map_block(index / BLOCK)?,
        };
        // SAFETY: a block holds its chunks one after the other and is never unmapped.
        Some(unsafe { base.add(index % BLOCK * CHUNK_BYTES).cast() })
    }
}

#[cold]
fn map_block(block: usize) -> Option<NonNull<u8>> {
    if numamma_hook::sandbox::entered() {
        return None; // events are lost, and counted, rather than a system call made
    }
    let _errno = numamma_hook::errno::Saved::now();
    // SAFETY: the name was complete before FIXED was published, and threads take chunks only after that.
    let (name, pid, parent) = unsafe { (*NAME.0.get()).as_ref() }?;
    // A forked child opens it, too, for which the channel was accepted in its parent.
    let open = open(name, *pid, *parent)?;
    let chunks = BLOCK.min(open.chunks.saturating_sub(block * BLOCK));
    let base = shared(open.fd, POOL_AT + block * BLOCK * CHUNK_BYTES, chunks * CHUNK_BYTES);
    sys::close(open.fd);
    NonNull::new(publish(POOL.get(block)?, base?, chunks * CHUNK_BYTES))
}

/// The private part of the thread that owns a slot; `None` when there is no memory for it.
#[inline(always)]
pub fn private(slot: usize) -> Option<&'static Private> {
    let base = match NonNull::new(PRIVATE.get(slot / GROUP)?.load(Ordering::Acquire)) {
        Some(base) => base,
        None => map_group(slot / GROUP)?,
    };
    // SAFETY: GROUP of them, all zero at first, which is valid; only the slot's owner uses its own.
    Some(unsafe { base.add(slot % GROUP).as_ref() })
}

#[cold]
#[inline(never)]
fn map_group(group: usize) -> Option<NonNull<Private>> {
    if numamma_hook::sandbox::entered() {
        return None;
    }
    let _errno = numamma_hook::errno::Saved::now();
    let bytes = GROUP * size_of::<Private>();
    let mine = sys::map_anonymous(bytes)?;
    NonNull::new(publish(PRIVATE.get(group)?, mine.cast(), bytes))
}

/// Stores `mine` in the cell unless another thread was first; returns what is stored.
pub fn publish<T>(cell: &AtomicPtr<T>, mine: *mut T, bytes: usize) -> *mut T {
    match cell.compare_exchange(core::ptr::null_mut(), mine, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => mine,
        Err(first) => {
            // SAFETY: no other thread has the address of this mapping.
            unsafe { sys::unmap(mine.cast(), bytes) };
            first
        }
    }
}

fn shared(fd: i32, offset: usize, bytes: usize) -> Option<*mut u8> {
    let base = sys::map_shared(fd, offset, bytes)?;
    // Keeps the channel out of core dumps of the program; if the kernel refuses, it is dumped.
    // SAFETY: the mapping was made above, and the advice keeps its contents.
    unsafe { sys::advise(base, bytes, libc::MADV_DONTDUMP) };
    Some(base.cast())
}
