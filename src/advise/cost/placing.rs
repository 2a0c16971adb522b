//! What placing the allocations of a call site costs the program: time that first touch does not take.
//!
//! A placed allocation is a mapping of its own with a memory policy. The apply library keeps freed placements for the
//! next allocation of the same rule and size, so only as many allocations are mapped anew as are alive at a time, and
//! those whose size did not occur before. One that realloc makes larger or smaller gets a policy again each time.

use super::World;
use crate::profile::summary::Entry;

/// Mapping an allocation, giving it a policy and unmapping it, ns: what malloc and free of 8 KiB cost more under a rule
/// (11 and 15 us on two hosts, docs/measurements.md) without the faults of two pages.
const PLACE_NS: f64 = 10_000.0;
/// A page fault that a placed allocation has, and one that malloc serves again from its own memory does not have, ns:
/// 1 MiB mapped with a policy, touched or not, over its pages (docs/measurements.md). On a faster host 500 ns.
const FAULT_NS: f64 = 1_400.0;
/// malloc and free of a size that was freed before under the same rule, ns: the bar of docs/measurements.md.
const REUSED_NS: f64 = 200.0;

impl World<'_> {
    /// What a placement of the entry costs, wall ns; 0 for what is not allocated.
    pub fn placing_ns(&self, entry: &Entry) -> f64 {
        let Some(turnover) = self.summary.turnover(entry) else { return 0.0 };
        let all = turnover.allocations as f64;
        // Without a placement the first of these are mapped and touched anew, too.
        let held = turnover.alive.max(turnover.kept_share * all);
        let fresh = held.max(turnover.sizes_share * all).min(all);
        let pages = (turnover.mean_size / self.summary.header.page_size.max(1) as f64).max(1.0);
        // Mapping and unmapping hold a lock of the process, so the threads wait for each other.
        (fresh + all * turnover.resizes) * PLACE_NS
            + (fresh - held).max(0.0) * pages * FAULT_NS
            + (all - fresh) * REUSED_NS / turnover.threads as f64
    }

    /// Lifetime below which not even an instance that is always remote waits as long as placing it takes, ns. Infinite
    /// where all memory is equally near.
    pub fn pay_back_ns(&self, size: u64) -> f64 {
        let near = self.local_ns;
        let latency = |from: &usize| self.memory.iter().map(|to| self.model().latency[*from][*to]).fold(near, f64::max);
        let far = self.thread_nodes.iter().map(latency).fold(near, f64::max);
        let pages = size.div_ceil(self.summary.header.page_size.max(1)) as f64;
        let waits = 1.0 - near / far;
        if waits > 0.0 { (PLACE_NS + pages * FAULT_NS) / waits } else { f64::INFINITY }
    }
}
