//! The input that all placements of one advice share, and the type of a candidate placement.

use numamma_plan::policy::{Place, PolicyKind};

use super::Target;
use super::cost::World;
use crate::detect::{Rank, Roles};
use crate::profile::summary::Summary;

/// The input that all placements of one advice share.
pub(super) struct Scene<'a> {
    pub summary: &'a Summary,
    pub roles: &'a Roles,
    pub target: &'a Target,
    pub world: &'a World<'a>,
}

/// Complexity of a placement for a reader of the policy, ascending; among placements of equal cost the simplest is
/// advised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Simplicity {
    /// On the node of the allocating thread.
    Local,
    /// On the node of the only user.
    OneNode,
    /// The distribution that follows from the pattern. It stays exact in large pieces and keeps huge pages.
    Pattern,
    /// Page by page over all nodes.
    Spread,
    /// The distribution that follows from the pattern, without huge pages.
    Split,
    /// A page map that follows from the pattern.
    Mapped,
    /// On nodes chosen by price alone.
    Chosen,
}

/// A candidate placement with the remark that follows the evidence in the policy file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Choice {
    pub place: Place,
    pub remark: Option<String>,
    pub simplicity: Simplicity,
    /// For a placement by number: the node of every instance in order of allocation, as an index into the target's
    /// nodes.
    pub numbered: Option<Vec<u32>>,
}

impl Choice {
    /// Page by page over all nodes.
    pub fn interleave(remark: Option<String>) -> Choice {
        let place = Place { policy: PolicyKind::Interleave, nodes: Some("all".into()), ..Place::default() };
        Choice { place, remark, simplicity: Simplicity::Spread, numbered: None }
    }
}

impl Scene<'_> {
    /// Nearest node with memory of worker `rank` of a team of `of` on the target, as an index into the target's list.
    pub fn node_of(&self, rank: u32, of: u32) -> u32 {
        self.target.home_of(Rank { rank, of })
    }

    /// As [`Scene::node_of`] for worker `rank` of `seen` of the profile, extrapolated to the size of its team on the
    /// target.
    pub fn node_of_seen(&self, rank: u32, seen: u32) -> u32 {
        self.target.home_of(self.world.teams.successor(Rank { rank, of: seen }, 0.0))
    }

    /// What is said of a placement by the workers of a team that has `seen` in the profile; empty where it has as many
    /// on the target.
    pub fn laid_out(&self, seen: u32) -> Option<String> {
        let threads = self.world.teams.on_target(seen);
        (self.target.recorded.is_some() && threads != seen)
            .then(|| format!("laid out for {threads} threads instead of {seen}"))
    }
}
