//! The stack of free chunks: each chunk has one owner.

use loom::thread;

use crate::atomics::{Ordering, Unshared};
use crate::explore::{SWITCHES, explore};
use crate::layout::{CHUNKS, Map, Shared};

/// A stack of chunks, and for each chunk what its owner writes to.
struct Stack {
    map: Map,
    owned: [Unshared<u8>; CHUNKS],
}

impl Stack {
    fn of(chunks: u32) -> &'static Stack {
        let map = Map(Shared::fresh());
        (0..chunks).for_each(|chunk| map.put_chunk(chunk));
        Box::leak(Box::new(Stack { map, owned: std::array::from_fn(|_| Unshared::new(0)) }))
    }

    fn take(&self) -> Option<u32> {
        let count = self.map.header().free.count.load(Ordering::Relaxed);
        assert!(count as usize <= CHUNKS, "{count} chunks, more than there are");
        let chunk = self.map.take_chunk()?;
        // SAFETY: loom reports another owner.
        unsafe { Unshared::write(&raw const self.owned[chunk as usize], 1) };
        Some(chunk)
    }

    fn put(&self, chunk: u32) {
        // SAFETY: as in `take`.
        unsafe { Unshared::write(&raw const self.owned[chunk as usize], 0) };
        self.map.put_chunk(chunk);
    }

    /// Takes all.
    fn empty(&self) -> usize {
        std::iter::from_fn(|| self.take()).count()
    }
}

pub fn run() {
    explore("free chunks, a thread that takes some and one that puts one back", Some(SWITCHES), || {
        let stack = Stack::of(3);
        let own = stack.take().unwrap();
        let other = thread::spawn(move || [stack.take(), stack.take()].into_iter().flatten().count());
        stack.put(own);
        let taken = other.join().unwrap();
        assert_eq!((taken, stack.empty()), (2, 1));
        assert_eq!(stack.map.header().free.count.load(Ordering::Relaxed), 0);
    });
    explore("free chunks, 2 threads that take and put back", Some(SWITCHES), || {
        let stack = Stack::of(2);
        let other = thread::spawn(move || {
            let (first, second) = (stack.take(), stack.take());
            first.into_iter().for_each(|chunk| stack.put(chunk));
            second.into_iter().count()
        });
        let own = stack.take();
        own.into_iter().for_each(|chunk| stack.put(chunk));
        let taken = other.join().unwrap();
        assert_eq!(taken + stack.empty(), 2);
    });
    explore("free chunks, 3 threads", Some(SWITCHES - 1), || {
        let stack = Stack::of(1);
        let own = stack.take().unwrap();
        let others = [(); 2].map(|()| thread::spawn(move || stack.take().map_or(0, |_| 1)));
        stack.put(own);
        let taken = others.map(|other| other.join().unwrap()).into_iter().sum::<usize>();
        assert_eq!(taken + stack.empty(), 1);
    });
}
