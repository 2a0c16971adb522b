//! Several cuts of a stretch that are tried at once, from its samples by page and thread.
//!
//! A cut that pays only together with others is not found by trying one cut at a time: of three arrays in slices, both
//! sides of any cut still hold several arrays, and need a list of slices as the whole does. From the samples of each
//! page by thread, [`runs`] computes the most likely division of a stretch into runs of pages that one thread owns or
//! all share (Viterbi's algorithm). [`arrays`] divides the sequence of runs into arrays that a formula describes (one
//! owner, shared, one slice for each thread in order, slices that repeat with a period), so that the formulas together
//! are shortest.

use super::line::{Line, alone, stretch};
use crate::detect::points::{self, Points};

/// Most states of pages and threads that are compared; with more, the samples that are judged are used.
const MOST_STATES: usize = 1 << 22;
/// Most runs of a stretch: the time to divide them grows with their square.
const MOST_RUNS: usize = 1024;
/// Share of noise that is assumed first; the second time it is estimated, within these bounds.
const FIRST_NOISE: f64 = 0.3;
const NOISE_RANGE: (f64, f64) = (0.005, 0.6);
/// Pages, and part of a length, by which equal lengths may differ: the edges of runs lie between samples.
const EDGE: f64 = 2.0;
const UNEQUAL: f64 = 0.125;

/// Pages of a slice from which one slice for each thread is seen: of fewer, as many are shared with the slices beside
/// it as belong to it alone, and where these lie differs from slice to slice.
const SLICE: u32 = 4;

/// Pages with one owner, or with none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Run {
    /// Index into the threads of the points.
    pub owner: Option<u16>,
    pub first: u32,
    /// First page of the next run.
    pub end: u32,
    /// Independent samples.
    pub weight: f64,
}

/// The first page of each array but the first that the runs of a stretch show; empty when they show one array.
pub(super) fn boundaries(line: &Line, first: u32, end: u32) -> Vec<u32> {
    let (runs, threads) = of_stretch(line, first, end);
    if runs.len() < 2 || runs.len() > MOST_RUNS {
        return Vec::new();
    }
    let nats = Nats {
        page: f64::from(line.samples.pages).ln(),
        owner: (threads as f64).ln(),
        shares: 0.5 * (line.samples.threads() as f64 - 1.0),
    };
    arrays(&runs, &nats, line.least).into_iter().map(|page| first + page).collect()
}

/// The first page of each run of a stretch but the first.
pub(super) fn edges(line: &Line, first: u32, end: u32) -> Vec<u32> {
    of_stretch(line, first, end).0.iter().skip(1).map(|run| first + run.first).collect()
}

/// The runs of a stretch, and the number of threads that take part in it; none when that is one.
fn of_stretch(line: &Line, first: u32, end: u32) -> (Vec<Run>, usize) {
    let all = stretch(&line.samples.list, first, end).len();
    let few = all.saturating_mul(line.samples.threads() + 1) <= MOST_STATES;
    let samples = alone(if few { &line.samples } else { &line.judged }, first, end);
    let points = points::collect(&samples, samples.list.iter());
    let threads = points.threads();
    if threads < 2 {
        return (Vec::new(), threads);
    }
    let price = (f64::from(line.samples.pages) * threads as f64).ln();
    let rough = runs(&points, FIRST_NOISE, price);
    (runs(&points, noise(&points, &rough), price), threads)
}

/// Share of the samples in owned runs that ignore the owner.
fn noise(points: &Points, runs: &[Run]) -> f64 {
    let (mut matched, mut all) = (0.0, 0.0);
    let mut next = 0;
    for p in &points.list {
        while runs.get(next).is_some_and(|r| r.end <= p.page) {
            next += 1;
        }
        if let Some(owner) = runs.get(next).and_then(|r| r.owner) {
            all += f64::from(p.weight);
            matched += if owner == p.thread { f64::from(p.weight) } else { 0.0 };
        }
    }
    let threads = points.threads() as f64;
    let stray = (1.0 - matched / f64::max(all, 1.0)) * threads / (threads - 1.0);
    stray.clamp(NOISE_RANGE.0, NOISE_RANGE.1)
}

/// The most likely runs. An access to a shared page is by any thread; an access to an owned one is by the owner, or
/// with probability `noise` by any thread. `price` are the nats to name a run.
fn runs(points: &Points, noise: f64, price: f64) -> Vec<Run> {
    let threads = points.threads();
    let any = 1.0 / threads as f64;
    // Nats of an access by the owner, and by another thread, more than on a shared page.
    let (own, other) = (((1.0 - noise + noise * any) / any).ln(), noise.ln());
    // The last state is "shared".
    let mut scores = vec![0.0; threads + 1];
    let mut begins: Vec<bool> = Vec::new();
    // Of each page with samples: its number, its samples, and the best state before it.
    let mut pages: Vec<(u32, f64, usize)> = Vec::new();
    let mut best = threads;
    for of_page in points.list.chunk_by(|a, b| a.page == b.page) {
        let enter = scores[best] - price;
        let weight: f64 = of_page.iter().map(|p| f64::from(p.weight)).sum();
        pages.push((of_page[0].page, weight, best));
        let so_far = begins.len();
        begins.resize(so_far + scores.len(), false);
        for (score, begin) in scores.iter_mut().zip(&mut begins[so_far..]) {
            *begin = enter > *score;
            *score = if enter > *score { enter } else { *score };
        }
        scores[..threads].iter_mut().for_each(|score| *score += weight * other);
        of_page.iter().for_each(|p| scores[usize::from(p.thread)] += f64::from(p.weight) * (own - other));
        best = last_highest(&scores);
    }
    let mut found: Vec<Run> = Vec::new();
    let (mut state, mut weight, mut end) = (best, 0.0, points.pages);
    for (i, &(page, here, before)) in pages.iter().enumerate().rev() {
        weight += here;
        if i == 0 || begins[i * (threads + 1) + state] {
            // Between two pages with samples every page is as likely: the one in the middle.
            let first = if i == 0 { 0 } else { pages[i - 1].0 + 1 + (page - pages[i - 1].0 - 1) / 2 };
            found.push(Run { owner: (state < threads).then_some(state as u16), first, end, weight });
            (state, weight, end) = (before, 0.0, first);
        }
    }
    found.reverse();
    whole_pages(found)
}

/// The last of the highest scores. [`Iterator::max_by`] compares one after the other, several at once take a third of
/// the time.
fn last_highest(scores: &[f64]) -> usize {
    const AT_ONCE: usize = 8;
    let higher = |a: f64, b: f64| if b > a { b } else { a };
    let (groups, rest) = scores.as_chunks::<AT_ONCE>();
    let mut highest = [f64::NEG_INFINITY; AT_ONCE];
    for group in groups {
        highest.iter_mut().zip(group).for_each(|(a, b)| *a = higher(*a, *b));
    }
    let highest = highest.iter().chain(rest).copied().fold(f64::NEG_INFINITY, higher);
    scores.iter().rposition(|score| *score == highest).unwrap_or(0)
}

/// The runs without the pages in which one owner's slice ends and the next one's begins: these belong to the first.
fn whole_pages(runs: Vec<Run>) -> Vec<Run> {
    let mut kept: Vec<Run> = Vec::with_capacity(runs.len());
    for (i, run) in runs.iter().enumerate() {
        let next = runs.get(i + 1).and_then(|r| r.owner);
        let shared_page = run.owner.is_none() && run.end - run.first == 1 && next.is_some();
        match kept.last_mut() {
            Some(last) if last.owner.is_some() && (shared_page || last.owner == run.owner) => {
                last.end = run.end;
                last.weight += run.weight;
            }
            _ => kept.push(*run),
        }
    }
    kept
}

/// Nats to name a page of the object, to name a thread, and to name the shares of the threads of an array, these for
/// each nat of the logarithm of its samples.
struct Nats {
    page: f64,
    owner: f64,
    shares: f64,
}

/// The first page of each array but the first, so that the formulas of all arrays are shortest. No array is shorter
/// than `least` pages; empty when there is no such division.
fn arrays(runs: &[Run], nats: &Nats, least: u32) -> Vec<u32> {
    let mut best = vec![(f64::INFINITY, 0usize); runs.len() + 1];
    best[0].0 = 0.0;
    for a in 0..runs.len() {
        let before = best[a].0;
        let mut weight = 0.0;
        let mut offer = |b: usize, formula: f64, weight: f64| {
            let cost = before + nats.page + formula + nats.shares * weight.max(1.0).ln();
            if cost < best[b].0 && runs[b - 1].end - runs[a].first >= least {
                best[b] = (cost, a);
            }
        };
        offer(a + 1, 0.0, runs[a].weight);
        let rest = &runs[a..];
        let (block, (period, cyclic)) = (in_order(rest), repeats(rest));
        // Edges that do not follow from the number of slices.
        let edges = |slices: &[Run]| if equal(slices) { 0.0 } else { slices.len() as f64 * nats.page };
        for (i, run) in rest.iter().enumerate().take(block.max(cyclic)) {
            weight += run.weight;
            let (count, noise) = (i + 1, 0.5 * weight.max(1.0).ln());
            if (2..=block).contains(&count) && run.end - rest[0].first >= SLICE * count as u32 {
                offer(a + count, noise + 2.0_f64.ln() + edges(&rest[..count]), weight);
            }
            if count > period && count <= cyclic {
                let slices = &rest[..period];
                let owners = if in_turn(slices) { 1.0 } else { period as f64 } * nats.owner;
                offer(a + count, noise + nats.page + owners + edges(slices), weight);
            }
        }
    }
    if best[runs.len()].0 == f64::INFINITY {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut at = best[runs.len()].1;
    while at > 0 {
        found.push(runs[at].first);
        at = best[at].1;
    }
    found.reverse();
    found
}

/// Number of runs from the first on whose owners ascend, or descend.
fn in_order(runs: &[Run]) -> usize {
    let up = |w: &[Run]| w[0].owner.is_some() && w[0].owner < w[1].owner;
    let down = |w: &[Run]| w[1].owner.is_some() && w[0].owner > w[1].owner;
    let steps = |in_order: &dyn Fn(&[Run]) -> bool| 1 + runs.windows(2).take_while(|w| in_order(w)).count();
    steps(&up).max(steps(&down))
}

/// Whether the lengths are about equal.
fn equal(runs: &[Run]) -> bool {
    let pages = |r: &Run| f64::from(r.end - r.first);
    let mean = runs.iter().map(pages).sum::<f64>() / runs.len() as f64;
    runs.iter().all(|r| (pages(r) - mean).abs() <= EDGE + UNEQUAL * mean)
}

/// Whether the owners ascend, or descend, but for one step at most: from the last thread to the first.
fn in_turn(runs: &[Run]) -> bool {
    let down = runs.windows(2).filter(|w| w[0].owner > w[1].owner).count();
    down <= 1 || down + 2 >= runs.len()
}

/// The runs of a period, all of different owners, and the number of runs from the first on in which it repeats at equal
/// distances; both 0 when nothing repeats.
fn repeats(runs: &[Run]) -> (usize, usize) {
    let first = &runs[0];
    let Some(period) = (1..runs.len()).find(|i| runs[*i].owner == first.owner).filter(|n| *n >= 2) else {
        return (0, 0);
    };
    let mut owners: Vec<Option<u16>> = runs[..period].iter().map(|r| r.owner).collect();
    owners.sort_unstable();
    if owners[0].is_none() || owners.windows(2).any(|w| w[0] == w[1]) {
        return (0, 0);
    }
    let pages = f64::from(runs[period].first - first.first);
    let edge = EDGE + UNEQUAL * pages / period as f64;
    let again = |i: &usize| {
        let (now, before) = (&runs[*i], &runs[*i - period]);
        let distance = f64::from(now.first - before.first);
        // The last one may be shorter.
        let longer = f64::from(now.end - now.first) - f64::from(before.end - before.first);
        now.owner == before.owner && (distance - pages).abs() <= edge && longer <= 2.0 * edge
    };
    (period, period + (period..runs.len()).take_while(again).count())
}

#[cfg(test)]
#[path = "runs_tests.rs"]
mod tests;
