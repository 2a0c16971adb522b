//! How the allocations of a call site come and go: how many, how long they live, and which thread uses them.
//!
//! The number of allocations is exact. All else is known of the sampled instances only. An instance is sampled with a
//! probability that grows with its lifetime, so the mean lifetime of all instances is the harmonic mean of the sampled
//! ones.

use super::types::{Entry, Summary};
use crate::profile::records::{Instance, ObjectKind};

/// The allocations of one call site.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turnover {
    /// Allocations in the run.
    pub allocations: u64,
    /// The same, a second of the run.
    pub per_second: f64,
    /// Time from the first to the last allocation, ns, where they are over before [`SPREAD`] of the run: a rate over
    /// the whole run would say that they go on.
    pub within_ns: Option<u64>,
    /// Median lifetime of the sampled instances, ns.
    pub median_ns: u64,
    /// Estimated allocations that are alive at a time; at least 1.
    pub alive: f64,
    /// Share of the sampled instances that the program did not free.
    pub kept_share: f64,
    /// Share of the sampled instances, but for one, whose size differs from that of every other.
    pub sizes_share: f64,
    /// Mean size of the sampled instances, bytes.
    pub mean_size: f64,
    /// Calls of realloc for each of the sampled instances.
    pub resizes: f64,
    /// Threads that allocate.
    pub threads: usize,
}

/// Part of the run that lies between the first and the last allocation from which allocating goes on during the run:
/// with less, most of the run is without.
const SPREAD: f64 = 0.5;

impl Turnover {
    /// `2000 allocations (400 a second)` or `2000 allocations (within 12 ms)`; without the rate where it is below one.
    pub fn count(&self) -> String {
        let rate = match self.within_ns {
            Some(ns) => format!(" (within {})", duration(ns)),
            None if self.per_second < 1.0 => String::new(),
            None => format!(" ({:.0} a second)", self.per_second),
        };
        format!("{} allocation{}{rate}", self.allocations, if self.allocations == 1 { "" } else { "s" })
    }
}

/// A time in words: `20 us`, `5.0 ms` or `1.5 s`.
pub fn duration(ns: u64) -> String {
    match ns as f64 {
        ns if ns < 1e6 => format!("{:.0} us", (ns / 1e3).max(1.0)),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

impl Summary {
    /// The turnover of an entry; `None` for what is not allocated, and for small objects, whose lifetimes are not
    /// recorded.
    pub fn turnover(&self, entry: &Entry) -> Option<Turnover> {
        if !matches!(entry.kind, ObjectKind::Heap | ObjectKind::Mapping) || entry.seen.is_empty() {
            return None;
        }
        let run_ns = self.duration_ns().max(1);
        let seen = entry.seen.len() as f64;
        let mut lives: Vec<u64> = entry.seen.iter().map(|i| lifetime_ns(i, run_ns)).collect();
        lives.sort_unstable();
        let mean_ns = seen / lives.iter().map(|life| 1.0 / *life as f64).sum::<f64>();
        let mut sizes: Vec<u64> = entry.seen.iter().map(|i| i.size.div_ceil(self.header.page_size.max(1))).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mut threads: Vec<_> = entry.seen.iter().filter_map(|i| i.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        let allocations = entry.instances.max(entry.seen.len() as u64);
        let births = || entry.seen.iter().map(|i| i.born_ns);
        let span_ns = births().max()? - births().min()?;
        let over = entry.seen.len() > 1 && (span_ns as f64) < SPREAD * run_ns as f64;
        Some(Turnover {
            allocations,
            per_second: allocations as f64 * 1e9 / run_ns as f64,
            within_ns: over.then_some(span_ns),
            median_ns: lives[lives.len() / 2],
            alive: (allocations as f64 * mean_ns / run_ns as f64).clamp(1.0, allocations as f64),
            kept_share: entry.seen.iter().filter(|i| i.died_ns.is_none()).count() as f64 / seen,
            sizes_share: (sizes.len() - 1) as f64 / (seen - 1.0).max(1.0),
            mean_size: entry.seen.iter().map(|i| i.size as f64).sum::<f64>() / seen,
            resizes: entry.details.resizes as f64 / seen,
            threads: threads.len().max(1),
        })
    }

    /// Share of the entry's accesses on known pages that were made by the thread that allocated the instance, to
    /// instances that were freed after less than `limit_ns`. 0 without accesses.
    pub fn own_freed_share(&self, entry: &Entry, limit_ns: f64) -> f64 {
        let is_brief = |i: &Instance| i.died_ns.is_some_and(|end| (end.saturating_sub(i.born_ns) as f64) < limit_ns);
        let (mut all, mut own) = (0, 0);
        for cell in &entry.cells {
            let Some(instance) = entry.seen.get(cell.instance as usize) else { continue };
            let accesses = cell.counters.accesses();
            all += accesses;
            if instance.thread == Some(cell.thread) && is_brief(instance) {
                own += accesses;
            }
        }
        super::types::ratio(own, all)
    }
}

impl Entry {
    /// Share of the pages with a known first touch that the thread touched that allocated the instance. 0 without.
    pub fn own_touches_share(&self) -> f64 {
        let (mut all, mut own) = (0, 0);
        for run in &self.touches {
            let allocated_by = self.seen.get(run.instance as usize).and_then(|i| i.thread);
            all += u64::from(run.pages);
            own += if allocated_by == Some(run.thread) { u64::from(run.pages) } else { 0 };
        }
        super::types::ratio(own, all)
    }
}

/// Time between the allocation and its end, or the end of the run; at least 1.
fn lifetime_ns(instance: &Instance, run_ns: u64) -> u64 {
    instance.died_ns.unwrap_or(run_ns.max(instance.born_ns)).saturating_sub(instance.born_ns).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::profile::records::{Header, Stats};
    use crate::profile::summary::{Cell, Counters, TouchRun};

    const MS: u64 = 1_000_000;

    fn summary() -> Summary {
        let stats = Stats { duration_ns: 1000 * MS, ..Stats::default() };
        Summary {
            header: Header { page_size: 4096, ..Header::default() },
            modules: Vec::new(),
            threads: Vec::new(),
            symbols: HashMap::new(),
            stacks: Default::default(),
            entries: Vec::new(),
            stays: Vec::new(),
            spinning: Default::default(),
            shared_lines: Vec::new(),
            stats,
            ending: None,
            rank: None,
            profiles: 1,
            notes: Vec::new(),
        }
    }

    fn instance(born_ms: u64, life_ms: Option<u64>, size: u64, thread: u32) -> Instance {
        let died_ns = life_ms.map(|life| (born_ms + life) * MS);
        Instance { base: 4096, size, born_ns: born_ms * MS, died_ns, thread: Some(thread) }
    }

    fn entry(seen: Vec<Instance>, instances: u64) -> Entry {
        Entry { kind: ObjectKind::Heap, seen, instances, ..Entry::default() }
    }

    #[test]
    fn many_brief_instances_of_one_size() {
        let seen = (0..10).map(|i| instance(100 * i, Some(2), 8192, (i % 4) as u32)).collect();
        let t = summary().turnover(&entry(seen, 2000)).unwrap();
        assert_eq!((t.allocations, t.median_ns, t.threads), (2000, 2 * MS, 4));
        assert!((t.per_second - 2000.0).abs() < 1e-6 && (t.alive - 4.0).abs() < 1e-6, "{t:?}");
        assert_eq!((t.kept_share, t.sizes_share), (0.0, 0.0));
        assert_eq!(t.count(), "2000 allocations (2000 a second)");
    }

    #[test]
    fn what_is_allocated_at_once_has_no_rate() {
        let seen: Vec<Instance> = (0..10).map(|i| instance(20 + i, None, 8192, 0)).collect();
        let t = summary().turnover(&entry(seen.clone(), 2000)).unwrap();
        assert_eq!(t.count(), "2000 allocations (within 9.0 ms)");
        let t = summary().turnover(&entry(seen[..1].to_vec(), 2000)).unwrap();
        assert_eq!(t.count(), "2000 allocations (2000 a second)", "one of them tells nothing of the others");
    }

    #[test]
    fn growth_by_realloc_has_a_new_size_each_time() {
        let seen = (1..=8).map(|i| instance(i, Some(1), i * 65536, 0)).collect();
        let t = summary().turnover(&entry(seen, 8)).unwrap();
        assert_eq!((t.sizes_share, t.kept_share), (1.0, 0.0));
    }

    #[test]
    fn what_is_kept_lives_to_the_end_of_the_run() {
        let t = summary().turnover(&entry(vec![instance(0, None, 1 << 20, 0)], 1)).unwrap();
        assert_eq!((t.median_ns, t.alive, t.kept_share, t.sizes_share), (1000 * MS, 1.0, 1.0, 0.0));
        assert_eq!(summary().turnover(&Entry { kind: ObjectKind::Global, ..Entry::default() }), None);
    }

    #[test]
    fn accesses_count_by_lifetime_and_thread() {
        let seen = vec![instance(0, Some(1), 8192, 1), instance(5, Some(1), 8192, 2), instance(9, None, 8192, 1)];
        let reads = |instance, thread, reads| {
            let counters = Counters { reads, ..Counters::default() };
            Cell { instance, page: 0, thread, slot: 0, counters }
        };
        let cells = vec![reads(0, 1, 4), reads(1, 1, 2), reads(2, 1, 2)];
        let entry = Entry { cells, ..entry(seen, 3) };
        let share = |limit_ms: u64| summary().own_freed_share(&entry, (limit_ms * MS) as f64);
        assert_eq!((share(1), share(2), share(2000)), (0.0, 0.5, 0.5), "the last one was not freed");
        let touch = |instance, thread, pages| TouchRun { instance, page: 0, pages, thread, time_ns: 0 };
        let touched = Entry { touches: vec![touch(0, 1, 3), touch(1, 1, 1)], ..entry.clone() };
        assert_eq!((entry.own_touches_share(), touched.own_touches_share()), (0.0, 0.75));
    }
}
