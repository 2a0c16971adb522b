//! Sizes of which the program touches a part: buffers that are allocated for the largest case, tables that stay almost
//! empty. A kept array has the pages that the one before it touched. If the next one touches others, then after some
//! steps all of what is kept is in memory, where the arrays of a step never touch more than a part of it.
//!
//! So an array whose pages are all its own, since its memory was mapped for it, is looked at when it is freed: how many
//! of its pages are in memory, and where the last of them is. The means of both are what later ones of its rule and about
//! its size are expected to touch. While what is in use and what is kept may together take more than the arrays in use
//! were expected to touch at a time ([`room::is_beyond_touched`]), one that kept memory serves loses its pages before
//! the program gets it, as memory does that glibc gives back in between:
//! - Those behind the last page that is expected to be touched, if it takes a part of kept memory; all if those before
//!   are not touched, either.
//! - All, if it takes an array as a whole (see [`kept`](super::super::kept)), because the program may touch others. One
//!   of [`SAMPLE`] keeps them and is looked at when it is freed: if it has not many more, the same were touched. When
//!   that was seen [`OFTEN_ENOUGH`] times in a row, the others keep theirs, too, until it is not seen.
//! - One of [`SAMPLE`] loses all in any case, so that what is touched of it can be seen.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use numamma_hook::{errno, sandbox};
use numamma_kernel::sys::{self, PAGE};
use numamma_plan::plan::HUGE_PAGE;

use super::{Extent, LEAST_BYTES, extent_in_memory};
use crate::objects::backing::{Pages, Touched};
use crate::objects::object::Object;
use crate::objects::released::{offered, room};
use crate::rules::in_use;
use crate::rules::state::State;

/// Rules and sizes that are remembered, by a hash; a newer one replaces an older one.
const SIZES: usize = 1024;
/// Arrays that kept memory serves, of which one loses all pages, and one keeps them: 3 % of the page faults that there
/// are without kept memory. A size of which the program begins to touch more is known after as many.
const SAMPLE: u32 = 32;
/// Times in a row that the same pages must have been touched before that is expected.
const OFTEN_ENOUGH: u64 = 3;
/// Part (1/4) of the pages that are expected to be touched by which those of a second use may be more: in all, kept
/// memory may be as much more, see [`room`].
const MORE_DIVISOR: usize = 4;
/// Part (1/8) of the pages that an array has in memory from which on those that were only read matter when it is
/// cleared.
const READ_DIVISOR: usize = 8;

/// What is known of rules and sizes, see [`Known`], with a hash in the upper bits.
static NOTES: [AtomicU64; SIZES] = [const { AtomicU64::new(0) }; SIZES];
/// Arrays that were freed in memory that was new to them and that are expected to be touched in part: one of [`SAMPLE`]
/// is looked at.
static FREED: AtomicU32 = AtomicU32::new(0);
/// Arrays that kept memory served, while that is little for what is touched.
static SERVED: AtomicU32 = AtomicU32::new(0);

/// Bits of a note that hold the hash.
const HASH: u64 = !0xff_ffff;
/// Bits of a part in a note.
const PART_BITS: u32 = 10;
/// Units of a part that make all of an array.
const WHOLE: u64 = 16 * Touched::PARTS as u64;
const _: () = assert!(WHOLE < 1 << PART_BITS && 2 * PART_BITS + 4 <= HASH.trailing_zeros());

/// What is known of a rule and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    /// The part of the pages that is touched, and where the last of them ends, in units of 1 / [`WHOLE`]: means.
    touched: u64,
    end: u64,
    /// Times in a row that the same pages were touched, up to [`OFTEN_ENOUGH`].
    same: u64,
    /// Pages were only read.
    was_read: bool,
}

impl Known {
    /// From a note with the hash of this: 1 in the lowest bit, 2 bits, two parts, one bit.
    fn of(note: u64) -> Option<Known> {
        let part = |number: u32| note >> (3 + number * PART_BITS) & ((1 << PART_BITS) - 1);
        let was_read = note >> (3 + 2 * PART_BITS) & 1 == 1;
        (note & 1 == 1).then(|| Known { touched: part(0), end: part(1), same: note >> 1 & 3, was_read })
    }

    fn bits(self) -> u64 {
        let was_read = u64::from(self.was_read) << (3 + 2 * PART_BITS);
        1 | self.same << 1 | self.touched << 3 | self.end << (3 + PART_BITS) | was_read
    }

    /// Whether what is touched is the first part, or nearly.
    fn is_first_part(self) -> bool {
        self.end <= self.touched + self.touched / MORE_DIVISOR as u64
    }

    /// After `touched` and `end` were seen of an array.
    fn seen(before: Option<Known>, touched: u64, end: u64) -> Known {
        let Some(before) = before else { return Known { touched, end, same: 0, was_read: false } };
        // Rounded towards the new part, so that the mean arrives there.
        let mean = |old: u64, new: u64| (old + new + u64::from(new >= old)) / 2;
        Known { touched: mean(before.touched, touched), end: mean(before.end, end), ..before }
    }

    /// After `pages` of `all` pages were in memory when an array was freed that had those of the one before.
    fn again(self, pages: usize, all: usize) -> Known {
        let expected = (self.touched as usize * all).div_ceil(WHOLE as usize);
        let is_same = pages <= expected + expected / MORE_DIVISOR;
        Known { same: if is_same { OFTEN_ENOUGH.min(self.same + 1) } else { 0 }, ..self }
    }
}

/// `object`, of which [`expected`] was asked, in memory that was mapped for it.
pub fn of_new(object: &Object) -> Touched {
    object.backing.touched.with(if object.bytes() >= LEAST_BYTES { Pages::New } else { Pages::Any })
}

/// Looks at `object`, which the program has given up, if its pages in memory tell something. `class` is a number for
/// its rule and about its size.
pub fn freed(class: impl FnOnce() -> Option<u64>, object: &Object) {
    let tells = match object.backing.touched.pages() {
        Pages::Any | Pages::Lost => false,
        Pages::New if object.backing.touched.is_all() => true,
        Pages::New => is_sample(FREED.fetch_add(1, Ordering::Relaxed)),
        Pages::Again => true,
    };
    if tells && let Some(class) = class() {
        look(class, object);
    }
}

/// Not inlined: what it holds would be in the stack frame of every free.
#[cold]
#[inline(never)]
fn look(class: u64, object: &Object) {
    let errno = errno::Saved::now();
    let Extent { pages, read, end } = extent_in_memory(object.base, object.bytes());
    drop(errno);
    let part = |bytes: usize| (bytes as u64 * WHOLE).div_ceil(object.bytes() as u64);
    let (hash, note) = note_of(class);
    let known = known(class);
    let new = match (object.backing.touched.pages(), known) {
        (Pages::New, _) => {
            Known { was_read: read > pages / READ_DIVISOR, ..Known::seen(known, part(pages * PAGE), part(end)) }
        }
        (Pages::Again, Some(known)) => known.again(pages, object.bytes() / PAGE),
        _ => return,
    };
    note.store(hash | new.bits(), Ordering::Relaxed);
    if object.backing.touched == Touched::ALL.with(Pages::New) {
        in_use::touched_less(object.bytes() - pages * PAGE);
    }
}

/// Whether what is in use and what is kept, and `more` bytes that neither counts, may take so much that pages are given
/// up which the program may not touch again.
pub fn matters(more: usize) -> bool {
    room::is_beyond_touched(more)
}

/// Called with `block`, which is about to serve as an array of which the program is expected to touch `touched`: gives
/// up the pages that would stand beside those. `class_of` tells a number for its rule and about its size.
#[inline(never)]
pub fn serve(
    state: &'static State,
    touched: Touched,
    block: &mut Object,
    class_of: fn(&State, &Object) -> Option<u64>,
) {
    let was_whole = block.backing.touched == touched;
    block.backing.touched = touched;
    if !touched.is_all() && matters(block.bytes()) {
        lose(state, block, was_whole, class_of(state, block));
    }
}

#[cold]
#[inline(never)]
fn lose(state: &'static State, block: &mut Object, was_whole: bool, class: Option<u64>) {
    if sandbox::entered() || offered::is_populated(state, block) {
        return;
    }
    let Some(known) = class.and_then(known) else { return };
    let number = SERVED.fetch_add(1, Ordering::Relaxed);
    let (is_new, is_again) = (is_sample(number), is_sample(number.wrapping_add(1)));
    let kept = match was_whole {
        _ if is_new => 0,
        true if is_again || known.same == OFTEN_ENOUGH => block.bytes(),
        false if known.is_first_part() => part_of(known.end).of(block.bytes()),
        _ => 0,
    };
    let kept = kept.next_multiple_of(if block.may_be_huge(state) { HUGE_PAGE as usize } else { PAGE });
    let _errno = errno::Saved::now();
    // SAFETY: the block belongs to the caller, and what it holds is not needed.
    let is_lost = kept < block.bytes()
        && unsafe { sys::advise((block.base + kept) as *mut c_void, block.bytes() - kept, libc::MADV_DONTNEED) };
    let pages = match is_lost {
        true if is_new => Pages::New,
        true if kept == 0 => Pages::Lost,
        false if was_whole && is_again => Pages::Again,
        _ => Pages::Any,
    };
    block.backing.touched = block.backing.touched.with(pages);
}

/// Whether the array of this number is one of [`SAMPLE`], at no regular distance: arrays may take turns.
fn is_sample(number: u32) -> bool {
    // The upper bits of the product with 2^32 divided by the golden ratio (Knuth, The Art of Computer Programming,
    // volume 3, 6.4) are spread evenly.
    number.wrapping_mul(0x9e37_79b9) < u32::MAX / SAMPLE
}

/// What the program is expected to touch of `object`; `class` is a number for its rule and about its size.
pub fn expected(class: impl FnOnce() -> Option<u64>, object: &Object) -> Touched {
    if object.bytes() < LEAST_BYTES {
        return Touched::ALL;
    }
    class().and_then(known).map_or(Touched::ALL, |known| part_of(known.touched))
}

/// Whether the program only reads some pages of arrays of this class.
pub fn are_read(class: Option<u64>) -> bool {
    class.and_then(known).is_some_and(|known| known.was_read)
}

fn part_of(part: u64) -> Touched {
    Touched::part(part.div_ceil(WHOLE / u64::from(Touched::PARTS)) as u8)
}

fn known(class: u64) -> Option<Known> {
    let (hash, note) = note_of(class);
    let now = note.load(Ordering::Relaxed);
    Known::of(now).filter(|_| now & HASH == hash)
}

/// Where a class is noted, with its hash.
fn note_of(class: u64) -> (u64, &'static AtomicU64) {
    let hash = class & HASH;
    (hash, &NOTES[(hash >> 40) as usize % SIZES])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::heap_table;

    #[test]
    fn the_mean_of_what_was_touched_is_expected() {
        let object = heap_table::object_of(0, 1 << 20, 0);
        let class = 0x1234_5678_9abc_def0;
        let note = |touched: u64| {
            let (hash, note) = note_of(class);
            note.store(hash | Known::seen(known(class), touched, WHOLE).bits(), Ordering::Relaxed);
        };
        let expected = |object: &Object| expected(|| Some(class), object);
        assert_eq!(expected(&object), Touched::ALL);
        assert_eq!(of_new(&object), Touched::ALL.with(Pages::New));
        note(WHOLE / 2);
        assert_eq!(expected(&object), Touched::part(Touched::PARTS.div_ceil(2)));
        note(WHOLE);
        assert_eq!(expected(&object), Touched::part((Touched::PARTS / 4 * 3).next_multiple_of(4)));
        (0..20).for_each(|_| note(WHOLE));
        assert_eq!(expected(&object), Touched::ALL, "nearly all");
        (0..20).for_each(|_| note(0));
        assert_eq!(expected(&object).of(object.bytes()), 0);
        assert_eq!(known(class), Some(Known { touched: 0, end: WHOLE, same: 0, was_read: false }));
        let small = heap_table::object_of(0, LEAST_BYTES - 4096, 0);
        assert_eq!(expected(&small), Touched::ALL);
    }

    #[test]
    fn the_same_pages_are_expected_when_they_were_seen_some_times() {
        let known = Known::seen(None, WHOLE / 10, WHOLE);
        let same = (0..10).fold(known, |known, _| known.again(125, 1_000));
        assert_eq!((same.same, Known::of(same.bits())), (OFTEN_ENOUGH, Some(same)));
        assert_eq!((same.again(140, 1_000).same, known.again(101, 1_000).same), (0, 1));
        assert_eq!(Known::seen(Some(same), WHOLE, WHOLE).same, OFTEN_ENOUGH);
    }

    #[test]
    fn what_is_known_fits_beside_the_hash() {
        let most = Known { touched: WHOLE, end: WHOLE, same: OFTEN_ENOUGH, was_read: true };
        assert_eq!(Known::of(HASH | most.bits()), Some(most));
        assert_eq!(most.bits() & HASH, 0);
        assert_eq!(Known::of(HASH), None);
    }

    #[test]
    fn some_arrays_are_samples() {
        let samples = (0..100 * SAMPLE).filter(|number| is_sample(*number)).count();
        assert!((95..105).contains(&samples), "{samples}");
        assert!((0..1000).any(|number| is_sample(2 * number)) && (0..1000).any(|number| is_sample(2 * number + 1)));
    }
}
