//! Sizes of which the program touches few pages: tables that stay almost empty, arrays for the largest case. Each use of a
//! kept block touches others of them, so that it takes ever more memory, where glibc gives such blocks back if several of
//! them are freed together.
//!
//! So the first array of a rule and about a size that is freed after memory was mapped for one is looked at: how many of
//! its pages are in memory. If they are few, later ones are looked at, too, and given back when more than
//! two to four times as many are. Where they do not become more, that is looked at ever more seldom, and so are arrays
//! that one use fills: a program that fills some of them would pay for their page faults each time.

use core::sync::atomic::{AtomicU64, Ordering};

use numamma_hook::errno;
use numamma_kernel::sys::PAGE;

use super::{LEAST_BYTES, in_memory};
use crate::objects::object::Object;

/// Rules and sizes that are remembered, by a hash; a newer one replaces an older one.
const SIZES: usize = 1024;
/// Arrays that are freed between two looks on average, log2: at first, and at most. A look takes 30 us for 30 MB, as the
/// faults of some ten pages.
const OFTEN: u32 = 0;
const SELDOM: u32 = 10;

/// How many times the bound is more than uses of few pages add to an array between two looks at those that grow: they
/// add half a bound each at most, and [`OFTEN`] is a look at each.
const ONE_USE: usize = 4;

/// What decides when the next look is.
static RANDOM: AtomicU64 = AtomicU64::new(0);
static NOTES: [AtomicU64; SIZES] = [const { AtomicU64::new(0) }; SIZES];

/// Bits of a note that hold the hash.
const HASH: u64 = !0xff_ffff;

/// What is known of a rule and size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    /// Memory was mapped for one, and none was looked at since.
    fresh: bool,
    /// Pages that may be in memory, log2 and 1 more; 0 where they are not few.
    few: u32,
    /// Arrays between two looks, log2, and until the next one.
    interval: u32,
    left: u32,
}

impl Known {
    /// From the lower bits of a note: 1, 7, 4 and 12.
    fn of(note: u64) -> Known {
        let bits = |from: u32, count: u32| (note >> from) as u32 & ((1 << count) - 1);
        Known { fresh: note & 1 == 1, few: bits(1, 7), interval: bits(8, 4), left: bits(12, 12) }
    }

    fn bits(self) -> u64 {
        u64::from(self.fresh) | u64::from(self.few) << 1 | u64::from(self.interval) << 8 | u64::from(self.left) << 12
    }

    /// After `pages` of `all` pages were in memory; `random` decides when the next look is, so that it is for one and the
    /// other of arrays that take turns. And whether the array is to be given back.
    fn looked(self, pages: usize, all: usize, random: u64) -> (Known, bool) {
        let bound = if self.few > 0 { 1 << (self.few - 1) } else { all };
        let is_more = pages > bound;
        // Between twice and four times as many. The array may be an older one that served often, so that a bound that
        // was found before is only lowered.
        let found = if self.fresh && 2 * pages < all { 2 + pages.max(1).next_power_of_two().ilog2() } else { 0 };
        let few = if self.few == 0 || found == 0 { self.few.max(found) } else { self.few.min(found) };
        // On the way to the bound, the next ones are looked at: with a longer interval they would pass it unseen. Far
        // above it, a single use took them all. The next such use pays for all of them again if the array is given back.
        let grows = self.few > 0 && 2 * pages > bound && pages <= ONE_USE * bound;
        let is_new = self.few == 0 && found > 0;
        let interval = match grows || is_new {
            true => OFTEN,
            // Giving back what one use filled is what costs, so that looks become rare sooner.
            false if is_more => SELDOM.min(2 * self.interval + 1),
            // A new array does not tell whether each use adds pages.
            false if self.fresh => self.interval,
            false => SELDOM.min(self.interval + 1),
        };
        let left = 1 + (random % ((2 << interval) - 1)) as u32;
        (Known { fresh: false, few, interval, left }, is_more)
    }
}

/// Notes that memory for `object` was mapped; `class` is a number for its rule and about its size.
pub fn mapped(class: Option<u64>, object: &Object) {
    let Some((hash, note)) = note_of(class, object) else { return };
    let now = note.load(Ordering::Relaxed);
    let known = if now & HASH == hash { Known::of(now) } else { Known::default() };
    if !known.fresh {
        note.store(hash | Known { fresh: true, ..known }.bits(), Ordering::Relaxed);
    }
}

/// Whether `object`, which the program has given up, has many more pages in memory than those of its `class` had at
/// first.
pub fn has_more(class: Option<u64>, object: &Object) -> bool {
    let Some((hash, note)) = note_of(class, object) else { return false };
    let now = note.load(Ordering::Relaxed);
    let known = Known::of(now);
    if now & HASH != hash || (!known.fresh && known.few == 0) {
        return false;
    }
    if known.left > 1 {
        note.store(hash | Known { left: known.left - 1, ..known }.bits(), Ordering::Relaxed);
        return false;
    }
    let (next, is_more) = look(object, known);
    note.store(hash | next.bits(), Ordering::Relaxed);
    is_more
}

/// Not inlined: what it holds would be in the stack frame of every free.
#[cold]
#[inline(never)]
fn look(object: &Object, known: Known) -> (Known, bool) {
    let _errno = errno::Saved::now();
    let pages = in_memory(object.base, object.bytes());
    // A step of Knuth's generator for 64 bits (MMIX), whose upper bits are good.
    let next = |n: u64| Some(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    let random = RANDOM.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
    known.looked(pages, object.bytes() / PAGE, random >> 32)
}

/// Where a class is noted, with its hash.
fn note_of(class: Option<u64>, object: &Object) -> Option<(u64, &'static AtomicU64)> {
    if object.bytes() < LEAST_BYTES {
        return None;
    }
    let hash = class? & HASH;
    Some((hash, &NOTES[(hash >> 40) as usize % SIZES]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_fits_beside_the_hash() {
        let most = (2 << SELDOM) - 1;
        for known in
            [Known { fresh: true, ..Known::default() }, Known { fresh: false, few: 65, interval: SELDOM, left: most }]
        {
            assert_eq!(Known::of(HASH | known.bits()), known);
            assert_eq!(known.bits() & HASH, 0);
        }
    }

    #[test]
    fn arrays_that_touch_few_pages_are_given_back_when_they_have_many() {
        let fresh = Known { fresh: true, ..Known::default() };
        let (dense, _) = fresh.looked(500, 1000, 7);
        assert_eq!((dense.fresh, dense.few), (false, 0));
        let (few, is_more) = fresh.looked(40, 1000, 7);
        assert!(!is_more && few.interval == OFTEN && (1..2 << OFTEN).contains(&few.left));
        assert!(!few.looked(128, 1000, 1).1 && few.looked(129, 1000, 1).1);
        let again = Known { fresh: true, ..few };
        assert_eq!((again.looked(400, 1000, 1).0.few, again.looked(3, 1000, 1).0.few), (few.few, 4));
        let calm = (0..20).fold(few, |known, n| known.looked(64, 1000, n).0);
        assert_eq!((calm.interval, calm.few), (SELDOM, few.few), "no more each time");
        assert_eq!(calm.looked(65, 1000, 0).0.interval, OFTEN, "they become more");
        let new = (0..20).fold(few, |known, n| Known { fresh: true, ..known }.looked(40, 1000, n).0);
        assert_eq!(new.interval, OFTEN, "new arrays, of which none served twice");
        assert!(again.looked(129, 1000, 0).1, "an older one, while another was mapped");
        assert!(!fresh.looked(0, 1000, 0).0.looked(2, 1000, 0).1);
        let filled = (0..4).fold(few, |known, n| Known { fresh: true, ..known }.looked(1000, 1000, n).0);
        assert_eq!((filled.interval, filled.few), (SELDOM, few.few), "one use fills them: looks become rare");
    }
}
