//! Thinning of large allocations and mappings: each call site may have so many recorded in an epoch.
//!
//! The recorder sets the quota when a program allocates so often that recording would slow it down, and begins a new
//! epoch now and then. A call site that allocates seldom is recorded exactly; of one that allocates all the time the
//! first of each epoch are, and each of these carries the number of those left out since the one before, so that the
//! sum is exact. A block that was left out is marked until it is freed, so that its free is left out, too. A mark that
//! is overwritten costs the record of a free that the recorder does not know, nothing else.

use core::cell::Cell;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use numamma_hook::entry::Caller;
use numamma_hook::sys;

use crate::channel_map::publish;

/// Counts of a thread; call sites that share one share the quota.
const SITES: usize = 256;

/// The counts of the call sites of one thread.
#[repr(C)]
pub struct Sites([Cell<Site>; SITES]);

/// The counts of one call site.
#[derive(Clone, Copy, Default)]
struct Site {
    epoch: u32,
    recorded: u32,
    left_out: u32,
}

impl Sites {
    /// Whether an allocation of `size` bytes is to be recorded: the number of those that it stands for besides itself;
    /// `None` when it is left out.
    #[inline]
    pub fn record(&self, caller: &Caller, size: usize, quota: u32, epoch: u32) -> Option<u32> {
        let cell = &self.0[index(caller, size)];
        let mut site = cell.get();
        if site.epoch != epoch {
            site = Site { epoch, recorded: 0, ..site };
        }
        if site.recorded >= quota {
            // A record has 24 bits for the number.
            site.left_out = (site.left_out + 1).min(MOST_LEFT_OUT);
            cell.set(site);
            return None;
        }
        cell.set(Site { recorded: site.recorded + 1, left_out: 0, ..site });
        Some(site.left_out)
    }
}

/// Largest number that a record has room for.
const MOST_LEFT_OUT: u32 = (1 << 24) - 1;

/// A call site is known by its return address, the depth of its stack and the magnitude of the size: callers of a
/// wrapper of malloc differ in the last two.
#[inline(always)]
fn index(caller: &Caller, size: usize) -> usize {
    let magnitude = size.checked_ilog2().unwrap_or(0);
    let quarter = size >> magnitude.saturating_sub(2);
    let mixed = (caller.ra as u64) ^ (caller.cfa as u64) << 20 ^ (u64::from(magnitude) << 8 | quarter as u64) << 44;
    // Fibonacci hashing, as layout::kept.
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % SITES
}

/// Marks of blocks: 8 MiB of address space, of which only the pages are touched that hold marks. Large blocks lie in
/// different pages, so the blocks of 4 GiB of heap do not collide.
const MARKS: usize = 1 << 20;
static BLOCKS: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());

fn mark(address: usize) -> Option<&'static AtomicU64> {
    let base = BLOCKS.load(Ordering::Acquire);
    // SAFETY: MARKS words that are never unmapped.
    (!base.is_null()).then(|| unsafe { &*base.add(address / sys::PAGE % MARKS) })
}

#[cold]
#[inline(never)]
fn map_marks() {
    let _errno = numamma_hook::errno::Saved::now();
    let bytes = MARKS * size_of::<AtomicU64>();
    if let Some(mine) = sys::map_anonymous(bytes) {
        publish(&BLOCKS, mine.cast(), bytes);
    }
}

/// Bits of a mark that hold the pages of a mapping; 0 for a heap block.
const LEN_BITS: u32 = 28;

/// The mark of a heap block (`len` 0) or of a mapping of `len` bytes; `None` for what does not fit.
#[inline(always)]
fn word(address: usize, len: usize) -> Option<u64> {
    if len == 0 {
        // A heap address is below 2^56 and even.
        return Some((address as u64) << 1 | 1);
    }
    let (page, pages) = (address as u64 / sys::PAGE as u64, len as u64 / sys::PAGE as u64);
    (page >> (63 - LEN_BITS) == 0 && pages >> (LEN_BITS - 1) == 0).then_some((page << LEN_BITS | pages) << 1)
}

/// Marks a block or mapping as left out; false when there is no room for the mark, and it must be recorded.
#[inline]
pub fn leave_out(address: usize, len: usize) -> bool {
    let Some(word) = word(address, len) else { return false };
    if BLOCKS.load(Ordering::Relaxed).is_null() {
        map_marks();
    }
    let Some(mark) = mark(address) else { return false };
    mark.store(word, Ordering::Relaxed);
    true
}

/// Whether a block or mapping that ends was left out. Takes the mark away.
#[inline(always)]
pub fn was_left_out(address: usize, len: usize) -> bool {
    let Some(mark) = mark(address) else { return false };
    // Only the thread that frees the block has its address now.
    let marked = word(address, len).is_some_and(|word| mark.load(Ordering::Relaxed) == word);
    if marked {
        mark.store(0, Ordering::Relaxed);
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Caller = Caller { ra: 0x1234, cfa: 0x7ffe_0000, rbp: 0 };

    #[test]
    fn a_call_site_is_recorded_up_to_its_quota_and_no_allocation_is_forgotten() {
        // SAFETY: all zero bytes are empty counts.
        let sites: Sites = unsafe { core::mem::zeroed() };
        let (mut recorded, mut stood_for) = (0, 0);
        for epoch in 1..=10 {
            for _ in 0..1000 {
                if let Some(left_out) = sites.record(&HERE, 5000, 4, epoch) {
                    recorded += 1;
                    stood_for += 1 + left_out;
                }
            }
            // Another one, which allocates once in an epoch, is recorded exactly.
            assert_eq!(sites.record(&Caller { ra: 0x9999, ..HERE }, 1 << 20, 4, epoch), Some(0));
        }
        assert_eq!((recorded, stood_for), (40, 9004));
    }

    #[test]
    fn marks_are_found_once_and_only_for_the_same_block() {
        assert!(!was_left_out(0x7f00_0000_1010, 0), "no marks yet");
        for (address, len) in [(0x7f00_0000_1010, 0), (0x7f00_0000_3000, 8192), (0x7fff_ffff_f000, 1 << 38)] {
            assert!(leave_out(address, len));
            assert!(!was_left_out(address - (1 << 40), len) && !was_left_out(address, len + 4096));
            assert!(was_left_out(address, len) && !was_left_out(address, len));
        }
        // A later block in the same place overwrites the mark; the older free is then recorded.
        let other = 0x7f00_0000_1010 + MARKS * sys::PAGE;
        assert!(leave_out(0x7f00_0000_1010, 0) && leave_out(other, 0));
        assert!(!was_left_out(0x7f00_0000_1010, 0) && was_left_out(other, 0));
        assert!(!leave_out(0x7f00_0000_3000, 1 << 40), "no room for its length");
    }
}
