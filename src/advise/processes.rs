//! Shared memory of several processes.
//!
//! A policy binds the threads of each process to all nodes of that process, its first worker to the first of them: it
//! cannot say which process runs on which node. Which part of the memory is near its user is therefore left to
//! chance, whatever part is placed where, and what can be had is that no node gets all accesses.

use std::collections::HashMap;

use super::binding::ONE_PROCESS;
use crate::detect::{Pattern, PatternKind};
use crate::profile::records::{ObjectKind, Thread, ThreadId};
use crate::profile::summary::Entry;

/// Share of the accesses of the process that has most, below which another one does not count: it starts the others.
const LITTLE: f64 = 0.01;

/// How many processes use one instance of an entry, where no process has nearly all accesses to it; 1 elsewhere, also
/// where each process has an instance of its own.
pub(super) fn sharing(threads: &[Thread], entry: &Entry) -> usize {
    if entry.kind != ObjectKind::Mapping {
        return 1;
    }
    let pid = |thread: ThreadId| threads.get(thread as usize).map_or(0, |t| t.pid);
    let mut uses: HashMap<(u32, u32), u64> = HashMap::new();
    for cell in &entry.cells {
        *uses.entry((cell.instance, pid(cell.thread))).or_default() += cell.counters.accesses();
    }
    let mut of_instance: HashMap<u32, Vec<u64>> = HashMap::new();
    for ((instance, _), accesses) in uses {
        of_instance.entry(instance).or_default().push(accesses);
    }
    let processes = |accesses: Vec<u64>| {
        let (all, most) = (accesses.iter().sum::<u64>() as f64, accesses.iter().copied().max().unwrap_or(0) as f64);
        let users = accesses.iter().filter(|n| **n as f64 >= LITTLE * most).count();
        if most < ONE_PROCESS * all { users } else { 1 }
    };
    of_instance.into_values().map(processes).max().unwrap_or(1)
}

/// Why memory that so many processes share is not placed by the part that each of them has; none where they have none.
pub(super) fn no_blocks(processes: usize, pattern: &Pattern) -> Option<String> {
    let is_divided = matches!(pattern.kind, PatternKind::Block | PatternKind::BlockCyclic);
    (processes > 1 && is_divided).then(|| {
        format!(
            "{processes} processes share it, and a policy does not say which process runs on which node, so that blocks \
             would not stay with their process"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::summary::{Cell, Counters};

    #[test]
    fn memory_of_each_process_is_not_shared() {
        let threads: Vec<_> = (0..4).map(|id| Thread { id, pid: 10 + id / 2, ..Thread::default() }).collect();
        let of = |uses: &[(u32, ThreadId, u64)]| {
            let cell = |&(instance, thread, reads)| {
                let counters = Counters { reads, ..Counters::default() };
                Cell { instance, page: 0, thread, slot: 0, counters }
            };
            let cells = uses.iter().map(cell).collect();
            sharing(&threads, &Entry { kind: ObjectKind::Mapping, cells, ..Entry::default() })
        };
        assert_eq!(of(&[]), 1);
        assert_eq!(of(&[(0, 0, 50), (0, 1, 50)]), 1, "threads of one process");
        assert_eq!(of(&[(0, 0, 50), (1, 2, 50)]), 1, "an instance each");
        assert_eq!(of(&[(0, 0, 50), (0, 2, 50)]), 2);
        assert_eq!(of(&[(0, 0, 500), (0, 2, 500), (0, 9, 4)]), 2, "one that does next to nothing");
        assert_eq!(of(&[(0, 0, 95), (0, 2, 5)]), 1, "one process has nearly all");
    }
}
