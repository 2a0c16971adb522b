//! Measured latency and bandwidth of every pair of nodes: the CPUs of one, the memory of the other.
//!
//! Unprivileged, and within the CPUs and nodes that the process may use; the caller's own binding is left alone. What cannot be
//! measured (no CPUs, no memory, not allowed) stays unknown, and a note says why. On a machine that does other work the
//! figures are lower bounds of what the hardware gives.

mod chase;
pub mod kernel;
mod stream;

use std::time::Duration;

use super::cpus::Cpus;
use super::known::Known;
use super::model::Source;
use super::{Node, Topology};
use kernel::Memory;

/// Last-level cache when the kernel does not show it (virtual machines), bytes; larger than most.
const USUAL_CACHE: u64 = 32 << 20;
/// A buffer over the last-level cache of a CPU, so that a random line is found there once in so many times.
const OVER_CACHE: u64 = 4;
/// The same over all last-level caches of a node that reads it together.
const OVER_ALL_CACHES: u64 = 2;
/// Least and largest buffer, bytes; the latter is filled in about a second.
const LEAST_BUFFER: u64 = 64 << 20;
const LARGEST_BUFFER: u64 = 4 << 30;
/// Part of a node's free memory, or of what the control group allows, that is taken at most: one in so many.
const FREE_PART: u64 = 2;
/// Smallest buffer that is worth a figure, bytes.
const WORTH_IT: u64 = 4 << 20;
/// Pages that are looked at to see where a buffer is, and the share that must be on the wanted node.
const PROBES: usize = 512;
const ON_NODE: f64 = 0.95;
/// Runs of the streams, of which the best counts.
const STREAM_RUNS: u32 = 3;

/// What was measured; matrices in the order of the topology's nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Nanoseconds of a load that misses all caches.
    pub latency: Known,
    /// Bytes a second that all CPUs of a node read together.
    pub bandwidth: Known,
    /// What was not measured, or not well, and why.
    pub notes: Vec<String>,
}

/// Measures all pairs, `per_pair` on each; `progress` is called before each with the numbers of the two nodes.
///
/// # Errors
/// When memory cannot be put on nodes here (seccomp), when none can be had, or no CPU may be used.
pub fn measure(
    topology: &Topology,
    cpus: &Cpus,
    per_pair: Duration,
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Measured, String> {
    let n = topology.nodes.len();
    let mut found = Measured {
        latency: Known::none(n, Source::Measured),
        bandwidth: Known::none(n, Source::Measured),
        notes: Vec::new(),
    };
    let from = sources(topology, &mut found.notes)?;
    let caches = Caches::of(cpus, &from);
    for (to, node) in targets(topology, &mut found.notes) {
        let memory = match buffer(node, n > 1, &caches, &from) {
            Ok((memory, note)) => {
                found.notes.extend(note);
                memory
            }
            Err(Trouble::Everywhere(why)) => return Err(why),
            Err(Trouble::Here(why)) => {
                found.notes.push(why);
                continue;
            }
        };
        for source in &from {
            progress(topology.nodes[source.index].id, node.id);
            let (latency, bandwidth) = pair(&memory, &source.cpus, per_pair);
            found.latency.values[source.index][to] = latency;
            found.bandwidth.values[source.index][to] = bandwidth;
        }
    }
    if found.latency.any() { Ok(found) } else { Err(format!("nothing could be measured: {}", found.notes.join("; "))) }
}

/// A node to measure from, with its CPUs that may be used; at least one.
struct From {
    index: usize,
    cpus: Vec<u32>,
}

fn sources(topology: &Topology, notes: &mut Vec<String>) -> Result<Vec<From>, String> {
    let allowed = kernel::allowed_cpus();
    let mut found = Vec::new();
    for (index, node) in topology.nodes.iter().enumerate() {
        let cpus: Vec<u32> = node.cpus.iter().copied().filter(|cpu| allowed.binary_search(cpu).is_ok()).collect();
        match (cpus.is_empty(), node.cpus.is_empty()) {
            (false, _) => {
                if cpus.len() < node.cpus.len() {
                    let (some, all) = (cpus.len(), node.cpus.len());
                    notes.push(format!("node {}: only {some} of its {all} CPUs may be used here (cpuset)", node.id));
                }
                found.push(From { index, cpus });
            }
            (true, false) => notes.push(format!("from node {}: none of its CPUs may be used here (cpuset)", node.id)),
            (true, true) => {}
        }
    }
    if found.is_empty() { Err("none of the machine's CPUs may be used here".into()) } else { Ok(found) }
}

fn targets<'a>(topology: &'a Topology, notes: &mut Vec<String>) -> Vec<(usize, &'a Node)> {
    let allowed = kernel::allowed_nodes();
    // A kernel without NUMA support does not say how much its only node has.
    let has_memory = |n: &Node| n.memory > 0 || topology.nodes.len() == 1;
    let nodes = topology.nodes.iter().enumerate().filter(|(_, n)| has_memory(n));
    let (usable, not): (Vec<_>, Vec<_>) =
        nodes.partition(|(_, n)| allowed.as_ref().is_none_or(|list| list.is_empty() || list.contains(&n.id)));
    notes.extend(not.iter().map(|(_, n)| format!("to node {}: its memory may not be used here (cpuset)", n.id)));
    usable
}

/// Sizes of last-level caches, bytes.
struct Caches {
    largest: u64,
    /// Of the node with the most.
    of_a_node: u64,
}

impl Caches {
    fn of(cpus: &Cpus, from: &[From]) -> Caches {
        let near = |cpus: &[u32], source: &From| cpus.iter().any(|cpu| source.cpus.binary_search(cpu).is_ok());
        let sum = |source: &From| cpus.last_level.iter().filter(|(_, c)| near(c, source)).map(|(size, _)| size).sum();
        let largest = cpus.last_level.iter().map(|(size, _)| *size).max().unwrap_or(USUAL_CACHE);
        Caches { largest, of_a_node: from.iter().map(sum).max().unwrap_or(0) }
    }
}

/// Why a node's memory cannot be measured.
enum Trouble {
    Here(String),
    Everywhere(String),
}

/// A buffer on `node`, filled with a chain; with a note when it is smaller than it should be. `bind`: the machine has other
/// nodes too.
fn buffer(node: &Node, bind: bool, caches: &Caches, from: &[From]) -> Result<(Memory, Option<String>), Trouble> {
    let here = |why: String| Trouble::Here(format!("to node {}: {why}", node.id));
    let wanted = (OVER_CACHE * caches.largest).max(OVER_ALL_CACHES * caches.of_a_node).max(LEAST_BUFFER);
    let wanted = wanted.next_power_of_two().min(LARGEST_BUFFER);
    let limits = [kernel::free_memory(node.id), kernel::group_memory()];
    let bytes = limits.into_iter().flatten().map(|free| free / FREE_PART).min().unwrap_or(wanted).min(wanted);
    if bytes < WORTH_IT {
        return Err(here(format!("only {} MiB may be taken of its memory", bytes >> 20)));
    }
    let mib = bytes >> 20;
    let note = (bytes < OVER_ALL_CACHES * caches.largest.max(caches.of_a_node))
        .then(|| format!("to node {}: with {mib} MiB of free memory caches take part", node.id));
    let mut memory = Memory::new(bytes as usize).map_err(|e| here(format!("no {mib} MiB of memory: {e}")))?;
    if bind {
        memory.prefer(node.id).map_err(|e| match e.raw_os_error() {
            Some(libc::EPERM | libc::ENOSYS | libc::EACCES) => Trouble::Everywhere(format!(
                "this process may not put memory on nodes: mbind: {e}. Containers refuse it (Docker: --cap-add SYS_NICE); \
                 measure outside of it and carry the file: `numamma topology --measure --xml -o m.xml`"
            )),
            _ => here(format!("memory cannot be put on it: mbind: {e}")),
        })?;
    }
    let near = from.iter().find(|f| f.cpus.iter().any(|cpu| node.cpus.contains(cpu))).or(from.first());
    fill(&mut memory, near.map_or(&[][..], |f| &f.cpus));
    if bind {
        match memory.share_on(node.id, PROBES) {
            Ok(share) if share < ON_NODE => {
                return Err(here(format!("only {:.0} % of the buffer came to be on it; is it full?", 100.0 * share)));
            }
            Ok(_) => {}
            Err(e) => return Err(here(format!("where the buffer is cannot be seen: move_pages: {e}"))),
        }
    }
    Ok((memory, note))
}

/// Writes the chain, with a thread on each of `cpus`.
fn fill(memory: &mut Memory, cpus: &[u32]) {
    let lines = chase::lines(memory.words().len());
    let words = memory.words_mut();
    let part = words.len().div_ceil(cpus.len().max(1)).next_multiple_of(chase::LINE);
    std::thread::scope(|scope| {
        for (index, words) in words.chunks_mut(part).enumerate() {
            let first = index * part / chase::LINE;
            let cpu = cpus.get(index).copied();
            scope.spawn(move || {
                // Where it runs is a matter of speed only.
                let _ = cpu.map(|cpu| kernel::run_on(&[cpu]));
                chase::fill(words, first, lines);
            });
        }
    });
}

/// Latency and bandwidth from `cpus`, in `time` together.
fn pair(memory: &Memory, cpus: &[u32], time: Duration) -> (Option<f64>, Option<f64>) {
    let words = memory.words();
    let latency = std::thread::scope(|scope| {
        let chaser = scope.spawn(|| kernel::run_on(&cpus[..1]).is_ok().then(|| chase::latency_ns(words, time / 2)));
        chaser.join().ok().flatten()
    });
    let run = |_| stream::bandwidth(words, cpus, time / (2 * STREAM_RUNS));
    (latency, (0..STREAM_RUNS).filter_map(run).max_by(f64::total_cmp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::machine::Machine;

    /// The real thing on this machine, short: figures of the right order.
    #[test]
    fn this_machine_has_plausible_figures() {
        let machine = Machine::this();
        let mut pairs = Vec::new();
        let time = Duration::from_millis(30);
        let found = match measure(&machine.topology, &machine.cpus, time, &mut |i, j| pairs.push((i, j))) {
            Ok(found) => found,
            Err(why) => return assert!(why.contains("mbind") || why.contains("may"), "{why}"),
        };
        assert!(!pairs.is_empty());
        for ns in found.latency.values.iter().flatten().flatten() {
            assert!((1.0..20_000.0).contains(ns), "{ns} ns");
        }
        for rate in found.bandwidth.values.iter().flatten().flatten() {
            assert!((1e7..1e13).contains(rate), "{rate} B/s");
        }
    }

    #[test]
    fn nodes_that_are_not_there_are_said_to_be_so() {
        let mut topology = Topology::uniform(2, 2);
        topology.nodes.iter_mut().for_each(|n| (n.id, n.memory) = (n.id + 700, 1 << 30));
        topology.nodes[1].cpus = vec![8_000];
        let why = measure(&topology, &Cpus::default(), Duration::from_millis(1), &mut |_, _| {}).unwrap_err();
        assert!(why.contains("node 701: none of its CPUs may be used") || why.contains("mbind"), "{why}");
    }

    /// The calling thread and those it starts get EPERM from mbind, as in a container.
    fn refuse_mbind() {
        let code = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let (load, equal, back) = (
            libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            libc::BPF_RET | libc::BPF_K,
        );
        let mut filter = [
            code(load, 0, 0, 0),
            code(equal, 0, 1, libc::SYS_mbind as u32),
            code(back, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            code(back, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the program is readable for its length; only this thread and its children are concerned.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
        }
    }

    #[test]
    fn where_mbind_is_refused_it_says_so() {
        let mut topology = Topology::uniform(2, 2);
        topology.nodes.iter_mut().for_each(|n| n.memory = 1 << 30);
        topology.nodes[0].cpus = kernel::allowed_cpus();
        let refused = std::thread::spawn(move || {
            refuse_mbind();
            measure(&topology, &Cpus::default(), Duration::from_millis(1), &mut |_, _| {})
        });
        let why = refused.join().expect("it does not panic").unwrap_err();
        assert!(why.contains("mbind: Operation not permitted") && why.contains("SYS_NICE"), "{why}");
    }
}
