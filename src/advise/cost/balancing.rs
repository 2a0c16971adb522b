//! First touch with the kernel's automatic NUMA balancing: pages that no rule places move to the nodes that use them,
//! at the kernel's own rate.
//!
//! The kernel takes the mappings of a process away, one pass after the other, and learns from the fault of the next
//! access which node uses a page (`task_numa_work` and `do_numa_page`). A page moves to the node of a fault when the
//! fault before it was of the same node (`should_numa_migrate_memory`; the CPU of the last fault is in the page). With
//! the share q of a page's accesses that come from a node, this happens with the probability q^2 in a pass, wherever
//! the page is. So after some passes a page is on each node with a probability in proportion to the q^2 of the nodes: a
//! page with one user is with it, and a page that all read settles anywhere. Pages of objects that a policy places are
//! left out, as the kernel does (`vma_policy_mof`).
//!
//! Not modelled: threads are bound, so the kernel does not move them instead of pages; the time of the faults; the
//! slower passes over a process whose pages do not move any more, because then nothing changes.

use super::best::{Group, groups};
use super::demand::{Demand, Demands};
use super::{Load, Placement, Spill, World};

/// Where the pages of a group go: nodes of the model with the probability after many passes, those with users only; and
/// the probability that two faults in a row are of one node.
struct Goal {
    nodes: Vec<(usize, f64)>,
    again: f64,
}

impl Goal {
    /// From the accesses of one half of the group's samples.
    fn of<'d>(world: &World<'_>, users: impl Iterator<Item = &'d Demand>) -> Goal {
        // A group has few users, and a machine may have a thousand nodes.
        let mut from: Vec<(usize, f64)> = Vec::new();
        for d in users {
            let (node, accesses) = (usize::from(d.from), f64::from(d.accesses));
            match from.iter_mut().find(|(known, _)| *known == node) {
                Some((_, sum)) => *sum += accesses,
                None => from.push((node, accesses)),
            }
        }
        let all: f64 = from.iter().map(|(_, accesses)| accesses).sum();
        if all <= 0.0 {
            return Goal { nodes: Vec::new(), again: 0.0 };
        }
        let square = |accesses: f64| (accesses / all) * (accesses / all);
        let again: f64 = from.iter().map(|(_, accesses)| square(*accesses)).sum();
        let nodes = from.iter().map(|(node, accesses)| (world.home(*node), square(*accesses) / again));
        Goal { nodes: nodes.collect(), again }
    }
}

impl Load<'_> {
    /// Adds the accesses to an object whose pages the kernel moves. As in [`super::PageMap`] each half of the samples
    /// of a group of pages is priced with the nodes that the other half gives.
    pub(super) fn add_balanced(&mut self, demands: &Demands, placement: &Placement<'_>, spill: &Spill) {
        let world = self.world;
        let Some(scan) = world.scan() else {
            self.add_pages(demands, demands.list.iter().enumerate(), placement, spill);
            return;
        };
        let of_half = |group: &Group, half: usize| {
            let both = demands.list[group.range.clone()].iter().zip(group.range.clone());
            both.filter(move |(_, i)| i % 2 == half)
        };
        let (one_in, mut shares) = (self.one_in, Vec::new());
        for group in groups(world, placement.entry(), demands) {
            for half in [0, 1] {
                let goal = Goal::of(world, of_half(&group, 1 - half).map(|(d, _)| d));
                for (d, index) in of_half(&group, half).filter(|(_, index)| index % one_in == 0) {
                    let stays = scan.stays(world.slice_of_bin(d.bin.into()), goal.again);
                    shares.clear();
                    shares.push((placement.node(d.instance, d.page), stays));
                    shares.extend(goal.nodes.iter().map(|(node, share)| (*node, (1.0 - stays) * share)));
                    self.add_demand((index, d), &shares, placement, spill);
                }
            }
        }
    }
}
