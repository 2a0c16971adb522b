//! Finds the nodes of resident pages, including pages that automatic NUMA balancing has made inaccessible for a while.
//!
//! To learn which CPU uses a page, the kernel removes access to it until the next page fault (change_prot_numa of
//! mm/mempolicy.c). Until then move_pages(2) reports ENOENT for the page and does not move it. Only memory without a
//! policy is affected, so all memory that a phase takes over from `default` or from populated blocks.
//! /proc/self/pagemap still shows such a page as present, and reading a byte of it with process_vm_readv makes it
//! accessible again.

use core::ffi::{c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicU8, Ordering};
use numamma_kernel::pages;
use numamma_kernel::pages::BATCH;
use std::fs;

use numamma_hook::own_stack;
use numamma_kernel::errno;
use numamma_kernel::sys::PAGE;
use numamma_plan::plan::HUGE_PAGE;

use numamma_kernel::pagemap::{self, Pagemap};

/// Whether the kernel can make pages inaccessible for NUMA balancing (pages stay so when balancing is switched off).
/// Looked up once, without a lock, which a forked child could find held.
fn may_hide_pages() -> bool {
    const UNKNOWN: u8 = 2;
    static MAY_HIDE: AtomicU8 = AtomicU8::new(UNKNOWN);
    let known = MAY_HIDE.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known == 1;
    }
    let may_hide_pages = fs::exists("/proc/sys/kernel/numa_balancing").unwrap_or(false);
    MAY_HIDE.store(u8::from(may_hide_pages), Ordering::Relaxed);
    may_hide_pages
}

/// Node of each of `pages`, which are consecutive and at most [`BATCH`]; a negative errno for a page that does not
/// exist. Reads a byte of each inaccessible page and touches no other page.
pub fn page_nodes(pages: &[usize], status: &mut [c_int]) -> Result<(), c_int> {
    pages::page_nodes(pages, status)?;
    if may_hide_pages() && status.contains(&-libc::ENOENT) && make_accessible(pages, status) {
        pages::page_nodes(pages, status)?;
    }
    Ok(())
}

/// Reads a byte of each page that is present but has no node; true if there was one.
fn make_accessible(pages: &[usize], status: &[c_int]) -> bool {
    let mut words = [0; BATCH];
    Pagemap::default().read(pages, &mut words);
    let (mut remote, mut count) = ([libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; BATCH], 0);
    for ((&page, &now), &word) in pages.iter().zip(status).zip(&words) {
        if now == -libc::ENOENT
            && pagemap::present(word)
            && let Some(next) = remote.get_mut(count)
        {
            *next = libc::iovec { iov_base: page as *mut c_void, iov_len: 1 };
            count += 1;
        }
    }
    let mut bytes = [0_u8; BATCH];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: count };
    let _errno = errno::Saved::now();
    // SAFETY: `bytes` holds a byte for each of the `count` pages; the kernel checks that these may be read.
    count > 0
        && unsafe {
            libc::process_vm_readv(libc::getpid(), &raw const local, 1, remote.as_ptr(), count as libc::c_ulong, 0) > 0
        }
}

/// The indices of `pages`, consecutive and at most [`BATCH`], from the first to the last that is in memory, hidden ones
/// among them; all where the kernel does not say. For a page that is not, mincore(2) takes a small part of the time of
/// move_pages(2).
fn in_memory(pages: &[usize]) -> Range<usize> {
    let (mut there, _errno) = ([0_u8; BATCH], errno::Saved::now());
    let (Some(&first), Some(there)) = (pages.first(), there.get_mut(..pages.len())) else { return 0..pages.len() };
    // SAFETY: the array has a byte for each page; mincore(2) accesses no other memory of the process.
    if unsafe { libc::syscall(libc::SYS_mincore, first, pages.len() * PAGE, there.as_mut_ptr()) } != 0 {
        return 0..pages.len();
    }
    let is_there = |byte: &u8| byte & 1 != 0;
    let begin = there.iter().position(is_there).unwrap_or(0);
    begin..there.iter().rposition(is_there).map_or(begin, |last| last + 1)
}

/// Calls `visit` with the pages of `[start, end)` and their nodes (negative: no page), never across a 2 MiB boundary.
/// `read_hidden`: also finds pages that automatic NUMA balancing made inaccessible, by reading them.
pub fn for_each_batch(start: usize, end: usize, read_hidden: bool, mut visit: impl FnMut(&[usize], &[c_int])) {
    let mut pages = [0_usize; BATCH];
    let mut status = [0 as c_int; BATCH];
    let mut at = start;
    while at < end {
        let stop = (at + 1).next_multiple_of(HUGE_PAGE as usize).min(end);
        let count = (stop - at) / PAGE;
        for (i, page) in pages.iter_mut().take(count).enumerate() {
            *page = at + i * PAGE;
        }
        let (pages, status) = (&pages[..count.min(BATCH)], &mut status[..count.min(BATCH)]);
        let nodes_of = if read_hidden { page_nodes } else { pages::page_nodes };
        status.fill(-libc::ENOENT);
        let there = in_memory(pages);
        if nodes_of(&pages[there.clone()], &mut status[there.clone()]).is_err() {
            status[there].fill(-libc::ENOENT);
        }
        visit(pages, status);
        at = stop;
        own_stack::breathe();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numamma_kernel::mappings;

    #[test]
    fn nodes_are_asked_for_from_the_first_page_in_memory_to_the_last() {
        let base = mappings::map_aligned(16 * PAGE, PAGE).unwrap();
        let pages: Vec<usize> = (0..16).map(|page| base + page * PAGE).collect();
        assert!(in_memory(&pages).is_empty());
        for page in [3, 7, 11] {
            // SAFETY: the test made this writable mapping.
            unsafe { (pages[page] as *mut u8).write(1) };
        }
        assert_eq!(in_memory(&pages), 3..12);
        let mut found = Vec::new();
        for_each_batch(base, base + 16 * PAGE, true, |_, status| found.extend(status.iter().map(|node| *node >= 0)));
        let wanted: Vec<bool> = (0..16).map(|page| [3, 7, 11].contains(&page)).collect();
        assert_eq!(found, wanted);
        // SAFETY: the test made this mapping, and nothing uses it any more.
        unsafe { libc::munmap(pages[8] as *mut c_void, 4 * PAGE) };
        assert_eq!(in_memory(&pages), 0..16, "where part of it is not mapped the kernel does not say");
    }

    #[test]
    fn only_pages_that_exist_are_brought_back() {
        let base = mappings::map_aligned(4 * PAGE, PAGE).unwrap();
        let pages: Vec<usize> = (0..4).map(|page| base + page * PAGE).collect();
        // SAFETY: the test made this writable mapping.
        unsafe { (pages[1] as *mut u8).write(1) };
        let gone = -libc::ENOENT;
        assert!(make_accessible(&pages, &[gone; 4]), "as if the second page were hidden");
        assert!(!make_accessible(&pages, &[gone, 0, gone, gone]), "the others are not there");
        let mut status = [0; 4];
        page_nodes(&pages, &mut status).unwrap();
        assert_eq!(status.map(|s| s >= 0), [false, true, false, false], "and were not made");
    }
}
