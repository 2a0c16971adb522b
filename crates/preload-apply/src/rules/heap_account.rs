//! What the heaps for small objects keep beyond the objects in them: one account for the process, and so one bound,
//! however many rules and threads there are.
//!
//! A heap counts the bytes that were freed in it, less those allocated, since it last gave memory back: of older free
//! memory it has given back all that lies in whole pages. It adds to the account in steps of [`STEPS`], so that threads
//! do not write its cache line at each call.

use core::sync::atomic::{AtomicUsize, Ordering};

use numamma_kernel::sys::PAGE;

/// Bytes that the heaps may keep in any case, together: four times what glibc keeps at the end of its heap
/// (M_TRIM_THRESHOLD of mallopt(3)).
const ALWAYS: usize = 512 << 10;
/// Beside that, this part (1/16) of the bytes of the objects.
const DIVISOR: usize = 16;
/// Part (1/4, of a heap of up to [`SMALL`] bytes 1/8) that must have been freed before a heap is searched: a search
/// looks at each object, and so at four or eight for each object of their size that was freed.
const WORTH: usize = 4;
const WORTH_OF_SMALL: usize = 8;
/// Bytes of a heap whose objects are in the caches of the processor when it is searched.
const SMALL: usize = 512 << 10;
/// Bytes by which a heap's part of the objects may be wrong, and its part of what is kept: a buffer that each call of a
/// function allocates and frees must not make all threads write one cache line.
const STEPS: [usize; 2] = [64 << 10, 4 << 10];

/// Bytes of the objects in all heaps, and freed bytes that these keep. They wrap for a moment when two heaps change
/// them at the same time.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static KEPT: AtomicUsize = AtomicUsize::new(0);
/// Most bytes of the objects at a time.
static MOST: AtomicUsize = AtomicUsize::new(0);
/// Bytes by which these two rose so far, and those of objects elsewhere: about how much was allocated and freed.
static TURNED: AtomicUsize = AtomicUsize::new(0);
/// Bytes of [`standing`], and how often a heap has changed them.
static STANDING: AtomicUsize = AtomicUsize::new(0);
static CHANGES: AtomicUsize = AtomicUsize::new(0);
/// Bytes of the extents of all heaps.
static EXTENTS: AtomicUsize = AtomicUsize::new(0);
/// Bytes that were mapped for objects in no heap, and for all objects.
static MAPPED: AtomicUsize = AtomicUsize::new(0);
static ALL_MAPPED: AtomicUsize = AtomicUsize::new(0);

/// A heap's part of the account.
#[derive(Default)]
pub struct Part {
    /// Bytes freed since the heap gave memory back, less those allocated.
    kept: usize,
    /// Bytes that it may keep beyond what the account bounds, because its objects come again.
    again: usize,
    /// Bytes for objects that it keeps and that [`standing`] counts.
    together: usize,
    /// What it has added to [`LIVE`], to [`KEPT`] and to [`STANDING`].
    added_live: usize,
    added_kept: usize,
    added_standing: usize,
}

impl Part {
    /// The heap's objects take `used` bytes now, after `bytes` were allocated.
    #[inline]
    pub fn allocated(&mut self, used: usize, bytes: usize) {
        self.kept = self.kept.saturating_sub(bytes);
        self.add(used, STEPS);
    }

    /// The heap's objects take `used` bytes now, after `bytes` were freed.
    #[inline]
    pub fn freed(&mut self, used: usize, bytes: usize) {
        self.kept += bytes;
        self.add(used, STEPS);
    }

    /// The heap may keep `again` bytes beyond the account; `together`: they count as standing beside other memory.
    pub fn allow(&mut self, again: usize, together: bool) {
        self.again = again;
        self.together = if together { again } else { 0 };
        self.stand();
    }

    /// The heap has given back what it could.
    pub fn gave_back(&mut self, used: usize) {
        self.kept = 0;
        self.add(used, [1; 2]);
    }

    /// The heap has no object any more, and keeps what it may because its objects come again. That is found when the
    /// memory is needed while the heap has some objects again.
    pub fn keeps_again(&mut self) {
        self.kept = self.again;
    }

    /// Whether the heap is to give memory back: the heaps keep too much, and this one a part that is worth a search.
    #[inline]
    pub fn is_over(&self, used: usize) -> bool {
        self.is_worth(used, self.counted()) && are_over()
    }

    /// Whether what the heap keeps is worth a search, whoever it is kept for.
    pub fn is_much(&self, used: usize) -> bool {
        self.is_worth(used, self.kept)
    }

    #[inline]
    fn is_worth(&self, used: usize, freed: usize) -> bool {
        let bytes = used + self.kept;
        let worth = bytes / if bytes <= SMALL { WORTH_OF_SMALL } else { WORTH };
        freed >= worth.max(2 * PAGE)
    }

    /// Bytes that the heap keeps.
    pub fn kept(&self) -> usize {
        self.kept
    }

    #[inline]
    fn counted(&self) -> usize {
        self.kept.saturating_sub(self.again)
    }

    #[inline]
    fn add(&mut self, used: usize, steps: [usize; 2]) {
        if used.abs_diff(self.added_live) >= steps[0] {
            let live = change(&LIVE, &mut self.added_live, used);
            // Not while it wraps.
            if (MOST.load(Ordering::Relaxed)..=isize::MAX as usize).contains(&live) {
                MOST.store(live, Ordering::Relaxed);
            }
            self.stand();
        }
        let kept = self.counted();
        if kept.abs_diff(self.added_kept) >= steps[1] {
            change(&KEPT, &mut self.added_kept, kept);
        }
    }

    fn stand(&mut self) {
        let now = self.together.saturating_sub(self.added_live);
        if now != self.added_standing {
            let more = now.wrapping_sub(core::mem::replace(&mut self.added_standing, now));
            STANDING.fetch_add(more, Ordering::Relaxed);
            CHANGES.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Makes a heap's part of a total `now`; returns the total.
fn change(total: &AtomicUsize, added: &mut usize, now: usize) -> usize {
    if now > *added {
        TURNED.fetch_add(now - *added, Ordering::Relaxed);
    }
    let more = now.wrapping_sub(core::mem::replace(added, now));
    total.fetch_add(more, Ordering::Relaxed).wrapping_add(more)
}

/// The most bytes that the objects in all heaps took at a time so far.
pub fn most() -> usize {
    MOST.load(Ordering::Relaxed)
}

/// The bytes that the objects in all heaps take now, about; 0 at the moments in which the sum wraps.
pub fn in_use() -> usize {
    Some(LIVE.load(Ordering::Relaxed)).filter(|&live| live <= isize::MAX as usize).unwrap_or(0)
}

/// Freed bytes that the heaps keep beyond what they may because objects come again; 0 at the moments in which the sum
/// wraps.
pub fn kept() -> usize {
    Some(KEPT.load(Ordering::Relaxed)).filter(|&kept| kept <= isize::MAX as usize).unwrap_or(0)
}

/// The bytes that heaps keep without an object in them because they were mapped anew several times.
#[inline]
pub fn standing() -> usize {
    STANDING.load(Ordering::Relaxed)
}

/// A number that changes when such memory is kept or used.
pub fn uses() -> usize {
    CHANGES.load(Ordering::Relaxed)
}

/// Notes that an extent of `bytes` was mapped for a heap.
pub fn extent_mapped(bytes: usize) {
    EXTENTS.fetch_add(bytes, Ordering::Relaxed);
    ALL_MAPPED.fetch_add(bytes, Ordering::Relaxed);
}

/// Notes that an extent of `bytes` was unmapped.
pub fn extent_unmapped(bytes: usize) {
    EXTENTS.fetch_sub(bytes, Ordering::Relaxed);
}

/// Bytes of the extents of all heaps.
pub fn extents() -> usize {
    EXTENTS.load(Ordering::Relaxed)
}

/// Notes that `bytes` bytes were mapped for an object that is in no heap.
pub fn mapped_elsewhere(bytes: usize) {
    MAPPED.fetch_add(bytes, Ordering::Relaxed);
    ALL_MAPPED.fetch_add(bytes, Ordering::Relaxed);
    TURNED.fetch_add(bytes, Ordering::Relaxed);
}

/// The bytes that were mapped for objects in no heap so far, modulo 2^64.
pub fn all_mapped_elsewhere() -> usize {
    MAPPED.load(Ordering::Relaxed)
}

/// The bytes that were mapped for all objects so far, modulo 2^64.
pub fn all_mapped() -> usize {
    ALL_MAPPED.load(Ordering::Relaxed)
}

/// About how many bytes the heaps have allocated and freed so far, and how many were allocated elsewhere, modulo 2^64.
pub fn turned_over() -> usize {
    TURNED.load(Ordering::Relaxed)
}

/// Whether all heaps together keep too much.
fn are_over() -> bool {
    KEPT.load(Ordering::Relaxed) > ALWAYS + LIVE.load(Ordering::Relaxed) / DIVISOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_and_allocated_again_is_not_kept() {
        let mut part = Part::default();
        part.allocated(1_000_000, 1_000_000);
        part.freed(400_000, 600_000);
        assert_eq!((part.kept, part.added_kept, part.added_live), (600_000, 600_000, 400_000));
        part.allocated(900_000, 500_000);
        part.allocated(1_100_000, 200_000);
        assert_eq!((part.kept, part.added_live), (0, 1_100_000));
        part.freed(0, 1_100_000);
        part.gave_back(0);
        assert_eq!((part.kept, part.added_kept, part.added_live), (0, 0, 0));
    }

    #[test]
    fn much_is_a_quarter_of_a_large_heap() {
        let mut part = Part::default();
        part.allocated(4_000_000, 4_000_000);
        part.freed(3_100_000, 900_000);
        part.allow(900_000, false);
        assert!(!part.is_much(3_100_000));
        part.freed(2_900_000, 200_000);
        assert!(part.is_much(2_900_000) && !part.is_worth(2_900_000, part.counted()));
        part.allocated(0, 0);
    }

    #[test]
    fn what_comes_again_is_much_once_there_are_objects() {
        let mut part = Part::default();
        part.allow(900_000, false);
        part.gave_back(0);
        part.keeps_again();
        part.allocated(100_000, 100_000);
        assert!(part.is_much(100_000) && part.kept() == 800_000 && part.counted() == 0);
        part.allow(0, false);
        assert_eq!(part.counted(), 800_000);
        part.gave_back(0);
    }

    #[test]
    fn what_a_heap_keeps_together_stands_beside_others_while_it_has_no_objects() {
        let (mut part, mut other) = (Part::default(), Part::default());
        other.allow(1_000_000, false);
        part.allow(1_000_000, true);
        let (first, uses) = (part.added_standing, uses());
        part.allocated(300_000, 300_000);
        part.allocated(310_000, 10_000);
        assert_eq!((first, part.added_standing, other.added_standing), (1_000_000, 700_000, 0));
        assert!(super::uses() != uses && standing() >= 700_000);
        part.allow(0, false);
        assert_eq!(part.added_standing, 0);
    }
}
