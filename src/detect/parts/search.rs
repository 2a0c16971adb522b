//! The search for the cuts of one object.

use super::judge::{Judged, judge};
use super::line::Line;
use super::{boundary, candidates, signature};
use crate::detect::ObjectView;
use crate::detect::limits::EVIDENCE_NATS;
use crate::profile::records::PART_LEAST;

/// Most parts of one object: no program was seen that carves more large arrays out of one block.
const MOST_PARTS: usize = 64;
/// Independent samples of a stretch that may be cut: for fewer no detector knows a pattern of 2 x 4 slices.
const LEAST_SAMPLES: f64 = 100.0;
/// Independent samples of a part: the chance order of fewer passes for a pattern.
const LEAST_OF_PART: f64 = 50.0;
/// Nats by which a cut must shorten the description of each sample of the smaller side. Code that uses one side only
/// saves more than a nat there; an array whose noise is 5 % at one end and 15 % at the other saves 0.06.
const PAYS: f64 = 0.1;
/// The same where the code differs: what 2 % of the accesses do is not told apart elsewhere either.
const OTHER_CODE: f64 = 0.02;
/// How often a boundary and the models of its sides are fitted to each other.
const ROUNDS: usize = 2;

/// A tried cut: its page, and what its sides would need less than the whole, per sample of the smaller side.
#[derive(Clone, Copy)]
struct Cut {
    page: u32,
    gain: f64,
}

/// The first page of each part of an object but the first, ascending; empty when the object is one array, or its
/// instances are several. Pages count from the object's first page.
pub fn part_boundaries(view: &ObjectView) -> Vec<u32> {
    if !view.hot || view.instances != 1 || view.size < 2 * PART_LEAST {
        return Vec::new();
    }
    let line = Line::of(view);
    let mut cuts: Vec<u32> = Vec::new();
    let mut open = vec![(0, line.samples.pages)];
    while let Some((first, end)) = open.pop() {
        if cuts.len() + 1 >= MOST_PARTS {
            break;
        }
        if let Some(cut) = best_cut(&line, first, end) {
            cuts.push(cut);
            open.extend([(first, cut), (cut, end)]);
        }
    }
    cuts.sort_unstable();
    join(&line, &mut cuts);
    polish(&line, &mut cuts);
    cuts.into_iter().map(|page| page << line.samples.shift).collect()
}

/// The cut of a stretch that pays most.
fn best_cut(line: &Line, first: u32, end: u32) -> Option<u32> {
    if end - first < 2 * line.least || line.weight(first, end) < LEAST_SAMPLES {
        return None;
    }
    let mut whole: Option<Judged> = None;
    let found = tried(line, (first, end), &candidates::by_code(line, first, end), &mut whole);
    if found.is_some() {
        return found;
    }
    // Threads that change in time are described by no model here.
    let by_threads = candidates::by_threads(line, first, end);
    if by_threads.is_empty() || line.is_phased() {
        return None;
    }
    tried(line, (first, end), &by_threads, &mut whole)
}

/// The best of the candidates, at its best page, if it pays.
fn tried(line: &Line, (first, end): (u32, u32), pages: &[u32], whole: &mut Option<Judged>) -> Option<u32> {
    if pages.is_empty() {
        return None;
    }
    let whole = whole.get_or_insert_with(|| judge(line, first, end));
    let mut best: Option<Cut> = None;
    for &candidate in pages {
        let mut page = candidate;
        for _ in 0..ROUNDS {
            let (left, right) = (judge(line, first, page), judge(line, page, end));
            let moved = boundary::between(line, (first, page, end), &left, &right).page;
            if moved == page {
                break;
            }
            page = moved;
        }
        let cut = Cut { page, gain: gain(line, (first, page, end), whole) };
        if cut.gain > 0.0 && best.is_none_or(|b| cut.gain > b.gain) {
            best = Some(cut);
        }
    }
    best.map(|cut| cut.page)
}

/// Nats that a cut saves after it is paid for; not positive when they are too few for the smaller side.
fn gain(line: &Line, (first, page, end): (u32, u32, u32), whole: &Judged) -> f64 {
    let (left, right) = (judge(line, first, page), judge(line, page, end));
    let by_threads = whole.nats - left.nats - right.nats;
    let by_code = signature::saved(line, (first, page, end));
    let price = EVIDENCE_NATS + f64::from(line.samples.pages).ln();
    let smaller = left.weight.min(right.weight);
    let saved = by_threads + by_code - price;
    // Two formulas in place of a list of slices are worth it, whatever part of the accesses they explain better, and so
    // is another code, which must differ next to the boundary.
    let simpler = !whole.is_formula() && left.is_formula() && right.is_formula();
    let least = match (simpler, by_code > price) {
        (true, _) => 0.0,
        (_, true) => OTHER_CODE * smaller,
        _ => PAYS * smaller,
    };
    if smaller >= LEAST_OF_PART && saved >= least { saved } else { 0.0 }
}

/// Takes away the cuts that do not pay any more now that the others are known.
fn join(line: &Line, cuts: &mut Vec<u32>) {
    loop {
        let edges: Vec<u32> = [0].into_iter().chain(cuts.iter().copied()).chain([line.samples.pages]).collect();
        let needless = edges.windows(3).position(|w| {
            let whole = judge(line, w[0], w[2]);
            gain(line, (w[0], w[1], w[2]), &whole) <= 0.0
        });
        // A stretch that was never cut needs no second look.
        match needless.filter(|_| cuts.len() > 1) {
            Some(index) => drop(cuts.remove(index)),
            None => return,
        }
    }
}

/// Moves each boundary to where the models of its two parts alone put it, beginning at the end: a part that was cut off
/// too short leaves no room for those before it.
fn polish(line: &Line, cuts: &mut [u32]) {
    for round in 0..ROUNDS {
        for i in 0..cuts.len() {
            let i = if round % 2 == 0 { cuts.len() - 1 - i } else { i };
            let first = if i == 0 { 0 } else { cuts[i - 1] };
            let end = cuts.get(i + 1).copied().unwrap_or(line.samples.pages);
            let (left, right) = (judge(line, first, cuts[i]), judge(line, cuts[i], end));
            let place = boundary::between(line, (first, cuts[i], end), &left, &right);
            let side = |first: u32, end: u32| judge(line, first, end).nats + signature::described(line, first, end);
            let nats = |page: u32| side(first, page) + side(page, end);
            let mut pages = vec![place.page, place.nearly.0, place.nearly.1];
            pages.dedup();
            if pages.len() == 1 {
                cuts[i] = place.page;
            } else if let Some((_, page)) =
                pages.into_iter().map(|page| (nats(page), page)).min_by(|a, b| a.0.total_cmp(&b.0))
            {
                cuts[i] = page;
            }
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
