//! Accesses to pages that another thread touched first.
//!
//! Under first touch such a page is on the node of the thread that touched it, so these are the accesses that are
//! remote where threads run on different nodes: on any machine, also one with a single node, where nothing is remote.
//!
//! A caller says which threads count as one: the threads of a pool that is made anew in every step run, one after the
//! other, where the first of them ran.

use super::types::{Cell, Entry, PageRange, TouchRun};
use crate::profile::records::ThreadId;

/// Accesses by the first toucher of their page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByOthers {
    /// Accesses to pages whose first toucher is known.
    pub known: u64,
    /// Of these, those by another thread that does not count as the same.
    pub others: u64,
    /// Accesses to pages whose first touch was not seen, or to no known page.
    pub unknown: u64,
}

/// Share of the accesses whose page's first toucher must be known for a share by others: from fewer it would say little
/// of the object.
const LEAST_KNOWN: f64 = 0.5;

impl ByOthers {
    /// The share where it is known for most accesses.
    pub fn known_to_most(&self) -> Option<f64> {
        self.share().filter(|_| self.known_share() >= LEAST_KNOWN)
    }

    /// Share of the accesses by others, 0 to 1; none where no first toucher is known.
    pub fn share(&self) -> Option<f64> {
        (self.known > 0).then(|| self.others as f64 / self.known as f64)
    }

    /// Share of all accesses whose page's first toucher is known, 0 to 1.
    pub fn known_share(&self) -> f64 {
        super::ratio(self.known, self.known + self.unknown)
    }
}

impl Entry {
    /// Whether the first toucher of a page is right in the sum only.
    fn is_guessed(&self, at: (u32, u32)) -> bool {
        let ranges = self.details.extrapolated.around.as_slice();
        let after = ranges.partition_point(|r: &PageRange| (r.instance, r.low) <= at);
        after.checked_sub(1).is_some_and(|i| ranges[i].instance == at.0 && at.1 < ranges[i].high)
    }

    /// Accesses of all threads, or of one, by the first toucher of their page. Threads of one `place` count as one; a
    /// thread without a place is only itself.
    pub fn by_others(&self, of: Option<ThreadId>, place: impl Fn(ThreadId) -> Option<u32>) -> ByOthers {
        let same = |a: ThreadId, b: ThreadId| a == b || place(a).is_some_and(|own| place(b) == Some(own));
        let mut out = ByOthers::default();
        for (cell, toucher) in self.cells_and_touchers().filter(|(c, _)| of.is_none_or(|thread| c.thread == thread)) {
            let accesses = cell.counters.accesses();
            match toucher {
                Some(toucher) => {
                    out.known += accesses;
                    out.others += if same(toucher, cell.thread) { 0 } else { accesses };
                }
                None => out.unknown += accesses,
            }
        }
        if of.is_none() {
            out.unknown += self.details.unpaged.accesses();
        }
        out
    }

    /// The counters of the pages, each with the first toucher of its page where that is known for the very page.
    pub fn cells_and_touchers(&self) -> impl Iterator<Item = (&Cell, Option<ThreadId>)> {
        let mut runs = self.touches.as_slice();
        self.cells.iter().map(move |cell| {
            // Both lists ascend by instance and page.
            let at = (cell.instance, cell.page);
            let is_before = |r: &TouchRun| (r.instance, r.page.saturating_add(r.pages)) <= at;
            while let Some((_, rest)) = runs.split_first().filter(|(first, _)| is_before(first)) {
                runs = rest;
            }
            let run = runs.first().filter(|r| r.instance == cell.instance && r.page <= cell.page);
            (cell, run.filter(|_| !self.is_guessed(at)).map(|run| run.thread))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::summary::Counters;

    fn alone(thread: ThreadId) -> Option<u32> {
        Some(thread)
    }

    #[test]
    fn pages_are_told_apart_by_their_first_toucher() {
        let cell = |instance, page, thread, reads| Cell {
            instance,
            page,
            thread,
            slot: 0,
            counters: Counters { reads, ..Counters::default() },
        };
        let run = |instance, page, pages, thread| TouchRun { instance, page, pages, thread, time_ns: 0 };
        let mut entry = Entry {
            touches: vec![run(0, 0, 4, 0), run(0, 6, 2, 1), run(1, 0, 1, 1)],
            cells: vec![
                cell(0, 0, 0, 1),
                cell(0, 3, 1, 2),
                cell(0, 5, 1, 4),
                cell(0, 7, 0, 8),
                cell(0, 7, 1, 16),
                cell(0, 9, 1, 32),
                cell(1, 0, 1, 64),
                cell(2, 0, 1, 128),
            ],
            ..Entry::default()
        };
        entry.details.unpaged.reads = 256;
        let before = entry.by_others(None, alone);
        entry.details.extrapolated.around = vec![
            PageRange { instance: 0, low: 1, high: 3 },
            PageRange { instance: 0, low: 6, high: 7 },
            PageRange { instance: 1, low: 1, high: 2 },
        ];
        assert_eq!(entry.by_others(None, alone), before, "no access is to one of them");
        entry.details.extrapolated.around.insert(2, PageRange { instance: 0, low: 7, high: 8 });
        let without = ByOthers { known: before.known - 24, others: before.others - 8, unknown: before.unknown + 24 };
        assert_eq!(entry.by_others(None, alone), without, "right in the sum is not right for a page");
        entry.details.extrapolated.around.clear();
        let all = ByOthers { known: 1 + 2 + 8 + 16 + 64, others: 2 + 8, unknown: 4 + 32 + 128 + 256 };
        assert_eq!(entry.by_others(None, alone), all);
        assert_eq!(entry.by_others(Some(0), alone), ByOthers { known: 9, others: 8, unknown: 0 });
        assert_eq!((all.share(), Entry::default().by_others(None, alone).share()), (Some(10.0 / 91.0), None));
    }

    /// Threads 2 and 3 are of a pool that is made anew: 2 comes after 0, and 3 after 1.
    #[test]
    fn a_thread_in_the_place_of_the_first_toucher_is_no_other() {
        let cell = |page, thread, reads| {
            let counters = Counters { reads, ..Counters::default() };
            Cell { instance: 0, page, thread, slot: 0, counters }
        };
        let run = |page, thread| TouchRun { instance: 0, page, pages: 1, thread, time_ns: 0 };
        let entry = Entry {
            touches: vec![run(0, 0), run(1, 1)],
            cells: vec![cell(0, 0, 1), cell(0, 2, 2), cell(0, 3, 4), cell(1, 2, 8), cell(1, 3, 16)],
            ..Entry::default()
        };
        let others = |place: &dyn Fn(ThreadId) -> Option<u32>| entry.by_others(None, place).others;
        assert_eq!(others(&alone), 2 + 4 + 8 + 16);
        assert_eq!(others(&|thread| Some(thread % 2)), 4 + 8);
        assert_eq!(others(&|_| None), 2 + 4 + 8 + 16, "threads of no known place are only themselves");
        assert_eq!(entry.by_others(Some(2), |thread| Some(thread % 2)), ByOthers { known: 10, others: 8, unknown: 0 });
    }
}
