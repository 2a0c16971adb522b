//! Chooses between block, block-cyclic, irregular, random and unsure: the shortest description of the accesses.

use super::affinity::page_affinity;
use super::block::{self, order};
use super::block_cyclic::{self, Periodic};
use super::confidence;
use super::fold::{Cut, Fit, Folder};
use super::group::{self, Group};
use super::irregular::irregular;
use super::limits::{AS_GOOD, EVIDENCE_NATS, SAMPLES_PER_SLICE, STRUCTURE_MIN};
use super::pattern::{fitting, period_text};
use super::points::{self, Points};
use super::private;
use super::random::{random_or_unsure, samples_needed};
use super::repeats;
use super::samples::Samples;
use super::{Figures, ObjectView, Owner, Pattern, PatternKind, Slice};

/// The block and the block-cyclic description of one set of points.
#[derive(Debug)]
pub(crate) struct Trial {
    points: Points,
    block: Fit,
    periodic: Option<Periodic>,
    /// Bytes per page of the points.
    unit: u64,
    /// Number of rows, when the points are those of all instances laid end to end.
    group: Option<u32>,
}

impl Trial {
    /// `affinity` is the share of the samples that come from their page's main thread, where it is known.
    fn of(points: Points, unit: u64, affinity: Option<f64>) -> Trial {
        let mut folder = Folder::default();
        let block = block::find(&points, &mut folder);
        let enough = |fit: &Fit| {
            fit.structure >= STRUCTURE_MIN
                && fit.gain > block.gain.max(0.0) + EVIDENCE_NATS + period_price(&points, fit.period)
                && block::one_slice_each(fit, true)
        };
        let is_block =
            block.structure >= STRUCTURE_MIN && block.gain > EVIDENCE_NATS && block::one_slice_each(&block, false);
        // One slice per thread (one in eight may be cut in two) that explains nearly all accesses leaves no accesses
        // for a period to explain.
        let doubled = block.cuts.len() > block.owners() + block.owners() / 8;
        let explains_affinity = affinity.is_some_and(|share| block.structure >= ALL_BUT * share);
        let no_affinity = affinity.is_some_and(|share| share < 0.5 * STRUCTURE_MIN);
        let block_suffices = is_block && !doubled && (block.structure >= BLOCK_SUFFICES || explains_affinity);
        let periodic =
            if block_suffices || no_affinity { None } else { block_cyclic::find(&points, &mut folder, &block, enough) };
        Trial { points, block, periodic, unit, group: None }
    }

    /// The descriptions of instances laid end to end.
    fn of_group(group: Group) -> Trial {
        Trial { group: Some(group.rows), ..Trial::of(group.points, group.unit, None) }
    }

    fn cyclic_gain(&self) -> f64 {
        self.periodic.as_ref().map_or(f64::NEG_INFINITY, |p| p.fit.gain - period_price(&self.points, p.fit.period))
    }

    fn gain(&self) -> f64 {
        self.block.gain.max(self.cyclic_gain())
    }

    /// The better of the two descriptions; none when neither has enough evidence.
    fn choice(&self) -> Option<Choice<'_>> {
        let strong = |fit: &Fit, gain: f64| {
            let inside: f64 = fit.cuts.iter().map(|c| c.matched).sum();
            gain > EVIDENCE_NATS
                && fit.structure >= STRUCTURE_MIN
                && inside >= SAMPLES_PER_SLICE * fit.cuts.len() as f64
        };
        let cyclic_gain = self.cyclic_gain();
        let simple = strong(&self.block, self.block.gain) && block::one_slice_each(&self.block, false);
        // A period with one slice per thread is preferred to many slices without a period, whatever the gain: on dense
        // data the many slices also fit the chance majorities of pages at the edges.
        if let Some(p) = &self.periodic
            && strong(&p.fit, cyclic_gain)
            && block::one_slice_each(&p.fit, true)
            && (!simple || cyclic_gain > self.block.gain)
        {
            return Some(Choice::Cyclic(p, cyclic_gain));
        }
        simple.then_some(Choice::Block(&self.block))
    }

    /// The pattern, when slices describe the accesses. `size` and `skew` are those of the object, in bytes.
    pub fn verdict(&self, size: u64, skew: u64) -> Option<Pattern> {
        let mut pattern = match self.choice()? {
            Choice::Block(fit) => self.block_pattern(fit, size, skew),
            Choice::Cyclic(found, gain) => self.cyclic_pattern(found, gain),
        };
        if let Some(rows) = self.group {
            pattern.group = Some(rows);
            pattern.evidence = format!("{rows} rows as one object in allocation order: {}", pattern.evidence);
        }
        Some(pattern)
    }
}

enum Choice<'a> {
    Block(&'a Fit),
    Cyclic(&'a Periodic, f64),
}

/// Part of the page affinity that one slice per thread must explain so that no period is searched for.
const ALL_BUT: f64 = 0.9;

/// Share of the accesses that one slice per thread must explain so that no period is searched for.
const BLOCK_SUFFICES: f64 = 0.8;

/// Nats to name a period: the number of distinguishable frequencies grows with repeats x threads, and long
/// periods are more likely than short ones (a universal prior, so that all periods together cost no more than one).
fn period_price(points: &Points, period: f64) -> f64 {
    let repeats = points.repeats(period);
    (2.0 * repeats * points.threads() as f64).ln() + 2.0 * (1.0 + repeats.ln()).ln()
}

/// The best slices of all points, and those of the best period with the price of naming it, whatever they are worth.
pub(crate) fn fits(points: Points, affinity: Option<f64>) -> (Fit, Option<(Fit, f64)>) {
    let Trial { points, block, periodic, .. } = Trial::of(points, 1, affinity);
    let priced = |p: Periodic| {
        let price = period_price(&points, p.fit.period);
        (p.fit, price)
    };
    (block, periodic.map(priced))
}

/// The pattern of private instances as rows of one object, when the threads follow a formula along the rows.
pub(crate) fn rows(view: &ObjectView, samples: &Samples, owners: &[Owner]) -> Option<Pattern> {
    let group = group::may_be_rows(view, owners).then(|| group::lay_out(view, samples))??;
    Trial::of_group(group).verdict(view.size, view.skew)
}

/// The pattern of an object that is not private, by the samples that count.
pub(crate) fn structured(view: &ObjectView, samples: &Samples) -> Pattern {
    repeats::weighed(view, samples, described(view, samples))
}

/// The shortest description of the samples.
fn described(view: &ObjectView, samples: &Samples) -> Pattern {
    let whole = points::collect(samples, samples.list.iter());
    let (count, threads) = (whole.samples, whole.threads());
    if count <= 0.0 || threads < 2 {
        return random_or_unsure(count, view.threads.max(2) as usize, 0.0, &view.sampling);
    }
    let affinity = page_affinity(samples);
    let mut trial = Trial::of(whole, samples.unit, affinity);
    if samples.list.first().map(|s| s.instance) != samples.list.last().map(|s| s.instance) {
        let better = |t: Trial, trial: &mut Trial| {
            if t.points.threads() >= 2 && t.gain() > trial.gain() {
                *trial = t;
            }
        };
        // Three readings compete. Page n of all instances may have the same user, as in instances of one size: their
        // samples are summed. In instances of different sizes the one with most samples shows more than the sum. Rows
        // of one matrix show a pattern when laid end to end.
        if let Some(largest) = private::instances(samples).max_by(|a, b| sum(a).total_cmp(&sum(b))) {
            better(Trial::of(points::collect(samples, largest.iter()), samples.unit, None), &mut trial);
        }
        if let Some(group) = group::lay_out(view, samples) {
            better(Trial::of_group(group), &mut trial);
        }
    }
    let verdict = trial.verdict(view.size, view.skew);
    // Slices that explain only a part of what the pages' main threads do are a part of the pattern: tiles of a matrix
    // repeat in each band of rows, but each band has other threads.
    let partly = |p: &Pattern| affinity.is_some_and(|share| p.figures.explained < AS_GOOD * share) && p.group.is_none();
    if let Some(mut pattern) = verdict.clone().filter(|p| !partly(p)) {
        pattern.figures.needed = samples_needed(threads);
        return pattern;
    }
    if let Some(pattern) = irregular(samples, view.size, view.skew) {
        let strongest = || trial.group.is_none().then_some(trial.periodic.as_ref()).flatten();
        let periodic = strongest().map(|p| trial.cyclic_pattern(p, trial.cyclic_gain())).filter(|p| p.period.is_some());
        return Pattern { nearest: periodic.map(Box::new), ..pattern };
    }
    if let Some(pattern) = verdict {
        return pattern;
    }
    // The share that the rejected slices explain reduces the confidence in "random".
    let seen = if trial.gain() > 0.0 { trial.block.structure.min(STRUCTURE_MIN) } else { 0.0 };
    random_or_unsure(count, threads, seen, &view.sampling)
}

fn sum(list: &[super::samples::Sample]) -> f64 {
    list.iter().map(|s| f64::from(s.weight)).sum()
}

impl Trial {
    fn figures(&self, fit: &Fit, gain: f64) -> Figures {
        let inside: f64 = fit.cuts.iter().map(|c| c.matched).sum();
        Figures {
            samples: self.points.samples,
            needed: samples_needed(self.points.threads()),
            explained: fit.structure,
            residual: (1.0 - inside / self.points.samples.max(1e-9)).max(0.0),
            nats: gain,
            significance: (-gain).exp(),
            // The highest of m amplitudes of n random phases is about sqrt(ln m / n) (exponential powers).
            noise: (f64::from(self.points.pages).max(2.0).ln() / self.points.samples.max(1.0)).sqrt().min(1.0),
            peak: 0.0,
        }
    }

    /// Probability that the slices are the class of the object.
    fn sure(&self, fit: &Fit, gain: f64) -> f64 {
        let error = confidence::share_error(fit.structure, self.points.samples);
        confidence::structured(fit.structure, error) * confidence::evident(gain)
    }

    fn block_pattern(&self, fit: &Fit, size: u64, skew: u64) -> Pattern {
        let cuts = block::principal(&fit.cuts, false);
        let figures = self.figures(fit, fit.gain);
        let evidence = format!(
            "each of {} threads has one contiguous part, {} ({})",
            fit.owners(),
            order(&cuts, false).as_str(),
            fitting(fit.structure, self.points.samples)
        );
        let mut pattern = Pattern::new(PatternKind::Block, self.sure(fit, fit.gain), evidence);
        let end = if self.group.is_some() { u64::from(self.points.pages).saturating_mul(self.unit) } else { size };
        let skew = if self.group.is_some() { 0 } else { skew };
        pattern.slices = self.slices(fit, &cuts, end, skew);
        pattern.figures = figures;
        pattern
    }

    fn cyclic_pattern(&self, found: &Periodic, gain: f64) -> Pattern {
        let fit = &found.fit;
        let cuts = block::principal(&fit.cuts, true);
        let period = (fit.period * self.unit as f64).round() as u64;
        let repeats = self.points.used() / fit.period;
        let margin =
            if found.uncertainty >= 0.5 { format!(" +- {:.0} pages", found.uncertainty.ceil()) } else { String::new() };
        let figures = Figures { peak: found.line, ..self.figures(fit, gain) };
        let line = if found.line > 2.0 * figures.noise {
            format!("; spectral line {:.2}, noise {:.2}", found.line, figures.noise)
        } else {
            String::new()
        };
        let evidence = format!(
            "every {}{margin} are split over {} threads {}, {repeats:.1} times ({}{line})",
            period_text(fit.period, period),
            fit.owners(),
            order(&cuts, true).as_str(),
            fitting(fit.structure, self.points.samples)
        );
        let mut pattern = Pattern::new(PatternKind::BlockCyclic, self.sure(fit, gain), evidence);
        pattern.period = Some(period);
        pattern.slices = self.slices(fit, &cuts, period, 0);
        pattern.figures = figures;
        pattern
    }

    /// Cuts as byte ranges. An edge lies halfway between the last page of one owner and the first page of the next. The
    /// outer edges are those of the period, or lie where the use ends, because an object may be larger than its used
    /// part.
    fn slices(&self, fit: &Fit, cuts: &[Cut], end: u64, skew: u64) -> Vec<Slice> {
        let unit = self.unit as f64 / f64::from(fit.parts);
        let byte = |at: f64| ((at * unit) as u64).saturating_sub(skew).min(end);
        let cyclic = fit.period < f64::from(self.points.pages);
        let edge = |i: usize| match (i.checked_sub(1).and_then(|b| cuts.get(b)), cuts.get(i)) {
            (Some(a), Some(b)) => byte((f64::from(a.last) + 1.0 + f64::from(b.first)) / 2.0),
            (None, Some(_)) if cyclic => 0,
            (Some(_), None) if cyclic => end,
            (None, Some(b)) => byte(f64::from(b.first)),
            (Some(a), None) => byte(f64::from(a.last) + 1.0),
            (None, None) => 0,
        };
        cuts.iter()
            .enumerate()
            .map(|(i, c)| Slice {
                start: edge(i),
                end: edge(i + 1),
                thread: self.points.threads[usize::from(c.thread)].rank,
            })
            .collect()
    }
}
