//! Sizes of which the program touches a part, from the first page on: buffers that are allocated for the largest case. A
//! kept array has pages up to where the one before was touched; one of another size that lies elsewhere in the same
//! memory touches others. So after some steps all of what is kept would be in memory, where the arrays of a step never
//! touch more than a part of it.
//!
//! So an array whose pages are all its own, since its memory was mapped for it, is looked at when it is freed: where its
//! last page in memory is. The mean of that is what later ones of its rule and about its size are expected to touch.
//! While what is in use and what is kept may together take more than the arrays in use were expected to touch at a time
//! ([`room::is_beyond_touched`]), one that kept memory serves loses the pages behind that, before the program gets it;
//! one of [`SAMPLE`] loses all, so that what is touched of it can be seen. Most of them lose none, because an array of
//! which a part is touched is kept as it is, for one of about its size (see [`kept`](super::super::kept)).
//!
//! Of arrays that are touched here and there the last page in memory is near the end: see [`few_pages`](super::few_pages).

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use numamma_hook::{errno, sandbox};
use numamma_kernel::sys::{self, PAGE};
use numamma_plan::plan::HUGE_PAGE;

use super::{LEAST_BYTES, end_in_memory};
use crate::objects::backing::Touched;
use crate::objects::object::Object;
use crate::objects::released::{offered, room};
use crate::rules::in_use;
use crate::rules::state::State;

/// Rules and sizes that are remembered, by a hash; a newer one replaces an older one.
const SIZES: usize = 1024;
/// Arrays that kept memory serves, of which one loses all pages: 3 % of the page faults that there are without kept memory.
/// A size of which the program begins to touch more is known after as many.
const SAMPLE: u32 = 32;

/// The hash, and the mean of the parts that are touched in units of 1 / [`WHOLE`], and 1 more.
static NOTES: [AtomicU64; SIZES] = [const { AtomicU64::new(0) }; SIZES];
/// Arrays that kept memory served, while that is little for what is touched.
static SERVED: AtomicU32 = AtomicU32::new(0);

/// Bits of a note that hold the hash.
const HASH: u64 = !0xffff;
const WHOLE: u64 = 1024;
const _: () = assert!(WHOLE < !HASH && WHOLE.is_multiple_of(Touched::PARTS as u64));

/// `object`, of which [`expected`] was asked, in memory that was mapped for it.
pub fn of_new(object: &Object) -> Touched {
    object.backing.touched.with_new(object.bytes() >= LEAST_BYTES)
}

/// Looks at `object`, which the program has given up, if all of its pages in memory are those that the program touched.
pub fn freed(class: Option<u64>, object: &Object) {
    if object.backing.touched.is_new() {
        look(class, object);
    }
}

/// Not inlined: what it holds would be in the stack frame of every free.
#[cold]
#[inline(never)]
fn look(class: Option<u64>, object: &Object) {
    let Some(class) = class else { return };
    let errno = errno::Saved::now();
    let end = end_in_memory(object.base, object.bytes()) - object.base;
    drop(errno);
    note(class, (end as u64 * WHOLE).div_ceil(object.bytes() as u64));
    if object.backing.touched.is_all() {
        in_use::touched_less(object.bytes() - end);
    }
}

/// Notes that a part of an array was touched, in units of 1 / [`WHOLE`].
fn note(class: u64, part: u64) {
    let (hash, note) = note_of(class);
    let before = note.load(Ordering::Relaxed);
    // Rounded towards the new part, so that the mean arrives there.
    let mean = match before & HASH == hash {
        true => (part + (before & !HASH) - 1 + u64::from(part >= before & !HASH)) / 2,
        false => part,
    };
    note.store(hash | (mean + 1), Ordering::Relaxed);
}

/// Called with `block`, which is about to serve as an array of which the program is expected to touch `touched`: gives up
/// the pages that would stand beside those.
#[inline(never)]
pub fn serve(state: &'static State, touched: Touched, block: &mut Object) {
    let was_whole = block.backing.touched == touched;
    block.backing.touched = touched;
    if !touched.is_all() && room::is_beyond_touched(block.bytes()) {
        lose(state, block, was_whole);
    }
}

#[cold]
#[inline(never)]
fn lose(state: &'static State, block: &mut Object, was_whole: bool) {
    if sandbox::entered() || offered::is_populated(state, block) {
        return;
    }
    let is_sample = is_sample(SERVED.fetch_add(1, Ordering::Relaxed));
    if was_whole && !is_sample {
        return;
    }
    let kept = if is_sample { 0 } else { block.backing.touched.of(block.bytes()) };
    let kept = kept.next_multiple_of(if block.may_be_huge(state) { HUGE_PAGE as usize } else { PAGE });
    let _errno = errno::Saved::now();
    // SAFETY: the block belongs to the caller, and what it holds is not needed.
    let is_lost = kept < block.bytes()
        && unsafe { sys::advise((block.base + kept) as *mut c_void, block.bytes() - kept, libc::MADV_DONTNEED) };
    block.backing.touched = block.backing.touched.with_new(is_sample && is_lost);
}

/// Whether the array of this number is one of [`SAMPLE`], at no regular distance: arrays may take turns.
fn is_sample(number: u32) -> bool {
    // The upper bits of the product with 2^32 divided by the golden ratio (Knuth, The Art of Computer Programming,
    // volume 3, 6.4) are spread evenly.
    number.wrapping_mul(0x9e37_79b9) < u32::MAX / SAMPLE
}

/// What the program is expected to touch of `object`; `class` is a number for its rule and about its size.
pub fn expected(class: Option<u64>, object: &Object) -> Touched {
    if object.bytes() < LEAST_BYTES {
        return Touched::ALL;
    }
    let parts_of = |class| {
        let (hash, note) = note_of(class);
        let now = note.load(Ordering::Relaxed);
        (now & HASH == hash).then(|| (now & !HASH) - 1)
    };
    let mean = class.and_then(parts_of).unwrap_or(WHOLE);
    Touched::part(mean.div_ceil(WHOLE / u64::from(Touched::PARTS)) as u8)
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
        assert_eq!(expected(Some(class), &object), Touched::ALL);
        assert_eq!(of_new(&object), Touched::ALL.with_new(true));
        note(class, WHOLE / 2);
        assert_eq!(expected(Some(class), &object), Touched::part(Touched::PARTS / 2));
        note(class, WHOLE);
        assert_eq!(expected(Some(class), &object), Touched::part(Touched::PARTS / 4 * 3));
        (0..20).for_each(|_| note(class, WHOLE));
        assert_eq!(expected(Some(class), &object), Touched::ALL, "nearly all");
        (0..20).for_each(|_| note(class, 0));
        assert_eq!(expected(Some(class), &object).of(object.bytes()), 0);
        let small = heap_table::object_of(0, LEAST_BYTES - 4096, 0);
        assert_eq!(expected(Some(class), &small), Touched::ALL);
    }

    #[test]
    fn some_arrays_are_samples() {
        let samples = (0..100 * SAMPLE).filter(|number| is_sample(*number)).count();
        assert!((95..105).contains(&samples), "{samples}");
        assert!((0..1000).any(|number| is_sample(2 * number)) && (0..1000).any(|number| is_sample(2 * number + 1)));
    }
}
