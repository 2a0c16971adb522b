//! The node to which the n-th thread of a program is bound.
//!
//! `advise` predicts costs with this mapping and the preload binds threads by it, so that the prediction holds for the
//! binding in the run.

use crate::callsite::frame::file_name;
use crate::cpus;
use crate::machine::Machine;
use crate::policy::{Bind, Threads};
use crate::unusable::Unusable;

/// Starts of the file names of OpenMP runtimes: GNU, LLVM, Intel.
const OPENMP_RUNTIMES: [&str; 3] = ["libgomp", "libomp", "libiomp5"];

/// Whether a module is an OpenMP runtime, by its path. The thread that creates a team of such a runtime works as its
/// thread 0 (OpenMP 5.2, section 10.1), and the team serves all regions, wherever it was created.
pub fn is_openmp_runtime(path: &str) -> bool {
    OPENMP_RUNTIMES.iter().any(|name| file_name(path).starts_with(name))
}

/// Index (into `nodes` nodes) of the node of thread `rank` of `threads` when they are spread evenly in order:
/// floor(rank * nodes / threads). Ranks from `threads` on repeat the assignment.
pub fn thread_node(rank: u32, threads: u32, nodes: u32) -> u32 {
    let (threads, nodes) = (threads.max(1), nodes.max(1));
    (u64::from(rank % threads) * u64::from(nodes) / u64::from(threads)) as u32
}

/// Index of the node of thread `rank` of `threads` when the threads are spread evenly over the CPUs in node order;
/// `cpus` gives the number of CPUs of each node. Equal to [`thread_node`] if all nodes have the same number of CPUs.
/// Ranks from `threads` on repeat the assignment. Does not allocate, because the preload calls this function at the
/// start of every thread.
pub fn thread_node_of(rank: u32, threads: u32, cpus: impl Iterator<Item = usize> + Clone) -> usize {
    let threads = u64::from(threads.max(1));
    let total: u64 = cpus.clone().map(|n| n as u64).sum();
    let mut left = u64::from(rank) % threads * total / threads;
    for (index, n) in cpus.enumerate() {
        if left < n as u64 {
            return index;
        }
        left -= n as u64;
    }
    0
}

/// Number of the node that thread `rank` (0 is the main thread) is bound to; `None` when the policy binds no threads,
/// or binds them by CPU lists.
pub fn bound_node(threads: &Threads, rank: u32, machine: &Machine) -> Option<u32> {
    let nodes = &machine.cpu_nodes;
    let cpus = nodes.iter().map(|n| n.cpus.len());
    let index = match threads.bind {
        Bind::None | Bind::Explicit(_) => return None,
        Bind::Scatter => rank as usize % nodes.len().max(1),
        Bind::Compact => match threads.count {
            Some(count) => thread_node_of(rank, count, cpus),
            None => thread_node_of(rank, cpus.clone().sum::<usize>() as u32, cpus),
        },
    };
    nodes.get(index).map(|n| n.id)
}

/// CPUs of each list of an explicit binding, see [`Bind::Explicit`]; empty for other bindings.
///
/// # Errors
/// A list that cannot be parsed, or that names a CPU that is not online.
pub fn explicit_lists(bind: &Bind, machine: &Machine) -> Result<Vec<Vec<u32>>, Unusable> {
    let Bind::Explicit(lists) = bind else { return Ok(Vec::new()) };
    lists.iter().map(|list| cpus::parse(list, &machine.online)).collect()
}

/// The node that has all of `cpus`; `None` when the CPUs belong to several nodes or the list is empty.
pub fn node_of_cpus(cpus: &[u32], machine: &Machine) -> Option<u32> {
    let node = machine.node_of_cpu(*cpus.first()?)?;
    cpus.iter().all(|&c| machine.node_of_cpu(c) == Some(node)).then_some(node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Node, Thp};

    fn machine(cpus: &[u32]) -> Machine {
        let mut first = 0;
        let nodes: Vec<Node> = cpus
            .iter()
            .enumerate()
            .map(|(id, &n)| {
                first += n;
                Node { id: id as u32, cpus: (first - n..first).collect() }
            })
            .collect();
        let online = (0..first).collect();
        let own = nodes.iter().map(|n| n.id).collect();
        Machine { memory_nodes: nodes.clone(), own, cpu_nodes: nodes, online, thp: Thp::Never, max_map_count: 65_530 }
    }

    fn nodes_of(bind: Bind, count: Option<u32>, threads: u32, m: &Machine) -> Vec<Option<u32>> {
        let bound = Threads { bind, count };
        (0..threads).map(|t| bound_node(&bound, t, m)).collect()
    }

    #[test]
    fn compact_fills_node_after_node_evenly() {
        assert_eq!((0..8).map(|t| thread_node(t, 8, 4)).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!((0..3).map(|t| thread_node(t, 3, 2)).collect::<Vec<_>>(), [0, 0, 1]);
        assert_eq!(thread_node(8, 8, 4), 0, "a ninth thread starts over");
        assert_eq!(nodes_of(Bind::Compact, Some(4), 4, &machine(&[2; 4])), [Some(0), Some(1), Some(2), Some(3)]);
    }

    #[test]
    fn nodes_with_more_cpus_get_more_threads() {
        let uneven = machine(&[6, 2]);
        let found = nodes_of(Bind::Compact, Some(4), 5, &uneven);
        assert_eq!(found, [Some(0), Some(0), Some(0), Some(1), Some(0)]);
        for (threads, nodes) in [(1, 1), (7, 3), (48, 8), (5, 8), (64, 4)] {
            let cpus = std::iter::repeat_n(6, nodes as usize);
            let even = (0..threads).map(|t| thread_node_of(t, threads, cpus.clone()) as u32);
            assert!(even.eq((0..threads).map(|t| thread_node(t, threads, nodes))), "{threads} on {nodes}");
        }
    }

    #[test]
    fn compact_without_a_count_is_one_thread_per_cpu() {
        let found = nodes_of(Bind::Compact, None, 7, &machine(&[2, 0, 4]));
        assert_eq!(found, [Some(0), Some(0), Some(2), Some(2), Some(2), Some(2), Some(0)]);
    }

    #[test]
    fn scatter_and_none() {
        let m = machine(&[2; 2]);
        assert_eq!(nodes_of(Bind::Scatter, None, 3, &m), [Some(0), Some(1), Some(0)]);
        assert_eq!(nodes_of(Bind::None, None, 1, &m), [None]);
    }

    #[test]
    fn explicit_lists_and_their_nodes() {
        let m = machine(&[2; 4]);
        let lists = |l: &[&str]| explicit_lists(&Bind::Explicit(l.iter().map(|s| (*s).to_owned()).collect()), &m);
        assert_eq!(lists(&["0-1", "+6"]).unwrap(), [vec![0, 1], vec![6]]);
        assert!(lists(&["0-1", "9"]).is_err());
        assert_eq!(explicit_lists(&Bind::Scatter, &m), Ok(vec![]));
        assert_eq!(
            (node_of_cpus(&[2, 3], &m), node_of_cpus(&[3, 4], &m), node_of_cpus(&[], &m)),
            (Some(1), None, None)
        );
    }
}
