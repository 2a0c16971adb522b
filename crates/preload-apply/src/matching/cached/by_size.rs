//! A cache of which rule takes objects of a size where many groups of rules fit a call stack: to look at each group
//! would take microseconds among a thousand.
//!
//! What is cached follows from the policy alone and stays true. Any thread may overwrite an entry at any time, a signal
//! handler and a forked child included.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Entries: 32 KiB, of which those that are used are in memory.
const ENTRIES: usize = 4096;
/// 2^64 divided by the golden ratio, as in [`super::decided`].
const SPREAD: usize = 0x9e37_79b9_7f4a_7c15;
/// Bits of an entry for who takes the objects: [`NOBODY`], or the number of a rule and [`RULE`].
const TAKER_BITS: u32 = 17;
const NOBODY: usize = 1;
const RULE: usize = 2;
/// Bits for the size. Larger objects are few, and take microseconds to be mapped.
const SIZE_BITS: u32 = 32;

/// 0 is an entry without anything: it has no taker.
static TABLE: [AtomicUsize; ENTRIES] = [const { AtomicUsize::new(0) }; ENTRIES];

/// The objects of one size of the call sites of one list of groups.
#[derive(Clone, Copy)]
pub struct Objects {
    list: usize,
    size: usize,
}

impl Objects {
    /// Of `size` bytes, under list number `list`; none where these do not fit an entry.
    pub fn of(list: usize, size: usize) -> Option<Objects> {
        let fits = list >> (usize::BITS - SIZE_BITS - TAKER_BITS) == 0 && size >> SIZE_BITS == 0;
        fits.then_some(Objects { list, size })
    }

    fn key(self) -> usize {
        self.list << SIZE_BITS | self.size
    }

    fn entry(self) -> &'static AtomicUsize {
        &TABLE[self.key().wrapping_mul(SPREAD) >> (usize::BITS - ENTRIES.trailing_zeros())]
    }

    /// The rule that takes them, if one does; an outer none where that is not known.
    pub fn taker(self) -> Option<Option<usize>> {
        let word = self.entry().load(Ordering::Relaxed);
        let taker = word & ((1 << TAKER_BITS) - 1);
        (word >> TAKER_BITS == self.key() && taker > 0).then(|| taker.checked_sub(RULE))
    }

    /// Notes the rule that takes them, or that none does.
    pub fn note(self, rule: Option<usize>) {
        let taker = rule.map_or(NOBODY, |rule| rule + RULE);
        if taker >> TAKER_BITS == 0 {
            self.entry().store(self.key() << TAKER_BITS | taker, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_found_for_that_size_and_list_only() {
        let of = |list, size| Objects::of(list, size).unwrap();
        assert_eq!(of(0, 0).taker(), None);
        of(0, 0).note(None);
        of(7, 100).note(Some(0));
        of(32_767, u32::MAX as usize).note(Some(65_535));
        assert_eq!(of(0, 0).taker(), Some(None));
        assert_eq!((of(7, 100).taker(), of(8, 100).taker(), of(7, 101).taker()), (Some(Some(0)), None, None));
        assert_eq!(of(32_767, u32::MAX as usize).taker(), Some(Some(65_535)));
        assert!(Objects::of(32_768, 1).is_none() && Objects::of(1, 1 << 32).is_none());
        of(9, 100).note(Some(1 << TAKER_BITS));
        assert_eq!(of(9, 100).taker(), None, "its number does not fit");
    }
}
