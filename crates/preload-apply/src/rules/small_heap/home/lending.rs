//! Heaps that lend: a thread whose own heap is full uses the free memory of another heap of the home before its own
//! gets more.
//!
//! A home gets more heaps when its threads meet, which may be late: then the first heap has the objects of all, and
//! what is freed of them would serve one thread only. Two threads with a tree each, which shrink and grow, took 1.5
//! times the memory of glibc in every other run.

use core::sync::atomic::Ordering;

use super::{Heap, Held, Home, Number, TURN, Wanted};

/// Looks at a heap that another thread uses until it lends nothing this time.
const LOOKS: usize = 4;
/// Bits of [`Heap::lender`] for the objects that are still to be allocated there before the own heap is tried again;
/// above them is the number of the heap that lends, and one. 0 where none does.
const LEFT_BITS: u32 = 8;
const _: () = assert!(TURN < 1 << LEFT_BITS);

impl Home {
    /// An object from the heap that last lent to the thread's `own` heap, if there is one and it still lends.
    #[inline]
    pub(super) fn lent(
        &'static self,
        own: &'static Heap,
        wanted: Wanted,
        caller: impl Fn(Number) -> usize,
    ) -> Option<usize> {
        let lender = own.lender.load(Ordering::Relaxed);
        if lender == 0 { None } else { self.lent_by(lender, own, wanted, caller) }
    }

    #[cold]
    #[inline(never)]
    fn lent_by(
        &'static self,
        lender: u32,
        own: &'static Heap,
        wanted: Wanted,
        caller: impl Fn(Number) -> usize,
    ) -> Option<usize> {
        let (number, left) = (lender >> LEFT_BITS, lender % (1 << LEFT_BITS));
        own.lender.store(if left > 1 { lender - 1 } else { 0 }, Ordering::Relaxed);
        let object = self.from(number as usize - 1, wanted, caller);
        if object.is_none() {
            own.lender.store(0, Ordering::Relaxed);
        }
        object
    }

    /// An object from a heap that lends, which is then the lender of `own`, the heap with this `number`.
    #[cold]
    #[inline(never)]
    pub(super) fn borrow(
        &'static self,
        number: usize,
        own: &'static Heap,
        wanted: Wanted,
        caller: impl Fn(Number) -> usize,
    ) -> Option<usize> {
        (1..self.heaps.len()).find_map(|step| {
            let other = (number + step) % self.heaps.len();
            let object = self.from(other, wanted, &caller)?;
            own.lender.store((other as u32 + 1) << LEFT_BITS | TURN, Ordering::Relaxed);
            Some(object)
        })
    }

    /// An object from heap number `number`, if that has so much free memory that it lends.
    fn from(&'static self, number: usize, wanted: Wanted, caller: impl Fn(Number) -> usize) -> Option<usize> {
        // SAFETY: null, or a leaked box that was published with Release.
        let heap = unsafe { self.heaps[number].load(Ordering::Acquire).as_ref() }?;
        let held = (0..LOOKS).find_map(|step| {
            Held::take(heap).or_else(|| {
                heap.let_go_on(step);
                None
            })
        })?;
        // SAFETY: the lock is held.
        if !unsafe { (*heap.inner.get()).core.allocator().lends() } {
            return None;
        }
        self.allocate_in(held, self.in_use.load(Ordering::Relaxed), wanted, false, caller).0
    }
}
