//! Finds why a page is not on its planned node, as far as the kernel shows it to an unprivileged process.
//!
//! /proc/self/pagemap (Documentation/admin-guide/mm/pagemap.rst) has a word per page: bit 56 exclusively mapped (since
//! 4.2), 61 a file or shared, 62 swapped, 63 present. Only root may ask which pages are parts of huge ones, so that is
//! concluded from /proc/self/smaps. A file that cannot be read yields fewer reasons. No file is read before a page is
//! off plan, except /proc/zoneinfo at the start of a program that is checked: a node may be full when a page is
//! allocated and have free memory when the page is checked, which the kernel's counts of refused allocations show.

use core::ffi::c_int;
use std::sync::OnceLock;

use numamma_kernel::pagemap::{EXCLUSIVE, FILE, PRESENT, Pagemap};
use numamma_kernel::pages::BATCH;
use numamma_kernel::smaps;
use numamma_kernel::zoneinfo::{self, NodeMemory};
use numamma_plan::plan::{HUGE_PAGE, Layout};
use numamma_plan::reason::Reason;

/// Counts by reason.
pub type Tally = [u64; Reason::ALL.len()];

/// Finds the reasons for one object; reads each file at most once.
#[derive(Default)]
pub struct Reasons {
    pagemap: Pagemap,
    huge: Option<Vec<smaps::Backing>>,
    full: Option<Vec<u32>>,
}

/// Memory of the nodes when the program started.
static AT_START: OnceLock<Vec<NodeMemory>> = OnceLock::new();

/// Reads what later checks compare with. Called once, before `main`.
pub fn start() {
    AT_START.get_or_init(zoneinfo::nodes);
}

/// Nodes that are full now, or refused an allocation since the program started.
fn full_nodes() -> Vec<u32> {
    full_since(AT_START.get().map_or(&[], Vec::as_slice), &zoneinfo::nodes())
}

fn full_since(start: &[NodeMemory], now: &[NodeMemory]) -> Vec<u32> {
    let refused = |n: &NodeMemory| start.iter().any(|before| before.node == n.node && before.foreign < n.foreign);
    now.iter().filter(|n| n.is_full() || refused(n)).map(|n| n.node).collect()
}

impl Reasons {
    /// The pagemap words of consecutive `pages`; zeroes if they cannot be read.
    pub fn words(&mut self, pages: &[usize], words: &mut [u64; BATCH]) {
        self.pagemap.read(pages, words);
    }

    /// Why a page is off plan. `word` is its pagemap word, `collapsed` the answer of [`Reasons::collapsed`] for its
    /// batch, `planned` are the nodes where it should be under `layout`.
    pub fn of(&mut self, word: u64, collapsed: bool, planned: &[u32], layout: Layout) -> Reason {
        if word & FILE != 0 {
            return Reason::File;
        }
        if word & PRESENT != 0 && word & EXCLUSIVE == 0 {
            return Reason::Shared;
        }
        if collapsed {
            return Reason::Collapsed;
        }
        let full = self.full.get_or_insert_with(full_nodes);
        match layout {
            _ if planned.is_empty() || !planned.iter().all(|node| full.contains(node)) => Reason::Moved,
            Layout::Strict => Reason::Full,
            _ => Reason::Spilled,
        }
    }

    /// Whether pages of one 2 MiB range, which are not all planned on one node, are parts of one huge page.
    pub fn collapsed(&mut self, pages: &[usize], status: &[c_int]) -> bool {
        let (Some(&first), Some(&node)) = (pages.first(), status.first()) else { return false };
        if node < 0 || status.iter().any(|&s| s != node) {
            return false;
        }
        let start = first & !(HUGE_PAGE as usize - 1);
        let end = start + HUGE_PAGE as usize;
        let huge = self.huge.get_or_insert_with(huge_mappings);
        huge.iter().any(|m| m.start <= start && end <= m.end)
    }
}

/// The mappings of this process with huge pages of its own.
fn huge_mappings() -> Vec<smaps::Backing> {
    let mut found = Vec::new();
    smaps::for_each_own(|m| {
        if m.huge_bytes > 0 {
            found.push(m);
        }
        true
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use numamma_kernel::sys::PAGE;

    #[test]
    fn pages_of_a_mapping_with_huge_pages_on_one_node_are_collapsed() {
        let (start, end) = (0x7f00_0000_0000, 0x7f00_0040_0000);
        let found = vec![smaps::Backing { start, end, page_bytes: PAGE, huge_bytes: HUGE_PAGE as usize }];
        let mut reasons = Reasons { huge: Some(found), ..Reasons::default() };
        let pages: Vec<usize> = (0..10).map(|i| 0x7f00_0020_0000 + i * PAGE).collect();
        assert!(reasons.collapsed(&pages, &[1; 10]) && !reasons.collapsed(&pages, &[-2; 10]));
        assert!(!reasons.collapsed(&pages, &[1, 1, 1, 1, 0, 1, 1, 1, 1, 1]), "a huge page is on one node");
        assert!(!reasons.collapsed(&[0x7f00_0050_0000], &[1]));
    }

    #[test]
    fn reasons_come_in_their_order() {
        let mut reasons = Reasons { full: Some(vec![1, 2]), ..Reasons::default() };
        let mut of = |word, collapsed, planned: &[u32]| reasons.of(word, collapsed, planned, Layout::Preferred);
        assert_eq!(of(PRESENT | FILE, true, &[1]), Reason::File);
        assert_eq!(of(PRESENT, true, &[1]), Reason::Shared);
        assert_eq!(of(PRESENT | EXCLUSIVE, true, &[1]), Reason::Collapsed);
        assert_eq!(of(PRESENT | EXCLUSIVE, false, &[2, 1]), Reason::Spilled);
        assert_eq!(of(0, false, &[1]), Reason::Spilled, "without a pagemap fewer reasons are known");
        assert_eq!(of(PRESENT | EXCLUSIVE, false, &[1, 3]), Reason::Moved);
        assert_eq!(reasons.of(PRESENT | EXCLUSIVE, false, &[1], Layout::Strict), Reason::Full, "nothing spills");
    }

    #[test]
    fn a_node_that_was_full_in_between_counts_as_full() {
        let memory = |node, free, foreign| NodeMemory { node, free, reserved: 100, foreign };
        let start = [memory(0, 1000, 5), memory(1, 1000, 5)];
        let now = [memory(0, 1000, 5), memory(1, 1000, 6), memory(2, 150, 0), memory(3, 1000, 7)];
        assert_eq!(full_since(&start, &now), [1, 2], "node 3 is new, so nothing is known of it");
        assert_eq!(full_since(&[], &now), [2]);
    }
}
