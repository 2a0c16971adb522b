//! The pages of a stretch at which one cut is tried, from its samples: where the code or the kind of the accesses
//! changes, where slices of the same threads begin again, where the slices become longer or shorter, and where the
//! share of accesses outside of slices, or their threads, change. And the cuts of a stretch into equal parts that have
//! different threads. What a cut there saves is computed elsewhere ([`search`]).
//!
//! [`search`]: super::search

use super::line::{Line, alone, stretch};
use super::signature;
use crate::detect::block;
use crate::detect::fold::{Cut, Folder};
use crate::detect::limits::EVIDENCE_NATS;
use crate::detect::points::{self, Points};

/// Cuts that are tried of each sort.
const MOST: usize = 4;
/// Bins of a stretch and groups of threads for what is compared from bin to bin.
const BINS: usize = 128;
const GROUPS: usize = 16;
/// Share of the samples of a stretch that a cut must take from their second slices.
const TAKES: f64 = 0.03;
/// Relative error of the length of a slice: of eight pages one may be its neighbour's.
const LENGTH_ERROR: f64 = 0.125;
/// Most equal parts of a stretch: as many as rows of tiles on 256 threads.
const MOST_EQUAL: usize = 16;
/// Part of the highest value from which cuts count as equally good.
const TIED: f64 = 0.97;

/// Change points of the code and the kind of the accesses, those of the largest difference.
pub(super) fn by_code(line: &Line, first: u32, end: u32) -> Vec<u32> {
    let mut found: Vec<(f64, u32)> = signature::change_points(line, first, end)
        .into_iter()
        .filter(|page| is_inside(line, *page, first, end))
        .map(|page| (signature::evidence_of_cut(line, (first, page, end)), page))
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().take(MOST).map(|(_, page)| page).collect()
}

fn is_inside(line: &Line, page: u32, first: u32, end: u32) -> bool {
    page >= first + line.least && page + line.least <= end
}

/// Cuts between slices of the same threads, where the length of the slices changes, and where the share of the accesses
/// outside of slices, or their threads, change.
pub(super) fn by_threads(line: &Line, first: u32, end: u32) -> Vec<u32> {
    let samples = alone(&line.judged, first, end);
    let points = points::collect(&samples, samples.list.iter());
    if points.threads() < 2 {
        return Vec::new();
    }
    let fit = block::find(&points, &mut Folder::default());
    let mut found = between_slices(&fit.cuts, points.samples);
    found.extend(between_lengths(&fit.cuts));
    found.extend(between_bins(&points, &fit.cuts, !block::one_slice_each(&fit, false)));
    let mut found: Vec<u32> =
        found.into_iter().map(|page| first + page).filter(|page| is_inside(line, *page, first, end)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The cuts of a stretch into as many equal parts as describe its threads shortest, each by their shares: rows of the
/// tiles of a matrix, of which each has threads of its own. Empty when one part does.
pub(super) fn equal_parts(line: &Line, first: u32, end: u32) -> Vec<u32> {
    let edge = |i: usize, parts: usize| first + (u64::from(end - first) * i as u64 / parts as u64) as u32;
    let described = |parts: usize| -> f64 {
        let part = |i: usize| {
            let mut sums = vec![0.0; line.judged.threads()];
            let own = stretch(&line.judged.list, edge(i, parts), edge(i + 1, parts));
            own.iter().for_each(|s| sums[usize::from(s.thread)] += f64::from(s.weight));
            nats(&sums)
        };
        (0..parts).map(part).sum()
    };
    let room = ((end - first) / line.least) as usize;
    let most = MOST_EQUAL.min(room);
    let best = (2..=most).map(|parts| (described(parts), parts)).min_by(|a, b| a.0.total_cmp(&b.0));
    let (_, parts) = match best {
        Some(best) if best.0 + EVIDENCE_NATS < described(1) => best,
        _ => return Vec::new(),
    };
    (1..parts).map(|i| edge(i, parts)).collect()
}

/// Cuts that separate slices of the same threads: those with most samples in the largest slice that each thread has
/// before the cut, and in the largest one behind it.
fn between_slices(cuts: &[Cut], total: f64) -> Vec<u32> {
    let before = largest(cuts.iter());
    let behind = largest(cuts.iter().rev());
    let whole = before.last().copied().unwrap_or_default();
    // The value of a cut behind slice i.
    let value = |i: usize| before[i] + behind[cuts.len() - 2 - i] - whole;
    let values: Vec<f64> = (0..cuts.len().saturating_sub(1)).map(value).collect();
    let highest = values.iter().copied().fold(0.0, f64::max);
    if highest < TAKES * total {
        return Vec::new();
    }
    let tied: Vec<usize> = (0..values.len()).filter(|i| values[*i] >= TIED * highest).collect();
    let some = |n: usize| tied[n * (tied.len() - 1) / (MOST - 1).max(1)];
    let mut chosen: Vec<usize> = (0..MOST).map(some).collect();
    chosen.dedup();
    chosen.into_iter().map(|i| ((u64::from(cuts[i].last) + 1 + u64::from(cuts[i + 1].first)) / 2) as u32).collect()
}

/// The cut between slices of different lengths: where the logarithms of the lengths on each side vary least about their
/// mean.
fn between_lengths(cuts: &[Cut]) -> Option<u32> {
    let lengths: Vec<f64> = cuts.iter().map(|c| f64::from(c.last - c.first + 1).ln()).collect();
    let sums = |of: fn(f64) -> f64| {
        let so_far = lengths.iter().scan(0.0, |sum, x| {
            *sum += of(*x);
            Some(*sum)
        });
        [0.0].into_iter().chain(so_far).collect::<Vec<f64>>()
    };
    let (sum, squares) = (sums(|x| x), sums(|x| x * x));
    let nats = |a: usize, b: usize| {
        let n = (b - a) as f64;
        let variance = (squares[b] - squares[a]) / n - ((sum[b] - sum[a]) / n).powi(2);
        0.5 * n * (variance + LENGTH_ERROR * LENGTH_ERROR).ln()
    };
    let n = lengths.len();
    let saved = |i: usize| nats(0, n) - nats(0, i) - nats(i, n);
    let best = (2..n.saturating_sub(1)).map(|i| (saved(i), i)).max_by(|a, b| a.0.total_cmp(&b.0));
    let (_, i) = best.filter(|b| b.0 > EVIDENCE_NATS)?;
    Some(((u64::from(cuts[i - 1].last) + 1 + u64::from(cuts[i].first)) / 2) as u32)
}

/// After each slice: the samples in the largest slice of each thread so far.
fn largest<'a>(cuts: impl Iterator<Item = &'a Cut>) -> Vec<f64> {
    let mut most: std::collections::HashMap<u16, f64> = std::collections::HashMap::new();
    let mut sum = 0.0;
    let mut after = |c: &Cut| {
        let own = most.entry(c.thread).or_default();
        sum += (c.matched - *own).max(0.0);
        *own = own.max(c.matched);
        sum
    };
    cuts.map(&mut after).collect()
}

/// Samples of a bin: inside slices of their thread, outside by group of threads, and all by group of threads.
#[derive(Clone, Copy, Default)]
struct Bin {
    inside: f64,
    outside: [f64; GROUPS],
    all: [f64; GROUPS],
}

impl Bin {
    fn add(&mut self, other: &Bin) {
        self.inside += other.inside;
        self.outside.iter_mut().zip(other.outside).for_each(|(a, b)| *a += b);
        self.all.iter_mut().zip(other.all).for_each(|(a, b)| *a += b);
    }

    fn less(&self, other: &Bin) -> Bin {
        let mut out = *self;
        out.inside -= other.inside;
        out.outside.iter_mut().zip(other.outside).for_each(|(a, b)| *a -= b);
        out.all.iter_mut().zip(other.all).for_each(|(a, b)| *a -= b);
        out
    }

    fn all_outside(&self) -> f64 {
        self.outside.iter().sum()
    }

    /// Nats to say of each sample whether it is inside.
    fn split(&self) -> f64 {
        nats(&[self.inside, self.all_outside()])
    }

    /// Nats to say the group of threads of each sample outside.
    fn threads(&self) -> f64 {
        nats(&self.outside)
    }

    /// The same of each sample.
    fn team(&self) -> f64 {
        nats(&self.all)
    }
}

/// Nats of samples drawn by the shares of their kinds, and of the shares.
fn nats(counts: &[f64]) -> f64 {
    let total: f64 = counts.iter().sum();
    let term = |n: &f64| if *n > 0.0 { n * (total / n).ln() } else { 0.0 };
    let used = counts.iter().filter(|n| **n > 0.0).count() as f64;
    counts.iter().map(term).sum::<f64>() + 0.5 * (used - 1.0).max(0.0) * total.max(1.0).ln()
}

/// The end of the bin at which the share inside of slices changes most, and the same for the threads outside. Where
/// threads have `several` slices, also where other threads begin: the next row of the tiles of a matrix.
fn between_bins(points: &Points, cuts: &[Cut], several: bool) -> Vec<u32> {
    let bins = BINS.min(points.pages as usize);
    let mut sums = vec![Bin::default(); bins + 1];
    let threads = points.threads().max(GROUPS);
    let mut at = 0;
    for p in &points.list {
        while cuts.get(at).is_some_and(|c| c.last < p.page) {
            at += 1;
        }
        let group = usize::from(p.thread) * GROUPS / threads;
        let bin = &mut sums[(u64::from(p.page) * bins as u64 / u64::from(points.pages)) as usize + 1];
        bin.all[group] += f64::from(p.weight);
        if cuts.get(at).is_some_and(|c| c.first <= p.page && c.thread == p.thread) {
            bin.inside += f64::from(p.weight);
        } else {
            bin.outside[group] += f64::from(p.weight);
        }
    }
    for i in 1..=bins {
        let before = sums[i - 1];
        sums[i].add(&before);
    }
    let whole = sums[bins];
    let best = |of: fn(&Bin) -> f64| {
        let saved = |i: usize| of(&whole) - of(&sums[i]) - of(&whole.less(&sums[i]));
        let (saved, bin) = (1..bins).map(|i| (saved(i), i)).max_by(|a, b| a.0.total_cmp(&b.0))?;
        let page = (bin as u64 * u64::from(points.pages)).div_ceil(bins as u64) as u32;
        (saved > EVIDENCE_NATS + (bins as f64).ln()).then_some(page)
    };
    let of_teams = if several { best(Bin::team) } else { None };
    [best(Bin::split), best(Bin::threads), of_teams].into_iter().flatten().collect()
}
