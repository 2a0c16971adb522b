//! The shortest description of the threads of a stretch, in nats, from its samples by page and thread.
//!
//! The models are: all threads share the pages, each by its share; one slice for each thread, of equal or of any
//! length; slices that repeat with a period; and two of these laid over each other ([`overlay`]), for an array that two
//! loops use differently. The length of a description is the negative log-likelihood of the threads given the model,
//! and the nats to name the model's free numbers: shares, noise, edges, owners and period.
//!
//! [`overlay`]: super::overlay

use super::line::{Line, alone};
use super::overlay;
use crate::detect::affinity::page_affinity;
use crate::detect::block::principal;
use crate::detect::fold::{Cut, Fit};
use crate::detect::limits::{EVIDENCE_NATS, STRAY_SLICES};
use crate::detect::points::{self, Points};
use crate::detect::samples::Samples;
use crate::detect::structure;

/// Pages and their owners, threads by their index in [`Samples::ranks`].
#[derive(Debug, Clone)]
pub(super) enum Owners {
    /// Shared.
    Nobody,
    /// Equal slices in this order, in every period.
    Equal { order: Vec<u16>, period: f64 },
    /// Slices of a period, in parts of a page.
    Slices { period: f64, parts: f64, cuts: Vec<Cut> },
    /// Those of a period that is counted from a page behind the first.
    Later { by: f64, owners: Box<Owners> },
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
pub(super) struct Model {
    pub owners: Owners,
    /// Nats to name the owners.
    pub price: f64,
    /// Another use of the same pages.
    pub second: Option<Second>,
    pub noise: f64,
    /// Share of each thread of the noise.
    pub shares: Vec<f64>,
}

/// A second use: its owners, the nats to name them, and the share of the accesses that it makes.
#[derive(Debug, Clone)]
pub(super) struct Second {
    pub owners: Owners,
    pub price: f64,
    pub share: f64,
}

impl Judged {
    /// Log-likelihood of an access. A page outside of the stretch has the owner of the next one inside.
    pub fn likelihood(&self, page: u32, thread: u16) -> f64 {
        let at = f64::from(page) - f64::from(self.first) + 0.5;
        self.model.probability(at, f64::from(self.pages), thread).ln()
    }

    /// Whether its slices repeat.
    pub fn is_periodic(&self) -> bool {
        self.model.owners.is_periodic(f64::from(self.pages))
    }

    /// Whether a period begins with a page, of this stretch or as it would go on outside: behind the last slice follows
    /// the first one, of an earlier thread.
    pub fn begins_period(&self, page: u32) -> bool {
        let owner = |at: f64| self.model.owners.of(at - f64::from(self.first), f64::from(self.pages));
        let (before, behind) = (owner(f64::from(page) - 0.5), owner(f64::from(page) + 0.5));
        before.zip(behind).is_some_and(|(before, behind)| behind < before)
    }

    /// Whether a formula says the owners of all pages: one slice for each thread, or a period.
    pub fn is_formula(&self) -> bool {
        self.model.layers().all(|owners| owners.is_formula(f64::from(self.pages)))
    }

    /// The same, when slices beyond one for each thread hold so few samples that they are strays.
    pub fn is_nearly_formula(&self) -> bool {
        let matched = |cuts: &[Cut]| cuts.iter().map(|c| c.matched).sum::<f64>();
        let strays = |cuts: &[Cut]| matched(&principal(cuts, false)) >= (1.0 - STRAY_SLICES) * matched(cuts);
        let nearly = |owners: &Owners| {
            owners.is_formula(f64::from(self.pages)) || matches!(owners, Owners::Slices { cuts, .. } if strays(cuts))
        };
        self.model.layers().all(nearly)
    }
}

impl Model {
    fn layers(&self) -> impl Iterator<Item = &Owners> {
        [&self.owners].into_iter().chain(self.second.as_ref().map(|s| &s.owners))
    }

    /// Probability of a thread at a place among `pages` pages.
    fn probability(&self, at: f64, pages: f64, thread: u16) -> f64 {
        let second = self.second.as_ref().map_or(0.0, |s| s.share);
        let is = |owners: &Owners, share: f64| if owners.of(at, pages) == Some(thread) { share } else { 0.0 };
        let own = is(&self.owners, 1.0 - self.noise - second);
        let other = self.second.as_ref().map_or(0.0, |s| is(&s.owners, s.share));
        own + other + self.noise * self.shares[usize::from(thread)].max(LEAST_SHARE)
    }
}

/// Whether a thread has several slices.
fn repeats(cuts: &[Cut]) -> bool {
    let mut threads: Vec<u16> = cuts.iter().map(|c| c.thread).collect();
    threads.sort_unstable();
    threads.windows(2).any(|two| two[0] == two[1])
}

impl Owners {
    /// Whether a formula says the owners of all of `pages` pages.
    fn is_formula(&self, pages: f64) -> bool {
        match self {
            Owners::Nobody | Owners::Equal { .. } => true,
            Owners::Slices { period, cuts, .. } => *period < pages || !repeats(cuts),
            Owners::Later { owners, .. } => owners.is_formula(pages),
        }
    }

    /// Whether they repeat among `pages` pages.
    fn is_periodic(&self, pages: f64) -> bool {
        match self {
            Owners::Equal { period, .. } | Owners::Slices { period, .. } => *period < pages,
            Owners::Nobody | Owners::Later { .. } => false,
        }
    }

    /// The owner of a place among `pages` pages.
    pub fn of(&self, at: f64, pages: f64) -> Option<u16> {
        match self {
            Owners::Nobody => None,
            Owners::Later { by, owners } => owners.of(at - by, pages),
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
pub(super) const LEAST_SHARE: f64 = 1e-4;
/// Bounds of the noise: without the lower one a single stray access would be nearly impossible.
pub(super) const NOISE_RANGE: (f64, f64) = (0.005, 1.0);

/// Nats of the threads of a stretch: those of its best description, or of one for each part of the code where parts use
/// the object differently, such as a loop over rows and one over columns of a matrix. Which part makes an access is
/// described by [`super::signature`].
pub(super) fn nats(line: &Line, stretch: &Judged, first: u32, end: u32) -> f64 {
    let by_code = |stretch: &Judged, first: u32, end: u32| {
        let parts = line.by_code.iter().map(|part| judged(line, part, first, end));
        let (nats, weight) = parts.fold((0.0, 0.0), |sum, part| (sum.0 + part.nats, sum.1 + part.weight));
        // Of some accesses no part of the code is known.
        nats * stretch.weight / f64::max(weight, f64::MIN_POSITIVE)
    };
    let is_mixed = || {
        let whole = judge(line, 0, line.samples.pages);
        by_code(&whole, 0, line.samples.pages) + EVIDENCE_NATS < whole.nats
    };
    if line.is_mixed(is_mixed) { stretch.nats.min(by_code(stretch, first, end)) } else { stretch.nats }
}

/// Nats of the threads of a stretch that may have, as its second use, one that a part of it shows: what a search finds
/// in a part and misses in the whole is no reason for a cut.
pub(super) fn with_uses_of(line: &Line, whole: &Judged, parts: &[&Judged]) -> f64 {
    let uses = parts.iter().flat_map(|part| {
        let second = part.model.second.as_ref().map(|s| (&s.owners, s.price));
        let uses = [(&part.model.owners, part.model.price)].into_iter().chain(second);
        let repeats = uses.filter(|(owners, _)| owners.is_periodic(f64::from(part.pages)));
        let by = f64::from(part.first) - f64::from(whole.first);
        repeats.map(move |(owners, price)| (Owners::Later { by, owners: Box::new(owners.clone()) }, price))
    });
    let uses: Vec<(Owners, f64)> = uses.collect();
    if uses.is_empty() {
        return whole.nats;
    }
    let samples = alone(&line.judged, whole.first, whole.first + whole.pages);
    let points = points::collect(&samples, samples.list.iter());
    let order = order(&samples, &points);
    let more = uses.into_iter().map(|(owners, price)| overlay::more(&points, &order, &whole.model, owners, price));
    whole.nats - more.fold(0.0, f64::max)
}

/// The best description of a stretch.
pub(super) fn judge(line: &Line, first: u32, end: u32) -> Judged {
    judged(line, &line.judged, first, end)
}

/// Nats of the best description of some instances on top of each other, ascending, and their samples.
pub(super) fn judge_instances(line: &Line, instances: &[u32]) -> (f64, f64) {
    let mut own = line.judged.only(|s| instances.binary_search(&s.instance).is_ok());
    own.list.sort_by_key(|s| s.page);
    let judged = judged(line, &own, 0, line.samples.pages);
    (judged.nats, judged.weight)
}

/// The best description of these samples of a stretch.
fn judged(line: &Line, samples: &Samples, first: u32, end: u32) -> Judged {
    let samples = alone(samples, first, end);
    let mut sums = vec![0.0; samples.threads()];
    samples.list.iter().for_each(|s| sums[usize::from(s.thread)] += f64::from(s.weight));
    let weight: f64 = sums.iter().sum();
    // Shares of all threads of the object: that a stretch does not show one of them must be said as well.
    let free = sums.len().saturating_sub(1) as f64;
    let term = |n: &f64| if *n > 0.0 { n * (weight / n).ln() } else { 0.0 };
    let nats = sums.iter().map(term).sum::<f64>() + 0.5 * free * weight.max(1.0).ln();
    let shares = sums.iter().map(|n| n / weight.max(f64::MIN_POSITIVE)).collect();
    let model = Model { owners: Owners::Nobody, price: 0.0, second: None, noise: 1.0, shares };
    let mut judged = Judged { nats, weight, first, pages: end - first, model };
    let points = points::collect(&samples, samples.list.iter());
    if points.threads() >= 2
        && let Some((saved, model)) = best(&samples, &points, f64::from(line.samples.pages))
        && saved > 0.0
    {
        judged = Judged { nats: nats - saved, model, ..judged };
    }
    judged
}

/// The model that saves most against threads drawn by their shares.
fn best(samples: &Samples, points: &Points, pages: f64) -> Option<(f64, Model)> {
    let order = order(samples, points);
    let fitted = candidates(samples, points, &order, pages).into_iter().map(|(price, owners)| {
        let (saved, model) = fitted(points, &order, owners, samples.threads());
        (saved - price, Model { price, ..model })
    });
    let mut tried: Vec<(f64, Model)> = fitted.collect();
    tried.sort_by(|a, b| b.0.total_cmp(&a.0));
    // A list of slices may follow what is only the majority of two uses; a formula next to it may be one of the two.
    let is_formula = |tried: &&(f64, Model)| tried.1.owners.is_formula(f64::from(points.pages));
    let simple = tried.iter().find(is_formula).filter(|_| !is_formula(&&tried[0]));
    let both = tried.first().into_iter().chain(simple).filter_map(|(saved, first)| {
        let (more, model) = overlay::best(samples, points, &order, first, pages)?;
        Some((saved + more, model))
    });
    let both = both.max_by(|a, b| a.0.total_cmp(&b.0));
    let first = tried.first().cloned()?;
    Some(both.filter(|both| both.0 > first.0).unwrap_or(first))
}

/// The threads of points by their index in [`Samples::ranks`].
fn order(samples: &Samples, points: &Points) -> Vec<u16> {
    let index = |rank: u32| samples.ranks.binary_search(&rank).unwrap_or_default() as u16;
    points.threads.iter().map(|t| index(t.rank)).collect()
}

/// Owners that may describe the samples, each with the nats to name it; equal slices are those of the threads `of_all`.
pub(super) fn candidates(samples: &Samples, points: &Points, of_all: &[u16], pages: f64) -> Vec<(f64, Owners)> {
    let order = order(samples, points);
    let threads = points.threads() as f64;
    let reverse: Vec<u16> = of_all.iter().rev().copied().collect();
    // The noise, and which order.
    let price = 0.5 * points.samples.max(1.0).ln() + 2.0_f64.ln();
    let mut tried = Vec::new();
    let mut equal = |price: f64, period: f64| {
        tried.push((price, Owners::Equal { order: of_all.to_vec(), period }));
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
    tried
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
    (saved, Model { owners, price: 0.0, second: None, noise, shares })
}
