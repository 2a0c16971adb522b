//! What a heap counts to know when caches are worth it, and when they are not any more.

use super::caches::{LEAST, WORTH};
use super::inner::HAS_OBJECTS;

/// See the module.
#[derive(Default)]
pub(super) struct Turnover {
    /// Objects that were freed since these were last [`WORTH`].
    frees: u32,
    /// The objects when there were last half or twice as many as at the time before.
    looked_at: usize,
}

impl Turnover {
    /// Counts an object that was freed; `objects` are left. True if caches are worth it.
    #[inline]
    pub(super) fn freed(&mut self, objects: usize) -> bool {
        self.frees += 1;
        if self.frees < WORTH {
            return false;
        }
        self.frees = 0;
        objects >= LEAST
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
