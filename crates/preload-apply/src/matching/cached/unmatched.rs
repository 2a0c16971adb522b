//! A cache of what follows from a return address alone: that no rule begins there.
//!
//! Most allocations match no rule and cost one load and one compare: a direct-mapped table holds the return addresses
//! at which no rule begins. Behind a wrapper around the allocator such as `operator new`, a second table holds the size
//! of the wrapper's frame, and the return address of the wrapper's caller is looked up in the first table. What callers
//! further out decide is in [`super::decided`].

use core::sync::atomic::{AtomicUsize, Ordering};

use super::Fact;
use super::decided;

/// Entries for unmatched return addresses: 8 KiB, a quarter of a level 1 cache. Programs have tens of hot call sites.
pub const CALLERS: usize = 1024;
/// Entries for wrappers: 2 KiB.
const WRAPPERS: usize = 256;
/// Bits of an entry for the size of the wrapper's frame; the return address is above them.
const SIZE_BITS: u32 = 16;
/// An entry is found by the low bits of its return address, into which those from here on are mixed: functions may lie
/// at multiples of a power of two.
pub const MIXED: u32 = 7;
/// Wrappers around each other that are looked through without a walk: `operator new`, `std::vector::push_back`.
pub const NESTED: usize = 3;

/// The entry of a return address is number `(ra ^ ra >> MIXED) % CALLERS`. The entry stub of malloc computes the same
/// number; with another one it would find nothing, and be slow.
pub static UNMATCHED: [AtomicUsize; CALLERS] = [const { AtomicUsize::new(0) }; CALLERS];
static FRAME_SIZES: [AtomicUsize; WRAPPERS] = [const { AtomicUsize::new(0) }; WRAPPERS];

#[inline(always)]
fn unmatched_entry(ra: usize) -> &'static AtomicUsize {
    &UNMATCHED[(ra ^ ra >> MIXED) % CALLERS]
}

#[inline(always)]
fn frame_size_entry(ra: usize) -> &'static AtomicUsize {
    &FRAME_SIZES[(ra ^ ra >> MIXED) % WRAPPERS]
}

/// Whether the cache says that no rule begins at `ra`: the fast path of malloc.
#[inline(always)]
pub fn begins_no_rule(ra: usize) -> bool {
    unmatched_entry(ra).load(Ordering::Relaxed) == ra
}

/// Whether the cache says that no rule takes an allocation which returns to `ra`, possibly in a wrapper.
///
/// # Safety
/// `ra` and `cfa` come from an entry stub of a hook that has not returned yet.
#[inline(always)]
pub unsafe fn is_unmatched(mut ra: usize, mut cfa: usize) -> bool {
    for _ in 0..NESTED {
        if begins_no_rule(ra) {
            return true;
        }
        // SAFETY: the caller's promise, which holds for the frame of the wrapper's caller, too.
        match unsafe { caller_of_wrapper(ra, cfa) } {
            Some(outer) => (ra, cfa) = outer,
            None => return false,
        }
    }
    begins_no_rule(ra)
}

/// Return address and canonical frame address of the caller of the wrapper in which `ra` lies, if the cache knows the
/// size of its frame.
///
/// # Safety
/// See [`is_unmatched`].
#[inline(always)]
pub unsafe fn caller_of_wrapper(ra: usize, cfa: usize) -> Option<(usize, usize)> {
    let word = frame_size_entry(ra).load(Ordering::Relaxed);
    if word >> SIZE_BITS != ra {
        return None;
    }
    let outer = cfa + (word & ((1 << SIZE_BITS) - 1));
    // SAFETY: the code at `ra` is running with the stack pointer `cfa`. Its unwind data say that its frame has this
    // size whatever the other registers hold, and that a return address ends the frame: the word is on the stack.
    Some((unsafe { ((outer - 8) as *const usize).read() }, outer))
}

/// No rule begins at `ra`.
pub fn no_rule_begins_at(ra: usize) -> Fact {
    Fact { entry: unmatched_entry(ra), word: ra }
}

/// `ra` is in a wrapper at which a rule begins only by passing its frame, which takes `size` bytes. `None` when an
/// entry cannot hold the size.
pub fn frame_size(ra: usize, size: usize) -> Option<Fact> {
    (size < 1 << SIZE_BITS).then(|| Fact { entry: frame_size_entry(ra), word: ra << SIZE_BITS | size })
}

/// Clears the entries of return addresses in `[start, end)`, and all that was decided: code that comes may make other
/// rules fit elsewhere.
pub fn clear_range(start: usize, end: usize) {
    let clear = |entry: &AtomicUsize, ra: usize| {
        if (start..end).contains(&ra) {
            entry.store(0, Ordering::Relaxed);
        }
    };
    UNMATCHED.iter().for_each(|entry| clear(entry, entry.load(Ordering::Relaxed)));
    FRAME_SIZES.iter().for_each(|entry| clear(entry, entry.load(Ordering::Relaxed) >> SIZE_BITS));
    decided::clear();
}

/// Clears all entries.
pub fn clear() {
    decided::clear();
    UNMATCHED.iter().chain(&FRAME_SIZES).for_each(|entry| entry.store(0, Ordering::Relaxed));
}
