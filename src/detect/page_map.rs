//! Page map: runs of pages with one owner each, for objects whose owners no formula gives.
//!
//! The owner of a page is hidden, its samples show it: with probability 1 - q a sample comes from the owner, else from
//! any thread by the threads' shares. From page to page the owner stays, or with probability 1 / L it is drawn anew.
//! The most likely owners of all pages together are found exactly in O(samples) (as in [`super::fold`]: a thread
//! without a sample on a page keeps its score), for L = 1, 2, 4, ... as long as the likelihood grows. Pages with many
//! samples thus have owners of their own, and those with few or none the owners of the pages around them.

use super::Slice;
use super::samples::Samples;

/// Pages with one owner, index into [`Samples::ranks`].
#[derive(Debug, Clone, Copy, PartialEq)]
struct Run {
    thread: u16,
    first: u32,
    last: u32,
}

const NONE: u32 = u32::MAX;

/// A run that is not yet finished: its link, its last page, and the score of the best chain of runs that ends in it.
#[derive(Clone, Copy)]
struct State {
    score: f64,
    link: u32,
    last: u32,
}

/// The start of a run after another one, `before`, which ended at `before_last`.
#[derive(Clone, Copy)]
struct Link {
    thread: u16,
    first: u32,
    before: u32,
    before_last: u32,
}

/// Share of noise assumed: without a lower bound a single stray sample would be nearly impossible.
const NOISE_RANGE: (f64, f64) = (0.02, 0.75);

/// Runs of pages with one owner as parts of an object of `end` bytes; `noise` is the share of the samples that do not
/// come from their page's owner. Pages without a sample belong to the nearer of the runs around them.
pub(super) fn page_map(samples: &Samples, noise: f64, end: u64, skew: u64) -> Vec<Slice> {
    let mut sorted: Vec<(u32, u16, f32)> = samples.list.iter().map(|s| (s.page, s.thread, s.weight)).collect();
    if !sorted.is_sorted_by_key(|s| s.0) {
        sorted.sort_unstable_by_key(|s| s.0);
    }
    let gains = gains(&sorted, samples.threads(), noise.clamp(NOISE_RANGE.0, NOISE_RANGE.1));
    let mut best: Option<(f64, Vec<Run>)> = None;
    let mut length = 1.0;
    while length <= f64::from(samples.pages) {
        let found = runs(&sorted, &gains, length);
        if best.as_ref().is_some_and(|b| b.0 >= found.0) {
            break;
        }
        best = Some(found);
        length *= 2.0;
    }
    let runs = best.map(|b| b.1).unwrap_or_default();
    let byte = |page: f64| ((page * samples.unit as f64) as u64).saturating_sub(skew).min(end);
    let edge = |i: usize| match (i.checked_sub(1).and_then(|b| runs.get(b)), runs.get(i)) {
        // Whole pages: a page has one owner.
        (Some(a), Some(b)) => byte(((f64::from(a.last) + 1.0 + f64::from(b.first)) / 2.0).floor()),
        (None, _) => 0,
        (_, None) => end,
    };
    let slice = |(i, r): (usize, &Run)| Slice {
        start: edge(i),
        end: edge(i + 1),
        thread: samples.ranks[usize::from(r.thread)],
    };
    runs.iter().enumerate().map(slice).collect()
}

/// Nats by which one sample of each thread speaks for its page being the thread's own.
fn gains(sorted: &[(u32, u16, f32)], threads: usize, noise: f64) -> Vec<f64> {
    let mut sums = vec![0.0; threads];
    sorted.iter().for_each(|s| sums[usize::from(s.1)] += f64::from(s.2));
    let total: f64 = sums.iter().sum();
    sums.iter().map(|s| (1.0 + (1.0 - noise) / (noise * (s / total.max(1e-9)).max(1e-9))).ln()).collect()
}

/// The most likely runs when an owner is drawn anew after `length` pages on average, and their log-likelihood up to a
/// constant.
fn runs(sorted: &[(u32, u16, f32)], gains: &[f64], length: f64) -> (f64, Vec<Run>) {
    let threads = gains.len() as f64;
    // What is left after one page of the memory of the owner.
    let memory = 1.0 - 1.0 / length;
    let mut states = vec![State { score: f64::NEG_INFINITY, link: NONE, last: 0 }; gains.len()];
    let mut links: Vec<Link> = Vec::new();
    let mut next_best = State { score: 0.0, link: NONE, last: 0 };
    let mut stays = 0.0;
    let mut before: Option<u32> = None;
    for page in sorted.chunk_by(|a, b| a.0 == b.0) {
        let at = page[0].0;
        // Odds of staying against changing to one certain other thread, over the pages since the last one seen.
        let price = before.map_or(0.0, |b| {
            let kept = memory.powi((at - b).min(i32::MAX as u32) as i32);
            stays += ((1.0 + (threads - 1.0) * kept) / threads).ln();
            ((1.0 + (threads - 1.0) * kept) / (1.0 - kept).max(f64::MIN_POSITIVE)).ln()
        });
        before = Some(at);
        let best = next_best;
        for &(_, thread, weight) in page {
            let state = &mut states[usize::from(thread)];
            let start = best.score - price;
            if start > state.score {
                *state = State { score: start, link: links.len() as u32, last: at };
                links.push(Link { thread, first: at, before: best.link, before_last: best.last });
            }
            state.score += gains[usize::from(thread)] * f64::from(weight);
            state.last = at;
            if state.score > next_best.score {
                next_best = *state;
            }
        }
    }
    let mut runs: Vec<Run> = Vec::new();
    let (mut link, mut last) = (next_best.link, next_best.last);
    while link != NONE {
        let l = links[link as usize];
        match runs.last_mut() {
            // A thread that follows itself continues its run.
            Some(run) if run.thread == l.thread => run.first = l.first,
            _ => runs.push(Run { thread: l.thread, first: l.first, last }),
        }
        (link, last) = (l.before, l.before_last);
    }
    runs.reverse();
    (next_best.score + stays, runs)
}
