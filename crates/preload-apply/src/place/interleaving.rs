//! Reads what decides where the kernel puts interleaved pages of this process: its mappings, the weights, and the
//! version of the kernel.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::fs;

use numamma_kernel::maps::{self, Mapping};
use numamma_kernel::sys::PAGE;
use numamma_plan::home_node::{Interleaving, Span, Width, round};
use numamma_plan::plan::{Layout, PagePlan};

/// Set when the kernel refused weighted interleaving: weights count as 1 from then on.
static UNWEIGHTED: AtomicBool = AtomicBool::new(false);

/// Whether the system's weights are used.
pub fn weights_count() -> bool {
    !UNWEIGHTED.load(Ordering::Relaxed)
}

/// Stores that the kernel refused weighted interleaving; true the first time.
pub fn ignore_weights() -> bool {
    !UNWEIGHTED.swap(true, Ordering::Relaxed)
}

/// Pages after which the nodes of an interleaved object repeat.
pub fn round_pages(plan: &PagePlan<'_>) -> usize {
    let weighted = plan.layout == Layout::Weighted && weights_count();
    plan.nodes.iter().map(|&node| if weighted { weight(node) } else { 1 }).sum::<usize>().max(1)
}

/// What decides the node of an interleaved page of `plan`; empty for other layouts.
pub fn of(plan: &PagePlan<'_>) -> Interleaving {
    if !plan.interleaves() {
        return Interleaving { spans: Vec::new(), round: Vec::new(), width: Width::Bits64 };
    }
    let weighted = plan.layout == Layout::Weighted && weights_count();
    let spans = if plan.nodes.len() > 1 { own_spans() } else { Vec::new() };
    let round = round(&plan.nodes, |node| if weighted { weight(node) } else { 1 });
    Interleaving { spans, round, width: Width::of_release(&release()) }
}

/// Version of the running kernel, by uname(2).
fn release() -> String {
    // SAFETY: zeroes are a value of the plain structure.
    let mut names: libc::utsname = unsafe { core::mem::zeroed() };
    // SAFETY: the structure is writable.
    unsafe { libc::uname(&raw mut names) };
    names.release.iter().take_while(|&&c| c != 0).map(|&c| char::from(c as u8)).collect()
}

/// Nodes whose weights are remembered: all that the kernel can have.
const MOST_NODES: usize = 1024;
/// The weights that were read; 0 before. A file that is opened while other threads open and close some gets the
/// descriptor of one of theirs, so each is read once.
static WEIGHTS: [AtomicU32; MOST_NODES] = [const { AtomicU32::new(0) }; MOST_NODES];

/// The system's weight of a node; 1 when none is set, as in the kernel.
fn weight(node: u32) -> usize {
    let known = WEIGHTS.get(node as usize);
    match known.map_or(0, |known| known.load(Ordering::Relaxed)) {
        0 => {
            let path = format!("/sys/kernel/mm/mempolicy/weighted_interleave/node{node}");
            let found = fs::read_to_string(path).ok().and_then(|t| t.trim().parse().ok()).filter(|w| *w > 0);
            let weight = found.unwrap_or(1);
            known.inspect(|known| known.store(weight, Ordering::Relaxed));
            weight as usize
        }
        weight => weight as usize,
    }
}

fn own_spans() -> Vec<Span> {
    let mut spans = Vec::new();
    maps::for_each_own(|m| spans.push(span(&m)));
    spans
}

fn span(m: &Mapping<'_>) -> Span {
    let page_offset = if m.inode == 0 { m.start } else { m.offset } / PAGE;
    Span { start: m.start, end: m.end, page_offset, bias: if m.shared { m.inode } else { 0 } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_count_from_their_file_or_address() {
        let of = |line: &str| span(&maps::parse_line(line).unwrap());
        let file = of("55a0c000-55a0d000 rw-p 00003000 fe:01 1234   /bin/x y");
        assert_eq!((file.start, file.end, file.page_offset), (0x55a0c000, 0x55a0d000, 3));
        let heap = of("55a0d000-55a2e000 rw-p 00000000 00:00 0      [heap]");
        assert_eq!(heap.page_offset, 0x55a0d);
        let shm = of("7f00-9f00 rw-s 00002000 00:01 77   /dev/shm/a b");
        assert_eq!((file.bias, heap.bias, shm.bias, shm.page_offset), (0, 0, 77, 2));
    }
}
