//! What a heap for small objects knows about one of its extents, at the start of that.
//!
//! Two things follow from the layout of dlmalloc's chunks, which the tests of [`super::small_heap`] pin: which bytes no
//! object had yet, so that calloc need not clear them; and which whole pages no object is in.

use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use numamma_kernel::sys::{self, PAGE};
use numamma_kernel::window::SLOT;

use super::small_heap::chunk::{ALIGN, FLAGS, IN_USE};

/// Bytes at the start of an extent that hold an [`Extent`], a multiple of the alignment of objects.
pub const HEADER: usize = 192;
/// Bytes at the start of a free chunk that dlmalloc writes: `TreeChunk`.
pub const CHUNK_HEADER: usize = 64;
/// Bytes of the smallest chunk: `Chunk`.
const LEAST_CHUNK: usize = 32;
/// Bytes of the largest extent that is mapped for objects of usual sizes. An extent with one object is not given back;
/// one of two huge pages can be a huge page wherever it begins.
pub const LARGEST: usize = 4 << 20;
const _: () = assert!(LARGEST <= SLOT);
/// Bytes by which memory is asked for before its chunks are looked at: where the next chunk begins is known only when
/// the one before has come, so the processor cannot do so by itself. A million objects were searched in two thirds of
/// the time.
const AHEAD: usize = 1024;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Pages of an extent of which is known whether they were given back: all of the largest one.
const PAGES: usize = LARGEST / PAGE;
const WORD: usize = u64::BITS as usize;

/// Whose extent it is. The heap itself need not be known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapAddress(pub usize);

/// The first bytes of an extent, which begins at a multiple of [`SLOT`]. All but `heap` belongs to the thread that
/// holds the lock of the heap.
pub struct Extent {
    /// Whose extent it is.
    pub heap: HeapAddress,
    /// No byte from this address on was part of an object or is one of dlmalloc's, but for those at the end of a chunk.
    handed_out: AtomicUsize,
    /// Where dlmalloc's part ends.
    end: AtomicUsize,
    next: AtomicPtr<Extent>,
    before: AtomicPtr<Extent>,
    /// A bit for each page that was given back and of which no object has had a part since; and how many these are.
    given: [AtomicU64; PAGES / WORD],
    given_count: AtomicU32,
}

const _: () = assert!(size_of::<Extent>() <= HEADER && HEADER.is_multiple_of(ALIGN));

impl Extent {
    /// The header of a fresh extent of `heap`.
    pub fn new(heap: HeapAddress) -> Extent {
        Extent {
            heap,
            handed_out: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            before: AtomicPtr::new(ptr::null_mut()),
            given: [const { AtomicU64::new(0) }; PAGES / WORD],
            given_count: AtomicU32::new(0),
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

    /// Notes that an object has the memory from `start` to `end`; returns up to where memory may have been written
    /// before, and how many of its pages had been given back.
    #[inline]
    pub fn hand_out(&self, start: usize, end: usize) -> (usize, usize) {
        let taken = if self.given_count.load(Ordering::Relaxed) > 0 { self.take_back(start, end) } else { 0 };
        let before = self.handed_out.load(Ordering::Relaxed);
        if end + CHUNK_HEADER > before {
            self.handed_out.store(end + CHUNK_HEADER, Ordering::Relaxed);
        }
        (before, taken)
    }

    /// The words and bits of the pages from `first` to before `last`, those of which nothing is known left out.
    fn bits(&self, first: usize, last: usize) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let page = |address: usize| ((address - ptr::from_ref(self) as usize) / PAGE).min(PAGES);
        let (first, last) = (page(first), page(last));
        (first / WORD..last.div_ceil(WORD)).map(move |word| {
            let (from, to) = (first.saturating_sub(word * WORD), (last - word * WORD).min(WORD));
            (&self.given[word], (u64::MAX << from) & (u64::MAX >> (WORD - to)))
        })
    }

    /// Notes that an object has the pages from `start` to `end`, and those of the words that dlmalloc writes there;
    /// returns how many of them had been given back.
    #[cold]
    fn take_back(&self, start: usize, end: usize) -> usize {
        let mut taken = 0;
        for (word, bits) in self.bits(start - ALIGN, (end + CHUNK_HEADER).next_multiple_of(PAGE)) {
            let before = word.load(Ordering::Relaxed);
            if before & bits != 0 {
                word.store(before & !bits, Ordering::Relaxed);
                let pages = (before & bits).count_ones();
                self.count(-(pages as i32));
                taken += pages as usize;
            }
        }
        taken
    }

    fn count(&self, change: i32) {
        self.given_count.store(self.given_count.load(Ordering::Relaxed).wrapping_add_signed(change), Ordering::Relaxed);
    }

    /// Gives the kernel the pages from `first` to before `last`, unless it has them all; true if it gave any.
    fn give_back(&self, first: usize, last: usize) -> bool {
        let is_known = (last - ptr::from_ref(self) as usize) <= PAGES * PAGE;
        if is_known && self.bits(first, last).all(|(word, bits)| word.load(Ordering::Relaxed) & bits == bits) {
            return false;
        }
        // SAFETY: the caller's range has no object.
        if !unsafe { sys::advise(first as *mut c_void, last - first, libc::MADV_DONTNEED) } {
            return false;
        }
        for (word, bits) in self.bits(first, last) {
            let before = word.load(Ordering::Relaxed);
            word.store(before | bits, Ordering::Relaxed);
            self.count((bits & !before).count_ones() as i32);
        }
        true
    }

    /// Gives the kernel the whole pages that no object is in. The words of dlmalloc stay.
    fn give_back_pages(&self) {
        let (mut chunk, end) = (self.start(), self.end.load(Ordering::Relaxed));
        let used_end = self.handed_out.load(Ordering::Relaxed).min(end);
        let mut ahead = chunk;
        while chunk < used_end {
            while ahead < (chunk + AHEAD).min(used_end) {
                // SAFETY: a hint, which reads nothing that the program can see.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(ahead as *const i8) };
                ahead += LINE;
            }
            // SAFETY: each chunk begins where the one before ends; the second word of a chunk is its size with flags.
            let word = unsafe { *((chunk + size_of::<usize>()) as *const usize) };
            let (next, in_use) = (chunk + (word & !FLAGS), word & IN_USE != 0);
            if next < chunk + LEAST_CHUNK || next > end {
                return; // the words behind the last chunk
            }
            let first = (chunk + CHUNK_HEADER).next_multiple_of(PAGE);
            let last = (next & !(PAGE - 1)).min(used_end.next_multiple_of(PAGE));
            if !in_use && first < last {
                // The pages lie in one free chunk, behind its header; its other word is at its end.
                let given = self.give_back(first, last);
                if given && last >= used_end {
                    self.handed_out.store(first, Ordering::Relaxed);
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
