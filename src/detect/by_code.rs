//! Mixed: functions, or loop nests of one function, that use an object differently, each with a pattern of its own.
//!
//! The samples of each part of the code are judged alone. Parts whose patterns need about the same placement are one
//! group. Several groups are reported only when they describe the accesses shorter than one pattern does: each group
//! pays for its own threads' shares and its own slices, so a group that noise made is not worth its description.

use super::change_points::{self, same_placement, whole_serves};
use super::confidence;
use super::limits::{EVIDENCE_NATS, PRIVATE_SHARE};
use super::samples::{Sample, Samples};
use super::{CodePattern, ObjectView, Pattern, PatternKind, Segment};

/// Share of the accesses that the code outside of the largest group must make: what a private object tolerates of other
/// threads.
const MIXED_SHARE: f64 = 1.0 - PRIVATE_SHARE;
/// Share of the accesses from which a part of the code is judged alone; smaller ones are judged together.
const PART_SHARE: f64 = MIXED_SHARE / 2.0;

/// Name spaces of the standard libraries of Rust and C++.
const RUNTIME: [&str; 4] = ["std::", "core::", "alloc::", "__gnu_cxx::"];

/// The accesses of one function or loop nest.
struct Part {
    function: String,
    place: String,
    samples: Samples,
    weight: f64,
    pattern: Pattern,
}

/// Parts that need about the same placement.
struct Group {
    parts: Vec<Part>,
    weight: f64,
    /// All its samples, and their pattern.
    samples: Samples,
    pattern: Pattern,
}

/// What the code tells of an object whose functions disagree.
pub(crate) struct Components {
    /// The functions, highest share first.
    rows: Vec<CodePattern>,
    /// Whether they use it in turn all through the run.
    alternate: bool,
}

/// The components of an object whose functions disagree; none when one pattern serves. `whole` is
/// the pattern of all samples that count, `counts` tells them from initialisation, `judge` classifies a part.
pub(crate) fn components(
    view: &ObjectView,
    all: &Samples,
    whole: &Pattern,
    counts: impl Fn(&Sample) -> bool,
    judge: impl Fn(&Samples) -> Pattern,
) -> Option<Components> {
    let parts = parts(view, all, counts, &judge);
    let total: f64 = parts.iter().map(|p| p.weight).sum();
    if parts.len() < 2 {
        return None;
    }
    let voting = joined(parts.iter().map(|p| &p.samples), all);
    let groups = groups(view, parts, &judge);
    let largest = groups.iter().map(|g| g.weight).fold(0.0, f64::max);
    if groups.len() < 2 || total - largest < MIXED_SHARE * total {
        return None;
    }
    let base = shares(&voting);
    let apart: f64 = groups.iter().map(|g| nats(&g.pattern, &g.samples, Some(&base))).sum();
    let overall = whole.overall();
    let one = nats(overall, &voting, None);
    if apart <= one + EVIDENCE_NATS || one_serves(overall, &groups, &voting, &judge) {
        return None;
    }
    let alternate = alternate(view, whole, &groups, &judge);
    Some(Components { rows: described(groups, total, overall.kind, &judge), alternate })
}

/// Whether the phases of `whole` are no more than a changing mix of groups that stay the same: no phase's pattern
/// serves the groups that use the object in it, and no group has phases of its own. On a busy machine the time that
/// each loop takes changes all the time.
fn alternate(view: &ObjectView, whole: &Pattern, groups: &[Group], judge: &impl Fn(&Samples) -> Pattern) -> bool {
    let is_mix = |phase: &Segment| {
        let inside = |s: &Sample| (phase.first_slot..phase.end_slot).contains(&s.slot);
        let used: Vec<Samples> = groups.iter().map(|g| g.samples.only(inside)).collect();
        let total: f64 = used.iter().map(Samples::total).sum();
        let mut that_count = used.iter().zip(groups).filter(|(used, _)| used.total() >= MIXED_SHARE * total);
        !that_count.all(|(used, group)| whole_serves(&phase.pattern, &group.pattern, used))
    };
    let changes =
        |g: &Group| !change_points::parts(&g.samples, &g.pattern, &change_points::Object::of(view), judge).is_empty();
    whole.segments.iter().all(is_mix) && !groups.iter().any(changes)
}

/// Whether one pattern places the samples of all groups about as well as their own patterns. A page map is made of the
/// samples themselves, and explains those of pages with one or two samples whatever they show, so the map that is tried
/// is made of half of the time slots, and tried on the other half.
fn one_serves(whole: &Pattern, groups: &[Group], voting: &Samples, judge: &impl Fn(&Samples) -> Pattern) -> bool {
    if whole.kind != PatternKind::Irregular {
        return groups.iter().all(|g| whole_serves(whole, &g.pattern, &g.samples));
    }
    let map = judge(&voting.only(|s| s.slot % 2 == 0));
    groups.iter().all(|g| whole_serves(&map, &g.pattern, &g.samples.only(|s| s.slot % 2 == 1)))
}

/// The parts of the code with enough accesses, and the others as one part.
fn parts(
    view: &ObjectView,
    all: &Samples,
    counts: impl Fn(&Sample) -> bool,
    judge: &impl Fn(&Samples) -> Pattern,
) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for code in &view.by_code {
        let samples = all.part(&code.accesses).only(&counts);
        let weight = samples.total();
        let (function, place) = (code.function.clone(), code.place.clone());
        parts.push(Part {
            function,
            place,
            samples,
            weight,
            pattern: Pattern::new(PatternKind::Unsure, 0.0, String::new()),
        });
    }
    let total: f64 = parts.iter().map(|p| p.weight).sum();
    let (mut own, rest): (Vec<Part>, Vec<Part>) =
        parts.into_iter().partition(|p| !p.function.is_empty() && p.weight >= PART_SHARE * total);
    let samples = joined(rest.iter().map(|p| &p.samples), all);
    let weight = samples.total();
    if weight >= PART_SHARE * total {
        let pattern = Pattern::new(PatternKind::Unsure, 0.0, String::new());
        own.push(Part { function: String::new(), place: String::new(), samples, weight, pattern });
    }
    own.retain(|p| p.weight > 0.0);
    for part in &mut own {
        part.pattern = judge(&part.samples);
    }
    own
}

/// The samples of several parts, one after the other in order of instance and page.
fn joined<'a>(parts: impl Iterator<Item = &'a Samples>, all: &Samples) -> Samples {
    let mut list: Vec<Sample> = parts.flat_map(|s| s.list.iter().copied()).collect();
    list.sort_by_key(|s| (s.instance, s.page, s.thread, s.slot));
    list.dedup_by(|b, a| {
        let same = (a.instance, a.page, a.thread, a.slot) == (b.instance, b.page, b.thread, b.slot);
        if same {
            a.weight += b.weight;
            a.writes += b.writes;
        }
        same
    });
    Samples { list, ranks: all.ranks.clone(), ..*all }
}

/// Groups of parts that agree. Parts with too few samples for a pattern agree with the largest group.
fn groups(view: &ObjectView, parts: Vec<Part>, judge: &impl Fn(&Samples) -> Pattern) -> Vec<Group> {
    let (unsure, mut sure): (Vec<Part>, Vec<Part>) =
        parts.into_iter().partition(|p| p.pattern.kind == PatternKind::Unsure);
    sure.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    let mut groups: Vec<Group> = Vec::new();
    for part in sure {
        let agrees = |g: &&mut Group| same_placement(&g.parts[0].pattern, &part.pattern, view.size, view.threads);
        match groups.iter_mut().find(agrees) {
            Some(group) => group.parts.push(part),
            None => groups.push(Group {
                weight: 0.0,
                samples: part.samples.clone(),
                pattern: part.pattern.clone(),
                parts: vec![part],
            }),
        }
    }
    if let Some(largest) = groups.first_mut() {
        largest.parts.extend(unsure);
    }
    for group in &mut groups {
        group.weight = group.parts.iter().map(|p| p.weight).sum();
        if group.parts.len() > 1 {
            group.samples = joined(group.parts.iter().map(|p| &p.samples), &group.parts[0].samples);
            group.pattern = judge(&group.samples);
        }
    }
    groups
}

/// Samples by thread.
fn shares(samples: &Samples) -> Vec<f64> {
    let mut sums = vec![0.0; samples.threads()];
    samples.list.iter().for_each(|s| sums[usize::from(s.thread)] += f64::from(s.weight));
    let total: f64 = sums.iter().sum();
    sums.iter().map(|s| s / total.max(f64::MIN_POSITIVE)).collect()
}

/// Nats by which a pattern describes samples shorter than threads drawn by the shares in `base`; without `base`, by
/// their own shares.
fn nats(pattern: &Pattern, samples: &Samples, base: Option<&[f64]>) -> f64 {
    let own = shares(samples);
    let total = samples.total();
    let differ = base.map_or(0.0, |base| {
        let term = |(s, b): (&f64, &f64)| if *s > 0.0 { s * (s / b.max(f64::MIN_POSITIVE)).ln() } else { 0.0 };
        let used = own.iter().filter(|s| **s > 0.0).count() as f64;
        // Shares of so many threads are estimated from the samples (half a logarithm of the samples for each).
        total * own.iter().zip(base).map(term).sum::<f64>() - 0.5 * (used - 1.0).max(0.0) * total.max(1.0).ln()
    });
    let explained = match pattern.kind {
        PatternKind::Private | PatternKind::Irregular => owned(pattern, samples, &own),
        PatternKind::Phased => pattern.overall().figures.nats,
        _ => pattern.figures.nats,
    };
    differ + explained.max(0.0)
}

/// The same for the owners of a private object's instances, or of the runs of pages of a page map. Each owner, and each
/// end of a run, must be named.
fn owned(pattern: &Pattern, samples: &Samples, shares: &[f64]) -> f64 {
    let mut owners = pattern.owners.clone();
    owners.sort_unstable_by_key(|o| o.instance);
    let of_instance = |i: u32| owners.binary_search_by_key(&i, |o| o.instance).ok().map(|i| owners[i].thread);
    let of_page = |page: u32| {
        let middle = u64::from(page).saturating_mul(samples.unit) + samples.unit / 2;
        let run = pattern.slices.partition_point(|s| s.end <= middle);
        pattern.slices.get(run).map(|s| s.thread)
    };
    let is_map = pattern.kind == PatternKind::Irregular;
    let noise = (1.0 - pattern.figures.explained).clamp(0.02, 0.75);
    let of = |s: &Sample| {
        let share = shares[usize::from(s.thread)].max(1e-9);
        let owner = if is_map { of_page(s.page) } else { of_instance(s.instance) };
        let inside = owner == Some(samples.ranks[usize::from(s.thread)]);
        f64::from(s.weight) * if inside { (noise + (1.0 - noise) / share).ln() } else { noise.ln() }
    };
    let named = (owners.len() + pattern.slices.len()) as f64 * (samples.threads().max(1) as f64).ln();
    let ends = pattern.slices.len() as f64 * f64::from(samples.pages).ln();
    samples.list.iter().map(of).sum::<f64>() - named - ends
}

/// One row for each function of each group.
fn described(
    groups: Vec<Group>,
    total: f64,
    whole: PatternKind,
    judge: &impl Fn(&Samples) -> Pattern,
) -> Vec<CodePattern> {
    let mut rows: Vec<(String, String, f64, Pattern)> = Vec::new();
    for group in groups {
        let mut parts = group.parts;
        parts.sort_by(|a, b| a.function.cmp(&b.function).then(b.weight.total_cmp(&a.weight)));
        for of_function in parts.chunk_by(|a, b| a.function == b.function) {
            let weight: f64 = of_function.iter().map(|p| p.weight).sum();
            let mut pattern = match of_function {
                [one] => one.pattern.clone(),
                several => judge(&joined(several.iter().map(|p| &p.samples), &several[0].samples)),
            };
            if whole == PatternKind::ReadShared && pattern.kind == PatternKind::Random {
                pattern.kind = PatternKind::ReadShared;
            }
            rows.push((of_function[0].function.clone(), of_function[0].place.clone(), weight / total, pattern));
        }
    }
    rows.sort_by(|a, b| a.0.is_empty().cmp(&b.0.is_empty()).then(b.2.total_cmp(&a.2)));
    let repeated: Vec<bool> = rows.iter().map(|r| rows.iter().filter(|o| o.0 == r.0).count() > 1).collect();
    let named = |((function, place, share, pattern), repeated): ((String, String, f64, Pattern), bool)| {
        // Where a runtime's function holds the loop, the inlined function is the one that people know.
        let of_runtime = RUNTIME.iter().any(|p| function.starts_with(p));
        let function = match (function.is_empty(), repeated || of_runtime) {
            (true, _) => "other code".to_owned(),
            (false, true) => place,
            (false, false) => function,
        };
        CodePattern { function, share, pattern: Box::new(pattern) }
    };
    rows.into_iter().zip(repeated).map(named).collect()
}

/// The pattern of an object with these components, in place of `whole`.
pub(crate) fn mixed(whole: Pattern, Components { rows, alternate }: Components) -> Pattern {
    let whole = match whole {
        Pattern { kind: PatternKind::Phased, whole: Some(whole), .. } if alternate => *whole,
        Pattern { kind: PatternKind::Phased, .. } => return Pattern { by_code: rows, ..whole },
        whole => whole,
    };
    let judged = || rows.iter().filter(|r| r.pattern.kind != PatternKind::Unsure);
    let sum: f64 = judged().map(|r| r.share).sum();
    let confidence = judged().map(|r| r.share * r.pattern.confidence).sum::<f64>() / sum.max(f64::MIN_POSITIVE);
    let words: Vec<String> =
        rows.iter().map(|r| format!("{} ({:.0} %) {}", r.function, 100.0 * r.share, r.pattern.summary())).collect();
    let together = match whole.figures.explained {
        share if share > 0.0 => format!("{}, {:.0} %", whole.summary(), 100.0 * share),
        _ => whole.summary(),
    };
    // Private to one thread in each function, and to another one in the next.
    let is_handed_on = rows.len() > 1 && rows.iter().all(|r| r.pattern.kind == PatternKind::Private);
    let evidence = if is_handed_on {
        let stages: Vec<String> = rows.iter().map(|r| format!("{} ({:.0} %)", r.function, 100.0 * r.share)).collect();
        let stages = stages.join(", ");
        format!("it is handed from thread to thread, and each of its functions uses it in one of them: {stages}")
    } else {
        format!("its functions use it differently: {} (all together: {together})", words.join(", "))
    };
    let figures = whole.figures;
    // With few samples, functions that follow each other in time cannot be told from functions that alternate.
    let confidence = confidence * (1.0 - confidence::missed(figures.samples, figures.needed));
    let whole = Some(Box::new(whole));
    Pattern { by_code: rows, whole, figures, ..Pattern::new(PatternKind::Mixed, confidence, evidence) }
}
