//! The node of each page, queried from the kernel in batches.

use numamma_kernel::pages;
use rustc_hash::FxHashMap;

use crate::profile::PAGE;
use crate::profile::records::{Access, NODE_UNKNOWN};
use crate::topology::Topology;

/// Nanoseconds for which an answer is reused: pages move seldom (numa_balancing scans once a second at most).
const FRESH_NS: u64 = 1_000_000_000;
/// Pages per move_pages call.
const BATCH: usize = 4096;
/// Answers kept; the table is cleared when it holds more.
const MAX_PAGES: usize = 1 << 20;

/// Answers so far.
#[derive(Debug, Default)]
pub struct Nodes {
    known: FxHashMap<(u32, u64), (u8, u64)>,
    /// The node of a machine that has only one: then the kernel is not asked.
    only: Option<u8>,
    refused: bool,
}

impl Nodes {
    /// For this machine.
    pub fn new(topology: &Topology) -> Nodes {
        let only = match topology.nodes.as_slice() {
            [node] => u8::try_from(node.id).ok(),
            _ => None,
        };
        Nodes { only, ..Nodes::default() }
    }

    /// Fills in the node of each access; `places` has the process of each, and the address there.
    pub fn fill(&mut self, accesses: &mut [Access], places: &[(u32, u64)], now_ns: u64) {
        if let Some(only) = self.only {
            accesses.iter_mut().for_each(|a| a.node = only);
            return;
        }
        let mut ask: FxHashMap<u32, Vec<u64>> = FxHashMap::default();
        for (pid, page) in places.iter().map(|&(pid, addr)| (pid, addr / PAGE)) {
            let stale = self.known.get(&(pid, page)).is_none_or(|(_, at)| now_ns.saturating_sub(*at) > FRESH_NS);
            if stale {
                ask.entry(pid).or_default().push(page);
            }
        }
        if self.known.len() > MAX_PAGES {
            self.known.clear();
        }
        for (pid, mut pages) in ask {
            pages.sort_unstable();
            pages.dedup();
            pages.chunks(BATCH).for_each(|batch| self.ask(pid, batch, now_ns));
        }
        for (access, &(pid, addr)) in accesses.iter_mut().zip(places) {
            let page = addr / PAGE;
            access.node = self.known.get(&(pid, page)).map_or(NODE_UNKNOWN, |(node, _)| *node);
        }
    }

    /// Drops the answers so far.
    pub fn forget(&mut self) {
        self.known = FxHashMap::default();
    }

    fn ask(&mut self, pid: u32, pages: &[u64], now_ns: u64) {
        let addresses: Vec<u64> = pages.iter().map(|p| p * PAGE).collect();
        let Some(status) = self.query(pid, &addresses) else { return };
        for (&page, &node) in pages.iter().zip(&status) {
            // Negative: the page is not present any more.
            let node = u8::try_from(node).unwrap_or(NODE_UNKNOWN);
            self.known.insert((pid, page), (node, now_ns));
        }
    }

    /// Whether all these pages are present; false when the kernel does not answer.
    pub fn all_present(&mut self, pid: u32, addresses: &[u64]) -> bool {
        self.query(pid, addresses).is_some_and(|status| status.iter().all(|node| *node >= 0))
    }

    /// Node of each page, negative when it is not present.
    fn query(&mut self, pid: u32, addresses: &[u64]) -> Option<Vec<i32>> {
        if self.refused {
            return None;
        }
        let addresses: Vec<usize> = addresses.iter().map(|a| *a as usize).collect();
        let mut status = vec![-1; addresses.len()];
        if let Err(error) = pages::page_nodes_of(pid, &addresses, &mut status) {
            // An error about a process that ended does not concern the others.
            self.refused = matches!(error, libc::EPERM | libc::ENOSYS | libc::EACCES);
            return None;
        }
        Some(status)
    }
}
