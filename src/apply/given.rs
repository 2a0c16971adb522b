//! What `all` in a node list must mean for a program that this process starts, by what the kernel says of this process
//! and of the machine; and what it meant, by the reports of the apply library.
//!
//! The library reads what it was given inside of the program, where a runtime library may have bound the threads. The
//! check does not ask the code that the library asks (`numamma_plan::machine`): a mistake there would go unseen.

use std::path::{Path, PathBuf};

use numamma_kernel::affinity::CpuMask;
use numamma_kernel::lists::allowed_nodes;
use numamma_kernel::policy::TaskPolicy;
use numamma_plan::nodes::{self, Available, format};
use numamma_plan::placement_report::PlacementReport;
use numamma_plan::policy::{Place, Policy, PolicyKind};

use crate::topology::Topology;

/// What this process may use and hands on to the program that it starts, and the machine.
#[derive(Debug, Clone)]
pub struct Started {
    /// The ELF file that is started.
    program: PathBuf,
    /// The policy has node lists that count the nodes of the process.
    counts_own: bool,
    cpus: Vec<u32>,
    /// Nodes that the cpuset and a strict memory policy allow memory on.
    memory: Vec<u32>,
    topology: Topology,
}

impl Started {
    /// What `program`, when this process starts it under `policy`, will be given.
    pub fn now(program: &Path, policy: &Policy) -> Started {
        let topology = Topology::this_machine();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let cpuset = allowed_nodes(&status).unwrap_or_default();
        let mut memory = memory_nodes(&topology);
        memory.retain(|node| cpuset.is_empty() || cpuset.contains(node));
        if let Some(bound) = TaskPolicy::now().and_then(|policy| policy.bound_nodes(&memory)) {
            memory.retain(|node| bound.contains(node));
        }
        let places = policy.objects.iter().flat_map(|o| std::iter::once(&o.place).chain(o.phases.values()));
        Started {
            program: program.canonicalize().unwrap_or_else(|_| program.to_owned()),
            counts_own: places.into_iter().any(counts_own_nodes),
            cpus: CpuMask::of_thread(0).map_or_else(Vec::new, |mask| mask.cpus().collect()),
            memory,
            topology,
        }
    }

    /// Why the report of process `pid`, the one that was started, is wrong about the nodes of `all`, if it is: a node
    /// that the process may use is left out, or one that it may not use is counted.
    pub fn contradicts(&self, report: &PlacementReport, pid: u32) -> Option<String> {
        // taskset and the like replace themselves by a program that is given less.
        if report.pid != pid || Path::new(&report.program) != self.program || report.all.is_empty() {
            return None;
        }
        let said = self.nodes_of(&report.all);
        let is_near = |node: &u32| self.topology.nodes.iter().any(|n| n.id == *node && self.may_run_on(&n.cpus));
        let must: Vec<u32> = self.memory.iter().copied().filter(is_near).collect();
        let wrong = !must.iter().all(|n| said.contains(n)) || !said.iter().all(|n| self.memory.contains(n));
        (self.counts_own && wrong).then(|| {
            format!(
                "the library took `all` for nodes {}, and the program was started on CPUs {} with memory of nodes {}; \
                 please report it",
                report.all,
                format(&self.cpus),
                format(&self.memory)
            )
        })
    }

    /// The nodes of a list in a report; none when it names one that the machine does not have.
    fn nodes_of(&self, list: &str) -> Vec<u32> {
        let existing = &memory_nodes(&self.topology);
        nodes::parse(list, Available { existing, own: existing }).unwrap_or_default()
    }

    fn may_run_on(&self, cpus: &[u32]) -> bool {
        cpus.iter().any(|cpu| self.cpus.contains(cpu))
    }

    /// A line for each kind of process in which `all` was fewer nodes than the machine has memory on.
    pub fn warnings(&self, reports: &[PlacementReport]) -> Vec<String> {
        let every = memory_nodes(&self.topology);
        let fewer =
            |r: &&PlacementReport| !r.all.is_empty() && every.iter().any(|n| !self.nodes_of(&r.all).contains(n));
        let what = |r: &PlacementReport| (r.all.clone(), r.cpus.clone(), r.bound_memory.clone());
        let mut kinds: Vec<_> = reports.iter().filter(fewer).map(what).collect();
        kinds.sort();
        let line = |kind: &[(String, String, String)]| {
            let (all, cpus, bound) = kind.first()?;
            let of = match (reports.len(), kind.len()) {
                (1, _) => "the process was".to_owned(),
                (all, 1) => format!("one of {all} processes was"),
                (all, some) => format!("{some} of {all} processes were"),
            };
            let bound = if bound.is_empty() { String::new() } else { format!(", with memory bound to nodes {bound}") };
            let every = format(&every);
            Some(format!(
                "`all` means nodes {all} and not {every}: {of} started on CPUs {cpus}{bound} (by taskset, numactl, a \
                 cpuset or an MPI launcher)"
            ))
        };
        if self.counts_own { kinds.chunk_by(|a, b| a == b).filter_map(line).collect() } else { Vec::new() }
    }
}

fn memory_nodes(topology: &Topology) -> Vec<u32> {
    let alone = topology.nodes.len() == 1; // a kernel without NUMA support does not list its memory
    topology.nodes.iter().filter(|n| n.memory > 0 || alone).map(|n| n.id).collect()
}

/// Whether the nodes of a place depend on those of the process: no list, `all`, `!...` or `+...`.
fn counts_own_nodes(place: &Place) -> bool {
    let of_process = |list: &str| !list.trim_start().starts_with(|c: char| c.is_ascii_digit());
    place.policy != PolicyKind::Default && place.nodes.as_deref().is_none_or(of_process)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(cpus: &[u32], memory: &[u32]) -> Started {
        let mut topology = Topology::uniform(4, 8);
        topology.nodes.iter_mut().for_each(|n| n.memory = 1 << 30);
        let (cpus, memory) = (cpus.to_vec(), memory.to_vec());
        Started { program: "/bin/app".into(), counts_own: true, cpus, memory, topology }
    }

    fn report(all: &str, cpus: &str) -> PlacementReport {
        let words = |text: &str| text.to_owned();
        PlacementReport { pid: 7, program: words("/bin/app"), all: words(all), cpus: words(cpus), ..Default::default() }
    }

    #[test]
    fn the_library_is_contradicted_where_the_kernel_says_otherwise() {
        let wrong = |s: &Started, all: &str, pid: u32| s.contradicts(&report(all, ""), pid).is_some();
        let whole = started(&[0, 1, 2, 3, 4, 5, 6, 7], &[0, 1, 2, 3]);
        assert!(!wrong(&whole, "0-3", 7));
        assert!(wrong(&whole, "0", 7) && wrong(&whole, "0-2", 7) && wrong(&whole, "0-4", 7));
        assert!(!wrong(&whole, "0", 8), "a rank that a launcher bound");
        assert!(!wrong(&whole, "", 7), "nothing was placed");
        let half = started(&[2, 5], &[0, 1, 2, 3]);
        assert!(!wrong(&half, "1-2", 7) && wrong(&half, "1", 7));
        let bound = started(&[0, 1], &[2, 3]);
        assert!(!wrong(&bound, "2-3", 7) && wrong(&bound, "0", 7));
    }

    #[test]
    fn fewer_nodes_than_the_machine_has_are_named() {
        let whole = started(&[0, 1, 2, 3, 4, 5, 6, 7], &[0, 1, 2, 3]);
        assert_eq!(whole.warnings(&[report("0-3", "0-7")]), [""; 0]);
        let [line] = &whole.warnings(&[report("0", "0-1")])[..] else { panic!() };
        assert!(line.starts_with("`all` means nodes 0 and not 0-3: the process was started on CPUs 0-1 ("), "{line}");
        let ranks = [report("1", "2"), report("0", "0"), report("0", "0"), report("0-3", "0-7")];
        let lines = whole.warnings(&ranks);
        assert!(lines.len() == 2 && lines[0].contains("2 of 4 processes were started on CPUs 0 ("), "{lines:?}");
        assert!(Started { counts_own: false, ..whole }.warnings(&ranks).is_empty());
    }

    #[test]
    fn numbers_do_not_count_the_nodes_of_the_process() {
        let of = |nodes: Option<&str>| {
            counts_own_nodes(&Place {
                policy: PolicyKind::Interleave,
                nodes: nodes.map(str::to_owned),
                ..Place::default()
            })
        };
        assert!(of(None) && of(Some("all")) && of(Some("!0")) && of(Some(" +1")));
        assert!(!of(Some("0-3")));
    }
}
