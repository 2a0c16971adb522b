//! The machine a policy is made for.

use numamma_plan::machine::Thp;

use crate::topology::Topology;
use crate::topology::model::Model;

/// What the placement needs to know of the machine the program will run on.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Nodes with memory; at least 1. Portable policies are checked against [`PORTABLE_NODES`].
    pub nodes: u32,
    /// Node numbers, ascending.
    pub ids: Vec<u32>,
    /// Threads the program will create, the main thread included; at least 1.
    pub threads: u32,
    /// Whether node numbers and block sizes are left to the machine it runs on.
    pub portable: bool,
    /// Huge pages on it.
    pub thp: Thp,
    /// For the policy: a synthetic topology such as `numa:4 core:2`.
    pub topology: String,
    /// What placements are priced on. Its memory nodes are `ids`, in this order.
    pub model: Model,
}

/// Nodes with which a portable policy is checked: the usual two-socket machine with two nodes each.
pub const PORTABLE_NODES: u32 = 4;

impl Target {
    /// The target that was asked for: `nodes` and `threads` as given, else from `here` and the threads of the profile; a run with
    /// fewer threads than the target has nodes is taken for a small one, and at least a thread per node is assumed.
    /// `thp` is the profile's word for the huge page setting.
    pub fn new(nodes: Option<u32>, threads: Option<u32>, here: &Topology, profile_threads: u32, thp: &str) -> Target {
        let memory: Vec<u32> = here.nodes.iter().filter(|n| n.memory > 0).map(|n| n.id).collect();
        let wanted_nodes = nodes.unwrap_or(if memory.len() < 2 { PORTABLE_NODES } else { memory.len() as u32 });
        let threads = threads.unwrap_or(profile_threads.max(wanted_nodes)).max(1);
        let cpus = |nodes: u32, total: u32| format!("numa:{nodes} core:{}", total.div_ceil(nodes).max(1));
        let thp = match thp {
            "always" => Thp::Always,
            "madvise" => Thp::Madvise,
            _ => Thp::Never,
        };
        match nodes {
            Some(n) => {
                let n = n.max(1);
                Target {
                    nodes: n,
                    ids: (0..n).collect(),
                    threads,
                    portable: false,
                    thp,
                    topology: cpus(n, threads),
                    model: Model::uniform(n, threads),
                }
            }
            None if memory.len() < 2 => Target {
                nodes: PORTABLE_NODES,
                ids: (0..PORTABLE_NODES).collect(),
                threads,
                portable: true,
                thp,
                topology: cpus(1, here.cpu_count() as u32),
                model: Model::uniform(PORTABLE_NODES, threads),
            },
            None => {
                let n = memory.len() as u32;
                Target {
                    nodes: n,
                    ids: memory,
                    threads,
                    portable: false,
                    thp,
                    topology: cpus(n, here.cpu_count() as u32),
                    model: Model::of(here),
                }
            }
        }
    }
}
