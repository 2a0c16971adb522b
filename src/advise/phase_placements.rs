//! A placement for each phase of an object, where the saving exceeds the cost of moving its pages.
//!
//! Each segment of the object's pattern is placed like a run of its own, by [`super::choose`]. The saving over one
//! placement for the whole run is compared with the cost of moving the pages that change their node between phases.

use std::collections::BTreeMap;
use std::ops::Range;

use numamma_plan::policy::{Block, ObjectRule, PatternNote, Phase, Place, Policy, PolicyKind};

use super::choose::Subject;
use super::cost::{Demands, Placement};
use super::scene::{Choice, Scene};
use super::together::WORTH;
use crate::detect::{Pattern, Segment};
use crate::profile::summary::{Cell, Counters, Entry, Summary, TIME_SLOTS};

/// Moving one page of 4 KiB to another node, ns: move_pages(2) moves about 0.8 GB a second (Goglin and Furmento,
/// "Enabling High-Performance Memory Migration for Multithreaded Applications on Linux", MTAAP 2009).
const MOVE_PAGE_NS: f64 = 5_000.0;
/// Phases of different objects that begin within this part of the run become one: a time slot of the profile, the unit
/// of their starts, is hardly shorter (a 64th).
const TOGETHER: f64 = 0.02;
/// Starts of phases are rounded to multiples of this, seconds: a profile is not more precise.
const ROUNDED_S: f64 = 0.01;

/// The placements of an object for its phases.
pub(super) struct PhasePlacements {
    /// Start (seconds) and placement of each phase; the first placement becomes the object's own. Empty when moving the
    /// pages would cost more than the placements save.
    pub places: Vec<(f64, Place)>,
    /// Part of the run's time that they save over one placement; 0 without them.
    pub saved: f64,
    /// Explanation for the reader of the policy.
    pub words: String,
}

/// Compares placements for each phase of `entry` with `place` for the whole run (first touch when it is `None`); none
/// for objects without phases. `taken` as in [`Scene::rule`].
pub(super) fn weigh(
    scene: &Scene<'_>,
    entry: &Entry,
    pattern: &Pattern,
    place: Option<&Place>,
    note: Option<&PatternNote>,
    taken: &[f64],
) -> Option<PhasePlacements> {
    let computed: Vec<&Segment> = pattern.segments.iter().filter(|s| !s.initialisation).collect();
    // Without the length of the run the starts of the phases are unknown.
    if computed.len() < 2 || computed.iter().any(|s| s.end_s <= 0.0) {
        return None;
    }
    let (mut saved, mut moved) = (0.0, 0.0);
    let mut places: Vec<(f64, Place)> = Vec::new();
    let mut before: Option<Nodes> = None;
    for segment in &computed {
        let part = part_of(entry, segment.first_slot..segment.end_slot);
        let subject = Subject::new(scene, &part, &segment.pattern, note, taken);
        let of = |place: &Place| Placement::of(scene.world, &part, place, note).ok();
        let kept = place.map_or_else(|| Some(Placement::first_touch(scene.world, &part)), of)?;
        let kept_ns = subject.price(&kept).0.time_ns;
        let choices = scene.candidates(&part, &segment.pattern).unwrap_or_default();
        let choices = choices.into_iter().filter(|c| stands_alone(c, place)).collect();
        let Some((chosen, time_ns)) = subject.cheapest(choices) else { continue };
        saved += kept_ns - time_ns;
        let placement = of(&chosen.place)?;
        let nodes = nodes_of(&subject.demands, &placement);
        if places.last().is_none_or(|(_, last)| *last != chosen.place) {
            // All pages whose node changes are moved; of interleaved pages, all but one in the number of nodes.
            moved +=
                before.as_ref().map_or(0.0, |b| share_moved(b, &nodes, &placement)) * page_count(scene.summary, entry);
            places.push((segment.start_s, chosen.place));
        }
        before = Some(nodes);
    }
    let run = scene.world.clock.running_ns().max(f64::MIN_POSITIVE);
    let (saved, cost) = (saved / run, moved * MOVE_PAGE_NS / run);
    let pays = places.len() > 1 && saved - cost > WORTH;
    let words = if pays {
        format!(
            "its {} phases need different placements: one for each phase saves {:.1} % of the running time more than \
             the best single placement (moving {moved:.0} pages takes {:.1} %, which is subtracted)",
            computed.len(),
            100.0 * (saved - cost),
            100.0 * cost
        )
    } else {
        places.clear();
        format!(
            "its {} phases need different placements, but one for each phase would not pay: it would save at most \
             {:.1} % of the running time, and moving {moved:.0} pages would take {:.1} %",
            computed.len(),
            100.0 * saved.max(0.0),
            100.0 * cost
        )
    };
    Some(PhasePlacements { places, saved: if pays { saved - cost } else { 0.0 }, words })
}

/// Whether a candidate can be used in a phase. A block of `auto` is computed from the pattern of the whole run, which
/// differs from that of the phase.
fn stands_alone(choice: &Choice, whole: Option<&Place>) -> bool {
    let cyclic_auto =
        choice.place.policy == PolicyKind::BlockCyclic && !matches!(choice.place.block, Some(Block::Size(_)));
    choice.numbered.is_none() && (!cyclic_auto || whole == Some(&choice.place))
}

/// Node of each sampled page (instance, page).
type Nodes = BTreeMap<(u32, u32), usize>;

/// The entry with only the accesses in the given time slots.
pub(super) fn part_of(entry: &Entry, slots: Range<u16>) -> Entry {
    let inside = |slot: u16| slots.contains(&slot);
    let accesses = |cells: &[Cell]| cells.iter().map(|c| c.counters.accesses()).sum::<u64>() as f64;
    let mut part = entry.clone();
    part.cells.retain(|c| inside(c.slot));
    // The part's share of the object's totals, which also hold samples without a page.
    let share = accesses(&part.cells) / accesses(&entry.cells).max(1.0);
    let of = |whole: u64| (whole as f64 * share) as u64;
    let Counters { reads, writes, remote, placed, cost_ns } = entry.total;
    part.total =
        Counters { reads: of(reads), writes: of(writes), remote: of(remote), placed: of(placed), cost_ns: of(cost_ns) };
    part
}

/// Of the pages sampled in both phases, the share that is on another node in the second.
fn share_moved(before: &Nodes, after: &Nodes, placement: &Placement<'_>) -> f64 {
    if let Some(shares) = placement.shares() {
        return 1.0 - 1.0 / shares.len().max(1) as f64;
    }
    let both: Vec<bool> = after.iter().filter_map(|(page, node)| Some(before.get(page)? != node)).collect();
    if both.is_empty() { 1.0 } else { both.iter().filter(|moved| **moved).count() as f64 / both.len() as f64 }
}

fn nodes_of(demands: &Demands, placement: &Placement<'_>) -> Nodes {
    demands.list.iter().map(|d| ((d.instance, d.page), placement.node(d.instance, d.page))).collect()
}

fn page_count(summary: &Summary, entry: &Entry) -> f64 {
    entry.size as f64 / summary.header.page_size.max(1) as f64 * entry.instances.max(1) as f64
}

/// Cost of moving the pages of `entry` that change their node between two placements, ns.
pub(super) fn moving_ns(
    summary: &Summary,
    entry: &Entry,
    demands: &Demands,
    from: &Placement<'_>,
    to: &Placement<'_>,
) -> f64 {
    share_moved(&nodes_of(demands, from), &nodes_of(demands, to), to) * page_count(summary, entry) * MOVE_PAGE_NS
}

/// The places of `rule` during a profiled run, with the time slots from which they hold; the first one holds from
/// slot 0. Only phases with a start time are included, as a profile does not show when other phases begin.
pub(super) fn places_by_slot<'a>(policy: &'a Policy, rule: &'a ObjectRule, summary: &Summary) -> Vec<(u16, &'a Place)> {
    let run_s = summary.duration_ns() as f64 / 1e9;
    let slot = |after: f64| (after / run_s.max(f64::MIN_POSITIVE) * f64::from(TIME_SLOTS)).round();
    let mut timed: Vec<(f64, &Place)> =
        policy.phases.iter().filter_map(|p| Some((slot(p.after?), rule.phases.get(&p.name)?))).collect();
    timed.retain(|(slot, _)| *slot < f64::from(TIME_SLOTS));
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut places = vec![(0, &rule.place)];
    for (slot, place) in timed {
        places.retain(|(from, _)| f64::from(*from) < slot);
        places.push((slot as u16, place));
    }
    places
}

/// Stores the places of `verdict` in `rule` under their start times, which [`declare_phases`] replaces by phase names.
pub(super) fn store_starts(rule: &mut ObjectRule, verdict: PhasePlacements) {
    let mut places = verdict.places.into_iter();
    if let Some((_, first)) = places.next() {
        rule.place = first;
        rule.phases = places.map(|(start, place)| (format!("{start:012.3}"), place)).collect();
    }
}

/// Replaces the start times that [`store_starts`] left in `rules` by phases, which are returned, in a run of `run_s`
/// seconds. Starts within [`TOGETHER`] become one phase.
pub(super) fn declare_phases<'a>(rules: impl Iterator<Item = &'a mut ObjectRule>, run_s: f64) -> Vec<Phase> {
    let mut rules: Vec<&mut ObjectRule> = rules.collect();
    let mut starts: Vec<f64> = rules.iter().flat_map(|r| r.phases.keys()).filter_map(|k| k.parse().ok()).collect();
    starts.sort_by(f64::total_cmp);
    let mut firsts: Vec<f64> = Vec::new();
    for start in starts {
        if firsts.last().is_none_or(|first| start - first > TOGETHER * run_s) {
            firsts.push(start);
        }
    }
    let name = |index: usize| format!("phase-{}", index + 2);
    for rule in &mut rules {
        // Of two starts in one phase the place of the later one is kept.
        let places = std::mem::take(&mut rule.phases).into_iter().filter_map(|(start, place)| {
            let start: f64 = start.parse().ok()?;
            Some((name(firsts.iter().rposition(|first| *first <= start)?), place))
        });
        rule.phases = places.collect();
    }
    let after = |start: f64| Some((start / ROUNDED_S).round() * ROUNDED_S).map(|s| (s * 100.0).round() / 100.0);
    let phase = |(index, start): (usize, &f64)| Phase { name: name(index), after: after(*start), ..Phase::default() };
    firsts.iter().enumerate().map(phase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_close_together_are_one_phase() {
        let place = |policy| Place { policy, ..Place::default() };
        let rule = |starts: &[f64]| {
            let mut rule = ObjectRule::default();
            let kinds = [PolicyKind::Block, PolicyKind::Interleave, PolicyKind::Bind];
            let all = [0.0].iter().chain(starts).zip(kinds).map(|(s, kind)| (*s, place(kind)));
            store_starts(&mut rule, PhasePlacements { places: all.collect(), saved: 0.0, words: String::new() });
            rule
        };
        let mut rules = [rule(&[10.004, 61.0]), rule(&[11.5]), rule(&[])];
        let phases = declare_phases(rules.iter_mut(), 100.0);
        let shown: Vec<_> = phases.iter().map(|p| (p.name.as_str(), p.after)).collect();
        assert_eq!(shown, [("phase-2", Some(10.0)), ("phase-3", Some(61.0))]);
        assert_eq!(rules[0].place.policy, PolicyKind::Block);
        assert_eq!(rules[0].phases["phase-3"].policy, PolicyKind::Bind);
        assert_eq!(rules[1].phases["phase-2"].policy, PolicyKind::Interleave);
        assert!(rules[2].phases.is_empty());
    }
}
