//! The description of a machine, from which [`Description::model`] makes the model that placements are priced on.
//!
//! Synthetic descriptions and hwloc files both become a [`Description`], so that one set of rules assigns CPUs to nodes
//! and fills in missing distances, latencies and bandwidths. Matrices are in the order of [`Description::nodes`] and
//! indexed `[from][to]`.

use super::caches::Caches;
use super::model::{
    DEFAULT_BANDWIDTH, DEFAULT_LATENCY_NS, LOCAL_DISTANCE, MEMORY_ONLY_DISTANCE, Model, ModelNode, REMOTE_DISTANCE,
    Source,
};
use super::partial_matrix::PartialMatrix;

/// Largest number of nodes: Linux numbers at most 1,024 (CONFIG_NODES_SHIFT = 10).
pub const MOST_NODES: usize = numamma_kernel::policy::MAX_NODES;
/// Largest number of CPUs: the largest CONFIG_NR_CPUS of the kernel's x86 and arm64 configurations.
pub const MOST_CPUS: usize = numamma_kernel::affinity::MAX_CPUS;

/// A node as described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedNode {
    /// Number that the kernel gives the node.
    pub id: u32,
    /// CPUs local to the node's memory, ascending. A CPU may be local to several nodes, such as DRAM and HBM.
    pub local_cpus: Vec<u32>,
    /// Bytes; 0 for memory-less nodes, [`u64::MAX`] when not known.
    pub memory: u64,
}

/// A machine as described.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Synthetic words such as `pack:4 numa:2 core:6`.
    pub name: String,
    /// Nodes, ascending by number.
    pub nodes: Vec<DescribedNode>,
    /// Distances in the unit of ACPI SLIT, where they are given; a square of positive numbers.
    pub distances: Option<Vec<Vec<f64>>>,
    /// Latencies, nanoseconds.
    pub latency: Option<PartialMatrix>,
    /// Bandwidths, bytes a second.
    pub bandwidth: Option<PartialMatrix>,
    /// Caches, where sizes are given.
    pub caches: Option<Caches>,
    /// Whether its kernel moves pages to their users, where that is given.
    pub numa_balancing: Option<bool>,
}

/// The CPUs that the kernel assigns to each node. A CPU belongs to one of the nodes it is local to: to the one with
/// the fewest local CPUs, and among equals to the first, because kernels number DRAM before HBM and CXL. The other
/// nodes are memory-only.
pub fn cpus_of_nodes(nodes: &[DescribedNode]) -> Vec<Vec<u32>> {
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by_key(|i| (nodes[*i].local_cpus.len(), nodes[*i].id));
    let mut taken = std::collections::HashSet::new();
    let mut cpus = vec![Vec::new(); nodes.len()];
    for i in order {
        cpus[i] = nodes[i].local_cpus.iter().copied().filter(|cpu| taken.insert(*cpu)).collect();
    }
    cpus
}

impl Description {
    /// The model of the machine, with defaults for all that the description leaves out.
    ///
    /// # Errors
    /// When no node has memory, when no CPU is local to a node, when two nodes have the same number, or when the
    /// machine has more nodes than Linux supports.
    pub fn model(mut self) -> Result<Model, String> {
        self.nodes.sort_by_key(|p| p.id);
        self.check()?;
        let nodes = self.model_nodes();
        if nodes.iter().all(|n| n.cpus.is_empty()) {
            return Err("no CPU is local to any of its nodes".into());
        }
        let given = self.distances.take();
        let source = if given.is_some() { Source::Slit } else { Source::Default };
        let distances = given.unwrap_or_else(|| self.default_distances(&nodes));
        let matrix = |value: &dyn Fn(f64) -> f64| -> Vec<Vec<f64>> {
            distances.iter().map(|row| row.iter().map(|d| value(d / LOCAL_DISTANCE)).collect()).collect()
        };
        let mut model = Model {
            name: self.name,
            caches: self.caches.unwrap_or(Caches::UNKNOWN),
            numa_balancing: self.numa_balancing,
            nodes,
            latency: matrix(&|d| DEFAULT_LATENCY_NS * d),
            bandwidth: matrix(&|d| DEFAULT_BANDWIDTH / d),
            latency_source: source,
            bandwidth_source: source,
        };
        model.overlay(self.latency.as_ref(), self.bandwidth.as_ref());
        Ok(model)
    }

    fn check(&self) -> Result<(), String> {
        if self.nodes.len() > MOST_NODES || self.nodes.last().is_some_and(|p| p.id as usize >= MOST_NODES) {
            return Err(format!("more nodes than Linux can number ({MOST_NODES}, from 0)"));
        }
        if let Some(pair) = self.nodes.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(format!("two nodes have the number {}", pair[0].id));
        }
        if self.nodes.iter().all(|p| p.memory == 0) {
            return Err("the machine has no node with memory".into());
        }
        Ok(())
    }

    fn model_nodes(&self) -> Vec<ModelNode> {
        let described = self.nodes.iter().zip(cpus_of_nodes(&self.nodes));
        described.map(|(p, cpus)| ModelNode { id: p.id, cpus, memory: p.memory }).collect()
    }

    /// Distances for a description without any: local, remote, and [`MEMORY_ONLY_DISTANCE`] more to memory-only nodes.
    fn default_distances(&self, nodes: &[ModelNode]) -> Vec<Vec<f64>> {
        let distance = |from: usize, to: usize| {
            if from == to {
                return LOCAL_DISTANCE;
            }
            if !nodes[to].cpus.is_empty() {
                return REMOTE_DISTANCE;
            }
            let near = nodes[from].cpus.first().is_some_and(|cpu| self.nodes[to].local_cpus.binary_search(cpu).is_ok());
            MEMORY_ONLY_DISTANCE + if near { LOCAL_DISTANCE } else { REMOTE_DISTANCE }
        };
        (0..nodes.len()).map(|from| (0..nodes.len()).map(|to| distance(from, to)).collect()).collect()
    }
}
