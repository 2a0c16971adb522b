//! The machine itself, and tools that go well with numamma.

use std::path::Path;

use crate::report::checks::{Check, State};
use crate::topology::hardware::Hardware;

/// Optional tools: command, Debian package, what for.
const TOOLS: [(&str, &str, &str); 3] = [
    ("numactl", "numactl", "binds whole runs, for comparison"),
    ("lstopo", "hwloc", "draws the machine"),
    ("perf", "linux-perf", "shows where time goes in the kernel"),
];

pub(super) fn checks() -> Vec<Check> {
    let machine = Hardware::this();
    let mut checks = vec![nodes(&machine), huge_pages(&machine)];
    checks.extend(TOOLS.iter().map(|(command, package, what)| tool(command, package, what)));
    checks
}

fn nodes(machine: &Hardware) -> Check {
    let (nodes, cpus) = (machine.topology.nodes.len(), machine.topology.cpu_count());
    let found = match nodes {
        0 | 1 => format!(
            "one NUMA node, {cpus} CPUs: profiles and advice for other machines work, placing has no effect here"
        ),
        n => format!("{n} NUMA nodes, {cpus} CPUs, factor {:.1}", machine.numa_factor),
    };
    Check::new("nodes", State::Info, found)
}

fn huge_pages(machine: &Hardware) -> Check {
    Check::new("huge pages", State::Info, format!("transparent: {}", machine.thp))
}

fn tool(command: &'static str, package: &str, what: &str) -> Check {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).map(|d| d.join(command)).find(|p| Path::is_file(p)) {
        Some(found) => Check::new(command, State::Ok, found.display().to_string()),
        None => Check::new(command, State::Info, format!("not installed; optional, {what}"))
            .enable(format!("sudo apt install {package}")),
    }
}
