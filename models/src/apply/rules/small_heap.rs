//! A heap with the real lock and the real caches. In place of dlmalloc it notes which objects were freed.

#[path = "../../../../crates/preload-apply/src/rules/small_heap/cache.rs"]
mod cache;
#[path = "../../../../crates/preload-apply/src/rules/small_heap/caches.rs"]
mod caches;
mod caches_models;
#[path = "../../../../crates/preload-apply/src/rules/small_heap/chunk.rs"]
mod chunk;
#[path = "../../../../crates/preload-apply/src/rules/small_heap/lock.rs"]
mod lock;
mod lock_models;

use std::sync::atomic::{AtomicUsize, Ordering as StdOrdering};

use crate::atomics::{Ordering, Unshared};
use lock::{Free, Held, Lock, Locked, free_later};

/// Most objects of a model.
const OBJECTS: usize = 3;

/// Stands for a chunk of dlmalloc with an object: the word before it says that it is in use and has 32 bytes.
#[repr(C, align(16))]
struct Object {
    before: usize,
    flags: usize,
    /// What the program has in it until it frees it, and then the link of the list.
    free: Free,
    number: usize,
}

/// The heap of this execution.
static HEAP: AtomicUsize = AtomicUsize::new(0);

/// As `give_back` of the library. All objects belong to one heap.
///
/// # Safety
/// As there.
unsafe fn give_back(address: usize) {
    // SAFETY: a heap of this execution, which lives as long; the caller's promise.
    unsafe { free_later(&*(HEAP.load(StdOrdering::Relaxed) as *const Heap), address) };
}

/// A heap whose objects are all allocated at the beginning. It lives for one execution.
struct Heap {
    lock: Lock,
    /// How often each object was freed, changed by the thread that holds the lock.
    freed: Unshared<[u8; OBJECTS]>,
    objects: [Object; OBJECTS],
}

impl Locked for Heap {
    fn lock(&self) -> &Lock {
        &self.lock
    }

    fn process() -> u32 {
        1
    }

    unsafe fn free_returned(&self, address: usize) -> bool {
        // SAFETY: the object lives as long as the execution; the lock is held.
        unsafe {
            let object = &*(address as *const Object).byte_sub(std::mem::offset_of!(Object, free));
            // dlmalloc writes its own links there: no other thread may still use the object.
            Unshared::write(&raw const object.free.next, std::ptr::null_mut());
            let mut freed = Unshared::read(&raw const self.freed);
            freed[object.number] += 1;
            Unshared::write(&raw const self.freed, freed);
        }
        true
    }

    fn wake(&self) {
        self.lock.waiters.store(0, Ordering::Relaxed);
    }
}

impl Heap {
    /// A heap for one execution.
    fn fresh() -> &'static Heap {
        let object = |number| {
            let free = Free { next: Unshared::new(std::ptr::null_mut()) };
            Object { before: 0, flags: 32 | chunk::IN_USE, free, number }
        };
        let freed = Unshared::new([0; OBJECTS]);
        let heap: &Heap =
            Box::leak(Box::new(Heap { lock: Lock::default(), freed, objects: std::array::from_fn(object) }));
        HEAP.store(std::ptr::from_ref(heap) as usize, StdOrdering::Relaxed);
        heap
    }

    /// The address of an object, as the program knows it.
    fn address(&self, number: usize) -> usize {
        std::ptr::from_ref(&self.objects[number].free) as usize
    }

    /// Frees an object as `Heap::free` of the library.
    fn free(&self, number: usize) {
        let address = self.address(number);
        match Held::take(self) {
            // SAFETY: the lock is held, and the object is freed once.
            Some(held) => _ = unsafe { held.0.free_returned(address) },
            // SAFETY: the object is freed once.
            None => unsafe { free_later(self, address) },
        }
    }

    /// Uses an object as a program does that writes to it.
    fn write_to(&self, address: usize) {
        // SAFETY: an object of this heap; loom reports it if another thread uses it, too.
        unsafe { Unshared::write(&raw const (*(address as *const Free)).next, std::ptr::null_mut()) };
    }

    /// How often each object was freed, at the end of all threads.
    fn freed(&self) -> [u8; OBJECTS] {
        assert_eq!(self.lock.busy.load(Ordering::Relaxed), 0, "a thread has left the lock taken");
        assert!(self.lock.returned.load(Ordering::Relaxed).is_null(), "an object is left on the list");
        // SAFETY: no other thread lives.
        unsafe { Unshared::read(&raw const self.freed) }
    }
}

pub fn run() {
    lock_models::run();
    caches_models::run();
}
