//! The machine that a policy is made for.

use numamma_plan::machine::Thp;
use numamma_plan::teams::Rank;
use numamma_plan::threads::thread_node_of;

use crate::topology::Topology;
use crate::topology::model::Model;

/// The machine on which the program will run, with its number of threads.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Nodes with memory; at least 1. Portable policies are checked against [`PORTABLE_NODES`].
    pub nodes: u32,
    /// Numbers of the nodes with memory, ascending: what `nodes = "all"` means when the policy is applied.
    pub ids: Vec<u32>,
    /// Threads the program will create, the main thread included; at least 1.
    pub threads: u32,
    /// Workers of the recorded run, where `threads` is another number that nobody asked for.
    pub recorded: Option<u32>,
    /// Whether node numbers and block sizes are left to the machine it runs on.
    pub portable: bool,
    /// Huge pages on it.
    pub thp: Thp,
    /// Synthetic topology such as `numa:4 core:2`, as the policy file gives it.
    pub topology: String,
    /// The model that placements are priced on. Its nodes with memory are `ids`, in this order; it also has the nodes
    /// with CPUs only.
    pub model: Model,
    /// Factor by which the waiting that is modelled for this program is multiplied, as its times on this machine
    /// showed; 1 where none were measured.
    pub waiting: f64,
}

/// Nodes with which a portable policy is checked: the usual two-socket machine with two nodes each.
pub const PORTABLE_NODES: u32 = 4;

/// The mode of transparent huge pages from the word in a profile.
pub fn huge_pages(word: &str) -> Thp {
    match word {
        "always" => Thp::Always,
        "madvise" => Thp::Madvise,
        _ => Thp::Never,
    }
}

/// Threads of the program on the target when nobody says how many: those of the recorded run, or `more` where that run
/// was a small one of a program that has as many as its machine lets it have. Such a run has fewer threads than the
/// target has nodes: one per CPU of its machine (`here`), or a number that people take for a small run, a divisor of
/// `more`. Three consumers of a queue are three on any machine.
pub fn assumed_threads(recorded: u32, more: u32, nodes: u32, here: &Topology) -> u32 {
    let per_cpu = recorded as usize == here.cpu_count();
    let scales = recorded == 0 || per_cpu || more.is_multiple_of(recorded);
    if recorded < nodes && scales { more.max(recorded) } else { recorded }
}

impl Target {
    /// The target that was asked for: `nodes` and `threads` as given, else from `here` and the threads of the
    /// profile, see [`assumed_threads`]; a portable policy, which does not fix their number, is checked with at least a
    /// thread per node. `thp` is the profile's word for the huge page setting.
    pub fn new(nodes: Option<u32>, threads: Option<u32>, here: &Topology, profile_threads: u32, thp: &str) -> Target {
        let memory = here.nodes.iter().filter(|n| n.memory > 0).count() as u32;
        let wanted_nodes = nodes.unwrap_or(if memory < 2 { PORTABLE_NODES } else { memory }).max(1);
        let portable = nodes.is_none() && memory < 2;
        let small = || match portable {
            true => profile_threads.max(wanted_nodes),
            false => assumed_threads(profile_threads, wanted_nodes, wanted_nodes, here),
        };
        let assumed = |target: Target| if portable { target } else { target.assuming(threads, profile_threads) };
        let threads = threads.unwrap_or_else(small).max(1);
        if nodes.is_none() && memory >= 2 {
            return assumed(Target::of(Model::of(here), threads, huge_pages(thp)));
        }
        // As many CPUs on each node, whatever the number of threads is.
        let model = Model::uniform(wanted_nodes, threads.div_ceil(wanted_nodes).saturating_mul(wanted_nodes));
        let target = Target::of(model, threads, huge_pages(thp));
        if nodes.is_some() {
            return assumed(target);
        }
        Target { portable: true, topology: format!("numa:1 core:{}", here.cpu_count().max(1)), ..target }
    }

    /// A described machine with `threads` (at least 1 is assumed) on it. The model must have a node with memory.
    pub fn of(model: Model, threads: u32, thp: Thp) -> Target {
        let ids: Vec<u32> = model.memory_nodes().into_iter().map(|i| model.nodes[i].id).collect();
        let (nodes, topology) = (ids.len() as u32, model.name.clone());
        let threads = threads.max(1);
        Target { nodes, ids, threads, recorded: None, portable: false, thp, topology, model, waiting: 1.0 }
    }

    /// With the workers of the recorded run, where the user `asked` for no number of threads and another one is
    /// assumed.
    pub fn assuming(self, asked: Option<u32>, profile_threads: u32) -> Target {
        let recorded =
            (asked.is_none() && profile_threads > 1 && profile_threads != self.threads).then_some(profile_threads);
        Target { recorded, ..self }
    }

    /// The node that a worker is bound to under `bind = "compact"`, as an index into the nodes of the model:
    /// the workers of a team are spread over the CPUs node after node, so a node with more CPUs has more threads and
    /// one without has none. The apply preload binds by the same function.
    pub fn node_of(&self, worker: Rank) -> usize {
        thread_node_of(worker.rank, worker.of, self.model.nodes.iter().map(|n| n.cpus.len()))
    }

    /// The memory nearest to a worker, as an index into `ids`: its own node's, or where that has none
    /// the one with the least latency.
    pub fn home_of(&self, worker: Rank) -> u32 {
        let node = self.node_of(worker);
        let memory = self.model.memory_nodes();
        let own = memory.iter().position(|i| *i == node);
        let nearest = || {
            let latency = |i: usize| self.model.latency[node][memory[i]];
            (0..memory.len()).min_by(|a, b| latency(*a).total_cmp(&latency(*b)))
        };
        own.or_else(nearest).unwrap_or(0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_workers_on_two_cpus_stay_three() {
        let two_cpus = Topology::uniform(1, 2);
        let target = |recorded| Target::new(Some(4), None, &two_cpus, recorded, "never");
        assert_eq!((target(3).threads, target(3).recorded), (3, None));
        assert_eq!((target(2).threads, target(2).recorded), (4, Some(2)), "one per CPU");
        assert_eq!((target(1).threads, target(5).threads), (4, 5));
        let three_cpus = Topology::uniform(1, 3);
        assert_eq!(Target::new(Some(4), None, &three_cpus, 3, "never").threads, 4, "one per CPU");
        let asked = Target::new(Some(4), Some(8), &two_cpus, 3, "never");
        assert_eq!((asked.threads, asked.recorded), (8, None));
        assert_eq!(Target::new(None, None, &two_cpus, 3, "never").threads, PORTABLE_NODES, "not fixed by the policy");
    }
}
