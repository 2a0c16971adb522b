//! Patterns of hot objects: pure functions from page x thread counters to a pattern with its evidence.
//!
//! [`classify`] decides in this order: small, cold, private, then slices (block, block-cyclic) by [`mod@spectrum`] and
//! [`fold`], page affinity without a formula, else random (or read-shared) when the samples would have shown slices,
//! else unsure. Then it searches for phases of the run with different patterns ([`change_points`]) and for functions
//! with different patterns ([`by_code`]). Callers build an
//! [`ObjectView`] with [`view_of`]; thread ranks must be below `threads`, and pages count from the object's first page.
//! Every view is accepted: one without samples is unsure, and invalid accesses are ignored ([`samples`]).

mod affinity;
mod block;
mod block_cyclic;
mod by_code;
mod change_points;
mod confidence;
mod cores;
mod fold;
mod group;
mod hot;
mod init;
mod irregular;
pub mod lifetimes;
pub mod limits;
mod load;
mod migration;
mod order;
mod page_map;
mod parts;
mod pattern;
mod points;
mod pool;
mod private;
mod random;
mod read_shared;
mod repeats;
pub mod roles;
mod row_edges;
mod samples;
mod sharing;
mod short_threads;
mod small;
mod spectrum;
mod structure;
mod together;
mod unpaged;
mod view;

pub use hot::hot;
pub use load::{KindLoad, counts_work, is_uneven, loads};
pub use migration::{MIGRATION_SCORE, Migration, migration, waits_for_threads};
pub use order::known_order;
pub use parts::{divide, part_boundaries, tell_apart};
pub use pattern::{CodePattern, Figures, Owner, Pattern, PatternKind, Segment, Slice};
pub use random::samples_needed;
pub use roles::{Rank, Role, Roles, roles};
pub use sharing::{
    REMOTE_SCORE, SHARING_SCORE, SampledSharing, Shared, SharingKind, Side, sampled_sharing, sharing, sharing_score,
};
pub use short_threads::{ShortThreads, short_threads};
pub use spectrum::Spectrum;
pub use together::{InTurn, in_turn};
pub use unpaged::{mostly_unpaged, unpaged_share};
pub use view::{CodeAccesses, ObjectView, PageAccess, Row, Sampling, cost_shares, view_of};

use std::borrow::Cow;

use crate::profile::record::TRACE;
use crate::profile::summary::{AccessFilter, Entry, Summary, TIME_SLOTS};
use samples::Samples;

/// Classifies one object. Pure: the same view gives the same pattern.
pub fn classify(view: &ObjectView) -> Pattern {
    if let Some(pattern) = small::small(view).or_else(|| small::cold(view)) {
        return pattern;
    }
    let all = Samples::of(view);
    let serial = init::serial_slots(view, &all);
    let voting = match &serial {
        Some(s) => Cow::Owned(all.only(|a| !s.dropped[usize::from(a.slot)])),
        None => Cow::Borrowed(&all),
    };
    let later = serial.as_ref().filter(|s| s.is_phase_later()).map(init::Serial::initial);
    let timed = later.as_ref().map(|initial| all.only(|a| !initial[usize::from(a.slot)]));
    let (voting, timed, workers) = only_workers(view, voting, timed);
    let release = serial.as_ref().filter(|_| later.is_none()).map(init::Serial::last);
    let used = release.map_or(Cow::Borrowed(&all), |last| Cow::Owned(all.only(|a| !last[usize::from(a.slot)])));
    let written = if view.filter == AccessFilter::All { read_shared::written_first(&used) } else { None };
    let mut pattern = in_time(view, &all, &voting, timed.as_ref().unwrap_or(&voting), written);
    if !view.by_code.is_empty() {
        let works = |a: &samples::Sample| usize::from(a.thread) < workers;
        let counts = |a: &samples::Sample| works(a) && serial.as_ref().is_none_or(|s| !s.dropped[usize::from(a.slot)]);
        if let Some(found) = by_code::components(view, &all, &pattern, counts, |part| judge(view, part)) {
            pattern = by_code::mixed(pattern, found);
        }
    }
    if let Some(s) = serial.filter(|s| s.share >= INIT_SHOWN) {
        pattern.evidence += &format!(
            "; {:.0} % of the accesses, by {} alone, look like initialisation and do not count",
            100.0 * s.share,
            pattern::thread_name(s.thread, view.threads)
        );
        if !pattern.segments.is_empty() {
            add_initialisation(view, &mut pattern, &s);
        }
    }
    pattern
}

/// The spectrum that periods are read from, for pictures: of the threads that work, without initialisation. None where
/// fewer than two threads take part, or nothing has a page.
pub fn spectrum(entry: &Entry, summary: &Summary, roles: &Roles) -> Option<Spectrum> {
    let weight = view::Weight { share: 1.0, hot: true };
    let view = view::view_with(entry, summary, roles, weight, AccessFilter::All);
    let all = Samples::of(&view);
    let voting = match init::serial_slots(&view, &all) {
        Some(serial) => Cow::Owned(all.only(|a| !serial.dropped[usize::from(a.slot)])),
        None => Cow::Borrowed(&all),
    };
    let (voting, ..) = only_workers(&view, voting, None);
    Spectrum::of(&points::collect(&voting, voting.list.iter()), voting.unit)
}

/// Samples without those of threads that do not work, unless these have nearly all of them, and how many of the threads
/// that occur count.
fn only_workers<'a>(
    view: &ObjectView,
    voting: Cow<'a, Samples>,
    timed: Option<Samples>,
) -> (Cow<'a, Samples>, Option<Samples>, usize) {
    let (all, workers) = (voting.ranks.len(), voting.ranks.partition_point(|rank| *rank < view.threads));
    if workers == all {
        return (voting, timed, all);
    }
    let works = |a: &samples::Sample| usize::from(a.thread) < workers;
    let working = voting.only(works);
    if working.total() < (1.0 - limits::PRIVATE_SHARE) * voting.total() {
        return (voting, timed, all);
    }
    (Cow::Owned(working), timed.map(|timed| timed.only(works)), workers)
}

/// Share of initialisation from which the evidence mentions it: less is rounded to 0 %.
const INIT_SHOWN: f64 = 0.005;

/// The pattern of the samples that count (`voting`), including the patterns in time: read-shared and phased. Phases are
/// searched for in `timed`.
fn in_time(
    view: &ObjectView,
    all: &Samples,
    voting: &Samples,
    timed: &Samples,
    written: Option<read_shared::Written>,
) -> Pattern {
    let mut whole = judge(view, voting);
    let mut from = 0;
    if let Some(written) = written {
        // Threads that write the object together in slices must not hide that the reads afterwards have no structure.
        let reading = if whole.kind == PatternKind::Random || whole.kind == PatternKind::Private {
            whole.clone()
        } else {
            judge(view, &voting.only(|s| s.slot >= written.from))
        };
        if reading.kind == PatternKind::Random {
            whole = read_shared::read_shared(reading, written);
            from = written.from;
        }
    }
    // With several instances, allocation and release would look like phases.
    let several = voting.list.first().map(|s| s.instance) != voting.list.last().map(|s| s.instance);
    if several || whole.kind == PatternKind::Unsure {
        return whole;
    }
    let late = (from > 0).then(|| timed.only(|s| s.slot >= from));
    let object = change_points::Object::of(view);
    let parts = change_points::parts(late.as_ref().unwrap_or(timed), &whole, &object, |part| judge(view, part));
    if parts.is_empty() { whole } else { phased(view, all, whole, parts) }
}

/// The pattern of a set of samples without regard to time: private, or a pattern of [`structure`].
fn judge(view: &ObjectView, samples: &Samples) -> Pattern {
    let Some(private) = private::private(samples, view.threads) else { return structure::structured(view, samples) };
    // For rows of a matrix a formula over all rows is preferred to a list of owners, which is kept as well, and which
    // the formula completes.
    match structure::rows(view, samples, &private.owners) {
        Some(group) => Pattern { owners: group::owners(view, samples, &group, private.owners), ..group },
        None => private,
    }
}

/// Seconds from the start of the run at which a slot begins.
fn slot_start(view: &ObjectView, slot: u16) -> f64 {
    view.sampling.duration_s * f64::from(slot) / f64::from(TIME_SLOTS)
}

fn segment(view: &ObjectView, slots: (u16, u16), share: f64, pattern: Pattern) -> Segment {
    let (start_s, end_s) = (slot_start(view, slots.0), slot_start(view, slots.1));
    let (first_slot, end_slot) = slots;
    Segment { first_slot, end_slot, start_s, end_s, share, initialisation: false, pattern: Box::new(pattern) }
}

fn phased(view: &ObjectView, all: &Samples, whole: Pattern, parts: Vec<change_points::Part>) -> Pattern {
    let total = all.total();
    let weight: f64 = parts.iter().map(|p| p.weight).sum();
    let confidence = parts.iter().map(|p| p.weight * p.pattern.confidence).sum::<f64>() / weight.max(f64::MIN_POSITIVE);
    let segments: Vec<Segment> =
        parts.into_iter().map(|p| segment(view, p.slots, p.weight / total, p.pattern)).collect();
    let words: Vec<String> =
        segments.iter().map(|s| format!("{} from {:.2} s to {:.2} s", s.pattern.kind, s.start_s, s.end_s)).collect();
    let evidence = format!(
        "{} phases: {}; over the whole run {}: {}",
        segments.len(),
        words.join(", "),
        whole.kind,
        whole.evidence
    );
    let figures = whole.figures;
    let whole = Some(Box::new(whole));
    Pattern { segments, whole, figures, ..Pattern::new(PatternKind::Phased, confidence, evidence) }
}

/// Adds the runs of initialisation to the segments of a phased object.
fn add_initialisation(view: &ObjectView, pattern: &mut Pattern, serial: &init::Serial) {
    let mut at = 0;
    let dropped = if serial.is_phase_later() { serial.initial() } else { serial.dropped.clone() };
    for run in dropped.chunk_by(|a, b| a == b) {
        let slots = (at, at + run.len() as u16);
        at = slots.1;
        let weight: f64 = serial.weights[usize::from(slots.0)..usize::from(slots.1)].iter().sum();
        if !run[0] || weight <= 0.0 {
            continue;
        }
        let evidence = format!("{} alone", pattern::thread_name(serial.thread, view.threads));
        let alone = Pattern::new(PatternKind::Private, 1.0, evidence);
        let share = weight / serial.weights.iter().sum::<f64>();
        pattern.segments.push(Segment { initialisation: true, ..segment(view, slots, share, alone) });
    }
    pattern.segments.sort_by_key(|s| (s.first_slot, s.end_slot));
}

/// Patterns of all entries of a profile, in the order of `summary.entries`.
pub fn classify_all(summary: &Summary) -> Vec<Pattern> {
    classify_accesses(summary, AccessFilter::All)
}

/// Patterns of all entries of a profile by their reads, their writes or both.
pub fn classify_accesses(summary: &Summary, filter: AccessFilter) -> Vec<Pattern> {
    let (roles, shares, hot) = (roles(summary), cost_shares(summary), hot(summary));
    let weights = shares.into_iter().zip(hot).map(|(share, hot)| view::Weight { share, hot });
    let alone = |(entry, weight)| classify(&view::view_with(entry, summary, &roles, weight, filter));
    let mut patterns: Vec<Pattern> = cores::on_all(summary.entries.iter().zip(weights).collect(), alone);
    pool::judge(summary, &roles, filter, classify, &mut patterns);
    summary.entries.iter().zip(&mut patterns).for_each(|(entry, pattern)| unpaged::weigh(entry, pattern));
    if summary.header.sampling.sampler == TRACE {
        patterns.iter_mut().for_each(Pattern::say_accesses);
    }
    patterns
}
