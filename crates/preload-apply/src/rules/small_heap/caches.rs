//! When a home keeps freed objects in [caches](super::cache), and when these give them to the heaps.

use core::{array, ptr};

use numamma_hook::{allocating, errno, sandbox};

use super::cache::Cache;
use numamma_hook::atomics::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// Most heaps of a home, and so caches; a power of two. A home uses one heap until threads meet there, and then ever
/// more.
pub(super) const HEAPS: usize = if cfg!(loom) { 1 } else { 64 };
/// Caches of all homes: together they hold at most 29 MiB, of programs whose objects have all sizes.
const MOST_CACHES: usize = if cfg!(loom) { usize::MAX } else { 256 };
/// The caches of a home whose objects take less than this part (1/4) of the bytes that they took are emptied.
const SHRUNK_DIVISOR: usize = 4;

/// Caches that there are.
static MADE: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);

/// The caches of a home: each is made when it is first used, and stays.
pub(super) struct Caches {
    /// Threads put what they free there.
    are_on: AtomicBool,
    /// Most bytes of the objects of the home since, as far as was looked.
    most: AtomicUsize,
    /// That of each heap. Null before.
    each: [AtomicPtr<Cache>; HEAPS],
    /// Gives an object to its heap without waiting for a lock.
    ///
    /// # Safety
    /// It is an object in an extent of a heap, and nobody else has it.
    give_back: unsafe fn(usize),
}

impl Caches {
    /// None. `give_back` is as in [`Caches`].
    pub(super) fn new(give_back: unsafe fn(usize)) -> Caches {
        let each = array::from_fn(|_| AtomicPtr::new(ptr::null_mut()));
        Caches { are_on: AtomicBool::new(false), most: AtomicUsize::new(0), each, give_back }
    }

    /// Whether there may be objects in them.
    #[inline]
    pub(super) fn are_on(&self) -> bool {
        self.are_on.load(Ordering::Relaxed)
    }

    fn of_heap(&self, number: usize) -> Option<&'static Cache> {
        // SAFETY: null, or a leaked box that was published with Release.
        unsafe { self.each[number].load(Ordering::Acquire).as_ref() }
    }

    fn all(&self) -> impl Iterator<Item = &'static Cache> {
        (0..HEAPS).filter_map(|number| self.of_heap(number))
    }

    /// A freed object of at least `size` bytes, zero if wanted, from the cache of a heap.
    #[inline]
    pub(super) fn take(&self, heap: usize, size: usize, zero: bool) -> Option<usize> {
        let object = self.of_heap(heap)?.take(size)?;
        if zero {
            // SAFETY: the object has that many bytes, and is this thread's.
            unsafe { (object as *mut u8).write_bytes(0, size) };
        }
        Some(object)
    }

    /// Puts a freed object into the cache of a heap; false if that has no place for it.
    ///
    /// # Safety
    /// It is an object of a heap of the home that the program gives up.
    #[inline]
    pub(super) unsafe fn put(&self, heap: usize, address: usize) -> bool {
        let Some(cache) = self.of_heap(heap).or_else(|| self.make(heap)) else { return false };
        // SAFETY: the caller's promise.
        if !unsafe { cache.put(address) } {
            return false;
        }
        // Either this sees that the caches are being emptied, or that sees the object: all four accesses are SeqCst.
        if !self.are_on.load(Ordering::SeqCst) {
            self.empty(cache);
        }
        true
    }

    #[cold]
    #[inline(never)]
    fn make(&self, heap: usize) -> Option<&'static Cache> {
        if sandbox::entered() || !can_be_more() {
            return None;
        }
        MADE.fetch_add(1, Ordering::Relaxed);
        let _errno = errno::Saved::now();
        let fresh = allocating::run(|| Box::into_raw(Box::new(Cache::new())))?;
        // The thread that loses the race leaves its cache unused.
        let _ = self.each[heap].compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
        self.of_heap(heap)
    }

    /// Threads use the caches from now on, if there can be any; the objects of all heaps take about `used` bytes.
    #[cold]
    pub(super) fn begin(&self, used: usize) {
        if !can_be_more() && self.all().next().is_none() {
            return;
        }
        self.most.store(used, Ordering::Relaxed);
        self.are_on.store(true, Ordering::SeqCst);
    }

    /// Whether the caches are to be emptied, now that the objects of all heaps take about `used` bytes.
    #[cold]
    #[inline(never)]
    pub(super) fn have_shrunk(&self, used: usize) -> bool {
        let live = used.saturating_sub(self.all().map(Cache::bytes).sum());
        live < self.most.fetch_max(live, Ordering::Relaxed) / SHRUNK_DIVISOR
    }

    /// Gives the objects to their heaps. The caller holds no lock. No thread uses the caches until they are worth it
    /// again.
    #[cold]
    #[inline(never)]
    pub(super) fn end(&self) {
        self.are_on.store(false, Ordering::SeqCst);
        self.all().for_each(|cache| self.empty(cache));
    }

    #[cold]
    #[inline(never)]
    fn empty(&self, cache: &Cache) {
        for address in cache.take_all() {
            // SAFETY: an object in an extent of a heap; nobody else has it.
            unsafe { (self.give_back)(address) };
        }
    }
}

/// Threads that make one at the same time may make some more.
fn can_be_more() -> bool {
    MADE.load(Ordering::Relaxed) < MOST_CACHES
}
