//! On which node a policy puts the pages of objects, for pictures of it.

use super::columns::Column;
use super::cost::World;
use super::{PredictError, Target};
use crate::detect::roles;
use crate::profile::summary::{Entry, Summary};
use numamma_plan::policy::Policy;

/// For each of `entries`, with pages of its first instance: the number of the node on which `policy` puts each of them,
/// as the prices of [`super::predict()`] take it. Pages that the policy leaves to the kernel are where their first
/// toucher runs on the target.
///
/// # Errors
/// As [`super::predict()`], where a rule cannot be applied on the target.
pub fn page_nodes(
    summary: &Summary,
    target: &Target,
    policy: &Policy,
    entries: &[(&Entry, Vec<u32>)],
) -> Result<Vec<Vec<u32>>, PredictError> {
    let roles = roles(summary);
    let world = World::new(summary, &roles, target);
    let id_of = |node: usize| target.model.nodes.get(node).map_or(0, |n| n.id);
    let of = |(entry, pages): &(&Entry, Vec<u32>)| {
        let mut column = Column::file("advised", policy);
        let placement = column.placement(&world, entry)?;
        Ok(pages.iter().map(|page| id_of(placement.node(0, *page))).collect())
    };
    entries.iter().map(of).collect()
}
