//! A machine as it is described, before prices: nodes with the CPUs around them, and whatever figures are known.
//!
//! Every way to name a machine (a synthetic description, an hwloc file, sysfs) ends here, so that CPUs, missing distances
//! and missing figures are filled in by one set of rules. Matrices are in the order of [`Shape::places`], `[from][to]`.

use super::known::Known;
use super::model::{
    DEFAULT_BANDWIDTH, DEFAULT_LATENCY_NS, LOCAL_DISTANCE, MEMORY_ONLY_DISTANCE, Model, ModelNode, REMOTE_DISTANCE,
    Source,
};

/// Most nodes of a machine: Linux numbers at most 1,024 (CONFIG_NODES_SHIFT = 10).
pub const MOST_NODES: usize = 1024;
/// Most CPUs of a machine: the largest CONFIG_NR_CPUS of the kernel's x86 and arm64 configurations.
pub const MOST_CPUS: usize = 8192;

/// Where a node's memory is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Number the kernel gives the node.
    pub id: u32,
    /// CPUs that are near the memory, ascending. Several nodes may be near the same ones.
    pub near: Vec<u32>,
    /// Bytes; 0 for memory-less nodes, [`u64::MAX`] when not known.
    pub memory: u64,
}

/// A machine as it is described.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Synthetic words such as `pack:4 numa:2 core:6`.
    pub name: String,
    /// Nodes, ascending by number.
    pub places: Vec<Place>,
    /// Distances in the unit of ACPI SLIT, where they are known; a square of positive numbers.
    pub distances: Option<Vec<Vec<f64>>>,
    /// Latencies, nanoseconds.
    pub latency: Option<Known>,
    /// Bandwidths, bytes a second.
    pub bandwidth: Option<Known>,
}

/// The CPUs the kernel counts as each node's. A CPU belongs to one node: of those it is near to the one around the fewest
/// CPUs, and of equals the first, as kernels number plain memory before HBM and CXL. The others have memory only.
pub fn own_cpus(places: &[Place]) -> Vec<Vec<u32>> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|i| (places[*i].near.len(), places[*i].id));
    let mut taken = std::collections::HashSet::new();
    let mut cpus = vec![Vec::new(); places.len()];
    for i in order {
        cpus[i] = places[i].near.iter().copied().filter(|cpu| taken.insert(*cpu)).collect();
    }
    cpus
}

impl Shape {
    /// The machine with everything filled in.
    ///
    /// # Errors
    /// When there is no node with memory or no CPU, when a number is given twice, or when it is larger than Linux can be.
    pub fn model(mut self) -> Result<Model, String> {
        self.places.sort_by_key(|p| p.id);
        self.check()?;
        let nodes = self.nodes();
        if nodes.iter().all(|n| n.cpus.is_empty()) {
            return Err("no CPU is near any of its nodes".into());
        }
        let given = self.distances.take();
        let source = if given.is_some() { Source::Slit } else { Source::Default };
        let distances = given.unwrap_or_else(|| self.usual_distances(&nodes));
        let matrix = |value: &dyn Fn(f64) -> f64| -> Vec<Vec<f64>> {
            distances.iter().map(|row| row.iter().map(|d| value(d / LOCAL_DISTANCE)).collect()).collect()
        };
        let mut model = Model {
            name: self.name,
            nodes,
            latency: matrix(&|d| DEFAULT_LATENCY_NS * d),
            bandwidth: matrix(&|d| DEFAULT_BANDWIDTH / d),
            latency_source: source,
            bandwidth_source: source,
        };
        model.know(self.latency.as_ref(), self.bandwidth.as_ref());
        Ok(model)
    }

    fn check(&self) -> Result<(), String> {
        if self.places.len() > MOST_NODES || self.places.last().is_some_and(|p| p.id as usize >= MOST_NODES) {
            return Err(format!("more nodes than Linux can number ({MOST_NODES}, from 0)"));
        }
        if let Some(pair) = self.places.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(format!("two nodes have the number {}", pair[0].id));
        }
        if self.places.iter().all(|p| p.memory == 0) {
            return Err("it has no node with memory".into());
        }
        Ok(())
    }

    fn nodes(&self) -> Vec<ModelNode> {
        let places = self.places.iter().zip(own_cpus(&self.places));
        places.map(|(p, cpus)| ModelNode { id: p.id, cpus, memory: p.memory }).collect()
    }

    /// Distances when nobody gives them: local, remote, and a little more to memory without CPUs.
    fn usual_distances(&self, nodes: &[ModelNode]) -> Vec<Vec<f64>> {
        let distance = |from: usize, to: usize| {
            if from == to {
                return LOCAL_DISTANCE;
            }
            if !nodes[to].cpus.is_empty() {
                return REMOTE_DISTANCE;
            }
            let near = nodes[from].cpus.first().is_some_and(|cpu| self.places[to].near.binary_search(cpu).is_ok());
            MEMORY_ONLY_DISTANCE + if near { LOCAL_DISTANCE } else { REMOTE_DISTANCE }
        };
        (0..nodes.len()).map(|from| (0..nodes.len()).map(|to| distance(from, to)).collect()).collect()
    }
}
