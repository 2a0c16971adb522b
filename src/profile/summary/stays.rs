//! Which CPU each thread ran on over time, from the accesses of a profile. Accesses that were summed up in the file
//! have no CPU, so of a long run only the last part is known.

use crate::profile::records::{Access, ThreadId};

/// Most stays that are kept, 16 MiB: as many changes of the CPU are drawn by nothing.
const MOST: usize = 1 << 20;

/// Threads from here on are drawn by nothing, either.
const MOST_THREADS: usize = 1 << 16;

/// The CPU of a thread without an access so far.
const NO_CPU: u32 = u32::MAX;

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
    /// Of the last access, by thread.
    cpus: Vec<u32>,
}

impl Stays {
    /// Takes note of an access.
    #[inline]
    pub(super) fn add(&mut self, a: &Access) {
        let cpu = u32::from(a.cpu);
        if self.cpus.get(a.thread as usize) != Some(&cpu) {
            self.change(a, cpu);
        }
    }

    #[cold]
    fn change(&mut self, a: &Access, cpu: u32) {
        let thread = a.thread as usize;
        if thread >= MOST_THREADS || self.list.len() >= MOST {
            return;
        }
        if self.cpus.len() <= thread {
            self.cpus.resize(thread + 1, NO_CPU);
        }
        self.cpus[thread] = cpu;
        self.list.push(Stay { thread: a.thread, from_ns: a.time_ns, cpu: a.cpu });
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
    fn any_thread_id_is_taken() {
        let mut stays = Stays::default();
        for thread in [u32::MAX, 0, 70_000, 3] {
            stays.add(&access(0, thread, 5, 0x1000));
        }
        assert_eq!(stays.finish().iter().map(|s| s.thread).collect::<Vec<_>>(), [0, 3]);
    }

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
