//! The machine as text: nodes, distances and page sizes.

use super::units::{bytes, ranges};
use crate::topology::Node;
use crate::topology::machine::Machine;

/// Writes the facts as text.
pub fn render(machine: &Machine) -> String {
    let nodes = &machine.topology.nodes;
    let many = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let mut out = format!("{}, {}", many(nodes.len(), "NUMA node"), many(machine.topology.cpu_count(), "CPU"));
    let memory: u64 = nodes.iter().map(|n| n.memory).sum();
    if memory > 0 {
        out.push_str(&format!(", {}", bytes(memory)));
    }
    out.push('\n');
    for node in nodes {
        out.push_str(&node_line(node));
    }
    if !machine.offline_nodes.is_empty() {
        let list = ranges(machine.offline_nodes.iter().copied());
        out.push_str(&format!("  offline nodes: {list} (possible, but not there now)\n"));
    }
    distances(machine, &mut out);
    pages(machine, &mut out);
    out
}

fn distances(machine: &Machine, out: &mut String) {
    let nodes = &machine.topology.nodes;
    if nodes.len() < 2 {
        out.push_str("\nOne node: all memory is equally far, placement cannot gain anything here\n");
        return;
    }
    out.push_str("\nDistances (firmware table, 10 is local)\n  from\\to");
    nodes.iter().for_each(|n| out.push_str(&format!("{:>5}", n.id)));
    out.push('\n');
    for node in nodes {
        out.push_str(&format!("  {:>7}", node.id));
        for i in 0..nodes.len() {
            out.push_str(&node.distances.get(i).map_or("    ?".into(), |d| format!("{d:>5}")));
        }
        out.push('\n');
    }
    out.push_str(&format!(
        "NUMA factor {:.1}: the farthest memory is declared that many times as far as the local\n",
        machine.numa_factor
    ));
}

fn pages(machine: &Machine, out: &mut String) {
    out.push_str(&format!("\nPages\n  base size                {}\n", bytes(machine.page_size)));
    let size = machine.thp_size.map_or(String::new(), |s| format!(" ({})", bytes(s)));
    out.push_str(&format!("  transparent huge pages   {}{size}\n", machine.thp));
    for pool in &machine.huge_pages {
        let state = match pool.total {
            0 => "none reserved".into(),
            n => format!("{n} reserved, {} free", pool.free),
        };
        out.push_str(&format!("  huge pages of {:<11}{state}\n", bytes(pool.size)));
    }
}

fn node_line(node: &Node) -> String {
    let cpus = match node.cpus.len() {
        0 => "no CPUs (memory only)".to_owned(),
        1 => format!("1 CPU: {}", node.cpus[0]),
        n => format!("{n} CPUs: {}", ranges(node.cpus.iter().copied())),
    };
    let memory = if node.memory == 0 { "no memory".to_owned() } else { bytes(node.memory) };
    format!("  node {:<3} {memory:>10}   {cpus}\n", node.id)
}
