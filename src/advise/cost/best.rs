//! The best page map: the cheapest placement of each page, without the restriction to a formula of a policy file.
//!
//! A map that is priced on the samples it was made from would look too good, because a page with one sample always
//! seems to have one user. So one map is learned from every second sample and priced on the others, and a second map
//! the other way round. Pages are joined into groups with enough samples to learn from.

use numamma_plan::plan::{PAGE, page_size_in_use};

use super::demand::Demands;
use super::{Load, Outcome, Placement, Spill, World};
use crate::profile::summary::Entry;

/// Samples of a group, half of which choose its node: eight distinguish a user of 90 % from chance on most machines.
const GROUP_SAMPLES: usize = 16;
/// Share of the accesses that a balanced map may give to a node, over the node's share of the bandwidth.
const BALANCE: f64 = 1.1;

/// Neighbouring pages that are placed on one node.
pub(super) struct Group {
    first: (u32, u32),
    /// Demands of the list.
    pub range: std::ops::Range<usize>,
}

/// A page map, made twice: from the samples with even numbers and from those with odd ones.
pub(in crate::advise) struct PageMap<'a> {
    halves: [(Placement<'a>, Spill); 2],
    /// Price of each half on the samples of the other.
    pub outcome: Outcome,
}

impl<'a> PageMap<'a> {
    /// The better of two maps, one with every group on its cheapest node, one that also keeps the nodes evenly loaded.
    /// None for an object without samples. `taken` are bytes other objects already have on each node.
    pub fn best(world: &'a World<'a>, entry: &'a Entry, demands: &Demands, taken: &[f64]) -> Option<PageMap<'a>> {
        let groups = groups(world, entry, demands);
        if groups.is_empty() {
            return None;
        }
        let maps = [false, true].map(|balanced| {
            let halves = [0, 1].map(|half| {
                let placement = Placement::map(world, entry, learn(world, demands, &groups, half, balanced));
                let spill = Spill::of(world, &placement.bytes(), taken);
                (placement, spill)
            });
            let mut map = PageMap { halves, outcome: Load::new(world).outcome() };
            let mut load = Load::new(world);
            map.add_to(&mut load, demands);
            map.outcome = load.outcome();
            map
        });
        maps.into_iter().min_by(|a, b| a.outcome.time_ns.total_cmp(&b.outcome.time_ns))
    }

    /// Adds the object's accesses to a load: each half of the samples on the nodes that the other half chose.
    pub fn add_to(&self, load: &mut Load<'_>, demands: &Demands) {
        for (half, (placement, spill)) in self.halves.iter().enumerate() {
            let others = demands.list.iter().enumerate().filter(|(i, _)| i % 2 != half);
            load.add_pages(demands, others, placement, spill);
        }
    }
}

/// Neighbouring pages with enough samples together.
pub(super) fn groups(world: &World<'_>, entry: &Entry, demands: &Demands) -> Vec<Group> {
    let unit =
        (page_size_in_use(entry.size, world.target.thp) / world.summary.header.page_size.max(PAGE)).max(1) as u32;
    let mut groups: Vec<Group> = Vec::new();
    let mut last = (u32::MAX, u32::MAX);
    for (i, d) in demands.list.iter().enumerate() {
        let page = (d.instance, d.page / unit * unit);
        let full = groups.last().is_none_or(|g| g.range.len() >= GROUP_SAMPLES || g.first.0 != d.instance);
        if page != last && full {
            groups.push(Group { first: page, range: i..i });
        }
        last = page;
        if let Some(group) = groups.last_mut() {
            group.range.end = i + 1;
        }
    }
    groups
}

fn learn(
    world: &World<'_>,
    demands: &Demands,
    groups: &[Group],
    half: usize,
    balanced: bool,
) -> Vec<((u32, u32), usize)> {
    let model = world.model();
    let all: f64 = demands.list.iter().map(|d| f64::from(d.accesses)).sum::<f64>() / 2.0;
    let bandwidth: f64 = world.memory.iter().map(|n| model.bandwidth[*n][*n]).sum();
    let room = |n: usize| BALANCE * all * model.bandwidth[n][n] / bandwidth.max(f64::MIN_POSITIVE);
    let mut given = vec![0.0; world.nodes()];
    let mut users = vec![0.0; world.nodes()];
    groups
        .iter()
        .map(|group| {
            users.fill(0.0);
            let own = demands.list[group.range.clone()].iter().zip(group.range.clone()).filter(|(_, i)| i % 2 == half);
            own.for_each(|(d, _)| users[usize::from(d.from)] += f64::from(d.accesses));
            let wait = |n: usize| users.iter().enumerate().map(|(from, a)| a * model.latency[from][n]).sum::<f64>();
            let full = |n: usize| balanced && given[n] >= room(n);
            // Among equal nodes the one with the fewest accesses so far, so that pages without a main user are spread.
            let key = |n: &usize| (full(*n), wait(*n), given[*n]);
            let order = |a: &usize, b: &usize| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal);
            let node = world.memory.iter().copied().min_by(order).unwrap_or(0);
            given[node] += users.iter().sum::<f64>();
            (group.first, node)
        })
        .collect()
}
