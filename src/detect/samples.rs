//! The accesses of one object in the form that all detectors use: independent samples per cell, threads renumbered
//! without gaps, cells in the order of instance and page. Invalid accesses (pages outside the object, ranks at or above
//! the number of threads, weights that are not positive and finite) are left out, so that no detector has to check.

use super::limits::ACCESSES_PER_SAMPLE;
use super::{ObjectView, PageAccess};
use crate::profile::summary::TIME_SLOTS;

/// One cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    /// Instance as in [`PageAccess::instance`].
    pub instance: u32,
    /// Page from the instance's first.
    pub page: u32,
    /// Index into [`Samples::ranks`].
    pub thread: u16,
    /// Time slot.
    pub slot: u16,
    /// Independent samples.
    pub weight: f32,
    /// Independent samples that are writes.
    pub writes: f32,
}

/// All cells of one object.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    /// Cells, ascending by (instance, page).
    pub list: Vec<Sample>,
    /// Ranks of the threads that occur, ascending.
    pub ranks: Vec<u32>,
    /// Pages of the object (of its largest instance), in units.
    pub pages: u32,
    /// Independent samples per access.
    pub scale: f64,
    /// Bytes of a unit: a page, or more of an object with over [`MOST_PAGES`] pages.
    pub unit: u64,
    /// Pages of a unit, as a power of two.
    pub shift: u32,
}

/// Largest number of distinct pages: 8 GiB of 4 KiB pages. Larger objects are divided into larger units, so that memory
/// and time stay bounded; a unit is still less than a millionth of the object.
const MOST_PAGES: u64 = 1 << 21;

impl Samples {
    /// Prepares the accesses of a view.
    pub fn of(view: &ObjectView) -> Samples {
        let all = page_count(view);
        let grain = all.div_ceil(MOST_PAGES).next_power_of_two();
        let inside = |a: &&PageAccess| {
            let weight = a.weight();
            let threads = view.threads.saturating_add(view.others).min(MOST_RANKS);
            let known = u64::from(a.page) < all && a.thread < threads && a.slot < TIME_SLOTS;
            known && weight > 0.0 && weight.is_finite()
        };
        let (mut total, mut squares) = (0.0, 0.0);
        let mut index: Vec<u16> = Vec::new();
        for a in view.accesses.iter().filter(inside) {
            let (weight, thread) = (a.weight(), a.thread as usize);
            total += weight;
            squares += weight * weight;
            if thread >= index.len() {
                index.resize(thread + 1, ABSENT);
            }
            index[thread] = PRESENT;
        }
        let ranks = number(&mut index);
        let scale = independence(total, squares);
        let shift = grain.trailing_zeros();
        let mut list: Vec<Sample> = Vec::with_capacity(view.accesses.len());
        list.extend(view.accesses.iter().filter(inside).map(|a| Sample {
            instance: a.instance,
            page: a.page >> shift,
            thread: index[a.thread as usize],
            slot: a.slot,
            weight: (a.weight() * scale) as f32,
            writes: (f64::from(a.writes) * scale) as f32,
        }));
        if ranks.len() == usize::from(ABSENT) {
            list.retain(|s| s.thread != ABSENT);
        }
        let key = |s: &Sample| (s.instance, s.page);
        if !list.is_sorted_by_key(key) {
            list.sort_by_key(key);
        }
        let unit = view.page_size.max(1).saturating_mul(grain);
        Samples { list, ranks, pages: all.div_ceil(grain) as u32, scale, unit, shift }
    }

    /// Some of the object's accesses, as many independent samples as they are among all, with the same threads.
    pub fn part(&self, accesses: &[PageAccess]) -> Samples {
        let thread = |rank: u32| self.ranks.binary_search(&rank).ok();
        let known = |a: &&PageAccess| a.weight() > 0.0 && a.weight().is_finite() && a.slot < TIME_SLOTS;
        let mut list: Vec<Sample> = accesses
            .iter()
            .filter(known)
            .filter(|a| a.page >> self.shift < self.pages)
            .filter_map(|a| {
                Some(Sample {
                    instance: a.instance,
                    page: a.page >> self.shift,
                    thread: thread(a.thread)? as u16,
                    slot: a.slot,
                    weight: (a.weight() * self.scale) as f32,
                    writes: (f64::from(a.writes) * self.scale) as f32,
                })
            })
            .collect();
        let key = |s: &Sample| (s.instance, s.page);
        if !list.is_sorted_by_key(key) {
            list.sort_by_key(key);
        }
        Samples { list, ranks: self.ranks.clone(), ..*self }
    }

    /// Threads that occur.
    pub fn threads(&self) -> usize {
        self.ranks.len()
    }

    /// The cells that pass, with the same threads.
    pub fn only(&self, mut keep: impl FnMut(&Sample) -> bool) -> Samples {
        let list = self.list.iter().copied().filter(|s| keep(s)).collect();
        Samples { list, ranks: self.ranks.clone(), ..*self }
    }

    /// Accesses by page that has any; 0 without any.
    pub fn sightings(&self) -> f64 {
        let pages = self.list.chunk_by(|a, b| (a.instance, a.page) == (b.instance, b.page)).count();
        let accesses = self.total() / self.scale.max(f64::MIN_POSITIVE);
        accesses / ((pages.max(1) as u64) << self.shift) as f64
    }

    /// Independent samples in all.
    pub fn total(&self) -> f64 {
        self.list.iter().map(|s| f64::from(s.weight)).sum()
    }
}

/// Thread ranks at or above this are ignored, so that the table of ranks stays small for any file.
const MOST_RANKS: u32 = 1 << 22;
/// Entries of the table of ranks while it is built; `ABSENT` remains for ranks that do not occur.
const ABSENT: u16 = u16::MAX;
const PRESENT: u16 = 0;

/// Numbers the ranks that are present, ascending, and lists them. Ranks after the first 65,535 are ignored; no machine
/// runs so many threads.
fn number(index: &mut [u16]) -> Vec<u32> {
    let mut ranks: Vec<u32> = Vec::new();
    for (rank, at) in index.iter_mut().enumerate().filter(|(_, at)| **at == PRESENT) {
        *at = if ranks.len() < usize::from(ABSENT) { ranks.len() as u16 } else { ABSENT };
        if *at != ABSENT {
            ranks.push(rank as u32);
        }
    }
    ranks
}

/// Pages an object of `view.size` bytes covers.
fn page_count(view: &ObjectView) -> u64 {
    view.skew.saturating_add(view.size).div_ceil(view.page_size.max(1)).clamp(1, u64::from(u32::MAX))
}

/// Independent samples per unit of weight. Accesses of one sample mostly fall on one page in one time slot, so cells
/// count rather than accesses, and fewer of them when their weights are unequal (Kish: (sum w)^2 / sum w^2); the total
/// over the usual yield of a sample bounds it for small objects where many samples share a cell.
fn independence(total: f64, squares: f64) -> f64 {
    if total <= 0.0 { 0.0 } else { ((total * total / squares).max(total / ACCESSES_PER_SAMPLE) / total).min(1.0) }
}
