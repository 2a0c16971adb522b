//! The lock of a heap: no two threads hold it, and each object that is freed meanwhile is freed once by one of them.

use loom::thread;

use super::lock::Held;
use super::{Heap, OBJECTS};
use crate::explore::{SWITCHES, explore};

pub fn run() {
    explore("lock of a heap, 2 threads that free 3 objects", None, || {
        let heap = Heap::fresh();
        let other = thread::spawn(move || heap.free(0));
        heap.free(1);
        heap.free(2);
        other.join().unwrap();
        assert_eq!(heap.freed(), [1; OBJECTS]);
    });
    explore("lock of a heap, 3 threads that free an object", Some(SWITCHES), || {
        let heap = Heap::fresh();
        let others = [0, 1].map(|number| thread::spawn(move || heap.free(number)));
        heap.free(2);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(heap.freed(), [1; OBJECTS]);
    });
    explore("lock of a heap, a thread that only looks", None, || {
        let heap = Heap::fresh();
        let other = thread::spawn(move || heap.free(0));
        drop(Held::take(heap));
        heap.free(1);
        other.join().unwrap();
        assert_eq!(heap.freed(), [1, 1, 0]);
    });
}
