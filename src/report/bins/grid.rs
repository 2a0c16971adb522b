//! The counters of an object in as many rows as a figure has room for: by thread, and by time.

use rustc_hash::FxHashMap;

use super::Tile;
use crate::profile::summary::TIME_SLOTS;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Quantity {
    /// Reads and writes
    #[default]
    Accesses,
    /// Reads
    Reads,
    /// Writes
    Writes,
    /// CPU time at accesses
    Cost,
    /// Accesses to pages on another node than the CPU's
    Remote,
    /// Accesses to pages that another thread touched first
    ByOthers,
}

impl Quantity {
    /// The words for titles and legends.
    pub fn words(self) -> &'static str {
        match self {
            Quantity::Accesses => "accesses",
            Quantity::Reads => "reads",
            Quantity::Writes => "writes",
            Quantity::Cost => "CPU time at accesses",
            Quantity::Remote => "remote accesses",
            Quantity::ByOthers => "accesses by others",
        }
    }

    fn of(self, [reads, writes, cost, remote, others]: &super::Quantities) -> u64 {
        match self {
            Quantity::Accesses => reads + writes,
            Quantity::Reads => *reads,
            Quantity::Writes => *writes,
            Quantity::Cost => *cost,
            Quantity::Remote => *remote,
            Quantity::ByOthers => *others,
        }
    }
}

/// Sums over rows of pages.
#[derive(Debug)]
pub struct Grid {
    /// Rows of equal numbers of pages.
    pub rows: usize,
    /// Columns of equal numbers of threads, and threads in each.
    pub columns: usize,
    /// See [`Grid::columns`].
    pub per_column: usize,
    /// Equal parts of the run.
    pub slots: usize,
    /// By row and column.
    pub by_thread: Vec<u64>,
    /// By row and slot.
    pub by_time: Vec<u64>,
    /// By row and slot: the column with most.
    pub main: Vec<Option<usize>>,
}

impl Grid {
    /// At most `rows` and `columns`.
    pub fn of(tile: &Tile, quantity: Quantity, (rows, columns): (usize, usize)) -> Grid {
        let [page_shift, thread_shift, slot_shift] = tile.shifts;
        let rows = rows.min((tile.pages >> page_shift).max(1) as usize);
        let groups = tile.cells.iter().map(|(at, _)| at[1]).max().map_or(1, |last| last as usize + 1);
        let joined = groups.div_ceil(columns.max(1));
        let columns = groups.div_ceil(joined);
        let slots = usize::from(TIME_SLOTS).div_ceil(1 << slot_shift);
        let (mut by_thread, mut by_time) = (vec![0; rows * columns], vec![0; rows * slots]);
        let mut of_column: FxHashMap<(usize, usize), u64> = FxHashMap::default();
        for (at, counters) in &tile.cells {
            let n = quantity.of(counters);
            if n == 0 {
                continue;
            }
            // The middle of a bin of pages: the last one may reach beyond the object.
            let page = (u64::from(at[0]) << page_shift) + (1 << page_shift) / 2;
            let row = ((page * rows as u64 / tile.pages.max(1)) as usize).min(rows - 1);
            let column = at[1] as usize / joined;
            let cell = row * slots + (at[2] as usize).min(slots - 1);
            by_thread[row * columns + column] += n;
            by_time[cell] += n;
            *of_column.entry((cell, column)).or_default() += n;
        }
        let mut most: Vec<(u64, Option<usize>)> = vec![(0, None); rows * slots];
        for ((cell, column), n) in of_column {
            let before = &mut most[cell];
            if n > before.0 || (n == before.0 && before.1.is_some_and(|b| column < b)) {
                *before = (n, Some(column));
            }
        }
        let main = most.into_iter().map(|(_, column)| column).collect();
        Grid { rows, columns, per_column: joined << thread_shift, slots, by_thread, by_time, main }
    }

    /// The column with most in a row.
    pub fn main_user(&self, row: usize) -> Option<usize> {
        let own = self.by_thread.get(row * self.columns..(row + 1) * self.columns)?;
        let best = own.iter().enumerate().max_by_key(|(column, n)| (**n, usize::MAX - column))?;
        (*best.1 > 0).then_some(best.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_in_a_row_and_a_column() {
        let cell = |page, thread, slot, n| ([page, thread, slot], [n, 1, 0, 0, 0]);
        let cells = vec![cell(0, 0, 0, 5), cell(0, 2, 0, 7), cell(9, 1, 31, 3)];
        let tile = Tile { pages: 19, shifts: [1, 0, 1], cells, touchers: vec![] };
        let grid = Grid::of(&tile, Quantity::Accesses, (4, 2));
        assert_eq!((grid.rows, grid.columns, grid.per_column, grid.slots), (4, 2, 2, 32));
        assert_eq!((grid.by_thread[..2].to_vec(), grid.by_thread[6]), (vec![6, 8], 4));
        assert_eq!((grid.by_time[0], grid.by_time[127], grid.main[0], grid.main[127]), (14, 4, Some(1), Some(0)));
        assert_eq!((grid.main_user(0), grid.main_user(1), grid.main_user(3)), (Some(1), None, Some(0)));
    }
}
