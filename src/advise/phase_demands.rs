//! The accesses to an object under a policy with phases: phase by phase, each with the placement that holds in it.

use std::borrow::Cow;

use super::cost::{Demands, Load, Placement, Spill, World};
use super::phase_placements;
use crate::detect::Pattern;
use crate::profile::summary::{Entry, TIME_SLOTS};

/// The accesses to one object under one policy: all of them, or those of each phase with the placement that holds in
/// it.
pub(super) struct PhaseDemands<'s> {
    list: Vec<(Cow<'s, Demands>, &'s Placement<'s>)>,
    /// Cost of moving the pages between phases, ns.
    pub moving_ns: f64,
}

impl<'s> PhaseDemands<'s> {
    /// The accesses under the placement `first` and under those `later`, with the time slots from which they hold.
    pub fn of(
        world: &World<'_>,
        entry: &Entry,
        pattern: &Pattern,
        whole: &'s Demands,
        (first, later): (&'s Placement<'s>, &'s [(u16, Placement<'s>)]),
    ) -> PhaseDemands<'s> {
        if later.is_empty() {
            return PhaseDemands { list: vec![(Cow::Borrowed(whole), first)], moving_ns: 0.0 };
        }
        let mut stages = PhaseDemands { list: Vec::new(), moving_ns: 0.0 };
        let (mut from, mut at) = (0, first);
        let end = [(TIME_SLOTS, first)];
        for (slot, next) in later.iter().map(|(slot, placement)| (*slot, placement)).chain(end) {
            let part = phase_placements::part_of(entry, from..slot);
            stages.list.push((Cow::Owned(Demands::of(world, &part, Some(pattern))), at));
            if slot < TIME_SLOTS {
                stages.moving_ns += phase_placements::moving_ns(world.summary, entry, whole, at, next);
            }
            (from, at) = (slot, next);
        }
        stages
    }

    /// Adds the accesses of all phases to `load`.
    pub fn add_to(&self, load: &mut Load<'_>, spill: &Spill) {
        self.list.iter().for_each(|(demands, placement)| load.add(demands, placement, spill));
    }
}
