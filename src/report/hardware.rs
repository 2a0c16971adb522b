//! The machine as text: nodes, CPUs and caches, distances, latency and bandwidth, and page sizes.

use super::units::{bytes, printable, ranges};
use crate::topology::Node;
use crate::topology::cpus::Cache;
use crate::topology::hardware::Hardware;
use crate::topology::model::Source;

/// Writes the facts as text.
pub fn render(machine: &Hardware) -> String {
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
    if !machine.offline_cpus.is_empty() {
        let list = ranges(machine.offline_cpus.iter().copied());
        out.push_str(&format!("  offline CPUs: {list}\n"));
    }
    cpus(machine, &mut out);
    distances(machine, &mut out);
    figures(machine, &mut out);
    pages(machine, &mut out);
    out
}

fn cpus(machine: &Hardware, out: &mut String) {
    if machine.packages.is_empty() && machine.cores == 0 && machine.caches.is_empty() {
        return;
    }
    out.push_str("\nCPUs\n");
    let groups = [("packages", machine.packages.len()), ("dies", machine.dies.len()), ("cores", machine.cores)];
    for (word, count) in groups.into_iter().filter(|(_, count)| *count > 0) {
        out.push_str(&format!("  {word:<24} {count}\n"));
    }
    for cache in &machine.caches {
        let Cache { level, size, cpus, .. } = cache;
        let kind = match cache.kind.as_str() {
            "data" => "d",
            "instruction" => "i",
            _ => "",
        };
        let shared = if *cpus == 1 { "per CPU".to_owned() } else { format!("per {cpus} CPUs") };
        out.push_str(&format!("  {:<24} {} {shared}\n", format!("L{level}{kind} cache"), bytes(*size)));
    }
    if machine.emulated && !machine.caches.is_empty() {
        out.push_str("  an emulator makes these CPUs up: advice and predictions take their caches as unknown\n");
    }
}

/// Latency and bandwidth, where they were measured or the firmware rates them.
fn figures(machine: &Hardware, out: &mut String) {
    let figures = &machine.figures;
    let known = |s: Source| matches!(s, Source::Measured | Source::Hmat);
    let word = |s: Source| if s == Source::Measured { "measured" } else { "ACPI HMAT, rated" };
    if known(figures.sources.latency) {
        out.push_str(&format!("\nLatency, nanoseconds ({})\n", word(figures.sources.latency)));
        matrix(machine, &figures.latency_ns, &|ns| format!("{ns:.0}"), out);
        if let Some(factor) = figures.factor() {
            let verb = if figures.sources.latency == Source::Measured { "measured" } else { "rated" };
            out.push_str(&format!("NUMA factor {factor:.2}, {verb}\n"));
        }
    }
    if known(figures.sources.bandwidth) {
        out.push_str(&format!("\nBandwidth, GB/s ({})\n", word(figures.sources.bandwidth)));
        matrix(machine, &figures.bandwidth, &|rate| format!("{:.1}", rate / 1e9), out);
    }
    machine.notes.iter().for_each(|note| out.push_str(&format!("  {}\n", printable(note))));
}

fn matrix(machine: &Hardware, values: &[Vec<Option<f64>>], show: &dyn Fn(f64) -> String, out: &mut String) {
    let ids: Vec<u32> = machine.topology.nodes.iter().map(|n| n.id).collect();
    out.push_str("  from\\to");
    ids.iter().for_each(|id| out.push_str(&format!("{id:>8}")));
    out.push('\n');
    for (id, row) in ids.iter().zip(values).filter(|(_, row)| row.iter().any(Option::is_some)) {
        out.push_str(&format!("  {id:>7}"));
        row.iter().for_each(|v| out.push_str(&format!("{:>8}", v.map_or("-".to_owned(), show))));
        out.push('\n');
    }
}

fn links(machine: &Hardware) -> Option<String> {
    let n = machine.topology.nodes.len();
    if n < 3 || machine.links.is_empty() {
        return None;
    }
    if machine.links.len() == n * (n - 1) / 2 {
        return Some("Links: every node to every other\n".into());
    }
    let pairs: Vec<String> = machine.links.iter().map(|(a, b)| format!("{a}-{b}")).collect();
    Some(format!("Links (pairs at the smallest remote distance): {}\n", pairs.join(" ")))
}

fn distances(machine: &Hardware, out: &mut String) {
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
    out.extend(links(machine));
}

fn pages(machine: &Hardware, out: &mut String) {
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
