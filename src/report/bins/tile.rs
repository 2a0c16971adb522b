//! The counters of one object in bins of pages x threads x time, few enough for a page or a picture.
//!
//! Only the finest level is kept; what draws adds up coarser ones. Where the counters of single pages are
//! too many, pages are joined in twos until they are few enough, then threads, then time slots.

use crate::profile::records::ThreadId;
use crate::profile::summary::Entry;
use crate::report::View;
use crate::report::matrix::{pages_of, touchers};

/// Rows for which the first toucher and the advised node are stored.
const MARKED_ROWS: u64 = 512;

/// Reads, writes, cost (ns), remote accesses, accesses by others.
pub type Quantities = [u64; 5];
/// A bin (of pages, of threads, of slots) with what is in it.
pub type Bin = ([u32; 3], Quantities);

/// Counters in bins.
#[derive(Debug)]
pub struct Tile {
    /// Pages of the largest instance.
    pub pages: u64,
    /// Pages, threads and time slots in a bin are powers of two: these are the exponents.
    pub shifts: [u32; 3],
    /// (bin of pages, of threads, of slots), ascending.
    pub cells: Vec<Bin>,
    /// Thread with most first touches, for each of at most [`MARKED_ROWS`] rows.
    pub touchers: Vec<Option<ThreadId>>,
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

    /// The page in the middle of each marked row.
    pub fn marked_pages(&self) -> Vec<u32> {
        let rows = self.touchers.len() as u64;
        (0..rows).map(|row| ((2 * row + 1) * self.pages / (2 * rows)) as u32).collect()
    }
}

/// Cells of one bin added up, in ascending order.
fn joined(mut cells: Vec<Bin>) -> Vec<Bin> {
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
