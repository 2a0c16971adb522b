//! A machine as it is described, before prices: nodes with the CPUs around them, and whatever figures are known.
//!
//! Every way to name a machine (a synthetic description, an hwloc file, sysfs) ends here, so that CPUs, missing distances
//! and missing figures are filled in by one set of rules. Matrices are in the order of [`Shape::places`], `[from][to]`.

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

/// Figures that are known of some pairs of nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// `[from][to]`; nanoseconds or bytes a second.
    pub values: Vec<Vec<Option<f64>>>,
    /// Who says so.
    pub source: Source,
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
        let scaled = |known: &Option<Known>, fill: Fill| match known {
            Some(known) => (fill.complete(&known.values, &distances), known.source),
            None => (fill.complete(&[], &distances), source),
        };
        let (latency, latency_source) = scaled(&self.latency, Fill::Latency);
        let (bandwidth, bandwidth_source) = scaled(&self.bandwidth, Fill::Bandwidth);
        Ok(Model { name: self.name, nodes, latency, bandwidth, latency_source, bandwidth_source })
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

    /// Nodes with the CPUs the kernel counts as theirs. A CPU belongs to one node: of those it is near to the
    /// one around the fewest CPUs, and of equals the first, as kernels number plain memory before HBM and CXL.
    fn nodes(&self) -> Vec<ModelNode> {
        let mut order: Vec<usize> = (0..self.places.len()).collect();
        order.sort_by_key(|i| (self.places[*i].near.len(), self.places[*i].id));
        let mut taken = std::collections::HashSet::new();
        let mut cpus = vec![Vec::new(); self.places.len()];
        for i in order {
            cpus[i] = self.places[i].near.iter().copied().filter(|cpu| taken.insert(*cpu)).collect();
        }
        let places = self.places.iter().zip(cpus);
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

/// What a matrix holds, and so how it goes with distance.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fill {
    Latency,
    Bandwidth,
}

impl Fill {
    /// `value` at distance `from`, seen from distance `to`.
    fn scale(self, value: f64, from: f64, to: f64) -> f64 {
        match self {
            Fill::Latency => value * to / from,
            Fill::Bandwidth => value * from / to,
        }
    }

    /// Every pair: as known, else from the nearest node of which the same memory's figure is known, else from the
    /// mean of what is known, else from the default, in proportion to the distances.
    fn complete(self, known: &[Vec<Option<f64>>], distances: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let n = distances.len();
        let get = |i: usize, j: usize| -> Option<f64> {
            let value = (*known.get(i)?.get(j)?)?;
            (value.is_finite() && value > 0.0).then_some(value)
        };
        let pairs = || (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
        let local: Vec<f64> =
            pairs().filter_map(|(i, j)| Some(self.scale(get(i, j)?, distances[i][j], LOCAL_DISTANCE))).collect();
        let base = match (local.is_empty(), self) {
            (false, _) => local.iter().sum::<f64>() / local.len() as f64,
            (true, Fill::Latency) => DEFAULT_LATENCY_NS,
            (true, Fill::Bandwidth) => DEFAULT_BANDWIDTH,
        };
        let nearest: Vec<Option<usize>> = (0..n)
            .map(|j| {
                let known = (0..n).filter(|i| get(*i, j).is_some());
                known.min_by(|a, b| distances[*a][j].total_cmp(&distances[*b][j]))
            })
            .collect();
        let value = |i: usize, j: usize| match (get(i, j), nearest[j].and_then(|k| Some((k, get(k, j)?)))) {
            (Some(value), _) => value,
            (None, Some((k, value))) => self.scale(value, distances[k][j], distances[i][j]),
            (None, None) => self.scale(base, LOCAL_DISTANCE, distances[i][j]),
        };
        (0..n).map(|i| (0..n).map(|j| value(i, j)).collect()).collect()
    }
}
