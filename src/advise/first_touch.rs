//! First touch on a node that is not known: what it costs on each node where it may happen.
//!
//! A policy binds workers only. A main thread that fills the objects and then only waits is on another node in each
//! run, so what it touches first is priced with it on each node in turn, and counts with the mean: no worker's objects
//! are taken to be on the right node because the main thread might have been there.

use super::binding;
use super::choose::Subject;
use super::cost::{Outcome, Placement};
use super::scene::Scene;
use crate::profile::records::ThreadId;
use crate::profile::summary::Entry;

/// Most nodes on which a first touch is priced; on larger machines the others are like one of them.
const MOST_TOUCHED: usize = 16;
/// The first thread of a program.
const MAIN: ThreadId = 0;

/// First touch of one object.
pub(super) struct FirstTouch<'a> {
    /// Where its pages are without a rule: one for each node on which a thread that is not bound may have touched them.
    pub placements: Vec<Placement<'a>>,
    /// Their mean.
    pub outcome: Outcome,
    /// Bytes on each node of the model, the mean as well.
    pub bytes: Vec<f64>,
    /// How much the price depends on where it happens; none where that is known.
    pub open: Option<Open>,
}

/// The times between which first touch lies, ns, and why it is not known more exactly.
pub(super) struct Open {
    pub least_ns: f64,
    pub most_ns: f64,
    pub why: &'static str,
    /// Whether the reader is to be told even where the times hardly differ.
    pub always: bool,
}

impl<'a> FirstTouch<'a> {
    /// That of the object that `subject` prices.
    pub fn of(scene: &'a Scene<'a>, entry: &'a Entry, subject: &Subject<'_>) -> FirstTouch<'a> {
        let world = scene.world;
        let placements: Vec<Placement<'_>> = if is_by_unbound(scene, entry) {
            let nodes = world.homes_of_cpus().into_iter().take(MOST_TOUCHED);
            nodes.map(|node| world.unplaced(entry).with_unbound_on(node)).collect()
        } else {
            vec![world.unplaced(entry)]
        };
        let prices: Vec<_> = placements.iter().map(|placement| subject.price(placement)).collect();
        let mean = |of: &dyn Fn(&Outcome) -> f64| {
            prices.iter().map(|(outcome, ..)| of(outcome)).sum::<f64>() / prices.len().max(1) as f64
        };
        let outcome = Outcome {
            time_ns: mean(&|o| o.time_ns),
            local_share: mean(&|o| o.local_share),
            busiest_share: mean(&|o| o.busiest_share),
        };
        let mut bytes = vec![0.0; world.nodes()];
        for (_, own, _) in &prices {
            bytes.iter_mut().zip(own).for_each(|(sum, b)| *sum += b / prices.len() as f64);
        }
        let open = if entry.touches.is_empty() {
            let on = |node| subject.price(&Placement::touched_on(world, entry, node)).0.time_ns;
            let times = world.homes().into_iter().take(MOST_TOUCHED).map(on);
            open(times, "as its first touch is unknown", true)
        } else if placements.len() > 1 {
            let times = prices.iter().map(|(outcome, ..)| outcome.time_ns);
            open(times, "as the thread that touches it first is not bound", false)
        } else {
            None
        };
        FirstTouch { placements, outcome, bytes, open }
    }
}

fn open(times: impl Iterator<Item = f64>, why: &'static str, always: bool) -> Option<Open> {
    let ends = times.fold(None, |ends: Option<(f64, f64)>, time| {
        let (low, high) = ends.unwrap_or((time, time));
        Some((low.min(time), high.max(time)))
    });
    ends.map(|(least_ns, most_ns)| Open { least_ns, most_ns, why, always })
}

/// Whether a thread that the policy leaves on any node touches pages of an entry first, or is taken to.
fn is_by_unbound(scene: &Scene<'_>, entry: &Entry) -> bool {
    let is_free = |thread: ThreadId| scene.roles.rank(thread).is_none();
    let touched = entry.touches.iter().map(|run| run.thread);
    let allocated = entry.seen.iter().filter_map(|instance| instance.thread);
    let by_free = touched.chain(allocated).any(is_free) || (entry.touches.is_empty() && is_free(MAIN));
    by_free && binding::binds_only_workers(scene)
}
