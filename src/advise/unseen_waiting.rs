//! Objects whose samples show no waiting, or too little to be worth a placement.
//!
//! The machine of the profile may hide what the target does not: a sweep of which its prefetchers fetch every line in
//! time, an array that stays in a last-level cache that the target's users do not share. Where the pattern says whose
//! each page is, the pages are placed near their users all the same: that takes no time, and gains where they do wait.
//! A gain is not predicted for it.

use numamma_plan::policy::{PatternNote, PolicyKind};

use super::choose::{Subject, simplest};
use super::cost::resample;
use super::scene::{Choice, Scene};
use super::together::WORTH;
use crate::detect::Pattern;
use crate::profile::summary::Entry;

/// Chance from which on a pattern is taken to say whose each page is: what the confidence is calibrated to mean "nine
/// in ten are right" at.
const SURE: f64 = 0.9;

impl Scene<'_> {
    /// Whether the samples leave open that an entry waits for memory at all.
    fn may_not_wait(&self, entry: &Entry) -> bool {
        self.world.stalled_part(entry) <= 0.0 || resample::half_range(&self.world.waiting_by_group(entry)) >= 1.0
    }
}

/// The placement by its users of an object that may not wait, or of which `little` waiting is seen, and the bytes that
/// it puts on each node; none where it would gain nothing if all of its time were waiting, or where placing it is not
/// free.
pub(super) fn choose(
    scene: &Scene<'_>,
    (entry, pattern): (&Entry, &Pattern),
    choices: Vec<Choice>,
    note: Option<&PatternNote>,
    taken: &[f64],
    little: bool,
) -> Option<(Choice, Vec<f64>)> {
    let world = scene.world;
    if pattern.confidence < SURE || !(little || scene.may_not_wait(entry)) {
        return None;
    }
    let placing_ns = world.placing_ns(entry);
    let running_ns = world.clock.running_ns().max(f64::MIN_POSITIVE);
    if placing_ns > WORTH * running_ns {
        return None;
    }
    let subject = Subject::if_it_waits(scene, entry, pattern, note, taken);
    let unplaced = world.unplaced(entry);
    let (first, ..) = subject.price(&unplaced);
    let (priced, _) = subject.price_all(choices, placing_ns);
    let best = priced.iter().map(|p| p.outcome.time_ns).fold(first.time_ns, f64::min);
    let chosen = simplest(priced, best)?;
    let placement = subject.placement(&chosen.choice).ok()?;
    let by_users = matches!(chosen.choice.place.policy, PolicyKind::Block | PolicyKind::BlockCyclic | PolicyKind::Map);
    let saved_ns = first.time_ns - chosen.outcome.time_ns;
    if !by_users || placement.gives_up_huge_pages() || saved_ns < WORTH * running_ns {
        return None;
    }
    let part = saved_ns / first.time_ns.max(f64::MIN_POSITIVE);
    let range = subject.saving(std::slice::from_ref(&unplaced), &placement, part)?.part;
    let seen = if little { "hardly any" } else { "no" };
    let words = format!(
        "{seen} waiting for it was seen on this machine, whose caches may hide it: placing it takes nothing, and means {:.0} % \
         less waiting ({:.0} to {:.0} %) where it waits",
        100.0 * part,
        100.0 * range.low,
        100.0 * range.high
    );
    let remark = chosen.choice.remark.into_iter().chain([words]).collect::<Vec<_>>().join("; ");
    (range.low > 0.0).then_some((Choice { remark: Some(remark), ..chosen.choice }, chosen.bytes))
}
