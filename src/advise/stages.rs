//! An object under a policy with phases: its accesses, part by part of the run, with the placement that holds then.

use std::borrow::Cow;

use super::cost::{Demands, Load, Placement, Spill, World};
use super::phases;
use crate::detect::Pattern;
use crate::profile::summary::{Entry, TIME_SLOTS};

/// The accesses to one object under one policy: all of them, or those of each phase with the placement that holds in
/// it.
pub(super) struct Stages<'s> {
    list: Vec<(Cow<'s, Demands>, &'s Placement<'s>)>,
    /// What moving the pages in between costs.
    pub moving_ns: f64,
}

impl<'s> Stages<'s> {
    /// `first` and the placements that follow it, with the time slots from which they hold.
    pub fn of(
        world: &World<'_>,
        entry: &Entry,
        pattern: &Pattern,
        whole: &'s Demands,
        (first, later): (&'s Placement<'s>, &'s [(u16, Placement<'s>)]),
    ) -> Stages<'s> {
        if later.is_empty() {
            return Stages { list: vec![(Cow::Borrowed(whole), first)], moving_ns: 0.0 };
        }
        let mut stages = Stages { list: Vec::new(), moving_ns: 0.0 };
        let (mut from, mut at) = (0, first);
        let end = [(TIME_SLOTS, first)];
        for (slot, next) in later.iter().map(|(slot, placement)| (*slot, placement)).chain(end) {
            let part = phases::part_of(entry, from..slot);
            stages.list.push((Cow::Owned(Demands::of(world, &part, Some(pattern))), at));
            if slot < TIME_SLOTS {
                stages.moving_ns += phases::moving_ns(world.summary, entry, whole, at, next);
            }
            (from, at) = (slot, next);
        }
        stages
    }

    /// Adds the accesses where they go.
    pub fn add_to(&self, load: &mut Load<'_>, spill: &Spill) {
        self.list.iter().for_each(|(demands, placement)| load.add(demands, placement, spill));
    }
}
