//! What a heap counts to know when caches are worth it, and when they are not any more.

use core::mem;

use super::caches::{LEAST, WORTH};
use super::inner::HAS_OBJECTS;

/// What a heap knows about [`WORTH`] objects that were freed in it.
#[derive(Clone, Copy)]
pub(super) struct Freed {
    /// Threads that allocate from other heaps freed most of them.
    pub(super) by_others: bool,
    /// The heap has [`LEAST`] others.
    pub(super) has_many: bool,
}

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
    /// Counts an object that was freed, by a thread that allocates from this heap (`is_own`) or from another one. Of
    /// the last one of [`WORTH`] it tells what they were like; `objects` are left.
    #[inline]
    pub(super) fn freed(&mut self, is_own: bool, objects: usize) -> Option<Freed> {
        self.frees += 1;
        self.of_others += u32::from(!is_own);
        (self.frees >= WORTH).then(|| {
            let (frees, of_others) = (mem::take(&mut self.frees), mem::take(&mut self.of_others));
            Freed { by_others: of_others > frees / 2, has_many: objects >= LEAST }
        })
    }

    /// Whether there are half or twice as many `objects` as when this was last true, not counting the first
    /// [`HAS_OBJECTS`].
    #[inline]
    pub(super) fn has_changed(&mut self, objects: usize) -> bool {
        let objects = objects.max(HAS_OBJECTS);
        let has = objects / 2 > self.looked_at || objects < self.looked_at / 2;
        if has {
            self.looked_at = objects;
        }
        has
    }
}
