//! The counters of one object in bins of pages x threads x time, few enough for the page.
//!
//! Only the finest level is stored; the page adds up coarser ones while it draws. Where the counters of single pages are
//! too many, pages are joined in twos until they are few enough, then threads, then time slots.

use super::pack::Numbers;
use crate::profile::records::ThreadId;
use crate::profile::summary::Entry;
use crate::report::View;
use crate::report::matrix::{pages_of, touchers};

/// Rows for which the first toucher and the advised node are stored.
const MARKED_ROWS: u64 = 512;

/// Reads, writes, cost (ns), remote accesses, accesses by others.
type Quantities = [u64; 5];

/// Counters in bins.
pub(super) struct Tile {
    /// Pages of the largest instance.
    pub pages: u64,
    /// Pages, threads and time slots in a bin are powers of two: these are the exponents.
    pub shifts: [u32; 3],
    /// (bin of pages, of threads, of slots), ascending.
    cells: Vec<([u32; 3], Quantities)>,
    /// Thread with most first touches, for each of at most [`MARKED_ROWS`] rows.
    touchers: Vec<Option<ThreadId>>,
}

impl Tile {
    /// Bins an entry to at most `most` cells. None when no access has a page.
    pub fn of(view: &View, entry: &Entry, most: usize) -> Option<Tile> {
        let pages = pages_of(view, entry)?;
        let same = |a: ThreadId, b: ThreadId| {
            a == b || view.roles.place(a).is_some_and(|own| view.roles.place(b) == Some(own))
        };
        let cell = |(c, toucher): (&crate::profile::summary::Cell, Option<ThreadId>)| {
            let n = &c.counters;
            let others = if toucher.is_some_and(|by| !same(by, c.thread)) { n.accesses() } else { 0 };
            ([c.page, c.thread, c.slot.into()], [n.reads, n.writes, n.cost_ns, n.remote, others])
        };
        let mut cells = joined(entry.cells_and_touchers().map(cell).collect());
        let mut shifts = [0; 3];
        while cells.len() > most {
            let most_of = |axis: usize| cells.iter().map(|(at, _)| at[axis]).max().unwrap_or(0);
            let Some(axis) = (0..3).find(|axis| most_of(*axis) > 0) else { break };
            shifts[axis] += 1;
            cells.iter_mut().for_each(|(at, _)| at[axis] >>= 1);
            cells = joined(cells);
        }
        let by_row = touchers(entry, pages, pages.min(MARKED_ROWS) as usize);
        let touchers = by_row.iter().map(|list| list.first().map(|(thread, _)| *thread)).collect();
        Some(Tile { pages, shifts, cells, touchers })
    }

    /// Cells stored.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// The page in the middle of each marked row.
    pub fn marked_pages(&self) -> Vec<u32> {
        let rows = self.touchers.len() as u64;
        (0..rows).map(|row| ((2 * row + 1) * self.pages / (2 * rows)) as u32).collect()
    }

    /// The tile as text; `nodes` are those of [`Tile::marked_pages`], or none.
    pub fn text(&self, nodes: &[u32]) -> String {
        let mut numbers = Numbers::default();
        numbers.push(self.cells.len() as u64);
        let mut before = 0;
        for (at, _) in &self.cells {
            numbers.push(u64::from(at[0] - before));
            before = at[0];
        }
        (1..3).for_each(|axis| numbers.extend(self.cells.iter().map(|(at, _)| u64::from(at[axis]))));
        (0..5).for_each(|quantity| numbers.extend(self.cells.iter().map(|(_, q)| q[quantity])));
        numbers.push(self.touchers.len() as u64);
        numbers.extend(self.touchers.iter().map(|t| t.map_or(0, |t| u64::from(t) + 1)));
        numbers.push(nodes.len() as u64);
        numbers.extend(nodes.iter().map(|n| u64::from(*n)));
        numbers.text()
    }
}

/// Cells of one bin added up, in ascending order.
fn joined(mut cells: Vec<([u32; 3], Quantities)>) -> Vec<([u32; 3], Quantities)> {
    cells.sort_unstable_by_key(|(at, _)| *at);
    cells.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1.iter_mut().zip(next.1).for_each(|(sum, n)| *sum = sum.saturating_add(n));
        }
        same
    });
    cells
}
