//! How short the threads of a stretch can be described, and the model that does it.

use super::line::{Line, alone};
use crate::detect::affinity::page_affinity;
use crate::detect::fold::{Cut, Fit};
use crate::detect::points::{self, Points};
use crate::detect::samples::Samples;
use crate::detect::structure;

/// Pages and their owners, threads by their index in [`Samples::ranks`].
#[derive(Debug, Clone)]
enum Owners {
    /// Shared.
    Nobody,
    /// Equal slices in this order, in every period.
    Equal { order: Vec<u16>, period: f64 },
    /// Slices of a period, in parts of a page.
    Slices { period: f64, parts: f64, cuts: Vec<Cut> },
}

/// A stretch and its best description.
#[derive(Debug, Clone)]
pub(super) struct Judged {
    /// Nats of the description.
    pub nats: f64,
    /// Independent samples that were judged.
    pub weight: f64,
    first: u32,
    pages: u32,
    model: Model,
}

/// The thread of an access is the owner of its page, or with probability `noise` any thread.
#[derive(Debug, Clone)]
struct Model {
    owners: Owners,
    noise: f64,
    /// Share of each thread of the noise.
    shares: Vec<f64>,
}

impl Judged {
    /// Log-likelihood of an access. A page outside of the stretch has the owner of the next one inside.
    pub fn likelihood(&self, page: u32, thread: u16) -> f64 {
        let Model { owners, noise, shares } = &self.model;
        let at = f64::from(page) - f64::from(self.first) + 0.5;
        let owner = owners.of(at, f64::from(self.pages));
        let own = if owner == Some(thread) { 1.0 - noise } else { 0.0 };
        (own + noise * shares[usize::from(thread)].max(LEAST_SHARE)).ln()
    }

    /// Whether a formula says the owners of all pages: one slice for each thread, or a period.
    pub fn is_formula(&self) -> bool {
        match &self.model.owners {
            Owners::Nobody | Owners::Equal { .. } => true,
            Owners::Slices { period, cuts, .. } => *period < f64::from(self.pages) || !repeats(cuts),
        }
    }
}

/// Whether a thread has several slices.
fn repeats(cuts: &[Cut]) -> bool {
    let mut threads: Vec<u16> = cuts.iter().map(|c| c.thread).collect();
    threads.sort_unstable();
    threads.windows(2).any(|two| two[0] == two[1])
}

impl Owners {
    /// The owner of a place among `pages` pages.
    fn of(&self, at: f64, pages: f64) -> Option<u16> {
        match self {
            Owners::Nobody => None,
            Owners::Equal { order, period } => {
                let at = if *period < pages { at.rem_euclid(*period) } else { at.clamp(0.0, pages) };
                let slice = at / period.max(1.0) * order.len() as f64;
                order.get((slice as usize).min(order.len().saturating_sub(1))).copied()
            }
            Owners::Slices { period, parts, cuts } => {
                let at = if *period < pages { at.rem_euclid(*period) } else { at.clamp(0.0, pages) };
                let place = (at * parts) as u32;
                let next = cuts.partition_point(|c| c.last < place);
                match cuts.get(next) {
                    Some(cut) if cut.first <= place => Some(cut.thread),
                    // Behind the last slice and before the first one; a gap between two has no owner.
                    Some(cut) => (next == 0).then_some(cut.thread),
                    None => cuts.last().map(|c| c.thread),
                }
            }
        }
    }
}

/// Share of a thread that a stretch has not seen.
const LEAST_SHARE: f64 = 1e-4;
/// Bounds of the noise: without the lower one a single stray access would be nearly impossible.
const NOISE_RANGE: (f64, f64) = (0.005, 1.0);

/// The best description of a stretch.
pub(super) fn judge(line: &Line, first: u32, end: u32) -> Judged {
    let samples = alone(&line.judged, first, end);
    let mut sums = vec![0.0; samples.threads()];
    samples.list.iter().for_each(|s| sums[usize::from(s.thread)] += f64::from(s.weight));
    let weight: f64 = sums.iter().sum();
    // Shares of all threads of the object: that a stretch does not show one of them must be said as well.
    let free = sums.len().saturating_sub(1) as f64;
    let term = |n: &f64| if *n > 0.0 { n * (weight / n).ln() } else { 0.0 };
    let nats = sums.iter().map(term).sum::<f64>() + 0.5 * free * weight.max(1.0).ln();
    let shares = sums.iter().map(|n| n / weight.max(f64::MIN_POSITIVE)).collect();
    let model = Model { owners: Owners::Nobody, noise: 1.0, shares };
    let mut judged = Judged { nats, weight, first, pages: end - first, model };
    let points = points::collect(&samples, samples.list.iter());
    if points.threads() >= 2
        && let Some((saved, model)) = best(&samples, points, f64::from(line.samples.pages))
        && saved > 0.0
    {
        judged = Judged { nats: nats - saved, model, ..judged };
    }
    judged
}

/// The model that saves most against threads drawn by their shares.
fn best(samples: &Samples, points: Points, pages: f64) -> Option<(f64, Model)> {
    let index = |rank: u32| samples.ranks.binary_search(&rank).unwrap_or_default() as u16;
    let order: Vec<u16> = points.threads.iter().map(|t| index(t.rank)).collect();
    let threads = points.threads() as f64;
    let reverse: Vec<u16> = order.iter().rev().copied().collect();
    // The noise, and which order.
    let price = 0.5 * points.samples.max(1.0).ln() + 2.0_f64.ln();
    let mut tried = Vec::new();
    let mut equal = |price: f64, period: f64| {
        tried.push((price, Owners::Equal { order: order.clone(), period }));
        tried.push((price, Owners::Equal { order: reverse.clone(), period }));
    };
    equal(price, f64::from(points.pages));
    let affinity = page_affinity(samples);
    let (block, periodic) = structure::fits(points.clone(), affinity);
    if let Some((fit, naming)) = &periodic {
        equal(price + naming + pages.ln(), fit.period);
    }
    for (fit, price) in [Some((block, 0.0)), periodic].into_iter().flatten() {
        let price = price + naming(&fit, threads, pages);
        let cuts = fit.cuts.iter().map(|c| Cut { thread: order[usize::from(c.thread)], ..*c }).collect();
        tried.push((price, Owners::Slices { period: fit.period, parts: f64::from(fit.parts), cuts }));
    }
    let fitted = tried.into_iter().map(|(price, owners)| {
        let (saved, model) = fitted(&points, &order, owners, samples.threads());
        (saved - price, model)
    });
    fitted.max_by(|a, b| a.0.total_cmp(&b.0))
}

/// Nats to name the edges of slices among the pages of the object, and their owners. Pages of the object and not of the
/// stretch, so that the same slices have the same price in every stretch.
fn naming(fit: &Fit, threads: f64, pages: f64) -> f64 {
    let slices = fit.cuts.len() as f64;
    let up = fit.cuts.is_sorted_by(|a, b| a.thread < b.thread);
    let owners = match fit.owners() == fit.cuts.len() {
        // The first slice is that of the first or the last thread: a boundary that is wrong by a slice shows another.
        true if up || fit.cuts.is_sorted_by(|a, b| a.thread > b.thread) => 2.0_f64.ln(),
        true => slices * (threads.ln() - 1.0).max(0.0),
        false => slices * threads.ln(),
    };
    slices * pages.ln() + owners
}

/// The noise of given owners, and what they save. A thread's noise is seen outside of its own pages only.
fn fitted(points: &Points, order: &[u16], owners: Owners, threads: usize) -> (f64, Model) {
    let total = points.samples.max(f64::MIN_POSITIVE);
    let (mut matched, mut stray, mut inside) = (vec![0.0; threads], vec![0.0; threads], vec![0.0; threads]);
    for p in &points.list {
        let (thread, weight) = (order[usize::from(p.thread)], f64::from(p.weight));
        let owner = owners.of(f64::from(p.page) + 0.5, f64::from(points.pages));
        if let Some(owner) = owner {
            inside[usize::from(owner)] += weight;
        }
        let of = if owner == Some(thread) { &mut matched } else { &mut stray };
        of[usize::from(thread)] += weight;
    }
    let seen = |t: usize| (1.0 - inside[t] / total).max(0.1);
    let mut shares: Vec<f64> = (0..threads).map(|t| stray[t] / seen(t)).collect();
    let sum: f64 = shares.iter().sum();
    let noise = (sum / total).clamp(NOISE_RANGE.0, NOISE_RANGE.1);
    shares.iter_mut().for_each(|s| *s = (*s / sum.max(f64::MIN_POSITIVE)).max(LEAST_SHARE));
    let mut saved = 0.0;
    for (local, &thread) in order.iter().enumerate() {
        let t = usize::from(thread);
        let base = points.threads[local].share.max(f64::MIN_POSITIVE);
        saved +=
            matched[t] * ((1.0 - noise + noise * shares[t]) / base).ln() + stray[t] * (noise * shares[t] / base).ln();
    }
    (saved, Model { owners, noise, shares })
}
