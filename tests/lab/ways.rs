//! Ways to bind a program that a placement must not depend on, for the tests that look at the pages of one.
//!
//! In the guest a statically linked shell says, at the place where the program is started, which nodes its CPUs are on
//! by /proc/self/status and sysfs (ways/given.sh): these are `all` to a policy. Neither the plan crate nor the library
//! is asked.

use crate::common::lab::Lab;
use crate::common::{exists, needs, source};

/// Every way. The programs are linked with GNU's OpenMP runtime, also those without a team: it binds the main thread.
pub const ALL: [&str; 12] = [
    "unbound",
    "OMP_PROC_BIND=true",
    "OMP_PROC_BIND=close",
    "OMP_PROC_BIND=spread",
    "OMP_PLACES=cores",
    "OMP_PLACES=sockets",
    "GOMP_CPU_AFFINITY",
    "taskset",
    "node",
    "mpirun-core",
    "mpirun-numa",
    "mpirun-none",
];

/// Links a program with GNU's OpenMP runtime, whether it needs it or not.
pub const GOMP: [&str; 2] = ["-Wl,--no-as-needed", "-lgomp"];

/// What must be in the guest for mpirun.
const OPEN_MPI: [&str; 5] = [
    "/usr/bin/mpirun",
    "/usr/lib/x86_64-linux-gnu/openmpi",
    "/usr/lib/x86_64-linux-gnu/pmix2",
    "/usr/share/openmpi",
    "/etc/openmpi",
];

/// Brings mpirun into the guest, where it is here.
pub fn with_mpirun(lab: Lab) -> Lab {
    let here = needs(&["mpirun"], "mpirun in the lab");
    OPEN_MPI.iter().filter(|_| here).fold(lab, |lab, path| lab.options(&["--with-root", path]))
}

/// Adds what `ways` need, and ways.sh. Those that mpirun must be here for are left out where it is not.
pub fn add<'w>(lab: Lab, ways: &[&'w str]) -> (Lab, Vec<&'w str>) {
    let by_mpirun = |way: &&str| way.starts_with("mpirun");
    let lab = if ways.iter().any(by_mpirun) { with_mpirun(lab) } else { lab };
    // All of them may take longer than the one run that the lab's limit is meant for.
    let lab = lab.options(&["--timeout", "900"]);
    let ways = ways.iter().copied().filter(|way| !by_mpirun(way) || exists("mpirun")).collect();
    (
        ["bindings.sh", "ways/ways.sh", "ways/given.sh"]
            .iter()
            .fold(lab, |lab, f| lab.add(source(&format!("lab/{f}")))),
        ways,
    )
}

/// Boots, and runs `command` in each of the ways. What the guest said; see [`split`].
pub fn run(lab: Lab, ways: &[&str], command: &[&str]) -> String {
    let (lab, ways) = add(lab, ways);
    lab.run(&[&["./ways.sh", &ways.join(" ")], command].concat()).success().stdout
}

/// A program in one of the ways.
pub struct Bound<'a> {
    pub way: &'a str,
    /// Nodes of the CPUs that the kernel gave it.
    pub nodes: Vec<u64>,
    /// Its output.
    pub said: &'a str,
}

impl<'a> Bound<'a> {
    /// The node of piece `i` of what is dealt out over all nodes.
    pub fn of_all(&self, i: u64) -> u64 {
        self.nodes[i as usize % self.nodes.len()]
    }

    /// The node that the main thread does not leave: the only one, or that of the first place, where GNU's runtime
    /// binds it. None where the kernel is free to move it.
    pub fn home(&self) -> Option<u64> {
        let bound = self.nodes.len() == 1 || self.way.contains("OMP_");
        bound.then(|| self.nodes[0])
    }

    fn parse(part: &'a str, of: u64) -> Bound<'a> {
        let (head, said) = part.split_once('\n').unwrap_or_else(|| panic!("{part}"));
        let (way, nodes) = head.split_once(' ').unwrap_or_else(|| panic!("{part}"));
        let nodes: Vec<u64> = nodes.split(' ').map(|n| n.parse().unwrap_or_else(|_| panic!("{part}"))).collect();
        let expected = match way {
            "node" | "mpirun-core" | "mpirun-numa" => vec![1],
            _ => (0..of).collect(),
        };
        assert_eq!(nodes, expected, "the way binds to other CPUs: {part}");
        Bound { way, nodes, said }
    }
}

/// What a program said in each of the ways, on a machine of `of` nodes.
pub fn split<'a>(text: &'a str, ways: &[&str], of: u64) -> Vec<Bound<'a>> {
    let found: Vec<Bound<'a>> = text.split("=== way ").skip(1).map(|part| Bound::parse(part, of)).collect();
    let run = ways.iter().filter(|way| !way.starts_with("mpirun") || exists("mpirun"));
    assert_eq!(found.iter().map(|b| b.way).collect::<Vec<_>>(), run.copied().collect::<Vec<_>>(), "{text}");
    found
}
