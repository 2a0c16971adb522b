//! Whether an object whose use changes would be worth another placement in each of its phases.
//!
//! What could be gained at most, the best page map of every phase against the one placement of the whole run, is weighed
//! against moving the pages that change their node in between.

use numamma_plan::policy::{PatternNote, Place};

use super::choose::{WORTH, price};
use super::cost::{Demands, PageMap, Placement};
use super::place::Scene;
use crate::detect::{Pattern, Segment};
use crate::profile::summary::{Cell, Counters, Entry};

/// Moving one page of 4 KiB to another node, ns: move_pages(2) gets through some 0.8 GB a second (Goglin and Furmento,
/// "Enabling High-Performance Memory Migration for Multithreaded Applications on Linux", MTAAP 2009).
const MOVE_PAGE_NS: f64 = 5_000.0;

/// The verdict in words for the reader of the policy; none for objects without phases. `taken` as in [`Scene::rule`].
pub(super) fn verdict(
    scene: &Scene<'_>,
    entry: &Entry,
    pattern: &Pattern,
    place: &Place,
    note: Option<&PatternNote>,
    taken: &[f64],
) -> Option<String> {
    let computed: Vec<&Segment> = pattern.segments.iter().filter(|s| !s.initialisation).collect();
    if computed.len() < 2 {
        return None;
    }
    let (mut saved, mut moved) = (0.0, 0.0);
    let mut before: Option<Nodes> = None;
    for segment in &computed {
        let part = part_of(entry, segment);
        let demands = Demands::of(scene.world, &part, Some(&segment.pattern));
        let kept = price(scene, &demands, &Placement::of(scene.world, &part, place, note).ok()?, taken).0;
        let Some(best) = PageMap::best(scene.world, &part, &demands, taken) else { continue };
        saved += (kept.time_ns - best.outcome.time_ns).max(0.0);
        let nodes: Nodes = demands.list.iter().map(|d| ((d.instance, d.page), best.node(d.instance, d.page))).collect();
        moved += before.as_ref().map_or(0.0, |b| share_moved(b, &nodes)) * pages(scene, entry);
        before = Some(nodes);
    }
    let run = scene.world.clock.wall_ns().max(f64::MIN_POSITIVE);
    let (saved, cost) = (saved / run, moved * MOVE_PAGE_NS / run);
    Some(if saved - cost > WORTH {
        format!(
            "its {} phases want different places: placed anew for each it would spare up to {:.1} % of the run more, moving \
             {moved:.0} pages ({:.1} %) included, which a policy cannot say yet; this is the one place for the whole run",
            computed.len(),
            100.0 * (saved - cost),
            100.0 * cost
        )
    } else {
        format!(
            "its {} phases want different places, but placing it anew for each would not pay: it would spare at most {:.1} % of \
             the run, and moving {moved:.0} pages costs {:.1} %",
            computed.len(),
            100.0 * saved,
            100.0 * cost
        )
    })
}

/// Node of each sampled page (instance, page).
type Nodes = std::collections::BTreeMap<(u32, u32), usize>;

/// The object as it was used during one segment.
fn part_of(entry: &Entry, segment: &Segment) -> Entry {
    let inside = |slot: u16| (segment.first_slot..segment.end_slot).contains(&slot);
    let accesses = |cells: &[Cell]| cells.iter().map(|c| c.counters.accesses()).sum::<u64>() as f64;
    let mut part = entry.clone();
    part.cells.retain(|c| inside(c.slot));
    // Its part of what was charged to the object, samples without a page included.
    let share = accesses(&part.cells) / accesses(&entry.cells).max(1.0);
    let of = |whole: u64| (whole as f64 * share) as u64;
    let Counters { reads, writes, remote, placed, cost_ns } = entry.total;
    part.total =
        Counters { reads: of(reads), writes: of(writes), remote: of(remote), placed: of(placed), cost_ns: of(cost_ns) };
    part
}

/// Of the pages sampled in both phases, the share that is on another node in the second.
fn share_moved(before: &Nodes, after: &Nodes) -> f64 {
    let both: Vec<bool> = after.iter().filter_map(|(page, node)| Some(before.get(page)? != node)).collect();
    if both.is_empty() { 1.0 } else { both.iter().filter(|moved| **moved).count() as f64 / both.len() as f64 }
}

fn pages(scene: &Scene<'_>, entry: &Entry) -> f64 {
    entry.size as f64 / scene.summary.header.page_size.max(1) as f64 * entry.instances.max(1) as f64
}
