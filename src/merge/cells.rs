//! Sums of cells, in bounded memory.

use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use crate::profile::summary::{Cell, Counters};

/// Fewest cells that wait before they are sorted in.
const WAITING: usize = 1 << 12;

/// Cells of one object, in two lists: sorted without doubles, and those that wait to be sorted in.
#[derive(Debug, Default)]
pub(super) struct Cells {
    sorted: Vec<Cell>,
    waiting: Vec<Cell>,
}

/// Which cells are kept: one in 2^level, by a hash of object, instance, page, thread and time. What is kept has all of
/// its accesses, of every process, so no thread, page or time is preferred.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Thinning {
    /// Binary logarithm of the cells for one that is kept.
    pub level: u32,
}

impl Thinning {
    /// Whether a cell of an object is kept.
    pub fn keeps(self, object: u32, cell: &Cell) -> bool {
        if self.level == 0 {
            return true;
        }
        let hash = FxBuildHasher.hash_one((object, cell.instance, cell.page, cell.thread, cell.slot));
        hash >> (u64::BITS - self.level) == 0
    }
}

/// The order of cells: instance, page, thread, time.
fn key(cell: &Cell) -> (u64, u64) {
    let place = u64::from(cell.instance) << u32::BITS | u64::from(cell.page);
    (place, u64::from(cell.thread) << u16::BITS | u64::from(cell.slot))
}

impl Cells {
    /// Adds cells that may be there already.
    pub fn extend(&mut self, cells: impl Iterator<Item = Cell>) {
        self.waiting.extend(cells);
        if self.waiting.len() > WAITING.max(self.sorted.len() / 2) {
            self.settle();
        }
    }

    /// Sorts in what waits.
    pub fn settle(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        self.sorted.append(&mut self.waiting);
        self.waiting = Vec::new();
        // A sorted run for every profile, which a stable sort merges.
        self.sorted.sort_by_key(key);
        self.sorted.dedup_by(|again, first| {
            let same = key(again) == key(first);
            if same {
                first.counters.add(&again.counters);
            }
            same
        });
    }

    /// Cells in memory; of some that wait there may be two.
    pub fn len(&self) -> usize {
        self.sorted.len() + self.waiting.len()
    }

    /// Drops those that are no longer kept.
    pub fn thin(&mut self, object: u32, thinning: Thinning) {
        self.settle();
        self.sorted.retain(|c| thinning.keeps(object, c));
        self.sorted.shrink_to_fit();
    }

    /// All cells, ascending.
    pub fn all(&mut self) -> &[Cell] {
        self.settle();
        &self.sorted
    }

    /// All cells, ascending, and none left here.
    pub fn take(&mut self) -> Vec<Cell> {
        self.settle();
        std::mem::take(&mut self.sorted)
    }

    /// Their counters together.
    pub fn total(cells: &[Cell]) -> Counters {
        let mut sum = Counters::default();
        cells.iter().for_each(|c| sum.add(&c.counters));
        sum
    }
}
