//! The accesses of an object along its pages.

use std::cell::OnceCell;

use crate::detect::change_points::change_points;
use crate::detect::points::uniform;
use crate::detect::samples::{Sample, Samples};
use crate::detect::{ObjectView, init};
use crate::profile::records::PART_LEAST;

/// Cells that are judged, drawn at random from the others: as many show slices of 256 threads.
const MOST_JUDGED: usize = 16_384;

/// Accesses of one kind by one part of the code to a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub page: u32,
    /// Twice the number of the part of the code, one more for writes.
    pub what: u8,
    pub weight: f32,
}

/// One instance of an object, without initialisation.
pub(super) struct Line {
    /// Ascending by page.
    pub samples: Samples,
    /// As many of them as are judged.
    pub judged: Samples,
    /// The same accesses by what made them, ascending by page.
    pub marks: Vec<Mark>,
    /// Kinds of marks.
    pub kinds: usize,
    /// Pages of the smallest part.
    pub least: u32,
    phased: OnceCell<bool>,
}

impl Line {
    pub fn of(view: &ObjectView) -> Line {
        let all = Samples::of(view);
        let serial = init::serial_slots(&all);
        let counts = |s: &Sample| serial.as_ref().is_none_or(|serial| !serial.dropped[usize::from(s.slot)]);
        let samples = all.only(counts);
        let keep = MOST_JUDGED as f64 / samples.list.len().max(1) as f64;
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let judged = if keep < 1.0 { samples.only(|_| uniform(&mut state) < keep) } else { samples.clone() };
        let by_code: Vec<Samples> = view.by_code.iter().map(|c| all.part(&c.accesses).only(counts)).collect();
        let mut marks = Vec::new();
        if by_code.is_empty() {
            add(&mut marks, &samples, 0);
        }
        by_code.iter().zip(0..).for_each(|(part, number)| add(&mut marks, part, number));
        marks.sort_by_key(|m: &Mark| m.page);
        let least = PART_LEAST.div_ceil(samples.unit).max(1) as u32;
        Line { samples, judged, marks, kinds: 2 * by_code.len().max(1), least, phased: OnceCell::new() }
    }

    /// Whether the threads of the pages change in time.
    pub fn is_phased(&self) -> bool {
        *self.phased.get_or_init(|| change_points(&self.samples).len() > 1)
    }

    /// Independent samples of a stretch.
    pub fn weight(&self, first: u32, end: u32) -> f64 {
        stretch(&self.samples.list, first, end).iter().map(|s| f64::from(s.weight)).sum()
    }

    /// The marks of a stretch.
    pub fn marks(&self, first: u32, end: u32) -> &[Mark] {
        let at = |page: u32| self.marks.partition_point(|m| m.page < page);
        &self.marks[at(first)..at(end)]
    }
}

fn add(marks: &mut Vec<Mark>, samples: &Samples, number: u8) {
    for s in &samples.list {
        let (reads, what) = (s.weight - s.writes, number.min(127) * 2);
        let of = [(what, reads), (what + 1, s.writes)];
        marks.extend(of.into_iter().filter(|m| m.1 > 0.0).map(|(what, weight)| Mark { page: s.page, what, weight }));
    }
}

/// The samples of a stretch, of a list in the order of pages.
pub(super) fn stretch(list: &[Sample], first: u32, end: u32) -> &[Sample] {
    let at = |page: u32| list.partition_point(|s| s.page < page);
    &list[at(first)..at(end)]
}

/// A stretch as an object of its own.
pub(super) fn alone(samples: &Samples, first: u32, end: u32) -> Samples {
    let list = stretch(&samples.list, first, end);
    let list = list.iter().map(|s| Sample { page: s.page - first, ..*s }).collect();
    Samples { list, ranks: samples.ranks.clone(), pages: end - first, ..*samples }
}
