//! The search for the cuts of one object: compares the nats of the description with and without the cuts that are
//! tried, removes those that do not pay beside the others, and moves each to its page.

use super::judge::{Judged, judge, nats, with_uses_of};
use super::line::Line;
use super::{boundary, candidates, runs, signature};
use crate::detect::ObjectView;
use crate::detect::limits::EVIDENCE_NATS;
use crate::profile::records::PART_LEAST;

/// Most parts of one object: no program was seen that carves more large arrays out of one block.
const MOST_PARTS: usize = 64;
/// Independent samples of a stretch that may be cut: for fewer no detector knows a pattern of 2 x 4 slices.
const LEAST_SAMPLES: f64 = 100.0;
/// Independent samples of a part: the chance order of fewer passes for a pattern.
pub(super) const LEAST_OF_PART: f64 = 50.0;
/// Nats by which a cut must shorten the description of each sample of the smaller side. Code that uses one side only
/// saves more than a nat there; an array whose noise is 5 % at one end and 15 % at the other saves 0.06.
pub(super) const PAYS: f64 = 0.1;
/// The same where the code differs: what 2 % of the accesses do is not told apart elsewhere either.
const OTHER_CODE: f64 = 0.02;
/// How often stretches that cuts leave are searched: the second time those that were joined from several.
const SEARCHES: usize = 3;
/// How often a boundary and the models of its sides are fitted to each other.
const ROUNDS: usize = 2;

/// A tried cut: its page, and the nats that it saves.
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
    let mut searched: Vec<(u32, u32)> = Vec::new();
    // A cut that is taken away again joins two stretches to one that was never looked at.
    for _ in 0..SEARCHES {
        let open = between(&cuts, line.samples.pages).into_iter().filter(|part| is_new(&line, &searched, *part));
        let mut new = divided(&line, open.collect(), MOST_PARTS - cuts.len(), &mut searched);
        if new.is_empty() {
            break;
        }
        cuts.append(&mut new);
        cuts.sort_unstable();
        join(&line, &mut cuts);
        polish(&line, (0, line.samples.pages), &mut cuts);
    }
    snap(&line, &mut cuts);
    cuts.into_iter().map(|page| page << line.samples.shift).collect()
}

/// The stretches between cuts.
fn between(cuts: &[u32], pages: u32) -> Vec<(u32, u32)> {
    let edges: Vec<u32> = [0].into_iter().chain(cuts.iter().copied()).chain([pages]).collect();
    edges.windows(2).map(|w| (w[0], w[1])).collect()
}

/// Whether no stretch was searched that has all pages of this one but for fewer than those of the smallest part.
fn is_new(line: &Line, searched: &[(u32, u32)], (first, end): (u32, u32)) -> bool {
    searched.iter().all(|&(low, high)| low >= first + line.least || high + line.least <= end)
}

/// The cuts of stretches, at most so many; each stretch that is left whole is noted as searched.
fn divided(line: &Line, mut open: Vec<(u32, u32)>, most: usize, searched: &mut Vec<(u32, u32)>) -> Vec<u32> {
    let mut cuts: Vec<u32> = Vec::new();
    while let Some((first, end)) = open.pop() {
        let new = best_cuts(line, first, end);
        if cuts.len() + new.len() >= most {
            break;
        }
        if new.is_empty() {
            searched.push((first, end));
            continue;
        }
        let edges: Vec<u32> = [first].into_iter().chain(new.iter().copied()).chain([end]).collect();
        open.extend(edges.windows(2).map(|w| (w[0], w[1])));
        cuts.extend(new);
    }
    cuts
}

/// The cut of a stretch that pays most, or the cuts that pay together; none when it is one array.
fn best_cuts(line: &Line, first: u32, end: u32) -> Vec<u32> {
    if end - first < 2 * line.least || line.weight(first, end) < LEAST_SAMPLES {
        return Vec::new();
    }
    let mut whole: Option<Judged> = None;
    if let Some(cut) = tried(line, (first, end), &candidates::by_code(line, first, end), &mut whole) {
        return vec![cut.page];
    }
    let mut by_code = far_apart(line, (first, end), signature::change_points(line, first, end));
    // One of them alone was tried.
    if by_code.len() > 1 {
        polish(line, (first, end), &mut by_code);
        if pay_together(line, (first, end), &by_code, &mut whole, Sides::Any).is_some() {
            return by_code;
        }
    }
    let by_runs = runs::boundaries(line, first, end);
    let by_threads = candidates::by_threads(line, first, end);
    let equal = candidates::equal_parts(line, first, end);
    // Threads that change in time are described by no model here.
    if [&by_runs, &by_threads, &equal].iter().all(|cuts| cuts.is_empty()) || line.is_phased() {
        return Vec::new();
    }
    // Also cuts in wrong places pay, where the whole needs a list of slices: the runs of few samples are longer or
    // shorter than the arrays, and one cut leaves a side that no model describes, where each of several parts has
    // threads of its own. Of these the shortest description is taken.
    let mut together = |cuts: Vec<u32>, sides| {
        let gain = if cuts.is_empty() { None } else { pay_together(line, (first, end), &cuts, &mut whole, sides) };
        gain.map(|gain| (gain, cuts))
    };
    let equal = together(equal, Sides::Periodic);
    let other = together(by_runs, Sides::Any)
        .or_else(|| tried(line, (first, end), &by_threads, &mut whole).map(|cut| (cut.gain, vec![cut.page])));
    let best = other.into_iter().chain(equal).max_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or(Vec::new(), |(_, cuts)| cuts)
}

/// The cuts without those that would leave a part of less than the least pages.
fn far_apart(line: &Line, (first, end): (u32, u32), mut cuts: Vec<u32>) -> Vec<u32> {
    let mut before = first;
    cuts.retain(|&page| {
        let far = page >= before + line.least && page + line.least <= end;
        if far {
            before = page;
        }
        far
    });
    cuts
}

/// What the parts between several cuts must be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sides {
    /// Anything that is shorter.
    Any,
    /// Slices that repeat. The parts of any block array have threads of their own as well.
    Periodic,
}

/// Nats by which the parts between several cuts, the cuts included, are described shorter than the whole; none where
/// they do not pay. The evidence is demanded once, because the question is one: whether the stretch is an array or
/// several.
fn pay_together(
    line: &Line,
    (first, end): (u32, u32),
    cuts: &[u32],
    whole: &mut Option<Judged>,
    sides: Sides,
) -> Option<f64> {
    let whole = whole.get_or_insert_with(|| judge(line, first, end));
    let edges: Vec<u32> = [first].into_iter().chain(cuts.iter().copied()).chain([end]).collect();
    let parts: Vec<Judged> = edges.windows(2).map(|w| judge(line, w[0], w[1])).collect();
    let weights = || parts.iter().map(|p| p.weight);
    // A part too short to be cut must not be one that is padded to the least pages.
    let padded = |w: &[u32]| w[1] - w[0] < 2 * line.least && !signature::is_uniform(line, w[0], w[1]);
    let refused = sides == Sides::Periodic && !parts.iter().all(Judged::is_periodic);
    if weights().any(|weight| weight < LEAST_OF_PART) || edges.windows(2).any(padded) || refused {
        return None;
    }
    let abrupt = edges.windows(3).all(|w| signature::saved(line, (w[0], w[1], w[2])) > 0.0);
    let of_parts: f64 = edges.windows(2).map(|w| signature::described(line, w[0], w[1])).sum();
    let by_code = if abrupt { signature::described(line, first, end) - of_parts } else { 0.0 };
    let of_threads = edges.windows(2).zip(&parts).map(|(w, part)| nats(line, part, w[0], w[1]));
    let of_whole = nats(line, whole, first, end).min(with_uses_of(line, whole, &parts.iter().collect::<Vec<_>>()));
    let by_threads = of_whole - of_threads.sum::<f64>();
    let price = EVIDENCE_NATS + cuts.len() as f64 * f64::from(line.samples.pages).ln();
    let saved = by_threads + by_code - price;
    let smaller = weights().sum::<f64>() - weights().fold(0.0, f64::max);
    let least = match (whole.is_nearly_formula(), by_code > price) {
        (false, _) => 0.0,
        (_, true) => OTHER_CODE * smaller,
        _ => PAYS * smaller,
    };
    (saved > 0.0 && saved >= least).then_some(saved)
}

/// The best of the candidates, at its best page, if it pays.
fn tried(line: &Line, (first, end): (u32, u32), pages: &[u32], whole: &mut Option<Judged>) -> Option<Cut> {
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
        let cut = Cut { page, gain: gain(line, (first, page, end), whole, Formulas::Both) };
        if cut.gain > 0.0 && best.is_none_or(|b| cut.gain > b.gain) {
            best = Some(cut);
        }
    }
    best
}

/// Sides of a cut that must be described by a formula where the whole is a list of slices.
#[derive(Clone, Copy)]
enum Formulas {
    /// Of a new cut: a stretch of an irregular array may look like a formula by chance.
    Both,
    /// Of a cut that was made already: the other side may be a part that needs a list of slices.
    One,
}

/// Nats that a cut saves after it is paid for; not positive when they are too few for the smaller side.
fn gain(line: &Line, (first, page, end): (u32, u32, u32), whole: &Judged, formulas: Formulas) -> f64 {
    let (left, right) = (judge(line, first, page), judge(line, page, end));
    let of_whole = nats(line, whole, first, end).min(with_uses_of(line, whole, &[&left, &right]));
    let of_sides = nats(line, &left, first, page) + nats(line, &right, page, end);
    let by_threads = of_whole - of_sides;
    let by_code = signature::saved(line, (first, page, end));
    let price = EVIDENCE_NATS + f64::from(line.samples.pages).ln();
    let smaller = left.weight.min(right.weight);
    let saved = by_threads + by_code - price;
    // A formula in place of a list of slices is worth it, whatever part of the accesses it explains better, and so is
    // another code, which must differ next to the boundary.
    let (left_is, right_is) = (left.is_formula(), right.is_formula());
    let enough = match formulas {
        Formulas::Both => left_is && right_is,
        Formulas::One => left_is || right_is,
    };
    let simpler = !whole.is_formula() && enough;
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
            gain(line, (w[0], w[1], w[2]), &whole, Formulas::One) <= 0.0
        });
        // A stretch that was never cut needs no second look.
        match needless.filter(|_| cuts.len() > 1) {
            Some(index) => drop(cuts.remove(index)),
            None => return,
        }
    }
}

/// Moves each boundary of a stretch to where the models of its two parts alone put it, beginning at the end: a part
/// that was cut off too short leaves no room for those before it.
fn polish(line: &Line, (start, stop): (u32, u32), cuts: &mut [u32]) {
    for round in 0..ROUNDS {
        for i in 0..cuts.len() {
            let i = if round % 2 == 0 { cuts.len() - 1 - i } else { i };
            let first = if i == 0 { start } else { cuts[i - 1] };
            let end = cuts.get(i + 1).copied().unwrap_or(stop);
            cuts[i] = moved(line, (first, cuts[i], end));
        }
    }
}

/// Moves each boundary to the beginning of a period where the samples allow it as well: a part whose blocks do not
/// begin with its first page has a part of each block on another node.
fn snap(line: &Line, cuts: &mut [u32]) {
    for i in 0..cuts.len() {
        let first = if i == 0 { 0 } else { cuts[i - 1] };
        let end = cuts.get(i + 1).copied().unwrap_or(line.samples.pages);
        cuts[i] = snapped(line, (first, cuts[i], end));
    }
}

/// Of the pages that are nearly as likely as this one those that begin a period on both sides, else behind the
/// boundary, else before it; of these the roundest number, which needs the fewest bits, and the nearest.
fn snapped(line: &Line, (first, page, end): (u32, u32, u32)) -> u32 {
    let (left, right) = (judge(line, first, page), judge(line, page, end));
    if !left.is_periodic() && !right.is_periodic() {
        return page;
    }
    let place = boundary::between(line, (first, page, end), &left, &right);
    let begins = |side: &Judged, page: u32| side.is_periodic() && side.begins_period(page);
    let rank = |at: u32| {
        let sides = 2 * u32::from(begins(&right, at)) + u32::from(begins(&left, at));
        (sides, at.trailing_zeros(), std::cmp::Reverse(at.abs_diff(page)))
    };
    let near = place.near.into_iter().flat_map(|(from, to)| from..=to);
    near.filter(|at| rank(*at).0 > 0).max_by_key(|at| rank(*at)).unwrap_or(page)
}

/// The page of a boundary by which both sides together are described shortest: of those where the models of the sides
/// put it, and of the edges of slices next to it. A model made without the slice next to the boundary does not know its
/// owner, and would leave the boundary where it is.
fn moved(line: &Line, (first, page, end): (u32, u32, u32)) -> u32 {
    let (left, right) = (judge(line, first, page), judge(line, page, end));
    let place = boundary::between(line, (first, page, end), &left, &right);
    let inside = |page: &u32| *page >= first + line.least && *page + line.least <= end;
    let edges: Vec<u32> = runs::edges(line, first, end).into_iter().filter(inside).collect();
    let (before, behind) = (edges.iter().rfind(|e| **e < place.page), edges.iter().find(|e| **e > place.page));
    let mut pages = vec![place.page, place.nearly.0, place.nearly.1];
    pages.extend(before.into_iter().chain(behind));
    // The first of pages that are equally good is taken.
    let mut tried: Vec<(u32, f64)> = Vec::new();
    for page in pages {
        if tried.iter().all(|t| t.0 != page) {
            tried.push((page, side(line, first, page) + side(line, page, end)));
        }
    }
    tried.iter().min_by(|a, b| a.1.total_cmp(&b.1)).map_or(page, |t| t.0)
}

/// Nats of a part, by its threads and by its code.
fn side(line: &Line, first: u32, end: u32) -> f64 {
    judge(line, first, end).nats + signature::described(line, first, end)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
