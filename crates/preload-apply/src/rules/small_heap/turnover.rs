//! What a heap counts to know when caches are worth it, and when they are not any more.

/// Objects that are freed in a heap until its home has caches. A cache takes 4 KiB, and what it holds keeps pages from
/// being given back; by then all calls together have cost the program some milliseconds.
pub(super) const WORTH: u32 = 1 << 14;
/// Objects that a heap has to have then, several times what a cache holds of one size: the last ones of a heap are
/// freed.
pub(super) const LEAST: usize = 256;
/// Objects with which a heap counts as one that is in use. With fewer it keeps its part of the bytes of empty heaps: a
/// cache line that all threads would write if each of them allocated and freed one object at a time.
pub(super) const HAS_OBJECTS: usize = 64;

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
