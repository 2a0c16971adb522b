//! Blocks of which the program touched little: hash tables that stay almost empty, arrays that are allocated for the
//! largest case. Pages that were never touched take no memory, and must take none when the block is kept and serves
//! again.

pub mod touched;

use core::ffi::c_void;

use numamma_hook::{errno, own_stack, sandbox};
use numamma_kernel::pagemap::{self, EXCLUSIVE};
use numamma_kernel::sys::{self, PAGE};

/// Blocks below are written whatever is in memory: glibc takes smaller ones from its heap (M_MMAP_THRESHOLD in
/// mallopt(3)), where calloc writes them.
pub const LEAST_BYTES: usize = 128 << 10;
/// Pages that are looked at together: those of 1 MiB.
const LOOKED_AT: usize = 256;
/// Pages of which the kernel is asked together whether they are the block's own: little of the stack.
const TOGETHER: usize = 32;

/// Makes the first `size` bytes of a block of whole pages at `base` zero. The memory policy of the block stays.
/// `was_read`: see [`clear_pages`].
pub fn clear(base: usize, size: usize, was_read: bool) {
    if size < LEAST_BYTES || sandbox::entered() {
        return write(base, base + size);
    }
    let _errno = errno::Saved::now();
    clear_pages(base, size, was_read);
}

/// As [`clear`], of whatever size: pages in memory are written, which takes less time than to lose them and touch them
/// again. The others may be swapped out, and are lost. `was_read`: some may be pages that were only read, which stay as
/// they are, but each is looked at. Changes errno.
pub fn clear_pages(base: usize, size: usize, was_read: bool) {
    let end = base + size.next_multiple_of(PAGE);
    for_runs(base, end, |start, stop, is_in_memory| {
        let stop_here = stop.min(base + size);
        if !is_in_memory {
            // SAFETY: the block belongs to the caller, and what it holds is not needed.
            if !unsafe { sys::advise(start as *mut c_void, stop - start, libc::MADV_DONTNEED) } {
                write(start, stop_here);
            }
        } else if was_read {
            (start..stop_here).step_by(PAGE).for_each(|page| write_unless_zero(page, stop_here.min(page + PAGE)));
        } else {
            write(start, stop_here);
        }
    });
}

/// Whether less than half of a block at `base` is in memory. Changes errno.
pub fn is_sparse(base: usize, bytes: usize) -> bool {
    2 * extent_in_memory(base, bytes).pages < bytes / PAGE
}

/// What a block has in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Pages of its own.
    pub pages: usize,
    /// Pages that were only read: the kernel has one page of zeros for all.
    pub read: usize,
    /// Bytes from its begin to the end of the last page of its own.
    pub end: usize,
}

/// What a block of whole pages at `base` has in memory. Changes errno. On a stack of this library: it takes much of
/// one.
pub fn extent_in_memory(base: usize, bytes: usize) -> Extent {
    own_stack::run_or_directly(|| find_extent(base, bytes))
}

fn find_extent(base: usize, bytes: usize) -> Extent {
    let mut extent = Extent::default();
    for_runs(base, base + bytes, |start, end, is_in_memory| {
        if is_in_memory {
            for_own_runs(start, end, |start, end, is_own| {
                let pages = (end - start) / PAGE;
                match is_own {
                    true => (extent.pages, extent.end) = (extent.pages + pages, end - base),
                    false => extent.read += pages,
                }
            });
        }
    });
    extent
}

/// Calls `run` with begin and end of each run of pages in memory, between two page addresses, that are of the block
/// itself or were only read, and which of these.
pub fn for_own_runs(start: usize, end: usize, mut run: impl FnMut(usize, usize, bool)) {
    let mut bytes = [0_u8; size_of::<u64>() * TOGETHER];
    let (mut begin, mut was_own) = (start, true);
    for first in (start..end).step_by(TOGETHER * PAGE) {
        let pages = ((end - first) / PAGE).min(TOGETHER);
        let words = &mut bytes[..size_of::<u64>() * pages];
        let is_known = pagemap::read_held(first, words);
        for (page, word) in (first..).step_by(PAGE).zip(words.as_chunks().0) {
            // A page that a forked child shares is not told apart from that of zeros here.
            // SAFETY: a page of the block.
            let is_own = !is_known || u64::from_ne_bytes(*word) & EXCLUSIVE != 0 || !unsafe { is_zero(page, PAGE) };
            if is_own != was_own {
                if page > begin {
                    run(begin, page, was_own);
                }
                (begin, was_own) = (page, is_own);
            }
        }
    }
    if end > begin {
        run(begin, end, was_own);
    }
}

/// Fills `map` with a byte for each page from `start` on, whose lowest bit is set if it is in memory; false where the
/// kernel does not say.
fn look(start: usize, map: &mut [u8]) -> bool {
    // SAFETY: the slice has a byte for each page of the range; mincore(2) accesses no other memory of the process.
    unsafe { libc::syscall(libc::SYS_mincore, start, map.len() * PAGE, map.as_mut_ptr()) == 0 }
}

/// Calls `run` with begin and end of each run of pages between two page addresses that are in memory or not, and which
/// of these; all are where the kernel does not say. What is swapped out counts as not in memory. Changes errno.
fn for_runs(base: usize, end: usize, mut run: impl FnMut(usize, usize, bool)) {
    let mut map = [0_u8; LOOKED_AT];
    let (mut begin, mut was_in_memory) = (base, false);
    for start in (base..end).step_by(LOOKED_AT * PAGE) {
        let pages = (end - start).div_ceil(PAGE).min(LOOKED_AT);
        let is_known = look(start, &mut map[..pages]);
        for (at, seen) in (start..).step_by(PAGE).zip(&map[..pages]) {
            let is_in_memory = !is_known || seen & 1 != 0;
            if is_in_memory != was_in_memory {
                if at > begin {
                    run(begin, at, was_in_memory);
                }
                (begin, was_in_memory) = (at, is_in_memory);
            }
        }
    }
    if end > begin {
        run(begin, end, was_in_memory);
    }
}

/// As [`write()`], but not where it is zero already: where the program only read, the kernel has one page of zeros for
/// all.
fn write_unless_zero(start: usize, end: usize) {
    // SAFETY: the range belongs to the caller, and nobody writes it.
    if !unsafe { is_zero(start, end - start) } {
        write(start, end);
    }
}

/// Whether `len` bytes are zero; returns at the first few that are not.
///
/// # Safety
/// They can be read, and nobody writes them.
pub unsafe fn is_zero(at: usize, len: usize) -> bool {
    /// Bytes that are looked at together: enough to take little more time than writing them.
    const PART: usize = 512;
    // SAFETY: the caller's promise.
    let bytes = unsafe { core::slice::from_raw_parts(at as *const u8, len) };
    let (parts, rest) = bytes.as_chunks::<PART>();
    parts.iter().all(|part| any_bit(part.as_chunks().0) == 0) && rest.iter().all(|byte| *byte == 0)
}

fn any_bit(words: &[[u8; 8]]) -> u64 {
    words.iter().fold(0, |all, word| all | u64::from_ne_bytes(*word))
}

fn write(start: usize, end: usize) {
    // SAFETY: the range belongs to the caller, and what it holds is not needed.
    unsafe { (start as *mut u8).write_bytes(0, end - start) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use numamma_kernel::mappings::map_aligned;

    #[test]
    fn what_was_not_touched_takes_no_memory_after_it_is_cleared() {
        const PAGES: usize = 1_000;
        let bytes = PAGES * PAGE;
        let base = map_aligned(bytes, PAGE).unwrap();
        // SAFETY: the mapping belongs to this test and is writable.
        let memory = unsafe { core::slice::from_raw_parts_mut(base as *mut u8, bytes) };
        // The first 300 pages, then one of fifty.
        let touch = |memory: &mut [u8]| {
            (0..PAGES).filter(|page| *page < 300 || page % 50 == 0).for_each(|page| memory[page * PAGE + 7] = 9);
        };
        touch(memory);
        let touched = Extent { pages: 314, read: 0, end: 951 * PAGE };
        assert_eq!(extent_in_memory(base, bytes), touched);
        assert!(is_sparse(base, bytes) && !is_sparse(base, 600 * PAGE - PAGE));
        clear(base, bytes - 100, false);
        assert_eq!(extent_in_memory(base, bytes), touched);
        assert!(memory.iter().all(|byte| *byte == 0));
        touch(memory);
        clear(base, LEAST_BYTES - 1, false);
        assert!(memory[..LEAST_BYTES - 1].iter().all(|byte| *byte == 0) && memory[40 * PAGE + 7] == 9);
        // SAFETY: the mapping was made above.
        unsafe { sys::unmap(base as *mut c_void, bytes) };
    }
}
