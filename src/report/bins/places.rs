//! Where the threads ran over time: their nodes, or on a machine with one node their CPUs.

use rustc_hash::FxHashMap;

use super::Gantt;
use crate::profile::summary::TIME_SLOTS;
use crate::report::View;

/// Nodes or CPUs by group of threads and time slot.
#[derive(Debug)]
pub struct Places {
    /// Whether they are nodes, not CPUs.
    pub are_nodes: bool,
    /// By group and slot: the place of most of its threads at the end of the slot plus one; 0 where none was seen yet.
    pub at: Vec<u32>,
    /// By group and slot: changes of the CPU.
    pub changes: Vec<u32>,
}

impl Places {
    /// The places in the groups of a Gantt; none when the profile holds no CPUs over time.
    pub fn of(view: &View, gantt: &Gantt) -> Option<Places> {
        let stays = &view.summary.stays;
        if stays.is_empty() {
            return None;
        }
        let nodes = &view.summary.header.topology.nodes;
        let mut node_of: FxHashMap<u32, u32> = FxHashMap::default();
        for node in nodes {
            node_of.extend(node.cpus.iter().map(|cpu| (*cpu, node.id)));
        }
        let are_nodes = nodes.len() > 1;
        let place = |cpu: u16| if are_nodes { node_of.get(&u32::from(cpu)).copied() } else { Some(u32::from(cpu)) };
        let slots = usize::from(TIME_SLOTS);
        let slot_of = |ns: u64| {
            let whole = view.summary.duration_ns().max(1);
            ((u128::from(ns) * slots as u128 / u128::from(whole)) as usize).min(slots - 1)
        };
        let mut changes = vec![0; gantt.groups * slots];
        let mut votes: Vec<FxHashMap<u32, u32>> = vec![FxHashMap::default(); gantt.groups * slots];
        for own in stays.chunk_by(|a, b| a.thread == b.thread) {
            let row = gantt.group(own[0].thread) * slots;
            own.iter().skip(1).for_each(|stay| changes[row + slot_of(stay.from_ns)] += 1);
            let thread = view.summary.threads.get(own[0].thread as usize);
            let end = thread.and_then(|t| t.end_ns).map_or(slots - 1, slot_of);
            for (i, stay) in own.iter().enumerate() {
                let until = own.get(i + 1).map_or(end + 1, |next| slot_of(next.from_ns));
                let Some(place) = place(stay.cpu) else { continue };
                for votes in &mut votes[row + slot_of(stay.from_ns).min(until)..row + until] {
                    *votes.entry(place).or_default() += 1;
                }
            }
        }
        let most = |votes: &FxHashMap<u32, u32>| {
            votes.iter().max_by_key(|(p, n)| (**n, u32::MAX - **p)).map_or(0, |v| v.0 + 1)
        };
        Some(Places { are_nodes, at: votes.iter().map(most).collect(), changes })
    }
}
