//! Where pages are, against where the plan wants them.
//!
//! Interleaved pages are judged by the kernel's own formula (mm/mempolicy.c): node number
//! `(offset in mapping + mapping's page offset) mod M` in units of the page the kernel allocated, 4 KiB or
//! 2 MiB. For anonymous memory the page offset is the address, for `.data` it is the file offset; shared memory adds its
//! inode number (mm/shmem.c, to spread small files), hugetlb pages count in their own size. Kernels before 6.7 cut the sum to 32 bits, which matters when M is no power of two.

use core::ffi::c_int;
use numamma_kernel::pages::BATCH;
use numamma_kernel::{maps, pagemap, pages};

use numamma_kernel::sys::PAGE;
use numamma_plan::plan::{HUGE_PAGE, Layout, PagePlan};

use crate::hidden;
use crate::place::{self, Part};
use crate::reasons::{Reasons, Tally};
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
    /// Why the others are elsewhere.
    pub reasons: Tally,
    /// Pages that do not exist because they were swapped out.
    pub swapped: u64,
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
    add(&counters.swapped, found.swapped);
    let elsewhere = found.present - found.on_plan;
    if waiting {
        add(&counters.waiting, elsewhere);
    } else {
        add(&counters.off_plan, elsewhere);
        counters.reasons.iter().zip(found.reasons).for_each(|(counter, pages)| add(counter, pages));
    }
}

/// One object being checked.
struct Checked<'a> {
    plan: &'a PagePlan<'a>,
    base: usize,
    /// Node of a `local` object.
    node: u32,
    mappings: Vec<Mapping>,
    /// Nodes of one turn of interleaving.
    turn: Vec<u32>,
}

impl Checked<'_> {
    fn takes_turns(&self) -> bool {
        matches!(self.plan.layout, Layout::Interleave | Layout::Weighted)
    }

    /// The nodes that a page may be on; `alone` is where a single one is kept.
    fn planned<'s>(&'s self, address: usize, width: Width, alone: &'s mut [u32; 1]) -> &'s [u32] {
        let single = match self.plan.layout {
            Layout::Default => None,
            Layout::Bind | Layout::Preferred => return &self.plan.nodes,
            Layout::Local => Some(self.node),
            Layout::Blocks(..) => {
                let page = ((address - self.base) / PAGE) as u64;
                self.plan.block_node(page).and_then(|i| self.plan.nodes.get(i as usize)).copied()
            }
            Layout::Interleave | Layout::Weighted => expected(&self.mappings, &self.turn, address, 0, width),
        };
        let Some(single) = single else { return &[] };
        *alone = [single];
        alone
    }

    /// Adds a batch of pages to `found`, judged by the formula of `width`.
    fn judge(&self, batch: &Batch<'_>, width: Width, reasons: &mut Reasons, found: &mut Found) {
        let present = batch.status.iter().filter(|s| **s >= 0).count() as u64;
        found.present += present;
        if self.takes_turns() && is_whole_huge(batch.pages, batch.status, &self.mappings, &self.turn, width) {
            found.on_plan += present;
            return;
        }
        let mut alone = [0];
        let mut first_off = None;
        for (i, (&address, &status)) in batch.pages.iter().zip(batch.status).enumerate() {
            let Ok(now) = u32::try_from(status) else { continue };
            if self.planned(address, width, &mut alone).contains(&now) {
                found.on_plan += 1;
            } else if first_off.is_none() {
                first_off = Some(i);
            }
        }
        if let Some(first) = first_off {
            self.explain(batch, first, width, reasons, &mut found.reasons);
        }
    }

    /// Adds the reasons of a batch whose first page off plan is `first`.
    #[cold]
    fn explain(&self, batch: &Batch<'_>, first: usize, width: Width, reasons: &mut Reasons, tally: &mut Tally) {
        let (mut one, mut other) = ([0], [0]);
        let clipped = batch.pages.len() < BATCH;
        let begin = batch.pages.first().map_or(&[][..], |&p| self.planned(p, width, &mut one));
        let mixed = clipped || batch.pages.iter().any(|&p| self.planned(p, width, &mut other) != begin);
        let gathered = mixed && reasons.gathered(batch.pages, batch.status);
        let mut words = [0; BATCH];
        reasons.words(batch.pages, &mut words);
        for ((&address, &status), &word) in batch.pages.iter().zip(batch.status).zip(&words).skip(first) {
            let planned = self.planned(address, width, &mut other);
            if u32::try_from(status).is_ok_and(|now| !planned.contains(&now)) {
                tally[reasons.of(word, gathered, planned) as usize] += 1;
            }
        }
    }
}

/// Pages that lie together in 2 MiB, with their nodes (negative: not there).
struct Batch<'a> {
    pages: &'a [usize],
    status: &'a [c_int],
}

fn count(plan: &PagePlan<'_>, base: usize, part: Part, node: u32) -> Found {
    let start = base + part.first as usize * PAGE;
    let end = start + part.pages as usize * PAGE;
    let turns = matches!(plan.layout, Layout::Interleave | Layout::Weighted) && plan.nodes.len() > 1;
    let mappings = if turns { Mapping::read() } else { Vec::new() };
    let checked = Checked { plan, base, node, mappings, turn: turn_order(plan) };
    // One kernel uses one width: an object is judged by whichever fits all of it better.
    let (mut wide, mut narrow) = (Found::default(), Found::default());
    let mut reasons = Reasons::default();
    // Memory without a policy could be moved by being touched.
    for_each_batch(start, end, !plan.populates(), |pages, status| {
        let batch = Batch { pages, status };
        checked.judge(&batch, Width::Bits64, &mut reasons, &mut wide);
        if turns {
            checked.judge(&batch, Width::Bits32, &mut reasons, &mut narrow);
        }
        if status.iter().any(|s| *s < 0) {
            let mut words = [0; BATCH];
            reasons.words(pages, &mut words);
            let away = words.iter().zip(status).filter(|(word, now)| **now < 0 && pagemap::swapped(**word));
            wide.swapped += away.count() as u64;
        }
    });
    if narrow.on_plan > wide.on_plan { Found { swapped: wide.swapped, ..narrow } } else { wide }
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
/// `wake`: also of those that are hidden.
fn for_each_batch(start: usize, end: usize, wake: bool, mut visit: impl FnMut(&[usize], &[c_int])) {
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
        let nodes_of = if wake { hidden::page_nodes } else { pages::page_nodes };
        if nodes_of(pages, status).is_err() {
            status.fill(-libc::ENOENT);
        }
        visit(pages, status);
        at = stop;
    }
}

/// Moves resident pages of a block distribution to their nodes.
pub fn settle_blocks(plan: &PagePlan<'_>, base: usize, start: usize, len: usize) {
    settle(start, len, |page| {
        plan.block_node(((page - base) / PAGE) as u64).and_then(|i| plan.nodes.get(i as usize)).copied()
    });
}

/// Moves resident pages of an interleaved range to where a fresh fault would have put them.
pub fn settle_interleave(plan: &PagePlan<'_>, start: usize, len: usize) {
    if plan.nodes.len() < 2 {
        return;
    }
    let mappings = Mapping::read();
    let sorted = turn_order(plan);
    let width = Width::of_this_kernel();
    settle(start, len, |page| expected(&mappings, &sorted, page, 0, width));
}

/// Moves the resident pages of a range to the nodes that `wanted` gives them.
fn settle(start: usize, len: usize, wanted: impl Fn(usize) -> Option<u32>) {
    for_each_batch(start, start + len, true, |pages, status| {
        let mut wrong = [0_usize; BATCH];
        let mut target = [0 as c_int; BATCH];
        let mut count = 0;
        for (&page, &now) in pages.iter().zip(status) {
            if let (true, Some(node)) = (now >= 0, wanted(page))
                && node as c_int != now
            {
                wrong[count] = page;
                target[count] = node as c_int;
                count += 1;
            }
        }
        if count > 0 {
            pages::move_to(&wrong[..count], &target[..count]);
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
        Some(m) if order == 0 => (m.page_offset + (address - m.start) / PAGE).wrapping_add(m.bias),
        Some(m) => (m.page_offset >> order) + (((address - m.start) / PAGE) >> order),
        None => (address / PAGE) >> order,
    };
    let offset = if width == Width::Bits32 { offset as u32 as usize } else { offset };
    nodes.get(offset % nodes.len().max(1)).copied()
}

/// A mapping as interleaving counts its pages.
pub struct Mapping {
    start: usize,
    end: usize,
    /// `vm_pgoff`: pages into the file; for anonymous memory its address in pages.
    page_offset: usize,
    /// The inode number of shared memory, which counts in base pages; else 0.
    bias: usize,
}

impl Mapping {
    /// The mappings of this process.
    pub fn read() -> Vec<Mapping> {
        maps::parse(&maps::read_own()).map(|m| Mapping::from(&m)).collect()
    }
}

impl From<&maps::Mapping<'_>> for Mapping {
    fn from(m: &maps::Mapping<'_>) -> Mapping {
        let page_offset = if m.inode == 0 { m.start } else { m.offset } / PAGE;
        Mapping { start: m.start, end: m.end, page_offset, bias: if m.shared { m.inode } else { 0 } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numamma_kernel::mappings;
    use numamma_plan::policy::{Huge, Mode};

    #[test]
    fn mappings_count_from_their_file_or_address() {
        let of = |line: &str| Mapping::from(&maps::parse_line(line).unwrap());
        let file = of("55a0c000-55a0d000 rw-p 00003000 fe:01 1234   /bin/x y");
        assert_eq!((file.start, file.end, file.page_offset), (0x55a0c000, 0x55a0d000, 3));
        let heap = of("55a0d000-55a2e000 rw-p 00000000 00:00 0      [heap]");
        assert_eq!(heap.page_offset, 0x55a0d);
        let shm = of("7f00-9f00 rw-s 00002000 00:01 77   /dev/shm/a b");
        assert_eq!((file.bias, heap.bias, shm.bias, shm.page_offset), (0, 0, 77, 2));
    }

    #[test]
    fn interleaving_follows_the_kernels_formula() {
        let maps = [Mapping { start: 0x10_0000, end: 0x80_0000, page_offset: 0x100, bias: 0 }];
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
        let base = mappings::map_aligned(len, PAGE).unwrap();
        for page in 0..10 {
            // SAFETY: the mapping is ours and writable.
            unsafe { ((base + page * PAGE) as *mut u8).write(1) };
        }
        let (nodes, mode) = (vec![0].into(), Mode::Policy);
        let plan = PagePlan { pages: 64, nodes, layout: Layout::Bind, huge: Huge::Keep, mode };
        let counters = Counters::default();
        examine(&plan, base, Part { first: 0, pages: 64 }, 0, false, &counters);
        let read = |c: &core::sync::atomic::AtomicU64| c.load(core::sync::atomic::Ordering::Relaxed);
        assert_eq!((read(&counters.planned), read(&counters.present), read(&counters.off_plan)), (64, 10, 0));
        let nowhere = PagePlan { nodes: vec![7].into(), ..plan };
        let found = count(&nowhere, base, Part { first: 0, pages: 64 }, 0);
        assert_eq!((found.present, found.on_plan, found.swapped), (10, 0, 0));
        assert_eq!(found.reasons.iter().sum::<u64>(), 10, "{found:?}");
    }
}
