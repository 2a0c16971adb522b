//! Where pages are, against where the plan wants them.
//!
//! Interleaved pages are judged by the kernel's own formula (mm/mempolicy.c): node number
//! `(offset in mapping + mapping's page offset) mod M` in units of the page the kernel allocated, 4 KiB or
//! 2 MiB. For anonymous memory the page offset is the address, for `.data` it is the file offset. Kernels before
//! 6.7 cut the sum to 32 bits, which matters when M is no power of two.

use core::ffi::c_int;

use numamma_hook::sys::PAGE;
use numamma_plan::plan::{HUGE_PAGE, Layout, PagePlan};

use crate::kernel::{self, BATCH};
use crate::place::{self, Part};
use crate::state::{Counters, add};

/// 2 MiB pages in units of 4 KiB, as a shift.
pub const HUGE_SHIFT: u32 = 9;

/// What a check found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Pages that exist.
    pub present: u64,
    /// Of these, where the plan wants them.
    pub on_plan: u64,
}

/// Checks `part` of the object at `base` and adds to `counters`. When pages may still be `waiting` to be moved, those that
/// are not on plan count as such.
pub fn examine(plan: &PagePlan<'_>, base: usize, part: Part, node: u32, waiting: bool, counters: &Counters) {
    if plan.layout == Layout::Default || part.pages == 0 {
        return;
    }
    let found = count(plan, base, part, node);
    add(&counters.planned, part.pages);
    add(&counters.present, found.present);
    add(&counters.on_plan, found.on_plan);
    let off = if waiting { &counters.waiting } else { &counters.off_plan };
    add(off, found.present - found.on_plan);
}

fn count(plan: &PagePlan<'_>, base: usize, part: Part, node: u32) -> Found {
    let start = base + part.first as usize * PAGE;
    let end = start + part.pages as usize * PAGE;
    let turns = matches!(plan.layout, Layout::Interleave | Layout::Weighted);
    let mappings = if turns && plan.nodes.len() > 1 { Mapping::read() } else { Vec::new() };
    let sorted = turn_order(plan);
    // One kernel uses one width: an object is judged by whichever fits all of it better.
    let (mut found, mut narrow) = (Found::default(), 0);
    for_each_batch(start, end, |pages, status| {
        let on = |address: usize, node_now: u32| match plan.layout {
            Layout::Default => true,
            Layout::Bind | Layout::Preferred => plan.nodes.contains(&node_now),
            Layout::Local => node == node_now,
            Layout::Blocks(..) => {
                let page = ((address - base) / PAGE) as u64;
                plan.block_node(page).and_then(|i| plan.nodes.get(i as usize)) == Some(&node_now)
            }
            Layout::Interleave | Layout::Weighted => {
                expected(&mappings, &sorted, address, 0, Width::Bits64) == Some(node_now)
            }
        };
        let whole_huge = |width| turns && is_whole_huge(pages, status, &mappings, &sorted, width);
        let (wide_huge, narrow_huge) = (whole_huge(Width::Bits64), whole_huge(Width::Bits32));
        for (&address, &node_now) in pages.iter().zip(status.iter()) {
            if let Ok(node_now) = u32::try_from(node_now) {
                let in_narrow = || expected(&mappings, &sorted, address, 0, Width::Bits32) == Some(node_now);
                found.present += 1;
                found.on_plan += u64::from(wide_huge || on(address, node_now));
                narrow += u64::from(turns && (narrow_huge || in_narrow()));
            }
        }
    });
    found.on_plan = found.on_plan.max(narrow);
    found
}

/// Bits of the page number that the kernel takes modulo the number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Before Linux 6.7 (`offset_il_node` casts to unsigned int).
    Bits32,
    /// Since 6.7 (`interleave_nid` takes a pgoff_t).
    Bits64,
}

impl Width {
    /// That of the running kernel, by its release; the newer one when that cannot be read.
    pub fn of_this_kernel() -> Width {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
        match (numbers.next(), numbers.next()) {
            (Some(major), Some(minor)) if (1..=6).contains(&major) && (major, minor) < (6, 7) => Width::Bits32,
            _ => Width::Bits64,
        }
    }
}

/// Whether the batch is one huge page, all of it on the node that interleaving by 2 MiB gives.
fn is_whole_huge(pages: &[usize], status: &[c_int], mappings: &[Mapping], nodes: &[u32], width: Width) -> bool {
    let Some(&first) = pages.first() else { return false };
    pages.len() == BATCH
        && (first as u64).is_multiple_of(HUGE_PAGE)
        && expected(mappings, nodes, first, HUGE_SHIFT, width)
            .is_some_and(|node| status.iter().all(|&s| u32::try_from(s) == Ok(node)))
}

/// Calls `visit` with the pages of `[start, end)` and their nodes (negative: not there), never across a
/// 2 MiB boundary.
fn for_each_batch(start: usize, end: usize, mut visit: impl FnMut(&[usize], &[c_int])) {
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
        if kernel::page_nodes(pages, status).is_err() {
            status.fill(-libc::ENOENT);
        }
        visit(pages, status);
        at = stop;
    }
}

/// Moves resident pages of an interleaved range to where a fresh fault would have put them.
pub fn settle_interleave(plan: &PagePlan<'_>, start: usize, len: usize) {
    if plan.nodes.len() < 2 {
        return;
    }
    let mappings = Mapping::read();
    let sorted = turn_order(plan);
    let width = Width::of_this_kernel();
    for_each_batch(start, start + len, |pages, status| {
        let mut wrong = [0_usize; BATCH];
        let mut target = [0 as c_int; BATCH];
        let mut count = 0;
        for (&page, &now) in pages.iter().zip(status) {
            if let (true, Some(node)) = (now >= 0, expected(&mappings, &sorted, page, 0, width))
                && node as c_int != now
            {
                wrong[count] = page;
                target[count] = node as c_int;
                count += 1;
            }
        }
        if count > 0 {
            kernel::move_to(&wrong[..count], &target[..count]);
        }
    });
}

/// Node of each page of one turn. Node lists are masks to the kernel: their order is ascending. With weights a node has
/// as many pages in a row as its weight (`weighted_interleave_nid` of mm/mempolicy.c).
pub fn turn_order(plan: &PagePlan<'_>) -> Vec<u32> {
    let mut sorted = plan.nodes.to_vec();
    sorted.sort_unstable();
    if place::weighted(plan.layout) {
        sorted = sorted.iter().flat_map(|&node| core::iter::repeat_n(node, weight(node))).collect();
    }
    sorted
}

/// The system's weight of a node; 1 when none is set, as in the kernel.
fn weight(node: u32) -> usize {
    let path = format!("/sys/kernel/mm/mempolicy/weighted_interleave/node{node}");
    std::fs::read_to_string(path).ok().and_then(|t| t.trim().parse().ok()).filter(|w| *w > 0).unwrap_or(1)
}

/// Node that interleaving gives the page of `4 KiB << order` at `address`.
pub fn expected(mappings: &[Mapping], nodes: &[u32], address: usize, order: u32, width: Width) -> Option<u32> {
    let offset = match mappings.iter().find(|m| (m.start..m.end).contains(&address)) {
        Some(m) => (m.page_offset >> order) + (((address - m.start) / PAGE) >> order),
        None => (address / PAGE) >> order,
    };
    let offset = if width == Width::Bits32 { offset as u32 as usize } else { offset };
    nodes.get(offset % nodes.len().max(1)).copied()
}

/// A line of /proc/self/maps.
pub struct Mapping {
    start: usize,
    end: usize,
    /// `vm_pgoff`: pages into the file; for anonymous memory its address in pages.
    page_offset: usize,
}

impl Mapping {
    pub fn read() -> Vec<Mapping> {
        let text = std::fs::read("/proc/self/maps").unwrap_or_default();
        text.split(|&b| b == b'\n').filter_map(|line| Mapping::parse(core::str::from_utf8(line).ok()?)).collect()
    }

    /// `start-end perms offset dev inode path`
    fn parse(line: &str) -> Option<Mapping> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |text: &str| usize::from_str_radix(text, 16).ok();
        let (start, end) = (hex(start)?, hex(end)?);
        let offset = hex(words.nth(1)?)?;
        let anonymous = words.nth(1)? == "0";
        Some(Mapping { start, end, page_offset: if anonymous { start / PAGE } else { offset / PAGE } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numamma_plan::policy::Huge;

    #[test]
    fn lines_of_maps() {
        let file = Mapping::parse("55a0c000-55a0d000 rw-p 00003000 fe:01 1234   /bin/x y").unwrap();
        assert_eq!((file.start, file.end, file.page_offset), (0x55a0c000, 0x55a0d000, 3));
        let heap = Mapping::parse("55a0d000-55a2e000 rw-p 00000000 00:00 0      [heap]").unwrap();
        assert_eq!(heap.page_offset, 0x55a0d);
    }

    #[test]
    fn interleaving_follows_the_kernels_formula() {
        let maps = [Mapping { start: 0x10_0000, end: 0x80_0000, page_offset: 0x100 }];
        let nodes = [0, 1, 2];
        assert_eq!(expected(&maps, &nodes, 0x10_1000, 0, Width::Bits64), Some(257 % 3));
        // An unaligned mapping: the first whole huge page is number 0, not 1.
        assert_eq!(expected(&maps, &nodes, 0x20_0000, HUGE_SHIFT, Width::Bits64), Some(0));
        assert_eq!(expected(&[], &nodes, 0x20_0000, HUGE_SHIFT, Width::Bits64), Some(1));
        // Seen on Linux 6.1: the page number 0x7faab056f counts as 0xfaab056f.
        assert_eq!(expected(&[], &nodes, 0x7faa_b056_f000, 0, Width::Bits32), Some(0));
        assert_eq!(expected(&[], &nodes, 0x7faa_b056_f000, 0, Width::Bits64), Some(1));
    }

    #[test]
    fn touched_pages_are_present_and_on_node_0_here() {
        let len = 64 * PAGE;
        let base = kernel::map_aligned(len, PAGE).unwrap();
        for page in 0..10 {
            // SAFETY: the mapping is ours and writable.
            unsafe { ((base + page * PAGE) as *mut u8).write(1) };
        }
        let plan = PagePlan { pages: 64, nodes: vec![0].into(), layout: Layout::Bind, huge: Huge::Keep };
        let counters = Counters::default();
        examine(&plan, base, Part { first: 0, pages: 64 }, 0, false, &counters);
        let read = |c: &core::sync::atomic::AtomicU64| c.load(core::sync::atomic::Ordering::Relaxed);
        assert_eq!((read(&counters.planned), read(&counters.present), read(&counters.off_plan)), (64, 10, 0));
        let nowhere = PagePlan { nodes: vec![7].into(), ..plan };
        assert_eq!(count(&nowhere, base, Part { first: 0, pages: 64 }, 0), Found { present: 10, on_plan: 0 });
    }
}
