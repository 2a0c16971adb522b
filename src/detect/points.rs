//! What the structure detectors work on: independent-sample weights per page and thread, threads renumbered
//! to those that take part, initialisation dropped.

use super::limits::{ACCESSES_PER_SAMPLE, TAKES_PART};
use super::{ObjectView, PageAccess};

/// Weight of one thread on one page.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    /// Page.
    pub page: u32,
    /// Index into [`Points::ranks`].
    pub thread: u16,
    /// Independent samples.
    pub weight: f32,
}

/// All points of one object, ascending by (page, thread), one per pair.
#[derive(Debug, Clone, Default)]
pub(crate) struct Points {
    /// Pages of the object.
    pub pages: u32,
    /// The points.
    pub list: Vec<Point>,
    /// Ranks of the threads that take part, ascending.
    pub ranks: Vec<u32>,
    /// Share of each taking-part thread.
    pub shares: Vec<f64>,
    /// Independent samples behind the points.
    pub samples: f64,
}

impl Points {
    /// Threads that take part.
    pub fn threads(&self) -> usize {
        self.ranks.len()
    }

    /// Every k-th point, so that at most about `most` are left; for searches that only rank candidates. The
    /// stride is odd so that it does not lock on to a thread order inside pages.
    pub fn thinned(&self, most: usize) -> std::borrow::Cow<'_, Points> {
        if self.list.len() <= most {
            return std::borrow::Cow::Borrowed(self);
        }
        let keep = most as f64 / self.list.len() as f64;
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let list: Vec<Point> = self.list.iter().copied().filter(|_| uniform(&mut state) < keep).collect();
        let samples = list.iter().map(|p| f64::from(p.weight)).sum();
        std::borrow::Cow::Owned(Points { list, samples, ..self.clone() })
    }
}

/// Next number in [0, 1) of a fixed sequence (xorshift64*): the detectors are pure, so no real randomness.
pub(crate) fn uniform(state: &mut u64) -> f64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
}

/// Pages an object of `view.size` bytes covers.
pub(crate) fn page_count(view: &ObjectView) -> u32 {
    let page = view.page_size.max(1);
    u32::try_from((view.skew + view.size).div_ceil(page)).unwrap_or(u32::MAX).max(1)
}

/// Independent samples per unit of weight. Accesses of one sample mostly fall on one page in one time slot, so
/// the number of distinct cells bounds the independent samples from below, and the total over the usual yield
/// of a sample bounds it for small objects where many samples share a cell.
pub(crate) fn independence(accesses: &[PageAccess]) -> f64 {
    let total: f64 = accesses.iter().map(|a| a.weight).sum();
    if total <= 0.0 {
        return 0.0;
    }
    ((accesses.len() as f64).max(total / ACCESSES_PER_SAMPLE) / total).min(1.0)
}

/// Folds accesses to points. `scale` comes from [`independence`] of the whole object.
pub(crate) fn collect<'a>(pages: u32, accesses: impl Iterator<Item = &'a PageAccess>, scale: f64) -> Points {
    let mut raw: Vec<(u32, u32, f64)> =
        accesses.filter(|a| a.page < pages && a.weight > 0.0).map(|a| (a.page, a.thread, a.weight * scale)).collect();
    let ranks = taking_part(&raw);
    raw.sort_unstable_by_key(|r| (r.0, r.1));
    let mut list: Vec<Point> = Vec::with_capacity(raw.len());
    for (page, rank, weight) in raw {
        let Ok(thread) = ranks.binary_search(&rank) else { continue };
        let thread = thread as u16;
        match list.last_mut() {
            Some(last) if last.page == page && last.thread == thread => last.weight += weight as f32,
            _ => list.push(Point { page, thread, weight: weight as f32 }),
        }
    }
    let mut shares = vec![0.0; ranks.len()];
    for p in &list {
        shares[usize::from(p.thread)] += f64::from(p.weight);
    }
    let samples: f64 = shares.iter().sum();
    if samples > 0.0 {
        shares.iter_mut().for_each(|s| *s /= samples);
    }
    Points { pages, list, ranks, shares, samples }
}

fn taking_part(raw: &[(u32, u32, f64)]) -> Vec<u32> {
    let mut sums: std::collections::BTreeMap<u32, f64> = std::collections::BTreeMap::new();
    for &(_, rank, weight) in raw {
        *sums.entry(rank).or_default() += weight;
    }
    let total: f64 = sums.values().sum();
    let least = TAKES_PART * total / sums.len().max(1) as f64;
    // u16 indices: 65,535 threads are more than any machine runs.
    sums.into_iter().filter(|&(_, s)| s >= least).map(|(rank, _)| rank).take(usize::from(u16::MAX)).collect()
}
