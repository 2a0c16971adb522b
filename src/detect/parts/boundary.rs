//! The page of a boundary between two parts, from the samples of both and from what describes them: the model of the
//! threads of each side ([`Judged`]), and the shares of the code and of reads and writes there. Every page between the
//! samples is compared by the likelihood of all samples on the side where it puts them.

use super::judge::Judged;
use super::line::{Line, stretch};
use super::signature::counts;
use crate::detect::limits::EVIDENCE_NATS;

/// Where a boundary may lie.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The first page of the right side with which all accesses are most likely. Between two pages with samples every
    /// page is as likely: the one in the middle is taken.
    pub page: u32,
    /// The first and the last page with which they are nearly as likely: where the slices next to the boundary have the
    /// same owner, the models do not say which side a page belongs to.
    pub nearly: (u32, u32),
    /// Pages, from first to last, with each of which they are nearly as likely.
    pub near: Vec<(u32, u32)>,
}

/// The likeliest place of a boundary that is at `page` now.
pub(super) fn between(line: &Line, (first, page, end): (u32, u32, u32), left: &Judged, right: &Judged) -> Place {
    let ln_shares = |low: u32, high: u32| {
        let sums = counts(line.marks(low, high), line.kinds);
        let total: f64 = sums.iter().sum::<f64>() + sums.len() as f64 / 2.0;
        sums.into_iter().map(|n| ((n + 0.5) / total).ln()).collect::<Vec<f64>>()
    };
    let (before, behind) = (ln_shares(first, page), ln_shares(page, end));
    let (low, high) = (first + line.least, end - line.least);
    let mut steps: Vec<(u32, f64)> = Vec::new();
    // What a sample loses when its page moves from the right side to the left.
    let of_threads = stretch(&line.samples.list, first, end).iter();
    steps.extend(of_threads.map(|s| {
        let more = left.likelihood(s.page, s.thread) - right.likelihood(s.page, s.thread);
        (s.page, f64::from(s.weight) * more)
    }));
    steps.extend(line.marks(first, end).iter().map(|m| {
        let what = usize::from(m.what);
        (m.page, f64::from(m.weight) * (before[what] - behind[what]))
    }));
    steps.sort_by_key(|s| s.0);
    let mut sums: Vec<(f64, u32, u32)> = Vec::new();
    let (mut sum, mut last) = (0.0, first);
    for of_page in steps.chunk_by(|a, b| a.0 == b.0) {
        let at = of_page[0].0;
        // A boundary between the last page with samples and this one.
        let (from, to) = ((last + u32::from(last > first)).max(low), at.min(high));
        if from <= to {
            sums.push((sum, from, to));
        }
        sum += of_page.iter().map(|s| s.1).sum::<f64>();
        last = at;
    }
    let Some(best) = sums.iter().max_by(|a, b| a.0.total_cmp(&b.0)) else {
        return Place { page, nearly: (page, page), near: vec![(page, page)] };
    };
    let is_near = |s: &&(f64, u32, u32)| s.0 >= best.0 - EVIDENCE_NATS;
    let middle = |s: &(f64, u32, u32)| s.1 + (s.2 - s.1) / 2;
    let (low, high) = (sums.iter().find(is_near), sums.iter().rfind(is_near));
    Place {
        page: middle(best),
        nearly: (low.map_or(page, middle), high.map_or(page, middle)),
        near: sums.iter().filter(is_near).map(|s| (s.1, s.2)).collect(),
    }
}
