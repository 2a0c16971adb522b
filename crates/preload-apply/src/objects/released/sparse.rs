//! Blocks of which the program touched little: hash tables that stay almost empty, arrays that are allocated for the
//! largest case. Pages that were never touched take no memory, and must take none when the block is kept and serves again.

pub mod few_pages;
pub mod touched;

use core::ffi::c_void;

use numamma_hook::{errno, sandbox};
use numamma_kernel::sys::{self, PAGE};

/// Blocks below are written whatever is in memory: glibc takes smaller ones from its heap (M_MMAP_THRESHOLD in
/// mallopt(3)), where calloc writes them.
pub const LEAST_BYTES: usize = 128 << 10;
/// Pages that are looked at together: those of 1 MiB.
const LOOKED_AT: usize = 256;
/// Pages of which a part is decided: where more are in memory than not, touching the others at most doubles what the
/// block takes, and writing is faster than losing pages and touching them again.
const PART: usize = 64;

/// Makes the first `size` bytes of a block of whole pages at `base` zero: parts of which most pages are in memory are
/// written, the others lose their pages. The memory policy of the block stays.
pub fn clear(base: usize, size: usize) {
    if size < LEAST_BYTES || sandbox::entered() {
        return write(base, base + size);
    }
    let _errno = errno::Saved::now();
    let end = base + size.next_multiple_of(PAGE);
    for_parts(base, end, |start, stop, in_memory| {
        let is_sparse = 2 * in_memory < (stop - start) / PAGE;
        // SAFETY: the block belongs to the caller, and what it holds is not needed.
        if !is_sparse || !unsafe { sys::advise(start as *mut c_void, stop - start, libc::MADV_DONTNEED) } {
            write(start, stop.min(base + size));
        }
    });
}

/// Whether less than half of a block at `base` is in memory. Changes errno.
pub fn is_sparse(base: usize, bytes: usize) -> bool {
    2 * in_memory(base, bytes) < bytes / PAGE
}

/// Pages of a block at `base` that are in memory. Changes errno.
pub fn in_memory(base: usize, bytes: usize) -> usize {
    let mut all = 0;
    for_parts(base, base + bytes, |_, _, in_memory| all += in_memory);
    all
}

/// Address behind the last page in memory of a block of whole pages at `base`, its end where the kernel does not say. What
/// is swapped out counts as not in memory. Changes errno.
pub fn end_in_memory(base: usize, bytes: usize) -> usize {
    let mut map = [0_u8; LOOKED_AT];
    let mut end = base + bytes;
    while end > base {
        let pages = ((end - base) / PAGE).min(LOOKED_AT);
        let start = end - pages * PAGE;
        if !look(start, &mut map[..pages]) {
            return end;
        }
        if let Some(last) = map[..pages].iter().rposition(|page| page & 1 != 0) {
            return start + (last + 1) * PAGE;
        }
        end = start;
    }
    base
}

/// Fills `map` with a byte for each page from `start` on, whose lowest bit is set if it is in memory; false where the
/// kernel does not say.
fn look(start: usize, map: &mut [u8]) -> bool {
    // SAFETY: the slice has a byte for each page of the range; mincore(2) accesses no other memory of the process.
    unsafe { libc::syscall(libc::SYS_mincore, start, map.len() * PAGE, map.as_mut_ptr()) == 0 }
}

/// Calls `part` with begin, end and the number of pages in memory of each part between two page addresses; all of them
/// where the kernel does not say. What is swapped out counts as not in memory. Changes errno.
fn for_parts(base: usize, end: usize, mut part: impl FnMut(usize, usize, usize)) {
    let mut map = [0_u8; LOOKED_AT];
    for start in (base..end).step_by(LOOKED_AT * PAGE) {
        let pages = (end - start).div_ceil(PAGE).min(LOOKED_AT);
        let is_known = look(start, &mut map[..pages]);
        for (at, seen) in (start..).step_by(PART * PAGE).zip(map[..pages].chunks(PART)) {
            let in_memory = seen.iter().filter(|page| !is_known || **page & 1 != 0).count();
            part(at, at + seen.len() * PAGE, in_memory);
        }
    }
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
        assert_eq!(in_memory(base, bytes), 314);
        assert!(is_sparse(base, bytes) && !is_sparse(base, 600 * PAGE - PAGE));
        clear(base, bytes - 100);
        // Parts of 64 pages: four that are dense, then one with 44 of 64.
        assert_eq!(in_memory(base, bytes), 320);
        assert!(memory.iter().all(|byte| *byte == 0));
        touch(memory);
        clear(base, LEAST_BYTES - 1);
        assert!(memory[..LEAST_BYTES - 1].iter().all(|byte| *byte == 0) && memory[40 * PAGE + 7] == 9);
        // SAFETY: the mapping was made above.
        unsafe { sys::unmap(base as *mut c_void, bytes) };
    }
}
