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
    let team = Team::of(summary.threads.len(), part_of);
    let mut pairs = Pairs::default();
    let mut totals = vec![[0.0; TIME_SLOTS as usize]; team.parts];
    let mut page = Page { sums: vec![(0.0, 0.0); team.parts], seen: Vec::new() };
    for entry in summary.entries.iter().filter(wanted) {
        let in_compute = |c: &&Cell| compute.get(usize::from(c.slot)).copied().unwrap_or(false);
        for cells in entry.cells.chunk_by(|a, b| (a.instance, a.page) == (b.instance, b.page)) {
            for cell in cells.iter().filter(in_compute) {
                let Some(part) = team.part_of(cell.thread) else { continue };
                let n = cell.counters.accesses() as f64;
                page.add(part, n);
                totals[part][usize::from(cell.slot)] += n;
            }
            pairs.take(&mut page);
        }
    }
    pairs.verdict(&totals)
}

/// Number of the creator among the parts of a team; workers follow.
const CREATOR: usize = 0;

/// The parts of a team, numbered.
struct Team {
    of_thread: Vec<Option<usize>>,
    parts: usize,
}

impl Team {
    fn of(threads: usize, part_of: impl Fn(ThreadId) -> Option<Part>) -> Team {
        let mut numbers: FxHashMap<Part, usize> = FxHashMap::default();
        numbers.insert(Part::Creator, CREATOR);
        let mut number = |part| {
            let next = numbers.len();
            *numbers.entry(part).or_insert(next)
        };
        let of_thread = (0..threads as ThreadId).map(|thread| part_of(thread).map(&mut number)).collect();
        Team { of_thread, parts: numbers.len() }
    }

    fn part_of(&self, thread: ThreadId) -> Option<usize> {
        *self.of_thread.get(thread as usize)?
    }
}

/// Accesses to a page by part, and the sums of their squares by time slot.
struct Page {
    sums: Vec<(f64, f64)>,
    /// Parts that access it.
    seen: Vec<usize>,
}

impl Page {
    fn add(&mut self, part: usize, n: f64) {
        let sums = &mut self.sums[part];
        if *sums == (0.0, 0.0) {
            self.seen.push(part);
        }
        *sums = (sums.0 + n, sums.1 + n * n);
    }
}

impl Pairs {
    /// Adds a page, which is empty then.
    fn take(&mut self, page: &mut Page) {
        let own = page.sums[CREATOR].0;
        let (mut all, mut squares) = (0.0, 0.0);
        for part in page.seen.drain(..) {
            let (n, by_slot) = std::mem::take(&mut page.sums[part]);
            if part != CREATOR {
                all += n;
                squares += n * n;
                self.again += n * n - by_slot;
            }
        }
        self.creator += own * all;
        self.workers += all * all - squares;
    }

    fn verdict(&self, totals: &[[f64; TIME_SLOTS as usize]]) -> bool {
        let by_part = |slots: &[f64; TIME_SLOTS as usize]| (slots.iter().sum(), slots.iter().map(|n| n * n).sum());
        let by_part: Vec<(f64, f64)> = totals.iter().map(by_part).collect();
        let own = by_part[CREATOR].0;
        let workers = &by_part[CREATOR + 1..];
        let all: f64 = workers.iter().map(|sums| sums.0).sum();
        let squares: f64 = workers.iter().map(|sums| sums.0 * sums.0).sum();
        let again: f64 = workers.iter().map(|sums| sums.0 * sums.0 - sums.1).sum();
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
