//! Freed objects that are taken again without a lock, as from the cache of each thread in glibc's malloc ("tcache").
//!
//! Where threads free each other's objects, each free would lock the heap of another thread, and the memory of that
//! would go from processor to processor. A thread puts what it frees into the cache that belongs to its own heap
//! instead, from which its next object of that size comes. Caches belong to heaps and not to threads, so that threads
//! which begin and end all the time leave nothing behind. Each place is taken and filled by one atomic operation, by
//! any thread.

use core::array;

use super::chunk::{ALIGN, usable};
use numamma_hook::atomics::{AtomicU64, AtomicUsize, Ordering};

/// Bytes of the smallest chunk of dlmalloc, an object with the word before it.
const SMALLEST: usize = 32;
/// Classes of objects, by the bytes of their chunks in steps of [`ALIGN`]: as many as glibc's cache has.
const CLASSES: usize = if cfg!(loom) { 1 } else { 64 };
/// Most objects of a class: their addresses are in one cache line.
const PLACES: usize = if cfg!(loom) { 2 } else { 8 };
/// Bytes that the objects of a class take, those of the smallest ones less: half of what glibc's cache takes of the
/// largest. So the cache of a heap holds at most 115 KiB.
const MOST_BYTES: usize = 2048;
const _: () = assert!(MOST_BYTES >= SMALLEST + CLASSES * ALIGN && CLASSES <= u64::BITS as usize);

/// The freed objects of one class: their addresses, or 0.
#[repr(align(64))]
struct Class([AtomicUsize; PLACES]);

impl Class {
    /// A bit for each place with an object. Without branches: which place is the next one is as good as random, and
    /// each wrong guess of the processor would wait for the memory of the object.
    #[inline(always)]
    fn filled(&self) -> u32 {
        let bit = |n: usize| u32::from(self.0[n].load(Ordering::Relaxed) != 0) << n;
        array::from_fn::<u32, PLACES, _>(bit).into_iter().fold(0, |all, bit| all | bit)
    }
}

/// The freed objects for the threads of one heap. They lie in any heap of its home.
pub(super) struct Cache {
    classes: [Class; CLASSES],
    /// A bit for each class that has had an object.
    used: AtomicU64,
}

/// The class of the objects whose chunk has so many bytes, if they are not too large.
fn class(chunk: usize) -> Option<usize> {
    chunk.checked_sub(SMALLEST).map(|more| more / ALIGN).filter(|class| *class < CLASSES)
}

/// Bytes of the chunks of a class.
fn chunk(class: usize) -> usize {
    SMALLEST + class * ALIGN
}

impl Cache {
    /// Without objects.
    pub(super) fn new() -> Cache {
        let classes = array::from_fn(|_| Class(array::from_fn(|_| AtomicUsize::new(0))));
        Cache { classes, used: AtomicU64::new(0) }
    }

    /// A freed object with room for `size` bytes: the caller's from here on.
    #[inline]
    pub(super) fn take(&self, size: usize) -> Option<usize> {
        let chunk = (size + size_of::<usize>()).next_multiple_of(ALIGN).max(SMALLEST);
        let class = &self.classes[class(chunk)?];
        // What was freed last is most likely in the caches of the processor.
        let last = class.filled().checked_ilog2()?;
        // Acquire pairs with `put`: what the other thread did with the object is done. 0 when another one was faster.
        Some(class.0[last as usize].swap(0, Ordering::Acquire)).filter(|&address| address != 0)
    }

    /// Gives the object at `address` to the thread that takes it first; false where there is no place for it.
    ///
    /// # Safety
    /// It is an object of a heap that the program gives up.
    #[inline]
    pub(super) unsafe fn put(&self, address: usize) -> bool {
        // SAFETY: the caller's promise.
        let bytes = unsafe { usable(address) } + size_of::<usize>();
        let Some(number) = class(bytes) else { return false };
        let places = (MOST_BYTES / bytes).min(PLACES);
        let class = &self.classes[number];
        if class.0.iter().fold(false, |found, place| found | (place.load(Ordering::Relaxed) == address)) {
            return true; // freed twice
        }
        let used = 1 << number;
        if self.used.load(Ordering::Relaxed) & used == 0 {
            self.used.fetch_or(used, Ordering::Relaxed);
        }
        let first_empty = class.filled().trailing_ones() as usize;
        // SeqCst for `Caches::put`.
        first_empty < places
            && class.0[first_empty].compare_exchange(0, address, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// About the bytes of all objects.
    pub(super) fn bytes(&self) -> usize {
        let used = self.used.load(Ordering::Relaxed);
        let bytes = |number: usize| self.classes[number].filled().count_ones() as usize * chunk(number);
        (0..CLASSES).filter(|number| used >> number & 1 != 0).map(bytes).sum()
    }

    /// Takes all objects.
    pub(super) fn take_all(&self) -> impl Iterator<Item = usize> {
        let filled = self.classes.iter().flat_map(|class| &class.0).filter(|place| place.load(Ordering::SeqCst) != 0);
        filled.map(|place| place.swap(0, Ordering::SeqCst)).filter(|&address| address != 0)
    }
}
