//! Teams of worker threads: which threads a policy takes for workers, and the part of the work that each has.
//!
//! A thread gets the lowest free slot among the living threads of its team ([`crate::slots`]); its index among the
//! slots that work, after the creator if that works, too, is its rank. The workers of a team that is created inside
//! another one divide the part of the worker that creates them. The detector numbers the threads of a profile by the
//! same rule, and the cost model spreads them over the nodes by [`bound_node_of`].

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::policy::{Bind, Threads};
use crate::ranks::Ranks;
use crate::threads::thread_node_of;

/// Most teams of a policy.
pub const MOST_TEAMS: usize = 64;
/// Most workers of nested teams together, twice as many as the largest machines have CPUs (32,768); more are not told
/// apart.
pub const MOST_WORKERS: u32 = 1 << 16;

/// Position of a worker: it has part `rank` of `of` equal parts of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rank {
    /// 0 .. `of`.
    pub rank: u32,
    /// Workers of the team; of nested teams the product.
    pub of: u32,
}

impl Rank {
    /// All of the work.
    pub const ALONE: Rank = Rank { rank: 0, of: 1 };

    /// The part `index` of `parts` of this one. Indices from `parts` on repeat the parts.
    pub fn part(self, index: u32, parts: u32) -> Rank {
        let parts = parts.max(1);
        match self.of.checked_mul(parts).filter(|of| *of <= MOST_WORKERS) {
            Some(of) => Rank { rank: self.rank * parts + index % parts, of },
            None => self,
        }
    }

    /// The position among `of` workers: that of the first of them that takes over from this one.
    pub fn among(self, of: u32) -> u32 {
        (u64::from(self.rank) * u64::from(of) / u64::from(self.of.max(1))) as u32
    }
}

/// Threads between which the work is divided. With at least one team in the policy only threads of teams are bound;
/// without, all threads are, in the order of their creation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Team {
    /// The threads of an OpenMP runtime, by whatever region they are created. Then `start` and `function` are not
    /// needed.
    pub openmp: Option<bool>,
    /// Start routines of the threads, `module+0xvaddr`.
    pub start: Option<Vec<String>>,
    /// Linkage names of these functions, for another build of the program.
    pub function: Option<Vec<String>>,
    /// Places in the program that create the threads, return addresses `module+0xvaddr`: where the start routine is a
    /// language's own (std::thread). Used only if the build is the same.
    pub site: Option<Vec<String>>,
    /// Number (from 1) of the team before this one whose workers create these threads; main, or a thread of no team,
    /// when absent.
    pub inside: Option<u32>,
    /// Whether the thread that creates the team is its worker 0. False when absent: that thread waits, and is not
    /// bound.
    pub creator: Option<bool>,
    /// Workers of the team, the creator included if it works; as many as the machine has CPUs when absent.
    pub workers: Option<u32>,
    /// Slots whose threads work, such as `"9-11"`; all when absent.
    pub slots: Option<String>,
}

impl Team {
    /// Whether the creator works.
    pub fn creator_works(&self) -> bool {
        self.creator == Some(true)
    }

    /// Workers of the team on a machine.
    pub fn workers_on(&self, machine: &Machine) -> u32 {
        self.workers.unwrap_or(machine.online.len() as u32).clamp(1, MOST_WORKERS)
    }

    /// Index of the worker in `slot`; none for a slot that does not work.
    pub fn index_of(&self, slot: u32) -> Option<u32> {
        let index = match self.slots.as_deref().map(Ranks::parse) {
            None | Some(Err(_)) => slot,
            Some(Ok(slots)) if slots.holds(slot) => (0..slot).filter(|s| slots.holds(*s)).count() as u32,
            Some(Ok(_)) => return None,
        };
        Some(index + u32::from(self.creator_works()))
    }
}

/// Number of the node that a worker is bound to; `None` when the policy binds no threads, or binds them by CPU lists.
pub fn bound_node_of(threads: &Threads, rank: Rank, machine: &Machine) -> Option<u32> {
    let nodes = &machine.cpu_nodes;
    let index = match threads.bind {
        Bind::None | Bind::Explicit(_) => return None,
        Bind::Scatter => rank.rank as usize % nodes.len().max(1),
        Bind::Compact => thread_node_of(rank.rank, rank.of, nodes.iter().map(|n| n.cpus.len())),
    };
    nodes.get(index).map(|n| n.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_follow_the_creator_if_it_works() {
        let indices = |team: &Team| (0..4).map(|slot| team.index_of(slot)).collect::<Vec<_>>();
        assert_eq!(indices(&Team::default()), [Some(0), Some(1), Some(2), Some(3)]);
        let master = Team { creator: Some(true), ..Team::default() };
        assert_eq!(indices(&master), [Some(1), Some(2), Some(3), Some(4)]);
        let some = Team { slots: Some("1,3".into()), ..master };
        assert_eq!(indices(&some), [None, Some(1), None, Some(2)]);
    }

    #[test]
    fn nested_teams_divide_the_part_of_their_creator() {
        let outer = Rank::ALONE.part(1, 2);
        assert_eq!((outer.part(0, 3), outer.part(2, 3)), (Rank { rank: 3, of: 6 }, Rank { rank: 5, of: 6 }));
        assert_eq!(outer.part(4, 3), outer.part(1, 3), "more threads than workers share");
        assert_eq!(outer.part(0, u32::MAX), outer);
        assert_eq!(Rank { rank: 3, of: 6 }.among(4), 2);
        assert_eq!(Rank { rank: 1, of: 2 }.among(48), 24);
    }
}
