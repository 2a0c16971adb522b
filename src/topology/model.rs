//! The machine model that placements are priced on: nodes with their CPUs and memory, the latency and the bandwidth
//! from every node to every node's memory, and the source of both matrices.
//!
//! Matrices are square, in the order of [`Model::nodes`], and indexed `[from][to]`: `from` is the node whose CPU makes
//! the access, `to` the node whose memory holds the page. Every value is finite and positive.

use serde::{Deserialize, Serialize};

use super::Topology;
use super::caches::Caches;

/// Latency of local memory where no source gives one, nanoseconds: published results of Intel Memory Latency Checker
/// and lmbench for two-socket Xeon and EPYC servers lie between 70 and 100.
pub const DEFAULT_LATENCY_NS: f64 = 85.0;
/// Bandwidth of one node's memory where no source gives one, bytes a second: four channels of DDR4-3200 at 80 % of
/// their peak of 25.6 GB/s each (JEDEC JESD79-4).
pub const DEFAULT_BANDWIDTH: f64 = 82e9;
/// SLIT distance of a node to itself (ACPI specification 6.5, section 5.2.17).
pub const LOCAL_DISTANCE: f64 = 10.0;
/// Distance of two nodes where no source gives one (the kernel's REMOTE_DISTANCE).
pub const REMOTE_DISTANCE: f64 = 20.0;
/// Added to the distance of a memory-only node where no source gives its distance: the memory of the nearest CPU node
/// is so much closer. From the HBM of the Xeon Max series in flat mode (SLIT 10, 13 for the near HBM, 21, 23 for the
/// far one).
pub const MEMORY_ONLY_DISTANCE: f64 = 3.0;

/// Source of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Measured by `numamma topology --measure`.
    Measured,
    /// ACPI HMAT, which the kernel exports under `access0/initiators`.
    Hmat,
    /// Written in an hwloc XML file.
    Xml,
    /// [`DEFAULT_LATENCY_NS`] or [`DEFAULT_BANDWIDTH`] scaled by the ACPI SLIT distances.
    Slit,
    /// The same defaults scaled by the distances 10 (local) and 20 (remote).
    Default,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelNode {
    /// Number that the kernel gives the node.
    pub id: u32,
    /// CPUs, ascending; empty for memory-only nodes (CXL, HBM).
    pub cpus: Vec<u32>,
    /// Bytes of memory; 0 for memory-less nodes, [`u64::MAX`] when not known.
    pub memory: u64,
}

/// A machine to price placements on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Synthetic description such as `pack:4 numa:2 core:6`, as the policy file gives it.
    pub name: String,
    /// Nodes, ascending by number; at least one.
    pub nodes: Vec<ModelNode>,
    /// Nanoseconds of one access that misses all caches, `[from][to]`.
    pub latency: Vec<Vec<f64>>,
    /// Bytes a second that the CPUs of `from` can read from the memory of `to`; the diagonal is the limit of the node's
    /// memory controllers.
    pub bandwidth: Vec<Vec<f64>>,
    /// Source of the latencies.
    pub latency_source: Source,
    /// Source of the bandwidths.
    pub bandwidth_source: Source,
    /// Second and last level of the caches.
    pub caches: Caches,
    /// Whether the kernel moves pages to their users by itself; none where the description does not say.
    pub numa_balancing: Option<bool>,
}

impl Model {
    /// `n` (at least 1) equal nodes with `cpus` CPUs in total, distributed evenly, and unlimited memory.
    pub fn uniform(n: u32, cpus: u32) -> Model {
        let n = n.max(1);
        let mut topology = Topology::uniform(n, cpus.max(n));
        topology.nodes.iter_mut().for_each(|node| node.memory = u64::MAX);
        let mut model = Model::of(&topology);
        (model.latency_source, model.bandwidth_source) = (Source::Default, Source::Default);
        model
    }

    /// The nodes of a topology, with the default latency and bandwidth scaled by its distances.
    pub fn of(topology: &Topology) -> Model {
        let nodes: Vec<ModelNode> =
            topology.nodes.iter().map(|n| ModelNode { id: n.id, cpus: n.cpus.clone(), memory: n.memory }).collect();
        let distance = |from: usize, to: usize| {
            let known = topology.nodes[from].distances.get(to).copied().filter(|d| *d > 0);
            known.map_or(if from == to { 1.0 } else { 2.0 }, |d| f64::from(d) / LOCAL_DISTANCE)
        };
        let matrix = |value: &dyn Fn(f64) -> f64| -> Vec<Vec<f64>> {
            (0..nodes.len()).map(|from| (0..nodes.len()).map(|to| value(distance(from, to))).collect()).collect()
        };
        let cpus: usize = nodes.iter().map(|n| n.cpus.len()).sum();
        let declared = topology.nodes.iter().all(|n| n.distances.len() == nodes.len());
        let source = if declared { Source::Slit } else { Source::Default };
        Model {
            name: format!("numa:{} core:{}", nodes.len().max(1), cpus.div_ceil(nodes.len().max(1)).max(1)),
            latency: matrix(&|d| DEFAULT_LATENCY_NS * d),
            bandwidth: matrix(&|d| DEFAULT_BANDWIDTH / d),
            latency_source: source,
            bandwidth_source: source,
            caches: Caches::UNKNOWN,
            numa_balancing: None,
            nodes,
        }
    }

    /// Whether its kernel moves pages to their users by itself: as described, else the default of distributions for
    /// machines with several nodes (CONFIG_NUMA_BALANCING_DEFAULT_ENABLED).
    pub fn balances(&self) -> bool {
        self.nodes.len() > 1 && self.numa_balancing.unwrap_or(true)
    }

    /// Nodes with CPUs, as indices into [`Model::nodes`].
    pub fn cpu_nodes(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|i| !self.nodes[*i].cpus.is_empty()).collect()
    }

    /// Nodes with memory, as indices into [`Model::nodes`].
    pub fn memory_nodes(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|i| self.nodes[*i].memory > 0).collect()
    }

    /// Largest latency over the smallest local one; 1 with one node.
    pub fn numa_factor(&self) -> f64 {
        let local = (0..self.nodes.len()).map(|i| self.latency[i][i]).fold(f64::INFINITY, f64::min);
        let largest = self.latency.iter().flatten().copied().fold(0.0, f64::max);
        if local.is_finite() && local > 0.0 { (largest / local).max(1.0) } else { 1.0 }
    }
}
