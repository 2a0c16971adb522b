//! Whether what is seen of a page once in a window says whose page it is: what the next windows say of the same page.
//!
//! The fault sampler sees who is the first to use a page in a window. In one window the pages of an object that all
//! threads pass over look like slices: each thread is the first one on the pages that lie before it. The pages of one
//! window are no independent observations, and only another window can agree or not. A page is read for the first time
//! once in a window, and written so once, so two sightings of one kind are of two windows.
//!
//! Under slices that explain a share s of the sightings, two of one page have the same thread with the probability
//! c + (1 - c) s^2, and under shared use with the probability c, that of two sightings of any pages. Neighbours with
//! the same two threads are one observation: they may be so by the order of the threads alone.
//!
//! Where there is no second window, slices are believed that say where the pages of one thread end at many places,
//! which no order of passes does, and with half of the confidence one slice for each thread.

use super::ObjectView;
use super::change_points::owner;
use super::limits::{EVIDENCE_NATS, PRIVATE_SHARE, REPEAT_NATS, STRUCTURE_MIN};
use super::pattern::{Pattern, PatternKind};
use super::random::random_or_unsure;
use super::samples::{Sample, Samples};

/// Share of sightings that ignore the slices at least: without it a single one would refute them.
const LEAST_NOISE: f64 = 0.02;

/// Sightings of pages that were seen before.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Repeats {
    /// Pages with a second sighting.
    pages: usize,
    /// Independent observations of whether another sighting agrees.
    seen: f64,
    /// Share of them that agree.
    agree: f64,
    /// The same by chance.
    chance: f64,
}

/// What repeated sightings say of slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// The pages belong to the threads that were seen.
    Own,
    /// They do not.
    Shared,
    /// There are too few.
    Open,
}

impl Told {
    fn by(nats: f64) -> Told {
        match nats {
            n if n >= REPEAT_NATS => Told::Own,
            n if n <= -REPEAT_NATS => Told::Shared,
            _ => Told::Open,
        }
    }
}

/// The pattern of an object with slices or page owners, where it is seen once in a window and so may have them by
/// chance: the same, random, or that it is not known.
pub(super) fn weighed(view: &ObjectView, samples: &Samples, pattern: Pattern) -> Pattern {
    let has_owners = matches!(pattern.kind, PatternKind::Block | PatternKind::BlockCyclic | PatternKind::Irregular);
    if !view.sampling.once || !has_owners {
        return pattern;
    }
    let repeats = Repeats::of(samples);
    let nats = repeats.nats(pattern.figures.explained);
    match Told::by(nats) {
        Told::Own => Pattern { evidence: format!("{}; {}", pattern.evidence, repeats.words()), ..pattern },
        Told::Shared => {
            let shared = random_or_unsure(samples.total(), samples.threads(), 0.0, &view.sampling);
            Pattern { evidence: format!("{}; {}", shared.evidence, repeats.words()), ..shared }
        }
        // Rows are laid end to end: their pages are none of the pattern's.
        Told::Open if pattern.group.is_some() || by_order(samples, &pattern, repeats.chance) => pattern,
        Told::Open if nats >= 0.0 && is_usual(&pattern) => {
            let confidence = pattern.confidence.min(1.0 / (1.0 + (-nats).exp()));
            let evidence = format!(
                "{}; {}: threads that pass over it one behind the other may look so",
                pattern.evidence,
                repeats.words()
            );
            Pattern { evidence, confidence, ..pattern }
        }
        Told::Open => {
            let evidence = format!(
                "not known whether its pages belong to threads or all use all of it: {}, too few to tell; a longer run, a \
                 shorter --interval or a larger --max-overhead sees them in more windows",
                repeats.words()
            );
            Pattern { figures: pattern.figures, ..Pattern::new(PatternKind::Unsure, 0.0, evidence) }
        }
    }
}

/// Nats that an observation tells for a probability `own` and against `chance`, of which a share agrees.
fn gain(agree: f64, own: f64, chance: f64) -> f64 {
    if chance <= 0.0 || chance >= 1.0 {
        return 0.0;
    }
    agree * (own / chance).ln() + (1.0 - agree) * ((1.0 - own) / (1.0 - chance)).ln()
}

/// Whether a formula says where one thread's pages end and another's begin: neighbours of the same threads count as one
/// page, so that a few passes that lie beside each other are no evidence, and a formula for many edges is.
fn by_order(samples: &Samples, pattern: &Pattern, chance: f64) -> bool {
    if pattern.kind == PatternKind::Irregular {
        return false;
    }
    let (mut runs, mut matched) = (0.0f64, 0.0);
    let mut last: Vec<u16> = Vec::new();
    for list in samples.list.chunk_by(|a, b| (a.instance, a.page) == (b.instance, b.page)) {
        let mut threads: Vec<u16> = list.iter().map(|s| s.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        if threads != last {
            let at = u64::from(list[0].page).saturating_mul(samples.unit) + samples.unit / 2;
            let own = threads.iter().filter(|t| owner(pattern, at) == Some(samples.ranks[usize::from(**t)])).count();
            runs += 1.0;
            matched += own as f64 / threads.len() as f64;
        }
        last = threads;
    }
    let share = (matched / runs.max(1.0)).min(1.0 - LEAST_NOISE);
    let nats = if share > chance { runs * gain(share, share, chance) } else { 0.0 };
    nats - pattern.slices.len() as f64 * runs.max(1.0).ln() >= EVIDENCE_NATS
}

/// Whether the slices are one for each thread, in the order of the threads, and all that there is: those of most loops.
fn is_usual(pattern: &Pattern) -> bool {
    let slices = &pattern.slices;
    let ascends = slices.windows(2).all(|w| w[0].thread < w[1].thread);
    let descends = slices.windows(2).all(|w| w[0].thread > w[1].thread);
    pattern.kind == PatternKind::Block && pattern.figures.explained >= PRIVATE_SHARE && (ascends || descends)
}

impl Repeats {
    fn of(samples: &Samples) -> Repeats {
        let mut sums = vec![0.0; samples.threads()];
        let mut page = Page { reads: vec![0.0; samples.threads()], writes: vec![0.0; samples.threads()] };
        // A unit of several pages has so many sightings in a window.
        let each = 1.0 / (samples.scale.max(f64::MIN_POSITIVE) * f64::from(1u32 << samples.shift));
        let mut out = Repeats::default();
        let (mut agree, mut all, mut runs) = (0.0, 0.0, 0.0);
        let mut last = None;
        for list in samples.list.chunk_by(|a, b| (a.instance, a.page) == (b.instance, b.page)) {
            for s in list {
                sums[usize::from(s.thread)] += f64::from(s.weight);
                page.add(s, each);
            }
            if let Some(found) = page.agreement(list) {
                out.pages += 1;
                agree += found.further * found.agree;
                all += found.further;
                // Neighbours with the same threads are seen as often as one of them.
                if last != Some(found.threads) {
                    runs += found.further;
                }
                last = Some(found.threads);
            }
            page.clear(list);
        }
        let total: f64 = sums.iter().sum();
        out.chance = sums.iter().map(|s| s * s).sum::<f64>() / (total * total).max(f64::MIN_POSITIVE);
        out.seen = runs;
        out.agree = if all > 0.0 { agree / all } else { 0.0 };
        out
    }

    /// Evidence for slices that explain a share of the sightings, and against shared use.
    fn nats(&self, explained: f64) -> f64 {
        let c = self.chance;
        let share = explained.clamp(STRUCTURE_MIN, 1.0 - LEAST_NOISE);
        let own = c + (1.0 - c) * share * share;
        self.seen * gain(self.agree, own, c)
    }

    fn words(&self) -> String {
        match self.pages {
            0 => "no page was seen in a second window".into(),
            pages => format!(
                "of {pages} pages seen in several windows {:.0} % had the same thread again ({:.0} % by chance)",
                100.0 * self.agree,
                100.0 * self.chance
            ),
        }
    }
}

/// Sightings of one page by thread; zero between pages.
struct Page {
    reads: Vec<f64>,
    writes: Vec<f64>,
}

/// What the sightings of one page say.
struct Agreement {
    /// Those after the first.
    further: f64,
    /// Share of the pairs of sightings that have one thread.
    agree: f64,
    /// The two threads with most.
    threads: (u16, Option<u16>),
}

impl Page {
    fn add(&mut self, s: &Sample, each: f64) {
        let thread = usize::from(s.thread);
        self.reads[thread] += f64::from(s.weight - s.writes) * each;
        self.writes[thread] += f64::from(s.writes) * each;
    }

    fn clear(&mut self, list: &[Sample]) {
        for s in list {
            let thread = usize::from(s.thread);
            (self.reads[thread], self.writes[thread]) = (0.0, 0.0);
        }
    }

    /// None without a second sighting of one kind. What is read and then written is seen twice in one window, so the
    /// sightings of both kinds count as those of the kind with more.
    fn agreement(&self, list: &[Sample]) -> Option<Agreement> {
        let mut threads: Vec<u16> = list.iter().map(|s| s.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        let (mut further, mut same, mut pairs) = (0.0f64, 0.0, 0.0);
        for of_kind in [&self.reads, &self.writes] {
            let count: f64 = threads.iter().map(|t| of_kind[usize::from(*t)]).sum();
            // Counts are whole but for rounding.
            if count > 1.5 {
                further = further.max(count - 1.0);
                let same_thread = |t: &u16| of_kind[usize::from(*t)] * (of_kind[usize::from(*t)] - 1.0).max(0.0);
                same += threads.iter().map(same_thread).sum::<f64>();
                pairs += count * (count - 1.0);
            }
        }
        if pairs <= 0.0 {
            return None;
        }
        let seen = |t: &u16| self.reads[usize::from(*t)] + self.writes[usize::from(*t)];
        threads.sort_by(|a, b| seen(b).total_cmp(&seen(a)));
        Some(Agreement { further, agree: same / pairs, threads: (threads[0], threads.get(1).copied()) })
    }
}

#[cfg(test)]
mod tests;
