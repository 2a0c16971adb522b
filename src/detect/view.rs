//! From the folded profile to what the detectors see.

use std::collections::HashMap;

use crate::profile::model::ThreadId;
use crate::profile::summary::{Entry, Summary};

use super::limits::HOT_SHARE;
use super::{ObjectView, PageAccess};

/// Share of the run's cost of every entry, in the order of `summary.entries`. When no sample carries a cost
/// (imported profiles), accesses stand in for it.
pub fn cost_shares(summary: &Summary) -> Vec<f64> {
    let costs: Vec<u64> = summary.entries.iter().map(|e| e.total.cost_ns).collect();
    let weights =
        if costs.iter().any(|c| *c > 0) { costs } else { summary.entries.iter().map(|e| e.total.accesses()).collect() };
    let total: u64 = weights.iter().sum();
    weights.into_iter().map(|w| if total == 0 { 0.0 } else { w as f64 / total as f64 }).collect()
}

/// The thread ranks of a profile: threads of the process that was sampled most, in creation order. Threads
/// of other processes follow, so that every thread has a rank.
pub fn thread_ranks(summary: &Summary) -> HashMap<ThreadId, u32> {
    let mut by_process: HashMap<u32, u64> = HashMap::new();
    for t in &summary.threads {
        *by_process.entry(t.pid).or_default() += t.samples;
    }
    let main = by_process.into_iter().max_by_key(|(pid, n)| (*n, std::cmp::Reverse(*pid))).map(|(pid, _)| pid);
    let mut order: Vec<(bool, ThreadId)> = summary
        .threads
        .iter()
        .filter(|t| t.samples > 0 || Some(t.pid) == main)
        .map(|t| (Some(t.pid) != main, t.id))
        .collect();
    order.sort_unstable();
    order.into_iter().enumerate().map(|(rank, (_, id))| (id, rank as u32)).collect()
}

/// One entry as the detectors see it.
pub fn view_of(entry: &Entry, summary: &Summary) -> ObjectView {
    let index = summary.entries.iter().position(|e| e.id == entry.id);
    let share = index.and_then(|i| cost_shares(summary).get(i).copied()).unwrap_or(0.0);
    view_with(entry, summary, &thread_ranks(summary), share)
}

/// [`view_of`] when ranks and share are known. A cold entry keeps no accesses: nothing looks at them.
pub(crate) fn view_with(entry: &Entry, summary: &Summary, ranks: &HashMap<ThreadId, u32>, share: f64) -> ObjectView {
    let page_size = summary.header.page_size.max(1);
    let cells = if share < HOT_SHARE { &[] } else { entry.cells.as_slice() };
    let accesses: Vec<PageAccess> = cells
        .iter()
        .filter_map(|c| {
            Some(PageAccess {
                instance: c.instance,
                page: c.page,
                thread: *ranks.get(&c.thread)?,
                slot: c.slot,
                weight: c.counters.accesses() as f64,
            })
        })
        .collect();
    ObjectView {
        size: entry.size,
        skew: entry.seen.first().map_or(entry.vaddr, |i| i.base) % page_size,
        page_size,
        threads: ranks.len() as u32,
        instances: u32::try_from(entry.instances).unwrap_or(u32::MAX),
        cost_share: share,
        accesses,
    }
}
