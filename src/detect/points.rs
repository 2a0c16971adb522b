//! The input of the structure detectors: weights in independent samples per page and thread. Threads are renumbered to
//! those that take part, and initialisation is left out.

use super::limits::{HOT_SIGMA, TAKES_PART};
use super::samples::{Sample, Samples};

/// Weight of one thread on one page.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    /// Page.
    pub page: u32,
    /// Index into [`Points::threads`].
    pub thread: u16,
    /// Independent samples.
    pub weight: f32,
}

/// A thread that takes part.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Participant {
    /// Its rank.
    pub rank: u32,
    /// Independent samples of it behind the points.
    pub weight: f64,
    /// Its share of all of them.
    pub share: f64,
}

/// All points of one object, ascending by (page, thread), one per pair.
#[derive(Debug, Clone, Default)]
pub(crate) struct Points {
    /// Pages of the object.
    pub pages: u32,
    /// The points.
    pub list: Vec<Point>,
    /// Ascending by rank.
    pub threads: Vec<Participant>,
    /// Independent samples behind the points.
    pub samples: f64,
}

impl Points {
    /// Threads that take part.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Times that `period` pages fit between the first and the last page that is used, at least once: an object may be
    /// much larger than its used part, and what nobody uses shows no repeat.
    pub fn repeats(&self, period: f64) -> f64 {
        (self.used() / period).max(1.0)
    }

    /// Pages from the first that is used to the last.
    pub fn used(&self) -> f64 {
        let ends = self.list.first().zip(self.list.last());
        ends.map_or(0.0, |(first, last)| f64::from(last.page - first.page + 1))
    }

    /// About `most` points, drawn at random, for searches that only rank candidates. A fixed stride could coincide with
    /// the order of threads inside pages.
    pub fn thinned(&self, most: usize) -> std::borrow::Cow<'_, Points> {
        if self.list.len() <= most {
            return std::borrow::Cow::Borrowed(self);
        }
        let keep = most as f64 / self.list.len() as f64;
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let list: Vec<Point> = self.list.iter().copied().filter(|_| uniform(&mut state) < keep).collect();
        let mut threads = self.threads.clone();
        threads.iter_mut().for_each(|t| t.weight = 0.0);
        list.iter().for_each(|p| threads[usize::from(p.thread)].weight += f64::from(p.weight));
        let samples = threads.iter().map(|t| t.weight).sum();
        std::borrow::Cow::Owned(Points { pages: self.pages, list, threads, samples })
    }
}

/// Next number in [0, 1) of a fixed pseudo-random sequence (xorshift64*), so that the detectors stay pure.
pub(crate) fn uniform(state: &mut u64) -> f64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
}

/// Folds samples to points.
pub(crate) fn collect<'a>(samples: &Samples, list: impl Iterator<Item = &'a Sample>) -> Points {
    gather(samples.pages, samples, list.map(|s| (s.page, s.thread, s.weight)))
}

/// Folds (page, thread, weight) to points over `pages` pages.
pub(crate) fn gather(pages: u32, samples: &Samples, raw: impl Iterator<Item = (u32, u16, f32)>) -> Points {
    let mut raw: Vec<(u32, u16, f32)> = raw.filter(|r| r.0 < pages).collect();
    let index = taking_part(&raw, samples.threads());
    let key = |r: &(u32, u16, f32)| (r.0, r.1);
    if !raw.is_sorted_by_key(key) {
        raw.sort_unstable_by_key(key);
    }
    let ranks = samples.ranks.iter().zip(&index).filter(|(_, i)| i.is_some()).map(|(rank, _)| *rank);
    let mut threads: Vec<_> = ranks.map(|rank| Participant { rank, ..Participant::default() }).collect();
    let mut list: Vec<Point> = Vec::with_capacity(raw.len());
    for (page, thread, weight) in raw {
        let Some(thread) = index[usize::from(thread)] else { continue };
        match list.last_mut() {
            Some(last) if last.page == page && last.thread == thread => last.weight += weight,
            _ => list.push(Point { page, thread, weight }),
        }
    }
    level(&mut list);
    list.iter().for_each(|p| threads[usize::from(p.thread)].weight += f64::from(p.weight));
    let samples: f64 = threads.iter().map(|t| t.weight).sum();
    threads.iter_mut().filter(|_| samples > 0.0).for_each(|t| t.share = t.weight / samples);
    Points { pages, list, threads, samples }
}

/// Reduces the weight of pages with far more samples than the others: a page that holds a counter or a lock has samples
/// of all threads, but it is one page, and its many samples must not cut a slice in two.
fn level(list: &mut [Point]) {
    let total: f64 = list.iter().map(|p| f64::from(p.weight)).sum();
    let pages = list.chunk_by(|a, b| a.page == b.page).count().max(1) as f64;
    let mean = total / pages;
    let most = mean + HOT_SIGMA * mean.sqrt();
    for page in list.chunk_by_mut(|a, b| a.page == b.page) {
        let weight: f64 = page.iter().map(|p| f64::from(p.weight)).sum();
        if weight > most {
            page.iter_mut().for_each(|p| p.weight *= (most / weight) as f32);
        }
    }
}

/// New index of every thread that takes part.
fn taking_part(raw: &[(u32, u16, f32)], threads: usize) -> Vec<Option<u16>> {
    let mut sums = vec![0.0; threads];
    raw.iter().for_each(|r| sums[usize::from(r.1)] += f64::from(r.2));
    let total: f64 = sums.iter().sum();
    let used = sums.iter().filter(|s| **s > 0.0).count();
    let least = TAKES_PART * total / used.max(1) as f64;
    let mut next = 0;
    let index = |s: &f64| {
        (*s > 0.0 && *s >= least).then(|| {
            next += 1;
            next - 1
        })
    };
    sums.iter().map(index).collect()
}
