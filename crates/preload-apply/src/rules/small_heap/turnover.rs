//! What a heap counts to know when caches are worth it, and when they are not any more.

use super::caches::WORTH;

/// See the module.
#[derive(Default)]
pub(super) struct Turnover {
    /// Objects that were freed since these were last [`WORTH`], and those of them that threads freed which allocate
    /// from other heaps.
    frees: u32,
    of_others: u32,
    /// The objects when there were last half or twice as many as at the time before.
    looked_at: usize,
}

impl Turnover {
    /// Counts an object that was freed, by a thread that allocates from this heap (`is_own`) or from another one.
    /// Returns whether these are [`WORTH`] objects.
    #[inline]
    pub(super) fn freed(&mut self, is_own: bool) -> bool {
        self.frees += 1;
        self.of_others += u32::from(!is_own);
        self.frees >= WORTH
    }

    /// Begins to count anew; returns whether most of the objects were freed by threads that allocate from other heaps.
    pub(super) fn are_freed_by_others(&mut self) -> bool {
        let of_others = core::mem::take(&mut self.of_others);
        of_others > core::mem::take(&mut self.frees) / 2
    }

    /// Whether there are half or twice as many `objects` as when this was last true.
    #[inline]
    pub(super) fn has_changed(&mut self, objects: usize) -> bool {
        let has = objects / 2 > self.looked_at || objects < self.looked_at / 2;
        if has {
            self.looked_at = objects;
        }
        has
    }
}
