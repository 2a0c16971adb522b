//! Whether the creator of a team has a part of the data, as a worker has, or goes over the parts of all workers: main
//! sums up what a pool has computed, step after step, while the pool waits.

use rustc_hash::FxHashMap;

use crate::profile::records::ThreadId;
use crate::profile::summary::{Cell, Entry, Summary, TIME_SLOTS};

use crate::detect::limits::{ACCESSES_PER_SAMPLE, AFFINITY_PAIRS};

/// What a thread is to the team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Part {
    Creator,
    /// Slot of a worker.
    Worker(u32),
}

/// Sums over pages of products of accesses.
#[derive(Default)]
struct Pairs {
    /// Of the creator and workers, of two workers, and of one worker in two time slots.
    creator: f64,
    workers: f64,
    again: f64,
}

/// Whether the creator's pages are those of all workers, while workers have pages of their own. False where the pages
/// do not tell.
///
/// Two accesses fall on one page with a probability that depends on whose they are: `a` the creator's and a worker's,
/// `b` two workers', `c` any two of the team's. A creator with a part of its own has a = b, one that goes over
/// everything a = c.
pub(super) fn goes_over_all(
    summary: &Summary,
    compute: &[bool; TIME_SLOTS as usize],
    wanted: impl Fn(&&Entry) -> bool,
    part_of: impl Fn(ThreadId) -> Option<Part>,
) -> bool {
    let mut pairs = Pairs::default();
    let mut totals: FxHashMap<(Part, u16), f64> = FxHashMap::default();
    let mut page: FxHashMap<Part, (f64, f64)> = FxHashMap::default();
    for entry in summary.entries.iter().filter(wanted) {
        let in_compute = |c: &&Cell| compute.get(usize::from(c.slot)).copied().unwrap_or(false);
        for cells in entry.cells.chunk_by(|a, b| (a.instance, a.page) == (b.instance, b.page)) {
            page.clear();
            for cell in cells.iter().filter(in_compute) {
                let Some(part) = part_of(cell.thread) else { continue };
                let n = cell.counters.accesses() as f64;
                let sums = page.entry(part).or_default();
                *sums = (sums.0 + n, sums.1 + n * n);
                *totals.entry((part, cell.slot)).or_default() += n;
            }
            pairs.add(&page);
        }
    }
    pairs.verdict(&totals)
}

impl Pairs {
    fn add(&mut self, page: &FxHashMap<Part, (f64, f64)>) {
        let own = page.get(&Part::Creator).map_or(0.0, |sums| sums.0);
        let (mut all, mut squares) = (0.0, 0.0);
        for (n, by_slot) in page.iter().filter(|(part, _)| **part != Part::Creator).map(|(_, sums)| *sums) {
            all += n;
            squares += n * n;
            self.again += n * n - by_slot;
        }
        self.creator += own * all;
        self.workers += all * all - squares;
    }

    fn verdict(&self, totals: &FxHashMap<(Part, u16), f64>) -> bool {
        let mut by_part: FxHashMap<Part, (f64, f64)> = FxHashMap::default();
        for ((part, _), n) in totals {
            let sums = by_part.entry(*part).or_default();
            *sums = (sums.0 + n, sums.1 + n * n);
        }
        let own = by_part.remove(&Part::Creator).map_or(0.0, |sums| sums.0);
        let all: f64 = by_part.values().map(|sums| sums.0).sum();
        let squares: f64 = by_part.values().map(|sums| sums.0 * sums.0).sum();
        let again: f64 = by_part.values().map(|sums| sums.0 * sums.0 - sums.1).sum();
        // Accesses of one sample are not independent.
        let enough = AFFINITY_PAIRS * ACCESSES_PER_SAMPLE * ACCESSES_PER_SAMPLE;
        if self.creator < enough || self.again < enough || again <= 0.0 || all * all <= squares {
            return false;
        }
        let a = self.creator / (own * all);
        let b = self.workers / (all * all - squares);
        let c = (self.workers + self.again / again * squares) / (all * all);
        c > 2.0 * b && a > (b + c) / 2.0
    }
}
