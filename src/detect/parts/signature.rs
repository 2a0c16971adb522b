//! What is seen of an array besides its threads: the code that accesses it, and whether it reads or writes.

use super::line::{Line, Mark};
use crate::detect::change_points::{Prior, priors};
use crate::detect::limits::EVIDENCE_NATS;

/// Bins of a stretch, in which change points are searched for.
const BINS: usize = 128;
/// Share of the accesses that must be of another kind next to a boundary: what changes gradually, as the work of a
/// factorisation, is no boundary. Arrays that the same loop reads and writes at other shares differ less; they may still
/// differ by their threads.
const DIFFER: f64 = 0.2;
/// Samples next to a boundary that show it, in the pages of the smallest part at least: eight kinds with as many samples
/// differ by a tenth by chance.
const NEXT: f64 = 200.0;

/// Change points of the marks in a stretch, as pages at the ends of bins.
pub(super) fn change_points(line: &Line, first: u32, end: u32) -> Vec<u32> {
    let marks = line.marks(first, end);
    let kinds = line.kinds;
    let pages = u64::from(end - first);
    let bins = BINS.min(pages as usize);
    let mut sums = vec![0.0f32; (bins + 1) * kinds];
    for m in marks {
        let bin = (u64::from(m.page - first) * bins as u64 / pages) as usize;
        sums[(bin + 1) * kinds + usize::from(m.what)] += m.weight;
    }
    for i in kinds..sums.len() {
        sums[i] += sums[i - kinds];
    }
    let priors = priors(kinds);
    // Half a sample of each kind is known beforehand, nearly: few kinds with most of the accesses are likely.
    let Some(prior) = priors.get(1) else { return Vec::new() };
    let price = EVIDENCE_NATS + (bins as f64).ln();
    let mut best = vec![(0.0, 0usize); bins + 1];
    for b in 1..=bins {
        let of = |a: usize| best[a].0 + evidence(&sums, kinds, (a, b), prior) - price;
        best[b] = (0..b).map(|a| (of(a), a)).max_by(|x, y| x.0.total_cmp(&y.0)).unwrap_or_default();
    }
    let mut found = Vec::new();
    let mut at = best[bins].1;
    while at > 0 {
        found.push(first + (at as u64 * pages).div_ceil(bins as u64) as u32);
        at = best[at].1;
    }
    found.reverse();
    found
}

/// Evidence of the bins `a..b` as one part.
fn evidence(sums: &[f32], kinds: usize, (a, b): (usize, usize), prior: &Prior) -> f64 {
    let (mut all, mut own) = (0.0, 0.0);
    for kind in 0..kinds {
        let n = sums[b * kinds + kind] - sums[a * kinds + kind];
        if n > 0.0 {
            all += n;
            own += prior.0.at(n);
        }
    }
    f64::from(own - prior.1.at(all))
}

/// Weights of the kinds.
pub(super) fn counts(marks: &[Mark], kinds: usize) -> Vec<f64> {
    let mut sums = vec![0.0; kinds];
    marks.iter().for_each(|m| sums[usize::from(m.what)] += f64::from(m.weight));
    sums
}

/// Nats that a cut saves in describing the marks.
pub(super) fn evidence_of_cut(line: &Line, (first, page, end): (u32, u32, u32)) -> f64 {
    described(line, first, end) - described(line, first, page) - described(line, page, end)
}

/// The kinds of the nearest marks, the nearest first.
fn next<'a>(marks: impl Iterator<Item = &'a Mark>, line: &Line) -> Vec<f64> {
    let mut sums = vec![0.0; line.kinds];
    let (mut weight, mut first) = (0.0, None);
    for m in marks {
        let start = *first.get_or_insert(m.page);
        if weight >= NEXT && m.page.abs_diff(start) >= line.least {
            break;
        }
        weight += f64::from(m.weight);
        sums[usize::from(m.what)] += f64::from(m.weight);
    }
    sums
}

/// Nats of the marks of a stretch.
pub(super) fn described(line: &Line, first: u32, end: u32) -> f64 {
    nats(&counts(line.marks(first, end), line.kinds))
}

/// The same, but 0 when they do not change abruptly there.
pub(super) fn saved(line: &Line, (first, page, end): (u32, u32, u32)) -> f64 {
    let before = next(line.marks(first, page).iter().rev(), line);
    let behind = next(line.marks(page, end).iter(), line);
    if distance(&before, &behind) < DIFFER {
        return 0.0;
    }
    evidence_of_cut(line, (first, page, end))
}

/// Nats of one after the other, at shares that half a logarithm of the samples each describes.
fn nats(counts: &[f64]) -> f64 {
    let total: f64 = counts.iter().sum();
    let used = counts.iter().filter(|n| **n > 0.0).count() as f64;
    let term = |n: &f64| if *n > 0.0 { n * (total / n).ln() } else { 0.0 };
    counts.iter().map(term).sum::<f64>() + 0.5 * (used - 1.0).max(0.0) * total.max(1.0).ln()
}

/// Share of the accesses that are of another kind on the other side; 0 where a side has none.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let (all_a, all_b) = (a.iter().sum::<f64>(), b.iter().sum::<f64>());
    if all_a <= 0.0 || all_b <= 0.0 {
        return 0.0;
    }
    a.iter().zip(b).map(|(x, y)| (x / all_a - y / all_b).abs()).sum::<f64>() / 2.0
}
