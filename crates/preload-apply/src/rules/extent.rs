//! What a heap for small objects knows about one of its extents, at the start of that.
//!
//! Two things follow from the layout of dlmalloc's chunks, which the tests of [`super::small_heap`] pin: which bytes no
//! object had yet, so that calloc need not clear them; and which whole pages no object is in.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use numamma_kernel::sys::{self, PAGE};
use numamma_kernel::window::SLOT;

use super::small_heap::{FLAGS, Heap, IN_USE};

/// Bytes at the start of an extent that hold an [`Extent`], a multiple of the alignment of objects.
pub const HEADER: usize = 64;
/// Bytes at the start of a free chunk that dlmalloc writes: `TreeChunk`.
pub const CHUNK_HEADER: usize = 64;
/// Bytes of the smallest chunk: `Chunk`.
const LEAST_CHUNK: usize = 32;
/// Where in a free chunk a number is noted of which dlmalloc does not know: behind `TreeChunk::index`. It is the size of
/// the chunk whose pages were given back, in units of [`super::small_heap::ALIGN`], so that they are not given back in
/// each search. If an object left the same number there, its pages stay until the chunk has another size.
const NOTE: usize = 60;

/// The first bytes of an extent, which begins at a multiple of [`SLOT`]. All but `heap` belongs to the thread that
/// holds the lock of the heap.
pub struct Extent {
    /// Whose extent it is.
    pub heap: &'static Heap,
    /// No byte from this address on was part of an object or is one of dlmalloc's, but for those at the end of a chunk.
    handed_out: AtomicUsize,
    /// Where dlmalloc's part ends.
    end: AtomicUsize,
    next: AtomicPtr<Extent>,
    before: AtomicPtr<Extent>,
}

const _: () = assert!(size_of::<Extent>() <= HEADER && HEADER.is_multiple_of(super::small_heap::ALIGN));

impl Extent {
    /// The header of a fresh extent of `heap`.
    pub fn new(heap: &'static Heap) -> Extent {
        Extent {
            heap,
            handed_out: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            before: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The extent that holds `address`.
    ///
    /// # Safety
    /// `address` lies in an extent that stays mapped.
    pub unsafe fn of(address: usize) -> &'static Extent {
        // SAFETY: the caller's promise; the header was written before the extent was used.
        unsafe { &*((address & !(SLOT - 1)) as *const Extent) }
    }

    fn start(&self) -> usize {
        ptr::from_ref(self) as usize + HEADER
    }

    /// Notes that dlmalloc uses the extent up to `end`.
    pub fn begin(&self, end: usize) {
        self.end.store(end, Ordering::Relaxed);
        self.handed_out.store(self.start() + CHUNK_HEADER, Ordering::Relaxed);
    }

    /// Notes that memory up to `end` may have been written; returns up to where it may have been before.
    #[inline]
    pub fn hand_out(&self, end: usize) -> usize {
        let before = self.handed_out.load(Ordering::Relaxed);
        if end + CHUNK_HEADER > before {
            self.handed_out.store(end + CHUNK_HEADER, Ordering::Relaxed);
        }
        before
    }

    /// Gives the kernel the whole pages that no object is in. The words of dlmalloc stay.
    fn give_back_pages(&self) {
        let (mut chunk, end) = (self.start(), self.end.load(Ordering::Relaxed));
        let used_end = self.handed_out.load(Ordering::Relaxed).min(end);
        while chunk < used_end {
            // SAFETY: each chunk begins where the one before ends; the second word of a chunk is its size with flags.
            let word = unsafe { *((chunk + size_of::<usize>()) as *const usize) };
            let (next, in_use) = (chunk + (word & !FLAGS), word & IN_USE != 0);
            if next < chunk + LEAST_CHUNK || next > end {
                return; // the words behind the last chunk
            }
            let first = (chunk + CHUNK_HEADER).next_multiple_of(PAGE);
            let last = (next & !(PAGE - 1)).min(used_end.next_multiple_of(PAGE));
            if !in_use && first < last {
                let note = (chunk + NOTE) as *mut u32;
                let wanted = ((next - chunk) / super::small_heap::ALIGN) as u32;
                let is_end = last >= used_end;
                // SAFETY: the pages lie in one free chunk, behind its header; its other word is at its end. The note is
                // in the header.
                let given = (is_end || unsafe { *note } != wanted)
                    && unsafe { sys::advise(first as *mut c_void, last - first, libc::MADV_DONTNEED) };
                if given && is_end {
                    self.handed_out.store(first, Ordering::Relaxed);
                } else if given {
                    // SAFETY: as above.
                    unsafe { *note = wanted };
                }
            }
            chunk = next;
        }
    }
}

/// The extents of a heap.
pub struct Extents(AtomicPtr<Extent>);

impl Extents {
    /// None.
    pub const fn new() -> Extents {
        Extents(AtomicPtr::new(ptr::null_mut()))
    }

    fn first(&self) -> Option<&'static Extent> {
        // SAFETY: an extent is removed from the list before it is unmapped.
        unsafe { self.0.load(Ordering::Relaxed).as_ref() }
    }

    /// Adds an extent.
    pub fn add(&self, extent: &'static Extent) {
        let own = ptr::from_ref(extent).cast_mut();
        let next = self.0.swap(own, Ordering::Relaxed);
        extent.next.store(next, Ordering::Relaxed);
        // SAFETY: as in `first`.
        unsafe { next.as_ref() }.inspect(|next| next.before.store(own, Ordering::Relaxed));
    }

    /// Removes an extent that is in the list.
    pub fn remove(&self, extent: &Extent) {
        let (next, before) = (extent.next.load(Ordering::Relaxed), extent.before.load(Ordering::Relaxed));
        // SAFETY: as in `first`.
        let (one, two) = unsafe { (before.as_ref(), next.as_ref()) };
        one.map_or(&self.0, |one| &one.next).store(next, Ordering::Relaxed);
        two.inspect(|two| two.before.store(before, Ordering::Relaxed));
    }

    /// Gives the kernel the whole pages of all of them that no object is in.
    pub fn give_back_pages(&self) {
        let mut extent = self.first();
        while let Some(now) = extent {
            now.give_back_pages();
            // SAFETY: as in `first`.
            extent = unsafe { now.next.load(Ordering::Relaxed).as_ref() };
        }
    }
}
