//! Machines: NUMA nodes, their CPUs and memory, and the distances between nodes.
//!
//! [`Topology`] holds the nodes as sysfs lists them, [`hardware`] all facts that `numamma topology` prints. A
//! [`description`] of any machine (synthetic words, an hwloc file, sysfs) becomes a [`model`], which placements are
//! priced on.

use std::fs;
use std::path::Path;

use numamma_kernel::lists::parse_list;
use numamma_kernel::meminfo;
use serde::{Deserialize, Serialize};

pub mod caches;
pub mod cpus;
pub mod description;
pub mod emulator;
pub mod hardware;
pub mod hmat;
pub mod last_level_cache;
pub mod measure;
pub mod model;
pub mod partial_matrix;
pub mod synthetic;
#[cfg(test)]
mod tests;
pub mod xml;

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Number, as in `/sys/devices/system/node/nodeN`.
    pub id: u32,
    /// CPUs, ascending; empty for memory-only nodes.
    pub cpus: Vec<u32>,
    /// Bytes of memory; 0 for memory-less nodes.
    pub memory: u64,
    /// SLIT distances to the nodes, in the order of [`Topology::nodes`]; 10 is local.
    pub distances: Vec<u32>,
}

/// The nodes of a machine, ascending by number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Topology {
    /// Nodes.
    pub nodes: Vec<Node>,
}

/// Directory in which the kernel lists the nodes.
pub const NODE_DIR: &str = "/sys/devices/system/node";
/// Whether the kernel balances memory between nodes by itself: 0 is off (Documentation/admin-guide/sysctl/kernel.rst).
const NUMA_BALANCING: &str = "/proc/sys/kernel/numa_balancing";

impl Topology {
    /// This machine. A kernel without NUMA support is one node with all online CPUs.
    pub fn this_machine() -> Topology {
        let found = Topology::from_sysfs(Path::new(NODE_DIR));
        if found.nodes.is_empty() { Topology::single_node() } else { found }
    }

    /// Reads a directory laid out as `/sys/devices/system/node`.
    pub fn from_sysfs(dir: &Path) -> Topology {
        let read = |p: &Path| fs::read_to_string(p).unwrap_or_default();
        let mut nodes: Vec<Node> = parse_list(read(&dir.join("online")).trim())
            .into_iter()
            .map(|id| {
                let node = dir.join(format!("node{id}"));
                Node {
                    id,
                    cpus: parse_list(read(&node.join("cpulist")).trim()),
                    memory: mem_total(&read(&node.join("meminfo"))),
                    distances: read(&node.join("distance")).split_whitespace().filter_map(|d| d.parse().ok()).collect(),
                }
            })
            .collect();
        nodes.sort_by_key(|n| n.id);
        Topology { nodes }
    }

    fn single_node() -> Topology {
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_else(|_| "0".into());
        let memory = mem_total(&meminfo::read());
        Topology { nodes: vec![Node { id: 0, cpus: parse_list(online.trim()), memory, distances: vec![10] }] }
    }

    /// `n` equal nodes with `cpus` CPUs in total, for advice about another machine than this one.
    pub fn uniform(n: u32, cpus: u32) -> Topology {
        let bounds = |i: u32| i * cpus / n;
        Topology {
            nodes: (0..n)
                .map(|id| Node {
                    id,
                    cpus: (bounds(id)..bounds(id + 1)).collect(),
                    memory: 0,
                    distances: (0..n).map(|o| if o == id { 10 } else { 20 }).collect(),
                })
                .collect(),
        }
    }

    /// Number of the node that holds `cpu`.
    pub fn node_of_cpu(&self, cpu: u32) -> Option<u32> {
        self.nodes.iter().find(|n| n.cpus.contains(&cpu)).map(|n| n.id)
    }

    /// Number of CPUs.
    pub fn cpu_count(&self) -> usize {
        self.nodes.iter().map(|n| n.cpus.len()).sum()
    }
}

/// Whether this machine's kernel moves pages to their users by itself. None where the kernel cannot, and where it says
/// nothing. Kernels with one node have it off whatever their default is (`check_numabalancing_enable` in
/// mm/mempolicy.c).
pub fn numa_balancing() -> Option<bool> {
    let text = fs::read_to_string(NUMA_BALANCING).ok()?;
    // Bit 0 is balancing, bit 1 the demotion between tiers of memory.
    Some(text.trim().parse::<u32>().ok()? & 1 != 0)
}

fn mem_total(meminfo: &str) -> u64 {
    meminfo::field(meminfo, "MemTotal:").unwrap_or(0)
}
