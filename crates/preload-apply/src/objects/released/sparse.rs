//! Blocks of which the program touched little: hash tables that stay almost empty, arrays that are allocated for the
//! largest case. Pages that were never touched take no memory, and must take none when the block is kept and serves again.

pub mod touched;

use core::ffi::c_void;

use numamma_hook::{errno, sandbox};
use numamma_kernel::sys::{self, PAGE};

/// Blocks below are written whatever is in memory: glibc takes smaller ones from its heap (M_MMAP_THRESHOLD in
/// mallopt(3)), where calloc writes them.
pub const LEAST_BYTES: usize = 128 << 10;
/// Pages that are looked at together: those of 1 MiB.
const LOOKED_AT: usize = 256;

/// Makes the first `size` bytes of a block of whole pages at `base` zero. The memory policy of the block stays.
pub fn clear(base: usize, size: usize) {
    if size < LEAST_BYTES || sandbox::entered() {
        return write(base, base + size);
    }
    let _errno = errno::Saved::now();
    clear_pages(base, size);
}

/// As [`clear`], of whatever size: pages in memory are written, which takes less time than to lose them and touch them
/// again. The others may be swapped out, and are lost. Changes errno.
pub fn clear_pages(base: usize, size: usize) {
    let end = base + size.next_multiple_of(PAGE);
    for_runs(base, end, |start, stop, is_in_memory| {
        let stop_here = stop.min(base + size);
        // SAFETY: the block belongs to the caller, and what it holds is not needed.
        if is_in_memory {
            (start..stop_here).step_by(PAGE).for_each(|page| write_unless_zero(page, stop_here.min(page + PAGE)));
        } else if !unsafe { sys::advise(start as *mut c_void, stop - start, libc::MADV_DONTNEED) } {
            write(start, stop_here);
        }
    });
}

/// Whether less than half of a block at `base` is in memory. Changes errno.
pub fn is_sparse(base: usize, bytes: usize) -> bool {
    2 * extent_in_memory(base, bytes).0 < bytes / PAGE
}

/// Pages of a block of whole pages at `base` that are in memory, and bytes from its begin to the end of the last of them.
/// Changes errno.
pub fn extent_in_memory(base: usize, bytes: usize) -> (usize, usize) {
    let (mut pages, mut last) = (0, base);
    for_runs(base, base + bytes, |start, end, is_in_memory| {
        if is_in_memory {
            (pages, last) = (pages + (end - start) / PAGE, end);
        }
    });
    (pages, last - base)
}

/// Fills `map` with a byte for each page from `start` on, whose lowest bit is set if it is in memory; false where the
/// kernel does not say.
fn look(start: usize, map: &mut [u8]) -> bool {
    // SAFETY: the slice has a byte for each page of the range; mincore(2) accesses no other memory of the process.
    unsafe { libc::syscall(libc::SYS_mincore, start, map.len() * PAGE, map.as_mut_ptr()) == 0 }
}

/// Calls `run` with begin and end of each run of pages between two page addresses that are in memory or not, and which of
/// these; all are where the kernel does not say. What is swapped out counts as not in memory. Changes errno.
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

/// As [`write`], but not where it is zero already: where the program only read, the kernel has one page of zeros for all.
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
    /// Bytes that are looked at together: enough to take as little time as writing them.
    const TOGETHER: usize = 512;
    // SAFETY: the caller's promise.
    let bytes = unsafe { core::slice::from_raw_parts(at as *const u8, len) };
    let (parts, rest) = bytes.as_chunks::<TOGETHER>();
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
        assert_eq!(extent_in_memory(base, bytes), (314, 951 * PAGE));
        assert!(is_sparse(base, bytes) && !is_sparse(base, 600 * PAGE - PAGE));
        clear(base, bytes - 100);
        assert_eq!(extent_in_memory(base, bytes), (314, 951 * PAGE));
        assert!(memory.iter().all(|byte| *byte == 0));
        touch(memory);
        clear(base, LEAST_BYTES - 1);
        assert!(memory[..LEAST_BYTES - 1].iter().all(|byte| *byte == 0) && memory[40 * PAGE + 7] == 9);
        // SAFETY: the mapping was made above.
        unsafe { sys::unmap(base as *mut c_void, bytes) };
    }
}
