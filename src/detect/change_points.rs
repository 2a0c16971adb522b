//! Phases: parts of the run in which an object's pattern differs.
//!
//! Change points are found in the table of page bins x thread groups x time slots: a segment's evidence is the
//! likelihood of its threads given the page bin, integrated over all possible shares of the threads (Dirichlet, with
//! the parameter that describes the whole run best). The integral penalises the additional free shares of every
//! segment, so that more segments have more evidence only when the shares differ. Dynamic programming finds the best
//! division exactly. Each segment is then classified like a run of its own.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::limits::{AS_GOOD, EVIDENCE_NATS, PHASE_SHARE, SERIAL_PHASE, SIGHTINGS, STRUCTURE_MIN};
use super::samples::Samples;
use super::{ObjectView, Pattern, PatternKind};
use crate::profile::summary::TIME_SLOTS;

/// Page bins and thread groups: 256 shares are still estimated by a few thousand samples, and no placement on up to 16
/// nodes sees finer differences.
const BINS: usize = 16;
const GROUPS: usize = 16;
/// Cells of a table.
const CELLS: usize = BINS * GROUPS;
/// Slots per step of the first division; the edges are refined afterwards.
const COARSE: usize = 2;
/// Largest number of segments: a pattern that changes more often is not worth moving pages for.
const MOST_SEGMENTS: usize = 8;
/// Slots of a run.
const SLOTS: usize = TIME_SLOTS as usize;

/// ln Gamma(n + a) - ln Gamma(a) for n in eighths, tabled; larger ones by Stirling's series.
pub(crate) struct Rising {
    table: Vec<f32>,
    a: f64,
    base: f64,
}

/// Steps per unit and units of the table.
const STEPS: f64 = 8.0;
const TABLED: f64 = 256.0;

impl Rising {
    fn of(a: f64) -> Rising {
        let base = statrs::function::gamma::ln_gamma(a);
        let at = |i: usize| (statrs::function::gamma::ln_gamma(i as f64 / STEPS + a) - base) as f32;
        Rising { table: (0..=(TABLED * STEPS) as usize).map(at).collect(), a, base }
    }

    #[inline]
    pub fn at(&self, n: f32) -> f32 {
        if n < TABLED as f32 {
            return self.table[(n * STEPS as f32 + 0.5) as usize];
        }
        let x = f64::from(n) + self.a;
        ((x - 0.5) * x.ln() - x + 0.918_938_533_204_672_7 + 1.0 / (12.0 * x) - self.base) as f32
    }
}

/// Sums of cells over the slots before each slot.
struct Table {
    sums: Vec<[f32; CELLS]>,
}

impl Table {
    fn of(samples: &Samples) -> Table {
        let mut sums = vec![[0.0; CELLS]; SLOTS + 1];
        let (pages, threads) = (u64::from(samples.pages), samples.threads());
        for s in &samples.list {
            let bin = (u64::from(s.page) * BINS as u64 / pages) as usize;
            let group = usize::from(s.thread) * GROUPS / threads.max(GROUPS);
            sums[usize::from(s.slot) + 1][bin * GROUPS + group] += s.weight;
        }
        for slot in 0..SLOTS {
            let before = sums[slot];
            sums[slot + 1].iter_mut().zip(before).for_each(|(s, b)| *s += b);
        }
        Table { sums }
    }

    /// Evidence of the slots `a..b` as one segment.
    fn evidence(&self, a: usize, b: usize, share: &Rising, whole: &Rising) -> f32 {
        let (first, last) = (&self.sums[a], &self.sums[b]);
        let mut sum = 0.0;
        for bin in 0..BINS {
            let (mut all, mut own) = (0.0, 0.0);
            for cell in bin * GROUPS..(bin + 1) * GROUPS {
                let n = last[cell] - first[cell];
                if n > 0.0 {
                    all += n;
                    own += share.at(n);
                }
            }
            sum += own - whole.at(all);
        }
        sum
    }
}

/// Parameters of the prior: from one thread with nearly all accesses to about equal shares of all threads.
const PRIORS: [f64; 4] = [1.0 / 16.0, 0.25, 1.0, 4.0];

/// A prior's two functions: of one thread group, and of all together.
pub(crate) type Prior = (Rising, Rising);

/// The priors for a number of thread groups; the tables are cached.
pub(crate) fn priors(groups: usize) -> Rc<Vec<Prior>> {
    thread_local! {
        static PRIORS_OF: RefCell<HashMap<usize, Rc<Vec<Prior>>>> = RefCell::default();
    }
    let make = || Rc::new(PRIORS.iter().map(|a| (Rising::of(*a), Rising::of(a * groups as f64))).collect());
    PRIORS_OF.with(|of| of.borrow_mut().entry(groups).or_insert_with(make).clone())
}

/// Slots where segments end, ascending, the last one being the end of the run; one entry when the pattern does not
/// change.
pub(crate) fn change_points(samples: &Samples) -> Vec<u16> {
    let table = Table::of(samples);
    let priors = priors(samples.threads().clamp(2, GROUPS));
    let whole = |p: &&Prior| table.evidence(0, SLOTS, &p.0, &p.1);
    let Some((share, all)) = priors.iter().max_by(|a, b| whole(a).total_cmp(&whole(b))) else { return Vec::new() };
    let evidence = |a: usize, b: usize| f64::from(table.evidence(a, b, share, all));
    let coarse = SLOTS / COARSE;
    let price = EVIDENCE_NATS + (coarse as f64).ln();
    let mut best = vec![(0.0, 0usize); coarse + 1];
    for b in 1..=coarse {
        let ends = (0..b).map(|a| (best[a].0 + evidence(a * COARSE, b * COARSE) - price, a));
        best[b] = ends.max_by(|x, y| x.0.total_cmp(&y.0)).unwrap_or((f64::NEG_INFINITY, 0));
    }
    let mut edges = Vec::new();
    let mut at = coarse;
    while at > 0 {
        edges.push(at * COARSE);
        at = best[at].1;
    }
    edges.reverse();
    for i in 0..edges.len().saturating_sub(1) {
        let (start, end) = (if i == 0 { 0 } else { edges[i - 1] }, edges[i + 1]);
        let near = (edges[i] - COARSE + 1).max(start + 1)..=(edges[i] + COARSE - 1).min(end - 1);
        let both = |e: &usize| evidence(start, *e) + evidence(*e, end);
        if let Some(edge) = near.max_by(|a, b| both(a).total_cmp(&both(b))) {
            edges[i] = edge;
        }
    }
    edges.into_iter().map(|e| e as u16).collect()
}

/// One part of the run with its own pattern.
pub(crate) struct Part {
    /// First slot and first slot after it.
    pub slots: (u16, u16),
    /// Independent samples in it.
    pub weight: f64,
    /// Accesses by page.
    sightings: f64,
    /// The pattern of these samples.
    pub pattern: Pattern,
}

/// What is known of the object beside its samples.
pub(crate) struct Object {
    /// Bytes.
    pub span: u64,
    /// Workers.
    pub threads: u32,
    /// Sightings of each page that a phase must have.
    pub least: f64,
}

impl Object {
    pub fn of(view: &ObjectView) -> Object {
        let least = if view.sampling.once { SIGHTINGS } else { 0.0 };
        Object { span: view.size, threads: view.threads, least }
    }
}

/// Parts of the run that need different placements, in order of time; none when one placement suits the whole run.
/// `whole` is the pattern of the whole run, `judge` classifies the samples of a part.
pub(crate) fn parts(
    samples: &Samples,
    whole: &Pattern,
    object: &Object,
    judge: impl Fn(&Samples) -> Pattern,
) -> Vec<Part> {
    let &Object { span, threads, least } = object;
    let edges = change_points(samples);
    if edges.len() < 2 || edges.len() > MOST_SEGMENTS {
        return Vec::new();
    }
    let total = samples.total();
    let mut parts: Vec<Part> = Vec::new();
    let mut start = 0;
    let is_short = |part: &Part| part.weight < PHASE_SHARE * total || part.sightings < least;
    for end in edges {
        let part = part(samples, (start, end), &judge);
        start = end;
        match parts.last_mut() {
            // Parts with few samples, and parts with the placement of the part before, are merged with it; so are those
            // after one in which the pages were not seen often enough.
            Some(last)
                if is_short(&part)
                    || last.sightings < least
                    || same_placement(&last.pattern, &part.pattern, span, threads) =>
            {
                *last = self::part(samples, (last.slots.0, end), &judge);
            }
            _ => parts.push(part),
        }
    }
    // The thread that finishes last is alone at the end of the run, which is no phase of its own.
    let least = |p: &Part| if p.pattern.kind == PatternKind::Private { SERIAL_PHASE } else { PHASE_SHARE };
    parts.retain(|p| p.weight >= least(p) * total);
    let differ = parts.windows(2).any(|w| !same_placement(&w[0].pattern, &w[1].pattern, span, threads));
    let as_good = parts
        .iter()
        .all(|p| whole_serves(whole, &p.pattern, &samples.only(|s| s.slot >= p.slots.0 && s.slot < p.slots.1)));
    if parts.len() < 2 || !differ || as_good { Vec::new() } else { parts }
}

/// Whether the pattern of the whole object places the samples of a part about as well as the part's own pattern.
pub(crate) fn whole_serves(whole: &Pattern, own: &Pattern, part: &Samples) -> bool {
    if is_spread(whole) {
        return is_spread(own);
    }
    let mut sums = vec![0.0; part.threads()];
    let (mut inside, mut total) = (0.0, 0.0);
    for s in &part.list {
        let weight = f64::from(s.weight);
        let owned = owner(whole, u64::from(s.page).saturating_mul(part.unit) + part.unit / 2);
        inside += if owned == Some(part.ranks[usize::from(s.thread)]) { weight } else { 0.0 };
        sums[usize::from(s.thread)] += weight;
        total += weight;
    }
    let chance = sums.iter().map(|s| s * s).sum::<f64>() / (total * total).max(f64::MIN_POSITIVE);
    let explained = (inside / total.max(f64::MIN_POSITIVE) - chance) / (1.0 - chance).max(1e-9);
    let wanted = if is_spread(own) { STRUCTURE_MIN } else { AS_GOOD * own.figures.explained };
    explained >= wanted
}

/// Whether a pattern suggests nothing better than spreading the pages.
fn is_spread(p: &Pattern) -> bool {
    matches!(p.kind, PatternKind::Random | PatternKind::ReadShared)
}

fn part(samples: &Samples, slots: (u16, u16), judge: &impl Fn(&Samples) -> Pattern) -> Part {
    let part = samples.only(|s| s.slot >= slots.0 && s.slot < slots.1);
    Part { slots, weight: part.total(), sightings: part.sightings(), pattern: judge(&part) }
}

/// Number of offsets at which the owners of two patterns are compared.
const PROBES: u64 = 512;
/// Share of the object that must change its owner for a different placement.
pub(super) const MOVED: f64 = 0.25;
/// Threads whose ranks differ by less than this part of all threads count as one owner: on machines of up to eight
/// nodes they mostly run on the same node.
const NEAR: f64 = 1.0 / 8.0;

/// Whether two patterns need about the same placement. An unsure pattern agrees with every other.
pub(crate) fn same_placement(a: &Pattern, b: &Pattern, span: u64, threads: u32) -> bool {
    if a.kind == PatternKind::Unsure || b.kind == PatternKind::Unsure {
        return true;
    }
    if is_spread(a) || is_spread(b) {
        return is_spread(a) && is_spread(b);
    }
    let far = |x: u32, y: u32| f64::from(x.abs_diff(y)) > (NEAR * f64::from(threads)).max(0.5);
    let (mut seen, mut moved) = (0.0, 0.0);
    for i in 0..PROBES {
        let at = (i * 2 + 1) * (span / (2 * PROBES)).max(1);
        if let (Some(x), Some(y)) = (owner(a, at), owner(b, at)) {
            seen += 1.0;
            moved += f64::from(u8::from(far(x, y)));
        }
    }
    seen > 0.0 && moved < MOVED * seen
}

/// Thread that a pattern gives the byte at `at`.
pub(super) fn owner(p: &Pattern, at: u64) -> Option<u32> {
    if p.kind == PatternKind::Private {
        return p.owners.first().map(|o| o.thread);
    }
    let inside = p.period.map_or(at, |period| at % period.max(1));
    let slice = p.slices.get(p.slices.partition_point(|s| s.end <= inside)).or(p.slices.last())?;
    Some(slice.thread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{PageAccess, Sampling, classify};
    use crate::profile::summary::AccessFilter;

    const PAGES: u32 = 2048;
    const THREADS: u32 = 4;

    /// An object of which every page is first used once in each of some windows, in the order of its pages, by the
    /// thread that `owner` says of a window and a page.
    fn seen_once(windows: u32, owner: impl Fn(u32, u32) -> u32) -> ObjectView {
        let slots = u32::from(TIME_SLOTS) / windows;
        let seen = |window: u32, page: u32| PageAccess {
            instance: 0,
            page,
            thread: owner(window, page),
            slot: (window * slots + page * slots / PAGES) as u16,
            reads: 1.0,
            writes: 0.0,
        };
        ObjectView {
            size: u64::from(PAGES) * 4096,
            skew: 0,
            page_size: 4096,
            threads: THREADS,
            others: 0,
            instances: 1,
            cost_share: 1.0,
            hot: true,
            accesses: (0..windows).flat_map(|w| (0..PAGES).map(move |p| (w, p))).map(|(w, p)| seen(w, p)).collect(),
            rows: Vec::new(),
            filter: AccessFilter::All,
            sampling: Sampling { once: true, ..Sampling::default() },
            by_code: Vec::new(),
        }
    }

    #[test]
    fn the_order_of_first_uses_in_a_window_is_no_phase() {
        // Of threads that pass over a table beside each other one is ahead for a while, then another.
        let ahead = |window: u32, page: u32| (page / 300 + window) % THREADS;
        let view = seen_once(2, ahead);
        let each = ObjectView { sampling: Sampling::default(), ..view.clone() };
        assert_eq!(classify(&each).kind, PatternKind::Phased, "each access a sample of its own");
        assert_ne!(classify(&view).kind, PatternKind::Phased);
    }

    #[test]
    fn phases_of_several_windows_are_found() {
        let slices = |page: u32| page * THREADS / PAGES;
        let view = seen_once(16, |window, page| if window < 8 { slices(page) } else { THREADS - 1 - slices(page) });
        let pattern = classify(&view);
        assert_eq!(pattern.kind, PatternKind::Phased, "{}", pattern.evidence);
        assert_eq!(pattern.segments.iter().map(|s| s.end_slot).collect::<Vec<_>>(), [TIME_SLOTS / 2, TIME_SLOTS]);
    }
}
