//! The cost model: the time of a placement on the target machine. It is accesses x latency(node of the thread, node of
//! the page), bounded by the busiest memory controller and the busiest link, time slice by time slice.
//!
//! The pieces: [`clock`] cuts the run into slices with enough samples, [`demand`] turns an object's samples into
//! accesses by the nodes of the target's threads, [`placement`] says on which node a page is (with the formulas of
//! [`numamma_plan::plan`], which the apply library uses), [`balancing`] where the kernel has moved unplaced pages,
//! [`load`] computes a time from accesses, [`best`] searches for the best page map, [`resample`] gives ranges. Times
//! are nanoseconds of wall time under the assumptions below; only their ratios are meaningful.
//! Every profile is accepted: one without samples costs 0 under every placement.
//!
//! The time of a slice is `max(compute + latency, controller, link)`, as lines arrive while threads compute:
//! - *compute*: CPU time that does not wait for memory (what [`waiting`] tells from waiting and [`caches`] from memory,
//!   all of stacks, thread-local data, objects under a page and unknown addresses, and what is charged to no access),
//!   over the threads that run at a time;
//! - *latency*: accesses x latency over the threads that run at a time, times the slowdown of the slowest node: when
//!   the threads of one node wait longer per access than the mean, the others wait for them at the end;
//! - *controller*, *link*: the lines that are under way ([`waiting`]) from one node's memory, or from it to one other
//!   node, over their bandwidth.
//!
//! How accesses lie inside a slice, which lasts seconds, is not known. They are priced twice, evenly mixed and in
//! concert (every thread goes through its part of the object in address order, all at one pace), and the price is the
//! mean: see [`IN_CONCERT`].

mod balancing;
mod best;
mod caches;
#[cfg(test)]
mod cases_tests;
mod clock;
mod demand;
mod inputs;
mod load;
mod placement;
mod placing;
#[cfg(test)]
mod range_tests;
pub(super) mod resample;
#[cfg(test)]
mod saving_tests;
mod scan;
#[cfg(test)]
pub(super) mod tests;
mod turns;
mod waiting;

use std::cell::OnceCell;

use rustc_hash::FxHashMap;

use super::Target;
use super::team_sizes::TeamSizes;
use crate::detect::{Rank, Roles};
use crate::profile::records::ObjectKind;
use crate::profile::summary::{Entry, Summary};
use crate::topology::model::Model;

pub(super) use best::PageMap;
pub(super) use caches::Residence;
use clock::WINDOWS;
pub(super) use demand::Demands;
pub(super) use load::{Load, Outcome};
pub(super) use placement::{Piece, Placement, Spill};

/// Bytes of a cache line of x86_64 and most arm64.
pub(super) const LINE_BYTES: f64 = 64.0;
/// What an access waits longer, at most, on 4 KiB pages where the object would otherwise have huge pages, ns: the TLB
/// does not have the page, and its entry comes from the last-level cache (40 to 75 cycles, Intel 64 and IA-32
/// Optimization Reference Manual, table of cache parameters). Sweeps wait less, as a page is looked up once.
pub(super) const PAGE_WALK_NS: f64 = 20.0;
/// Weight of the in-concert interpretation of a slice. The samples of a slice do not distinguish a shared sweep from
/// independent use, so both are assumed equally likely.
pub(super) const IN_CONCERT: f64 = 0.5;
/// Part of a node's memory that a program's objects may take; the kernel, the page cache and stacks need the rest.
pub(super) const FREE_PART: f64 = 0.9;
/// Ratio of bandwidths from which a weighted interleave is priced: measured bandwidths of equal nodes differ by less.
const UNEVEN: f64 = 1.05;
/// Links are only counted up to this number of nodes, because their number is its square.
const MOST_LINKED: usize = 64;

/// The target machine and the recorded run, prepared for pricing.
pub(super) struct World<'a> {
    pub summary: &'a Summary,
    pub roles: &'a Roles,
    pub target: &'a Target,
    pub teams: TeamSizes,
    /// Node (of the model) of every worker of the target, by the size of its team.
    node_of: FxHashMap<u32, Vec<u16>>,
    /// Nodes that have threads, indices into the model's nodes; at least one.
    thread_nodes: Vec<usize>,
    /// Node of the model for each node number of the target, in the order of `target.ids`; at least one.
    pub memory: Vec<usize>,
    /// Nearest node with memory of every node.
    home: Vec<usize>,
    pub clock: clock::Clock,
    /// What accesses are charged.
    charge: clock::Charge,
    /// Smallest local latency of all nodes, ns.
    local_ns: f64,
    scan: OnceCell<scan::Scan>,
    /// By id of an entry, see [`caches::residences`].
    residences: OnceCell<FxHashMap<u32, Residence>>,
    turns: OnceCell<turns::Turns>,
}

impl<'a> World<'a> {
    pub fn new(summary: &'a Summary, roles: &'a Roles, target: &'a Target) -> World<'a> {
        let model = &target.model;
        let all: Vec<usize> = (0..model.nodes.len()).collect();
        let or_all = |list: Vec<usize>| if list.is_empty() { all.clone() } else { list };
        let teams = TeamSizes::of(roles, target);
        let nodes_of = |of: u32| (0..of).map(|rank| target.node_of(Rank { rank, of }) as u16).collect();
        let sizes = [target.threads].into_iter().chain(teams.totals().map(|(_, size)| size));
        let node_of: FxHashMap<u32, Vec<u16>> = sizes.map(|of| (of, nodes_of(of))).collect();
        let mut thread_nodes: Vec<usize> = node_of.values().flatten().map(|n| usize::from(*n)).collect();
        thread_nodes.sort_unstable();
        thread_nodes.dedup();
        let thread_nodes = or_all(thread_nodes);
        let memory = or_all(target.ids.iter().filter_map(|id| model.nodes.iter().position(|n| n.id == *id)).collect());
        let nearest = |from: usize| {
            let latency = |to: &&usize| (model.latency[from][**to], **to != from);
            memory.iter().min_by(|a, b| latency(a).partial_cmp(&latency(b)).unwrap_or(std::cmp::Ordering::Equal))
        };
        let home: Vec<usize> = all.iter().map(|from| nearest(*from).copied().unwrap_or(0)).collect();
        let local_ns = thread_nodes.iter().map(|n| model.latency[*n][home[*n]]).fold(f64::INFINITY, f64::min);
        let charge = clock::Charge::of(summary);
        let cpus: usize = model.nodes.iter().map(|n| n.cpus.len()).sum();
        let scale = clock::Scale { teams: &teams, cpus: cpus.max(1) as u32, nodes: model.nodes.len() };
        let clock = clock::Clock::new(summary, roles, charge, &scale);
        World {
            summary,
            roles,
            target,
            teams,
            node_of,
            thread_nodes,
            memory,
            home,
            clock,
            charge,
            local_ns,
            scan: OnceCell::new(),
            residences: OnceCell::new(),
            turns: OnceCell::new(),
        }
    }

    pub fn model(&self) -> &Model {
        &self.target.model
    }

    /// Nodes of the model.
    pub fn nodes(&self) -> usize {
        self.target.model.nodes.len()
    }

    /// Node (of the model) on which a worker of the target runs: those of a team fill the CPUs node after node.
    pub fn node_of(&self, worker: Rank) -> usize {
        let nodes = self.node_of.get(&worker.of);
        nodes.and_then(|nodes| nodes.get(worker.rank as usize)).copied().unwrap_or_default().into()
    }

    /// Nearest node with memory of a node.
    pub fn home(&self, node: usize) -> usize {
        self.home.get(node).copied().unwrap_or(0)
    }

    /// Nodes with memory that are the nearest of a node with threads, in the order of `memory`.
    pub fn homes(&self) -> Vec<usize> {
        let near = |n: &usize| self.thread_nodes.iter().any(|c| self.home(*c) == *n);
        self.memory.iter().copied().filter(near).collect()
    }

    /// Nodes with memory that are the nearest of a node with CPUs: those that threads are near that are not bound.
    pub fn homes_of_cpus(&self) -> Vec<usize> {
        let cpus = || self.model().nodes.iter().enumerate().filter(|(_, node)| !node.cpus.is_empty());
        self.memory.iter().copied().filter(|n| cpus().any(|(from, _)| self.home(from) == *n)).collect()
    }

    /// Whether some nodes have more workers than CPUs, and others fewer, when the workers are bound: each team begins
    /// anew with the first node.
    pub fn crowds(&self) -> bool {
        let workers = |node: usize| self.thread_nodes.iter().filter(|n| **n == node).count();
        let compared = || self.model().nodes.iter().enumerate().map(|(n, node)| workers(n).cmp(&node.cpus.len()));
        compared().any(|c| c.is_gt()) && compared().any(|c| c.is_lt())
    }

    /// Whether the nodes' memories differ in bandwidth.
    pub fn uneven(&self) -> bool {
        let own = self.memory.iter().map(|n| self.model().bandwidth[*n][*n]);
        let (low, high) = own.fold((f64::MAX, 0.0f64), |(low, high), b| (low.min(b), high.max(b)));
        high > UNEVEN * low
    }

    /// The kernel's passes over the memory of the run; none on one node, where no page can move.
    fn scan(&self) -> Option<&scan::Scan> {
        let scan = || {
            let used = || self.summary.entries.iter().filter(|e| self.waits(e));
            let bytes = used().map(|e| e.size as f64 * e.instances.max(1) as f64).sum();
            let walls = self.clock.slices.iter().map(|s| s.cpu_ns / s.parallel);
            scan::Scan::new(bytes, self.target.threads, scan::shared_part(used()), walls)
        };
        (self.memory.len() > 1).then(|| self.scan.get_or_init(scan))
    }

    /// Whether the kernel of the target moves pages to their users by itself.
    pub fn balances(&self) -> bool {
        self.target.model.balances()
    }

    /// Slice of a bin, see [`demand::bin`].
    fn slice_of_bin(&self, bin: usize) -> usize {
        bin / (WINDOWS + 1)
    }

    /// Bytes of objects that fit on a node.
    pub fn capacity(&self, node: usize) -> f64 {
        match self.model().nodes.get(node).map_or(0, |n| n.memory) {
            u64::MAX => f64::INFINITY,
            bytes => bytes as f64 * FREE_PART,
        }
    }

    /// CPU time charged to an entry, ns.
    pub fn charged(&self, entry: &Entry) -> f64 {
        self.charge.to(&entry.total)
    }

    /// Whether waiting for this entry depends on where its pages are.
    pub fn waits(&self, entry: &Entry) -> bool {
        entry.placeable() && entry.size >= self.summary.header.page_size && entry.kind != ObjectKind::Unknown
    }

    /// Where the lines of an entry are found: in memory or in the target's caches.
    pub fn residence(&self, entry: &Entry) -> Residence {
        let all = self.residences.get_or_init(|| caches::residences(self));
        all.get(&entry.id).copied().unwrap_or(Residence::MEMORY)
    }

    /// Latency of an access to an entry during recording, ns: assumed to be the local one, scaled for remote accesses
    /// by the mean remote distance of the recording machine.
    fn recorded_ns(&self, entry: &Entry) -> f64 {
        let remote = crate::profile::summary::ratio(entry.total.remote, entry.total.placed);
        (self.local_ns * (1.0 + remote * (self.recorded_distance() - 1.0))).max(f64::MIN_POSITIVE)
    }

    /// Part of the CPU time charged to an entry that waits for memory.
    fn waiting_part(&self, entry: &Entry) -> f64 {
        (self.stalled_part(entry) * self.residence(entry).memory * self.target.waiting).min(1.0)
    }

    /// Mean remote over local distance of the recording machine; 2 where its SLIT is unknown.
    fn recorded_distance(&self) -> f64 {
        let nodes = &self.summary.header.topology.nodes;
        let remote: Vec<f64> = nodes
            .iter()
            .enumerate()
            .flat_map(|(i, n)| n.distances.iter().enumerate().filter(move |(j, _)| *j != i).map(|(_, d)| f64::from(*d)))
            .collect();
        if remote.is_empty() {
            return 2.0;
        }
        (remote.iter().sum::<f64>() / remote.len() as f64 / crate::topology::model::LOCAL_DISTANCE).max(1.0)
    }

    /// Wall time of the run without the waiting that is priced, ns, time charged to no access included: `waited` is the
    /// CPU time of the waiting by slice.
    pub fn compute_ns(&self, waited: &[f64]) -> f64 {
        let slices = self.clock.slices.iter().zip(waited);
        self.clock.idle_ns
            + slices.map(|(slice, waited)| (slice.cpu_ns - waited).max(0.0) / slice.parallel).sum::<f64>()
    }
}
