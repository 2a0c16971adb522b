//! What dlmalloc writes beside each object, as far as the heaps read it. The tests of [`super`] pin this layout.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Least alignment of every object, as malloc guarantees on x86_64.
pub const ALIGN: usize = 16;

/// A word before each object that dlmalloc writes: its size with the word, and three bits. dlmalloc has no function for
/// the size of an object; the test `sizes_are_read_from_the_header` fails if this layout changes.
pub const FLAGS: usize = 7;
/// The flag of a chunk that is an object.
pub const IN_USE: usize = 2;
/// The object before this one is in use.
const BEFORE_IN_USE: usize = 1;

/// Bytes that the object at `address` can hold; 0 if none is there.
///
/// # Safety
/// `address` lies in an extent, at least a word behind its first usable byte.
pub unsafe fn usable(address: usize) -> usize {
    // SAFETY: the caller's promise: the word before is readable. It is read atomically because the flag for the object
    // before this one changes with that.
    let word = unsafe { (*((address - size_of::<usize>()) as *const AtomicUsize)).load(Ordering::Relaxed) };
    if word & IN_USE == 0 { 0 } else { (word & !FLAGS).saturating_sub(size_of::<usize>()) }
}

/// Whether the words around `address` are those of an object in an extent that ends at `end`: the word before says that
/// it is in use, and so does the one before the next object. Free neighbours become one, so after an object is freed
/// the first may still say so.
///
/// # Safety
/// As [`usable`]; the extent is mapped up to `end`.
pub unsafe fn is_object(address: usize, end: usize) -> bool {
    if !address.is_multiple_of(ALIGN) {
        return false;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { usable(address) };
    let next = address.saturating_add(bytes);
    let inside = bytes > 0 && next.is_multiple_of(size_of::<usize>());
    // SAFETY: the word lies in the extent, by the comparison.
    inside && next < end && unsafe { (*(next as *const AtomicUsize)).load(Ordering::Relaxed) } & BEFORE_IN_USE != 0
}
