//! A slot of the table of objects: one of the threads that free an object and of the mover unmaps it, when no other one
//! works on it.

#[path = "../../../../crates/preload-apply/src/objects/heap_table/slot.rs"]
mod slot;

use loom::thread;

use crate::atomics::{AtomicU64, Unshared};
use crate::explore::explore;
use slot::{MOVING, Slot, USED};

/// A slot, and the memory of its object.
struct Placed {
    slot: Slot,
    /// Changed by the mover and by who unmaps it: no two of them at once.
    unmapped: Unshared<u8>,
}

impl Placed {
    fn fresh() -> &'static Placed {
        let slot = Slot { size: AtomicU64::new(0), meta: AtomicU64::new(0) };
        Box::leak(Box::new(Placed { slot, unmapped: Unshared::new(0) }))
    }

    /// A slot with an object.
    fn filled() -> &'static Placed {
        let placed = Placed::fresh();
        placed.slot.fill(SIZE, USED);
        placed
    }

    /// Adds to the number of times that the object was unmapped.
    fn touch(&self, more: u8) {
        // SAFETY: loom reports another thread that does so at the same time.
        unsafe { Unshared::write(&raw const self.unmapped, Unshared::read(&raw const self.unmapped) + more) };
    }

    /// As `heap_table::take` and who calls it: true if the object was this thread's.
    fn free(&self) -> bool {
        let Some(word) = self.slot.word().and_then(|_| self.slot.take()) else { return false };
        if word & MOVING == 0 {
            self.touch(1);
        }
        true
    }

    /// A step of the mover.
    fn step(&self) {
        let Some(before) = self.slot.begin_step() else { return };
        self.touch(0);
        if !self.slot.end_step(before, before | 1) {
            self.touch(1);
        }
    }

    fn unmapped(&self) -> u8 {
        // SAFETY: no other thread lives.
        unsafe { Unshared::read(&raw const self.unmapped) }
    }
}

const SIZE: u64 = 5000;

pub fn run() {
    explore("slot of an object, the mover and 2 threads that free it", None, || {
        let placed = Placed::filled();
        let mover = thread::spawn(move || {
            placed.step();
            placed.step();
        });
        let other = thread::spawn(move || placed.free());
        let freed = [placed.free(), other.join().unwrap()];
        mover.join().unwrap();
        assert!(freed[0] != freed[1], "one of two frees gets it");
        assert_eq!(placed.unmapped(), 1);
    });
    explore("slot of an object, the mover and realloc that takes it", None, || {
        let placed = Placed::filled();
        let mover = thread::spawn(move || placed.step());
        // As `heap_table::take_unless_moving`.
        let taken = placed.slot.word().is_some_and(|word| word & MOVING == 0 && placed.slot.take_if(word));
        if taken {
            placed.touch(1);
        }
        mover.join().unwrap();
        assert_eq!(placed.unmapped(), u8::from(taken));
        assert_eq!(placed.slot.word().is_none(), taken);
    });
    explore("slot of an object that is entered while another thread looks", None, || {
        let placed = Placed::fresh();
        let other = thread::spawn(move || placed.slot.fill(SIZE, USED));
        if placed.slot.word().is_some() {
            assert_eq!(placed.slot.size.load(crate::atomics::Ordering::Relaxed), SIZE);
        }
        other.join().unwrap();
    });
}
