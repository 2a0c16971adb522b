//! Measures latency and bandwidth of every pair of nodes, from the CPUs of one node to the memory of the other.
//!
//! The measurement needs no privileges and uses only the CPUs and nodes that the process may use. The caller's own
//! binding does not change. Pairs that cannot be measured (no CPUs, no memory, not allowed) have no value, and a note
//! gives the reason. On a machine that does other work, the results are worse than the hardware's.

mod bandwidth;
pub mod kernel;
mod latency;

use std::io;
use std::time::Duration;

use numamma_kernel::cgroup;

use super::cpus::Cpus;
use super::model::Source;
use super::partial_matrix::PartialMatrix;
use super::{Node, Topology};
use kernel::Memory;

/// Bytes assumed for the last-level cache where the kernel does not list it (virtual machines); larger than most.
const USUAL_CACHE: u64 = 32 << 20;
/// Buffer size over the size of a CPU's last-level cache: one random access in four hits this cache.
const OVER_CACHE: u64 = 4;
/// Buffer size over the sum of a node's last-level caches, as all CPUs of a node read the buffer together.
const OVER_ALL_CACHES: u64 = 2;
/// Smallest and largest buffer, bytes; the largest is filled in about a second.
const LEAST_BUFFER: u64 = 64 << 20;
const LARGEST_BUFFER: u64 = 4 << 30;
/// The buffer takes at most the node's free memory, or the rest of the control group's limit, divided by this.
const FREE_PART: u64 = 2;
/// Smallest buffer that is measured at all, bytes: less fits in common caches.
const MEASURABLE: u64 = 4 << 20;
/// Number of pages whose node is checked after filling, and the share of them that must be on the wanted node.
const CHECKED_PAGES: usize = 512;
const ON_NODE: f64 = 0.95;
/// Runs of the bandwidth measurement, of which the best counts.
const STREAM_RUNS: u32 = 3;

/// Results of a measurement; matrices in the order of the topology's nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Nanoseconds of a load that misses all caches.
    pub latency: PartialMatrix,
    /// Bytes a second that all CPUs of a node read together.
    pub bandwidth: PartialMatrix,
    /// Nodes that could not be measured, or only roughly, with the reason.
    pub notes: Vec<String>,
}

/// Measures all pairs of nodes for `per_pair` each; `progress` is called before each pair with the two node numbers.
///
/// # Errors
/// When the process may not place memory on nodes (seccomp), when no buffer can be allocated, or when the process may
/// use none of the machine's CPUs.
pub fn measure(
    topology: &Topology,
    cpus: &Cpus,
    per_pair: Duration,
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Measured, String> {
    let n = topology.nodes.len();
    let mut found = Measured {
        latency: PartialMatrix::empty(n, Source::Measured),
        bandwidth: PartialMatrix::empty(n, Source::Measured),
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
            Err(BufferError::AllNodes(why)) => return Err(why),
            Err(BufferError::ThisNode(why)) => {
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
    if found.latency.has_values() {
        Ok(found)
    } else {
        Err(format!("nothing could be measured: {}", found.notes.join("; ")))
    }
}

/// A node to measure from, with those of its CPUs that the process may use; at least one.
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
                    let (usable, all) = (cpus.len(), node.cpus.len());
                    notes.push(format!("node {}: only {usable} of its {all} CPUs may be used here (cpuset)", node.id));
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
    // A kernel without NUMA support does not list the memory of its only node.
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
    /// Sum of the caches of one node, for the node with the largest sum.
    largest_node_sum: u64,
}

impl Caches {
    fn of(cpus: &Cpus, from: &[From]) -> Caches {
        let near = |cpus: &[u32], source: &From| cpus.iter().any(|cpu| source.cpus.binary_search(cpu).is_ok());
        let sum = |source: &From| cpus.last_level.iter().filter(|(_, c)| near(c, source)).map(|(size, _)| size).sum();
        let largest = cpus.last_level.iter().map(|(size, _)| *size).max().unwrap_or(USUAL_CACHE);
        Caches { largest, largest_node_sum: from.iter().map(sum).max().unwrap_or(0) }
    }
}

/// Why there is no buffer on a node.
enum BufferError {
    /// The reason concerns only this node.
    ThisNode(String),
    /// The reason concerns all nodes.
    AllNodes(String),
}

/// A buffer on `node`, filled with a chain of loads, and a note when the buffer is too small for exact results. `bind`
/// says that the machine has other nodes, too.
fn buffer(node: &Node, bind: bool, caches: &Caches, from: &[From]) -> Result<(Memory, Option<String>), BufferError> {
    let here = |why: String| BufferError::ThisNode(format!("to node {}: {why}", node.id));
    let wanted = (OVER_CACHE * caches.largest).max(OVER_ALL_CACHES * caches.largest_node_sum).max(LEAST_BUFFER);
    let wanted = wanted.next_power_of_two().min(LARGEST_BUFFER);
    let limits = [kernel::free_memory(node.id), cgroup::within_limits()];
    let bytes = limits.into_iter().flatten().map(|free| free / FREE_PART).min().unwrap_or(wanted).min(wanted);
    if bytes < MEASURABLE {
        return Err(here(format!("only {} MiB of its memory are free for the measurement", bytes >> 20)));
    }
    let mib = bytes >> 20;
    let note = (bytes < OVER_ALL_CACHES * caches.largest.max(caches.largest_node_sum)).then(|| {
        format!("to node {}: the buffer of {mib} MiB partly fits in caches; free memory for exact figures", node.id)
    });
    let mut memory = Memory::new(bytes as usize).map_err(|e| here(format!("no {mib} MiB of memory: {e}")))?;
    if bind {
        memory.prefer(node.id).map_err(|e| match e.raw_os_error() {
            Some(libc::EPERM | libc::ENOSYS | libc::EACCES) => BufferError::AllNodes(format!(
                "this process may not place memory on nodes: mbind: {e}. Containers refuse the call (Docker: \
                 --cap-add SYS_NICE); measure outside of the container and copy the file: \
                 `numamma topology --measure --xml -o m.xml`"
            )),
            _ => here(format!("memory cannot be placed on this node: mbind: {e}")),
        })?;
    }
    let near = from.iter().find(|f| f.cpus.iter().any(|cpu| node.cpus.contains(cpu))).or(from.first());
    fill(&mut memory, near.map_or(&[][..], |f| &f.cpus)).map_err(|e| {
        BufferError::AllNodes(format!(
            "no thread can be made to measure with: {e}; raise the limit of processes (ulimit -u)"
        ))
    })?;
    if bind {
        match memory.share_on(node.id, CHECKED_PAGES) {
            Ok(share) if share < ON_NODE => {
                return Err(here(format!(
                    "only {:.0} % of the buffer are on this node, whose memory may be full",
                    100.0 * share
                )));
            }
            Ok(_) => {}
            Err(e) => return Err(here(format!("the kernel does not tell the node of the buffer: move_pages: {e}"))),
        }
    }
    Ok((memory, note))
}

/// Writes the chain of loads, with a thread on each of `cpus`.
///
/// # Errors
/// When a thread cannot be made.
fn fill(memory: &mut Memory, cpus: &[u32]) -> io::Result<()> {
    let lines = latency::lines(memory.words().len());
    let words = memory.words_mut();
    let part = words.len().div_ceil(cpus.len().max(1)).next_multiple_of(latency::LINE);
    std::thread::scope(|scope| {
        for (index, words) in words.chunks_mut(part).enumerate() {
            let first = index * part / latency::LINE;
            let cpu = cpus.get(index).copied();
            std::thread::Builder::new().spawn_scoped(scope, move || {
                // A failure to bind the thread only makes writing slower.
                let _ = cpu.map(|cpu| kernel::run_on(&[cpu]));
                latency::fill(words, first, lines);
            })?;
        }
        Ok(())
    })
}

/// Measures latency and bandwidth from `cpus`, each for half of `time`.
fn pair(memory: &Memory, cpus: &[u32], time: Duration) -> (Option<f64>, Option<f64>) {
    let words = memory.words();
    let latency = std::thread::scope(|scope| {
        let chase = || kernel::run_on(&cpus[..1]).is_ok().then(|| latency::latency_ns(words, time / 2));
        let chaser = std::thread::Builder::new().spawn_scoped(scope, chase).ok()?;
        chaser.join().ok().flatten()
    });
    let run = |_| bandwidth::bandwidth(words, cpus, time / (2 * STREAM_RUNS));
    (latency, (0..STREAM_RUNS).filter_map(run).max_by(f64::total_cmp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::hardware::Hardware;

    /// A short measurement on this machine gives figures of the right order of magnitude.
    #[test]
    fn this_machine_has_plausible_figures() {
        let machine = Hardware::this();
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
    fn missing_nodes_are_named_in_the_error() {
        let mut topology = Topology::uniform(2, 2);
        topology.nodes.iter_mut().for_each(|n| (n.id, n.memory) = (n.id + 700, 1 << 30));
        topology.nodes[1].cpus = vec![8_000];
        let why = measure(&topology, &Cpus::default(), Duration::from_millis(1), &mut |_, _| {}).unwrap_err();
        assert!(why.contains("node 701: none of its CPUs may be used") || why.contains("mbind"), "{why}");
    }

    /// Makes mbind fail with EPERM in the calling thread and the threads it starts, as containers do.
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
        // SAFETY: the program is readable for its length; the filter applies only to this thread and its children.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
        }
    }

    #[test]
    fn a_refused_mbind_is_named_in_the_error() {
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
