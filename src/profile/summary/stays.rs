//! Which CPU each thread ran on over time, from the accesses of a profile. Accesses that were summed up in the file have
//! no CPU, so of a long run only the last part is known.

use rustc_hash::FxHashMap;

use crate::profile::records::{Access, ThreadId};

/// Most stays that are kept, 16 MiB: as many changes of the CPU are drawn by nothing.
const MOST: usize = 1 << 20;

/// From a time on a thread ran on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stay {
    /// Thread.
    pub thread: ThreadId,
    /// The first access that was seen there, ns since the start of the run.
    pub from_ns: u64,
    /// CPU.
    pub cpu: u16,
}

/// Collects them.
#[derive(Debug, Default)]
pub(super) struct Stays {
    list: Vec<Stay>,
    cpus: FxHashMap<ThreadId, u16>,
    /// Of the access before: most are of the same thread.
    last: Option<(ThreadId, u16)>,
}

impl Stays {
    /// Takes note of an access.
    #[inline]
    pub(super) fn add(&mut self, a: &Access) {
        if self.last != Some((a.thread, a.cpu)) {
            self.last = Some((a.thread, a.cpu));
            if self.list.len() < MOST && self.cpus.insert(a.thread, a.cpu) != Some(a.cpu) {
                self.list.push(Stay { thread: a.thread, from_ns: a.time_ns, cpu: a.cpu });
            }
        }
    }

    /// All of them by thread and time.
    pub(super) fn finish(mut self) -> Vec<Stay> {
        self.list.sort_unstable();
        self.list.dedup_by(|next, kept| (next.thread, next.cpu) == (kept.thread, kept.cpu));
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::access;
    use super::*;

    #[test]
    fn a_stay_lasts_until_the_cpu_changes() {
        let mut stays = Stays::default();
        for (thread, time_ns, cpu) in [(0, 5, 1), (1, 6, 2), (0, 7, 1), (0, 9, 3), (0, 8, 1), (1, 10, 2)] {
            stays.add(&Access { time_ns, cpu, ..access(0, thread, time_ns, 0x1000) });
        }
        let wanted = [(0, 5, 1), (0, 9, 3), (1, 6, 2)];
        assert_eq!(stays.finish(), wanted.map(|(thread, from_ns, cpu)| Stay { thread, from_ns, cpu }));
    }
}
