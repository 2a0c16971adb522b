//! Pages of a process: query the node and residency, move pages between nodes, populate ranges, control huge pages.

use core::ffi::c_int;

use crate::result;
use crate::sys::{self, PAGE};

/// Pages that [`move_to`] accepts in one call: those of one huge page. The arrays of a call take 6 KiB of stack.
pub const BATCH: usize = 512;

const MPOL_MF_MOVE: u32 = 2;
/// Since Linux 5.14; EINVAL before.
const MADV_POPULATE_READ: c_int = 22;
/// Since Linux 5.14; EINVAL before.
const MADV_POPULATE_WRITE: c_int = 23;
/// Since Linux 5.4.
const MADV_COLD: c_int = 20;

/// Writes the node of each page of the calling process to `status`, or a negative errno for a page that is not
/// resident. `pages` holds base addresses.
///
/// # Errors
/// As move_pages(2); EINVAL when `status` is shorter than `pages`.
pub fn page_nodes(pages: &[usize], status: &mut [c_int]) -> Result<(), c_int> {
    page_nodes_of(0, pages, status)
}

/// As [`page_nodes`], for the pages of process `pid` (0: the calling process).
///
/// # Errors
/// As move_pages(2); EPERM when the caller may not trace the process.
pub fn page_nodes_of(pid: u32, pages: &[usize], status: &mut [c_int]) -> Result<(), c_int> {
    if status.len() < pages.len() {
        return Err(libc::EINVAL);
    }
    let nodes: *const c_int = core::ptr::null();
    // SAFETY: both arrays are at least as long as the count; without target nodes no page is moved.
    result(unsafe {
        libc::syscall(libc::SYS_move_pages, pid, pages.len(), pages.as_ptr(), nodes, status.as_mut_ptr(), 0)
    })
}

/// Moves each page to its node, at most [`BATCH`] pages; pages that are not resident or cannot be moved stay where
/// they are.
pub fn move_to(pages: &[usize], nodes: &[c_int]) {
    let mut status = [0 as c_int; BATCH];
    let count = pages.len().min(nodes.len()).min(BATCH);
    // SAFETY: all arrays hold `count` entries; moving a page keeps its contents and address.
    unsafe {
        libc::syscall(libc::SYS_move_pages, 0, count, pages.as_ptr(), nodes.as_ptr(), status.as_mut_ptr(), MPOL_MF_MOVE)
    };
}

/// Which pages of anonymous memory are resident. One mincore(2) call covers 16 MiB, so that queries for many small
/// neighbouring objects share a system call.
pub struct Residency {
    start: usize,
    end: usize,
    map: [u8; Residency::PAGES],
}

impl Residency {
    const PAGES: usize = 4096;

    /// Whether any page of `[start, end)` is resident; true when mincore(2) fails. The mapping extends at least to
    /// `limit`.
    pub fn any(&mut self, start: usize, end: usize, limit: usize) -> bool {
        let mut at = start;
        while at < end {
            if !(self.start..self.end).contains(&at) && !self.read(at, limit.max(end)) {
                return true;
            }
            let stop = end.min(self.end);
            let pages = (at - self.start) / PAGE..(stop - self.start) / PAGE;
            if self.map.get(pages).is_some_and(|m| m.iter().any(|&b| b & 1 != 0)) {
                return true;
            }
            at = stop;
        }
        false
    }

    fn read(&mut self, start: usize, limit: usize) -> bool {
        let len = limit.next_multiple_of(PAGE).saturating_sub(start).min(Self::PAGES * PAGE);
        // SAFETY: the array has a byte for each page of the range; mincore(2) accesses no other memory of the process.
        let known = len > 0 && unsafe { libc::syscall(libc::SYS_mincore, start, len, self.map.as_mut_ptr()) } == 0;
        (self.start, self.end) = if known { (start, start + len) } else { (0, 0) };
        known
    }
}

impl Default for Residency {
    /// An empty cache.
    fn default() -> Residency {
        Residency { start: 0, end: 0, map: [0; Residency::PAGES] }
    }
}

/// Splits the huge page that contains `page` into base pages with unchanged addresses, node and contents: MADV_COLD
/// on a part of a huge page makes the kernel split the huge page (madvise_cold_or_pageout_pte_range of mm/madvise.c).
/// No effect before Linux 5.4.
pub fn split_huge_page(page: usize) {
    // SAFETY: the advice changes the order in which pages are reclaimed, not what they hold.
    unsafe { libc::syscall(libc::SYS_madvise, page, PAGE, MADV_COLD) };
}

/// Maps all pages of a range for reading with one system call instead of one page fault per page.
pub fn populate_read(start: usize, len: usize) {
    let first = start & !(PAGE - 1);
    let end = start.saturating_add(len).next_multiple_of(PAGE);
    // SAFETY: prefaulting for reading changes no contents; the kernel refuses a range that is not mapped.
    unsafe { libc::syscall(libc::SYS_madvise, first, end - first, MADV_POPULATE_READ) };
}

/// Faults every page of a writable private range in for writing: each becomes a private page on the node that the
/// memory policy in effect selects. False when the kernel refuses (before Linux 5.14, or a range that is not
/// writable).
pub fn populate_write(start: usize, len: usize) -> bool {
    // SAFETY: prefaulting for writing changes no contents.
    unsafe { libc::syscall(libc::SYS_madvise, start, len, MADV_POPULATE_WRITE) == 0 }
}

/// Whether the kernel supports [`populate_write`] (Linux 5.14).
pub fn can_populate() -> bool {
    let Some(at) = sys::map_anonymous(PAGE) else { return false };
    let can = populate_write(at as usize, PAGE);
    // SAFETY: the page belongs to this function.
    unsafe { sys::unmap(at, PAGE) };
    can
}

/// Requests or forbids transparent huge pages in a range. No effect on a kernel without huge pages.
pub fn huge_pages(start: usize, len: usize, wanted: bool) {
    let advice = if wanted { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    // SAFETY: the advice changes how memory is backed, not what it holds.
    unsafe { libc::syscall(libc::SYS_madvise, start, len, advice) };
}
