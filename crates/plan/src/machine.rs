//! Properties of this machine that placement depends on: nodes with memory that this process may use, their CPUs, the
//! huge page setting and the mapping limit.
//!
//! They are read from sysfs and procfs. A file that cannot be read gives the value of a machine without the feature
//! (one node, no huge pages, the kernel's default limit) instead of an error, because the preload must not stop the
//! program.

use std::fs;
use std::path::Path;

use numamma_kernel::lists::{self, parse_list};
use numamma_kernel::policy::TaskPolicy;
use numamma_kernel::thp;

use crate::nodes::Available;

/// vm.max_map_count when the file cannot be read: the kernel's DEFAULT_MAX_MAP_COUNT.
const DEFAULT_MAX_MAP_COUNT: u64 = 65_530;

/// Setting of transparent huge pages: `/sys/kernel/mm/transparent_hugepage/enabled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Thp {
    /// Every mapping may get huge pages.
    Always,
    /// Only mappings with MADV_HUGEPAGE get huge pages.
    Madvise,
    /// No mapping gets huge pages, or the kernel does not support them.
    #[default]
    Never,
}

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Node number.
    pub id: u32,
    /// Online CPUs of the node, ascending; empty for memory-only nodes.
    pub cpus: Vec<u32>,
}

/// What a process was given when it started, before a runtime library bound its threads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Given {
    /// CPUs; empty: all.
    pub cpus: Vec<u32>,
    /// Nodes to which the inherited memory policy restricts its memory (`numactl --membind`); empty: not restricted.
    pub bound_memory: Vec<u32>,
    /// The process started on fewer CPUs, which it inherited from a thread that a runtime library had bound.
    pub inherited: bool,
}

impl Given {
    /// What the calling thread may use now.
    pub fn now() -> Given {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let allowed = lists::allowed_nodes(&status).unwrap_or_default();
        let bound_memory = TaskPolicy::now().and_then(|policy| policy.bound_nodes(&allowed)).unwrap_or_default();
        Given { cpus: lists::allowed_cpus(&status).unwrap_or_default(), bound_memory, inherited: false }
    }
}

/// Nodes, CPUs and memory settings of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Nodes with memory that the process may use, ascending.
    pub memory_nodes: Vec<Node>,
    /// Nodes of `memory_nodes` that `all` means in a node list, see [`own`].
    pub own: Vec<u32>,
    /// Nodes with CPUs, ascending.
    pub cpu_nodes: Vec<Node>,
    /// Online CPUs, ascending.
    pub online: Vec<u32>,
    /// Setting of transparent huge pages.
    pub thp: Thp,
    /// vm.max_map_count: most mappings of a process.
    pub max_map_count: u64,
}

impl Machine {
    /// Reads the machine that this process runs on; its own nodes are those that it may use now.
    pub fn this() -> Machine {
        Machine::given(&Given::now())
    }

    /// Reads the machine that this process runs on; its own nodes are those of what it was given.
    pub fn given(given: &Given) -> Machine {
        Machine::read(Path::new("/"), given)
    }

    /// Reads a machine whose `/sys` and `/proc` are under `root`.
    pub fn read(root: &Path, given: &Given) -> Machine {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let list = |path: &str| parse_list(&text(path));
        let dir = "sys/devices/system/node";
        let online = match list("sys/devices/system/cpu/online") {
            empty if empty.is_empty() => vec![0],
            cpus => cpus,
        };
        let node = |id: u32| Node { id, cpus: list(&format!("{dir}/node{id}/cpulist")) };
        let nodes_with = |what: &str| match list(&format!("{dir}/{what}")) {
            // A kernel without NUMA support: all CPUs and memory are on node 0.
            none if none.is_empty() => vec![Node { id: 0, cpus: online.clone() }],
            ids => ids.into_iter().map(node).collect::<Vec<Node>>(),
        };
        let (mut memory_nodes, cpu_nodes) = (nodes_with("has_memory"), nodes_with("has_cpu"));
        let status = text("proc/self/status");
        let allowed = lists::allowed_nodes(&status).unwrap_or_default();
        if memory_nodes.iter().any(|n| allowed.contains(&n.id)) {
            memory_nodes.retain(|n| allowed.contains(&n.id));
        }
        let numbers = list(&format!("{dir}/online"));
        let distance = |from: u32, to: u32| {
            let row = text(&format!("{dir}/node{from}/distance"));
            let column = numbers.iter().position(|n| *n == to)?;
            row.split_ascii_whitespace().nth(column)?.parse().ok()
        };
        let own = own(&memory_nodes, &cpu_nodes, given, distance);
        Machine {
            memory_nodes,
            own,
            cpu_nodes,
            online,
            thp: thp(&text("sys/kernel/mm/transparent_hugepage/enabled")),
            max_map_count: text("proc/sys/vm/max_map_count").trim().parse().unwrap_or(DEFAULT_MAX_MAP_COUNT),
        }
    }

    /// Numbers of `memory_nodes`, ascending.
    pub fn memory_node_ids(&self) -> Vec<u32> {
        self.memory_nodes.iter().map(|n| n.id).collect()
    }

    /// Nodes that a node list may name on this machine, given the numbers `existing` of `memory_nodes`.
    pub fn available<'a>(&'a self, existing: &'a [u32]) -> Available<'a> {
        Available { existing, own: &self.own }
    }

    /// Number of the node that holds `cpu`.
    pub fn node_of_cpu(&self, cpu: u32) -> Option<u32> {
        self.cpu_nodes.iter().find(|n| n.cpus.binary_search(&cpu).is_ok()).map(|n| n.id)
    }
}

/// The own nodes of a process. A memory node is an own node if
/// - the process may use one of its CPUs, or
/// - it has no CPUs and the nearest node with CPUs is one that the process may use, or
/// - it is the nearest memory node of a node without memory whose CPUs the process may use.
///
/// Of these, a strict memory policy of the process leaves the nodes that it names, or all that it names when none of
/// these is near: it is about memory.
///
/// Threads of a rank that a launcher bound to a part of the machine (`mpirun --bind-to numa`, taskset) run only
/// there, so objects on other nodes would be remote to all of them. `distance` is the firmware's table; `None`
/// without one.
fn own(memory: &[Node], cpu: &[Node], given: &Given, distance: impl Fn(u32, u32) -> Option<u32>) -> Vec<u32> {
    let near = near(memory, cpu, &given.cpus, distance);
    let bound = |nodes: &[u32]| nodes.iter().copied().filter(|n| given.bound_memory.contains(n)).collect::<Vec<u32>>();
    let every: Vec<u32> = memory.iter().map(|n| n.id).collect();
    [bound(&near), bound(&every), near].into_iter().find(|nodes| !nodes.is_empty()).unwrap_or_default()
}

/// The memory nodes near to the CPUs `allowed` (empty: all), see [`own`].
fn near(memory: &[Node], cpu: &[Node], allowed: &[u32], distance: impl Fn(u32, u32) -> Option<u32>) -> Vec<u32> {
    let every = || memory.iter().map(|n| n.id).collect::<Vec<u32>>();
    let usable = |n: &Node| n.cpus.iter().any(|c| allowed.contains(c));
    if allowed.is_empty() || cpu.iter().all(|n| n.cpus.is_empty() || usable(n)) {
        return every();
    }
    let nearest = |from: &Node, among: &[Node]| {
        let of = |n: &Node| distance(from.id, n.id).unwrap_or(u32::MAX);
        let least = among.iter().map(of).min();
        among.iter().filter(|n| Some(of(n)) == least).map(|n| n.id).collect::<Vec<u32>>()
    };
    let near: Vec<&Node> = cpu.iter().filter(|n| usable(n)).collect();
    let is_near = |id: u32| near.iter().any(|n| n.id == id);
    let has_memory = |id: u32| memory.iter().any(|n| n.id == id);
    let stand_ins: Vec<u32> = near.iter().filter(|n| !has_memory(n.id)).flat_map(|n| nearest(n, memory)).collect();
    let belongs = |n: &Node| {
        let alone = || !cpu.iter().any(|c| c.id == n.id);
        is_near(n.id) || stand_ins.contains(&n.id) || alone() && nearest(n, cpu).into_iter().any(is_near)
    };
    let found: Vec<u32> = memory.iter().filter(|n| belongs(n)).map(|n| n.id).collect();
    if found.is_empty() { every() } else { found }
}

/// Reads the text of the setting, such as `always [madvise] never`.
fn thp(text: &str) -> Thp {
    match thp::chosen(text) {
        Some("always") => Thp::Always,
        Some("madvise") => Thp::Madvise,
        _ => Thp::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_node_with_memory_and_cpus() {
        let m = Machine::this();
        assert!(!m.memory_nodes.is_empty() && !m.online.is_empty());
        assert_eq!(m.node_of_cpu(m.online[0]), Some(m.cpu_nodes[0].id));
    }

    #[test]
    fn a_kernel_without_numa_is_one_node() {
        let m = Machine::read(Path::new("/nonexistent"), &Given::default());
        assert_eq!(m.memory_node_ids(), [0]);
        assert_eq!((m.thp, m.max_map_count), (Thp::Never, DEFAULT_MAX_MAP_COUNT));
    }

    #[test]
    fn the_own_nodes_are_those_of_the_cpus_the_process_may_use() {
        let node = |id: u32, cpus: &[u32]| Node { id, cpus: cpus.to_vec() };
        // Two packages; nodes 2 and 3 are memory without CPUs, next to 0 and 1.
        let memory = [node(0, &[0, 1]), node(1, &[2, 3]), node(2, &[]), node(3, &[])];
        let rows = [[10, 20, 13, 23], [20, 10, 23, 13], [13, 23, 10, 23], [23, 13, 23, 10]];
        let distance = |a: u32, b: u32| rows.get(a as usize)?.get(b as usize).copied();
        let given = |cpus: &[u32], bound_memory: &[u32]| Given {
            cpus: cpus.to_vec(),
            bound_memory: bound_memory.to_vec(),
            inherited: false,
        };
        let of = |allowed: &[u32]| own(&memory, &memory[..2], &given(allowed, &[]), distance);
        assert_eq!(of(&[]), [0, 1, 2, 3]);
        assert_eq!(of(&[0, 2]), [0, 1, 2, 3], "every node's CPUs, if not all of them");
        assert_eq!(of(&[2, 3]), [1, 3]);
        assert_eq!(of(&[0]), [0, 2]);
        // CPUs without memory take the nearest memory; a machine without distances takes all such.
        let no_memory = own(&memory[..1], &memory[..2], &given(&[3], &[]), distance);
        assert_eq!(no_memory, [0]);
        assert_eq!(own(&memory, &memory[..2], &given(&[0], &[]), |_, _| None), [0, 2, 3]);
        // A strict memory policy: what it leaves of the near nodes; its own nodes where none of them is near.
        let bound = |allowed: &[u32], bound: &[u32]| own(&memory, &memory[..2], &given(allowed, bound), distance);
        assert_eq!(bound(&[], &[1, 3]), [1, 3]);
        assert_eq!(bound(&[0], &[1, 2]), [2]);
        assert_eq!(bound(&[0], &[1]), [1]);
        assert_eq!(bound(&[0], &[9]), [0, 2]);
    }

    #[test]
    fn words_of_the_kernel() {
        assert_eq!(thp("[always] madvise never\n"), Thp::Always);
        assert_eq!(thp("always [madvise] never\n"), Thp::Madvise);
        assert_eq!(thp(""), Thp::Never);
    }
}
