//! The input that all placements of one advice share, and the type of a candidate placement.

use numamma_plan::policy::{Place, PolicyKind};

use super::Target;
use super::block_layout::extrapolate;
use super::cost::World;
use crate::detect::Roles;
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
    /// Nearest node with memory of a thread of the target, as an index into the target's list.
    pub fn node_of(&self, user: u32) -> u32 {
        self.target.home_of(user)
    }

    /// As [`Scene::node_of`] for thread `rank` of `seen` of the profile, extrapolated to the target's number of
    /// threads.
    pub fn node_of_seen(&self, rank: u32, seen: u32) -> u32 {
        self.node_of(extrapolate(rank, 0.0, seen, self.target.threads))
    }
}
