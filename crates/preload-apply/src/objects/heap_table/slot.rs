//! The two words of a slot, and who gets the object in it: the thread that frees it, or the mover that is working on it.
//!
//! `models/` runs this file with all interleavings of a few threads.

use numamma_hook::atomics::{AtomicU64, Ordering};

/// In the word: there is an object.
pub const USED: u64 = 1 << 63;
/// In the word: the mover is working on it.
pub const MOVING: u64 = 1 << 62;

/// A slot of the table; zero bytes are an empty one.
pub struct Slot {
    /// The size and what is noted of it.
    pub size: AtomicU64,
    /// The word, see the top of [`super`].
    pub meta: AtomicU64,
}

impl Slot {
    /// Enters an object.
    #[inline]
    pub fn fill(&self, size: u64, word: u64) {
        self.size.store(size, Ordering::Relaxed);
        // Release pairs with the Acquire of `word` and `take`: a thread that sees the slot used sees its size.
        self.meta.store(word, Ordering::Release);
    }

    /// The word, if there is an object.
    #[inline]
    pub fn word(&self) -> Option<u64> {
        Some(self.meta.load(Ordering::Acquire)).filter(|word| word & USED != 0)
    }

    /// Empties the slot and returns the word. Only one of two concurrent callers gets it. If the mover is working on the
    /// object, that unmaps it, and otherwise the caller.
    #[inline]
    pub fn take(&self) -> Option<u64> {
        // Acquire: the size belongs to the word, and the mover's work on the object is seen.
        Some(self.meta.swap(0, Ordering::AcqRel)).filter(|word| word & USED != 0)
    }

    /// Empties the slot if its word is `word`.
    #[inline]
    pub fn take_if(&self, word: u64) -> bool {
        self.meta.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Notes that the mover begins to work on the object, and returns the word before that.
    pub fn begin_step(&self) -> Option<u64> {
        let mut word = self.meta.load(Ordering::Acquire);
        while word & USED != 0 {
            // Acquire: the size was stored before the word. In a forked child the word may still hold `moving` of the
            // parent.
            match self.meta.compare_exchange(word, word | MOVING, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(word),
                Err(now) => word = now,
            }
        }
        None
    }

    /// Ends the work of the mover, which began when the word was `before`; it is `after` from here on. False when the
    /// object was freed meanwhile: then the mover unmaps it.
    pub fn end_step(&self, before: u64, after: u64) -> bool {
        // Release pairs with the Acquire of `take`: a thread that frees the object later sees the work of the mover.
        self.meta.compare_exchange(before | MOVING, after, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}
