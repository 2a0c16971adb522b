//! Processes that differ from most others, by object.

use super::digest::{Difference, Digest, is_outlier};
use super::{Many, Member};
use crate::detect::limits::HOT_SHARE;

/// A process that differs from most others in one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlier {
    /// Index into [`Many::members`].
    pub member: usize,
    /// Index into [`Many::objects`].
    pub object: u32,
    /// Group of the process, index into [`Many::groups`]; 0, the usual one, where only the cost differs.
    pub group: usize,
    /// How.
    pub difference: Difference,
}

/// Fewest processes whose median cost says what is usual.
const FEWEST: usize = 3;

/// All of them, by process.
pub(super) fn of(many: &Many) -> Vec<Outlier> {
    let mut found = Vec::new();
    let mut usual = Digest::default();
    let members = |group: usize| many.groups.get(group).map_or(&[][..], |g| &g.members);
    members(0).iter().filter_map(|m| many.members.get(*m)).for_each(|m| usual.add(&m.digest));
    for group in 1..many.groups.len() {
        for &member in members(group) {
            let differences = many.members.get(member).map(|m| m.digest.differences(&usual)).unwrap_or_default();
            found.extend(differences.into_iter().map(|(object, difference)| Outlier {
                member,
                object,
                group,
                difference,
            }));
        }
    }
    let by_cost = costs(&many.members);
    let known = |o: &Outlier| found.iter().any(|f| (f.member, f.object) == (o.member, o.object));
    let new: Vec<Outlier> = by_cost.into_iter().filter(|o| !known(o)).collect();
    found.extend(new);
    found.retain(|o| many.objects.get(o.object as usize).is_some());
    found.sort_by_key(|o| (o.member, o.object));
    found
}

/// Processes in which an object costs much more or less than in the median one.
fn costs(members: &[Member]) -> Vec<Outlier> {
    if members.len() < FEWEST {
        return Vec::new();
    }
    let mut all = Digest::default();
    members.iter().for_each(|m| all.add(&m.digest));
    let mean = all.cost / members.len() as f64;
    let mut found = Vec::new();
    for &object in all.objects.keys().filter(|o| all.share(**o) >= HOT_SHARE) {
        let cost = |m: &Member| m.digest.objects.get(&object).map_or(0.0, |o| o.cost);
        let costs: Vec<f64> = members.iter().map(cost).collect();
        let median = median(costs.clone());
        let spread = self::median(costs.iter().map(|c| (c - median).abs()).collect());
        let apart = costs.iter().enumerate().filter(|(_, c)| is_outlier(**c, median, spread, mean));
        found.extend(apart.map(|(member, &c)| Outlier {
            member,
            object,
            group: 0,
            difference: Difference::Cost(c, median),
        }));
    }
    found
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
