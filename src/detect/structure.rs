//! Block, block-cyclic, random or unsure: the best description of the accesses wins.

use std::collections::BTreeMap;

use super::block::{self, order};
use super::block_cyclic::{self, Periodic};
use super::fold::{Cut, Fit, Folder};
use super::limits::{EVIDENCE_NATS, STRUCTURE_MIN};
use super::points::{self, Points};
use super::random::random_or_unsure;
use super::{ObjectView, PageAccess, Pattern, PatternKind, Slice};

/// What the two descriptions gave for one set of points.
struct Trial {
    points: Points,
    block: Fit,
    periodic: Option<Periodic>,
}

impl Trial {
    fn of(points: Points) -> Trial {
        let mut folder = Folder::default();
        let block = block::find(&points, &mut folder);
        let enough = |fit: &Fit| {
            fit.structure >= STRUCTURE_MIN
                && fit.gain > block.gain.max(0.0) + EVIDENCE_NATS + period_price(&points, fit.period)
                && block::one_slice_each(fit, true)
        };
        let plain =
            block.structure >= STRUCTURE_MIN && block.gain > EVIDENCE_NATS && block::one_slice_each(&block, false);
        // Slices that already explain nearly all, one per thread (one in eight may be cut in two), leave nothing for a period to explain.
        let doubled = block.cuts.len() > block.owners() + block.owners() / 8;
        let periodic = if plain && !doubled && block.structure >= PLAIN_ENOUGH {
            None
        } else {
            block_cyclic::find(&points, &mut folder, &block, enough)
        };
        Trial { points, block, periodic }
    }

    fn cyclic_gain(&self) -> f64 {
        self.periodic.as_ref().map_or(f64::NEG_INFINITY, |p| p.fit.gain - period_price(&self.points, p.fit.period))
    }

    fn gain(&self) -> f64 {
        self.block.gain.max(self.cyclic_gain())
    }
}

/// Share of the accesses explained by one slice per thread from which no period is looked for.
const PLAIN_ENOUGH: f64 = 0.8;

/// Nats to name a period: the number of distinguishable frequencies grows with repeats x threads, and long
/// periods are more likely than short ones (a universal prior, so that all periods together cost no more than one).
fn period_price(points: &Points, period: f64) -> f64 {
    let repeats = (f64::from(points.pages) / period).max(1.0);
    (2.0 * repeats * points.threads() as f64).ln() + 2.0 * (1.0 + repeats.ln()).ln()
}

/// The verdict for an object that is not private.
pub(crate) fn structured(view: &ObjectView, voting: &[PageAccess], scale: f64) -> Pattern {
    let pages = points::page_count(view);
    let whole = points::collect(pages, voting.iter(), scale);
    if whole.samples <= 0.0 || whole.threads() < 2 {
        return random_or_unsure(whole.samples, view.threads.max(2) as usize, 0.0, None);
    }
    let mut trial = Trial::of(whole);
    // Instances of one size share their pages' meaning and are summed; instances of many sizes are not, and then the
    // one with the most samples says more than the sum.
    if let Some(largest) = most_sampled(voting) {
        let alone = points::collect(pages, voting.iter().filter(|a| a.instance == largest), scale);
        if alone.threads() >= 2 {
            let alone = Trial::of(alone);
            if alone.gain() > trial.gain() {
                trial = alone;
            }
        }
    }
    verdict(view, &trial)
}

fn most_sampled(voting: &[PageAccess]) -> Option<u32> {
    let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
    for a in voting {
        *sums.entry(a.instance).or_default() += a.weight;
    }
    (sums.len() > 1).then(|| sums.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| i)).flatten()
}

fn verdict(view: &ObjectView, trial: &Trial) -> Pattern {
    let points = &trial.points;
    let strong = |fit: &Fit, gain: f64| gain > EVIDENCE_NATS && fit.structure >= STRUCTURE_MIN;
    let cyclic_gain = trial.cyclic_gain();
    let simple = strong(&trial.block, trial.block.gain) && block::one_slice_each(&trial.block, false);
    // A period with one slice each is preferred to many slices without one, whatever the gain: on dense data the
    // many slices also fit the chance majorities of pages at the edges.
    if let Some(p) = &trial.periodic
        && strong(&p.fit, cyclic_gain)
        && block::one_slice_each(&p.fit, true)
        && (!simple || cyclic_gain > trial.block.gain)
    {
        return cyclic(view, points, p);
    }
    if simple {
        return plain(view, points, &trial.block);
    }
    if strong(&trial.block, trial.block.gain) {
        let note = format!(
            "{} threads own {} separate parts of it without a period ({:.0} % of {:.0} samples)",
            trial.block.owners(),
            trial.block.cuts.len(),
            100.0 * trial.block.structure,
            points.samples
        );
        return random_or_unsure(points.samples, points.threads(), 0.0, Some(note));
    }
    let seen = if trial.gain() > 0.0 { trial.block.structure } else { 0.0 };
    random_or_unsure(points.samples, points.threads(), seen, None)
}

fn plain(view: &ObjectView, points: &Points, fit: &Fit) -> Pattern {
    let cuts = block::principal(&fit.cuts, false);
    let evidence = format!(
        "each of {} threads has one contiguous part, {} ({:.0} % of {:.0} samples beyond chance)",
        fit.owners(),
        order(&cuts, false).as_str(),
        100.0 * fit.structure,
        points.samples
    );
    let mut pattern = Pattern::new(PatternKind::Block, fit.structure, evidence);
    pattern.slices = slices(view, points, &cuts, view.size, view.skew);
    pattern
}

fn cyclic(view: &ObjectView, points: &Points, found: &Periodic) -> Pattern {
    let fit = &found.fit;
    let cuts = block::principal(&fit.cuts, true);
    let period = (fit.period * view.page_size as f64).round() as u64;
    let repeats = f64::from(points.pages) / fit.period;
    let margin =
        if found.uncertainty >= 0.5 { format!(" +- {:.0} pages", found.uncertainty.ceil()) } else { String::new() };
    let evidence = format!(
        "every {}{margin} are split over {} threads {}, {repeats:.1} times ({:.0} % of {:.0} samples beyond chance)",
        amount(fit.period, period),
        fit.owners(),
        order(&cuts, true).as_str(),
        100.0 * fit.structure,
        points.samples
    );
    let mut pattern = Pattern::new(PatternKind::BlockCyclic, fit.structure, evidence);
    pattern.period = Some(period);
    pattern.slices = slices(view, points, &cuts, period, 0);
    pattern
}

/// A period in words: the size when it is a round one, else pages.
fn amount(pages: f64, bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if pages.fract() == 0.0 && bytes >> shift << shift == bytes && bytes >> shift > 0 {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{pages:.2} pages")
}

/// Cuts as byte ranges; edges lie between the last page of one owner and the first of the next, and the outer ones
/// where the use ends (an object may be larger than its used part).
fn slices(view: &ObjectView, points: &Points, cuts: &[Cut], end: u64, skew: u64) -> Vec<Slice> {
    let byte = |page: f64| ((page * view.page_size as f64) as u64).saturating_sub(skew).min(end);
    let edge = |i: usize| match (i.checked_sub(1).and_then(|b| cuts.get(b)), cuts.get(i)) {
        (Some(a), Some(b)) => byte((f64::from(a.last) + 1.0 + f64::from(b.first)) / 2.0),
        (None, Some(b)) => byte(f64::from(b.first)),
        (Some(a), None) => byte(f64::from(a.last) + 1.0),
        (None, None) => 0,
    };
    cuts.iter()
        .enumerate()
        .map(|(i, c)| Slice { start: edge(i), end: edge(i + 1), thread: points.ranks[usize::from(c.thread)] })
        .collect()
}
