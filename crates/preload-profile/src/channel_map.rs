//! Where the channel lies in this process: its fixed part, and rings in chunks as threads need them.
//!
//! Most programs have a few threads; mapping all rings would take 4 GiB of address space, which `ulimit -v` could
//! refuse and mlockall(2) would fill. A chunk stays mapped, because slots are reused. Each chunk of rings has a chunk
//! of the [`Memos`] of its slots' threads, private to the process. No allocation, no locks.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};

use numamma_channel::layout::{RINGS_AT, Ring, SLOTS};
use numamma_hook::sys;
use numamma_hook::unwind::memo::Memos;

/// Slots whose rings are mapped together: 16 MiB of address space.
const CHUNK: usize = 16;
const CHUNKS: usize = SLOTS / CHUNK;

static FIXED: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static RINGS: [AtomicPtr<u8>; CHUNKS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; CHUNKS];
static MEMOS: [AtomicPtr<Memos>; CHUNKS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; CHUNKS];

/// Bytes for `/proc/<pid>/fd/<n>` and its end.
pub const PATH_BYTES: usize = 64;

struct Path(UnsafeCell<[u8; PATH_BYTES]>);

// SAFETY: written once, by the one thread that attaches the process, before FIXED is published; read after that.
unsafe impl Sync for Path {}

static PATH: Path = Path(UnsafeCell::new([0; PATH_BYTES]));

/// Base of the fixed part; null before [`map`].
#[inline(always)]
pub fn fixed() -> *mut u8 {
    FIXED.load(Ordering::Relaxed)
}

/// Maps the fixed part from an open channel whose path is `path` (a C string), and keeps the path for the rings.
/// Only called by the one thread that attaches the process.
pub fn map(fd: i32, path: &[u8; PATH_BYTES]) -> bool {
    let Some(base) = shared(fd, 0, RINGS_AT) else { return false };
    // SAFETY: no thread reads the path before FIXED is published.
    unsafe { *PATH.0.get() = *path };
    FIXED.store(base, Ordering::Release);
    true
}

/// The ring of a slot, mapped on first use; `None` when that fails.
pub fn ring(slot: usize) -> Option<Ring> {
    let chunk = RINGS.get(slot / CHUNK)?;
    // Acquire pairs with the Release of `publish`.
    let base = match NonNull::new(chunk.load(Ordering::Acquire)) {
        Some(base) => base,
        None => map_chunk(slot / CHUNK)?,
    };
    // SAFETY: a chunk holds CHUNK rings one after the other and is never unmapped.
    Some(unsafe { Ring::new(base.add(slot % CHUNK * Ring::BYTES)) })
}

/// The memos of the thread that owns a slot, if its ring is mapped.
#[inline(always)]
pub fn memos(slot: usize) -> Option<&'static Memos> {
    let base = NonNull::new(MEMOS.get(slot / CHUNK)?.load(Ordering::Relaxed))?;
    // SAFETY: CHUNK memos, all zero at first, which is valid; only the slot's owner uses its own.
    Some(unsafe { base.add(slot % CHUNK).as_ref() })
}

#[cold]
fn map_chunk(chunk: usize) -> Option<NonNull<u8>> {
    let memos = sys::map_anonymous(CHUNK * size_of::<Memos>())?;
    publish(MEMOS.get(chunk)?, memos.cast(), CHUNK * size_of::<Memos>());
    // SAFETY: the path was complete before FIXED was published, and threads claim slots only after that.
    let path = unsafe { &*PATH.0.get() };
    let fd = sys::open(CStr::from_bytes_until_nul(path).ok()?, libc::O_RDWR)?;
    let bytes = CHUNK * Ring::BYTES;
    let base = shared(fd, RINGS_AT + chunk * bytes, bytes);
    sys::close(fd);
    NonNull::new(publish(RINGS.get(chunk)?, base?, bytes))
}

/// Stores `mine` as the chunk unless another thread was first; returns the chunk that is stored.
fn publish<T>(cell: &AtomicPtr<T>, mine: *mut T, bytes: usize) -> *mut T {
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
    // Keeps the rings out of core dumps of the program; if the kernel refuses, they are dumped.
    // SAFETY: the mapping was made above, and the advice keeps its contents.
    unsafe { sys::advise(base, bytes, libc::MADV_DONTDUMP) };
    Some(base.cast())
}
