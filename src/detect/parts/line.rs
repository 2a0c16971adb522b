//! The accesses of an object in the order of its pages, without its initialisation, from the object's view: the input
//! of all other files here.

use std::cell::OnceCell;

use super::changing;
use crate::detect::points::uniform;
use crate::detect::samples::{Sample, Samples};
use crate::detect::{ObjectView, init};
use crate::profile::records::PART_LEAST;

/// Cells that are judged, drawn at random from the others: as many show slices of 256 threads.
const MOST_JUDGED: usize = 16_384;
/// Parts of the code that are judged on their own; more loops seldom use one object differently.
const MOST_CODE: usize = 4;

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
    /// The same by the part of the code that made them, as far as these differ in weight: the last are those of the
    /// rest.
    pub by_code: Vec<Samples>,
    /// The same accesses by what made them, ascending by page.
    pub marks: Vec<Mark>,
    /// Kinds of marks.
    pub kinds: usize,
    /// Pages of the smallest part.
    pub least: u32,
    phased: OnceCell<bool>,
    mixed: OnceCell<bool>,
}

impl Line {
    pub fn of(view: &ObjectView) -> Line {
        let all = Samples::of(view);
        let serial = init::serial_slots(view, &all);
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
        let kinds = 2 * by_code.len().max(1);
        let by_code = most_of(by_code, keep);
        let least = PART_LEAST.div_ceil(samples.unit).max(1) as u32;
        let (phased, mixed) = (OnceCell::new(), OnceCell::new());
        Line { samples, judged, by_code, marks, kinds, least, phased, mixed }
    }

    /// Whether the threads of the pages change in time.
    pub fn is_phased(&self) -> bool {
        *self.phased.get_or_init(|| changing::threads_change(&self.samples))
    }

    /// Whether parts of the code use the object differently; `is` finds out.
    pub fn is_mixed(&self, is: impl FnOnce() -> bool) -> bool {
        self.by_code.len() > 1 && *self.mixed.get_or_init(is)
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

/// The parts of the code with the most samples, and all others together; of so many samples a share of `keep`.
fn most_of(mut parts: Vec<Samples>, keep: f64) -> Vec<Samples> {
    let weight = |part: &Samples| part.list.iter().map(|s| f64::from(s.weight)).sum::<f64>();
    parts.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    if parts.len() > MOST_CODE {
        let mut rest = parts.split_off(MOST_CODE - 1);
        let mut all = rest.swap_remove(0);
        all.list.extend(rest.into_iter().flat_map(|part| part.list));
        parts.push(all);
    }
    parts.iter_mut().for_each(|part| part.list.sort_by_key(|s| s.page));
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    if keep < 1.0 {
        parts.iter_mut().for_each(|part| part.list.retain(|_| uniform(&mut state) < keep));
    }
    parts
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
