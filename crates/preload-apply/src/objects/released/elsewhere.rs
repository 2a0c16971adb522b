//! Memory that the program is about to use beside placed arrays: kept memory is given back where it would stand beside
//! such memory, see [`room`].

use core::cell::Cell;

use super::glibc::MMAP_THRESHOLD;
use super::{fitting, give_all_back, give_way, room, standing, trim_if_due};
use crate::rules::state::State;

/// Bytes of a block of glibc's heap, at least (MINSIZE).
const LEAST: usize = 32;
/// Bytes of small blocks that a thread allocates before it adds them to what all threads do: it shares no cache line
/// with others more often. What 32 threads have not added is what [`room`] leaves in any case.
const ADDED_AT_ONCE: usize = 64 << 10;

/// Of a thread.
#[repr(C)]
struct Block {
    /// Bytes of small blocks that it has not added yet.
    small: Cell<usize>,
}

numamma_hook::static_tls!(fn block() -> Block, "numamma_apply_elsewhere");

/// Notes that the program is about to allocate `size` bytes from its own allocator. Small blocks count while something
/// is kept.
#[inline]
pub fn allocating(size: usize) {
    if size >= MMAP_THRESHOLD {
        if fitting::can_be_had(size) && room::is_needed(size, standing()) {
            give_way();
        }
        trim_if_due();
    } else if standing() > 0 {
        allocating_small(size);
    }
}

fn allocating_small(size: usize) {
    let small = &block().small;
    let bytes = small.get().saturating_add(size.max(LEAST));
    let is_added = bytes >= ADDED_AT_ONCE;
    small.set(if is_added { 0 } else { bytes });
    if is_added && room::is_needed(bytes, standing()) {
        give_way();
    }
}

/// As [`allocating`], for a small object that a rule matches and that is not placed.
#[inline]
pub fn leaving_small(size: usize) {
    if standing() > 0 {
        allocating_small(size);
    }
}

/// As [`allocating`], for `bytes` that the program is about to map. Signal handlers may call it, too: locks of this
/// library are only tried, never waited for.
#[inline]
pub fn mapping(bytes: usize) {
    if bytes > 0 && standing() > 0 && fitting::can_be_mapped(bytes) && room::is_needed_for_new(bytes, standing()) {
        give_way();
    }
}

/// As [`allocating`], for memory of small objects of `bytes`, under the lock of their heap.
#[inline(never)]
pub fn mapping_small(state: &'static State, bytes: usize) {
    if room::is_needed_for_new(bytes, standing()) {
        give_all_back(state);
    }
    room::mapped();
}
