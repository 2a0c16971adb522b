//! The caches of a home: an object that was put there is taken by one thread, or freed when the caches are emptied.

use loom::thread;

use super::caches::Caches;
use super::{Heap, OBJECTS};
use crate::atomics::Fences;
use crate::explore::{SWITCHES, explore};

/// Bytes that an object holds.
const SIZE: usize = 24;

/// Caches that threads use, none of which is there yet.
fn fresh() -> &'static Caches {
    let caches: &Caches = Box::leak(Box::new(Caches::new(super::give_back)));
    caches.begin(0);
    caches
}

/// Caches that threads have used: the first object was there and was taken.
fn used(heap: &Heap) -> &'static Caches {
    let caches = fresh();
    give_up(heap, caches, 0);
    assert_eq!(caches.take(0, SIZE, false), Some(heap.address(0)));
    caches
}

/// Frees an object as `Heap::give_up` of the library.
fn give_up(heap: &Heap, caches: &Caches, number: usize) {
    // SAFETY: an object of the heap that is freed once.
    if !(caches.are_on() && unsafe { caches.put(0, heap.address(number)) }) {
        heap.free(number);
    }
}

/// Allocates an object from the caches, uses it and frees it in the heap: the number of times that it was there.
fn take(heap: &Heap, caches: &Caches) -> u8 {
    let Some(address) = caches.are_on().then(|| caches.take(0, SIZE, false)).flatten() else { return 0 };
    heap.write_to(address);
    // SAFETY: this thread's object.
    unsafe { super::free_later(heap, address) };
    1
}

pub fn run() {
    for fences in [Fences::BeforeAccesses, Fences::BehindStores] {
        fences.set();
        run_with(fences);
    }
}

fn run_with(fences: Fences) {
    println!("{fences:?}:");
    explore("caches, 2 threads that take what a third one freed", Some(SWITCHES), || {
        let heap = Heap::fresh();
        let caches = used(heap);
        let takers = [(); 2].map(|()| thread::spawn(move || take(heap, caches)));
        heap.write_to(heap.address(0));
        give_up(heap, caches, 0);
        let taken: u8 = takers.map(|taker| taker.join().unwrap()).into_iter().sum();
        assert_eq!(heap.freed()[0], taken, "who takes it has it alone");
        caches.end();
        assert_eq!(heap.freed(), [1, 0, 0]);
    });
    explore("caches, 2 threads that free objects", Some(SWITCHES), || {
        let (heap, caches) = (Heap::fresh(), fresh());
        let other = thread::spawn(move || give_up(heap, caches, 0));
        give_up(heap, caches, 1);
        give_up(heap, caches, 2);
        other.join().unwrap();
        caches.end();
        assert_eq!(heap.freed(), [1; OBJECTS]);
    });
    // Without an object there before, for what frees it has a fence.
    for before in [0, 1] {
        explore(&format!("caches of {before} objects, emptied while a thread frees one"), Some(SWITCHES), move || {
            let heap = Heap::fresh();
            let caches = used(heap);
            (0..before).for_each(|number| give_up(heap, caches, number));
            let other = thread::spawn(move || give_up(heap, caches, 2));
            caches.end();
            other.join().unwrap();
            assert_eq!(heap.freed(), [before as u8, 0, 1], "none stays behind");
        });
    }
    explore("caches that are emptied while a thread takes an object", Some(SWITCHES), || {
        let heap = Heap::fresh();
        let caches = used(heap);
        give_up(heap, caches, 0);
        let other = thread::spawn(move || take(heap, caches));
        caches.end();
        other.join().unwrap();
        assert_eq!(heap.freed(), [1, 0, 0]);
    });
}
