//! Time in which no thread of the recorded processes ran or waited for a CPU: they slept, or waited for devices, files
//! or each other. That a thread waits for a CPU says nothing of the program, but that the machine was busy.
//!
//! Each look compares the time since the look before with what the threads ran and waited for a CPU in it. What is left
//! when they did so one after the other was idle at least, and what is left when they did all at once at most. Between
//! the two the looks decide at which no thread was running or waiting. The kernel counts the wait of a thread when it
//! ends, so a thread may have waited for longer than the time since the last look: then the time before that was not
//! idle either.

use std::fs;
use std::time::Duration;

use numamma_kernel::clock::{monotonic_ns, process_cpu_ns, thread_cpu_ns};
use rustc_hash::FxHashMap;

use crate::profile::records::Idle;

/// Least time between two looks: a round of the recorder without events.
const BETWEEN: Duration = Duration::from_millis(20);
/// A look takes the recorder one in so many parts of the time at most: half a hundredth of a CPU.
const COST_DIVISOR: u64 = 200;
/// A look that took a longer part of the time since the last, as the recorder itself waited for a CPU, tells less
/// than the next one will.
const LONGEST_DIVISOR: u64 = 100;
/// Stretches of time that are kept; twice as long ones when there are more.
const MOST_STRETCHES: usize = 1 << 12;

/// What a thread, or a process, has run and waited for a CPU so far, nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    ran: u64,
    waited: u64,
}

/// What was seen since the last look.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// All threads together ran and waited.
    active: u64,
    /// The part that they waited.
    waited: u64,
    /// Most that one of them ran and waited.
    longest: u64,
    /// Whether one runs or waits now.
    runs: bool,
}

/// The idle time of a recording.
#[derive(Debug)]
pub(super) struct IdleTime {
    /// None where the kernel does not count how long threads wait for a CPU.
    known: Option<Stretches>,
    /// Threads and processes as of the last look: the main thread of a process has the same number.
    threads: FxHashMap<u32, Used>,
    processes: FxHashMap<u32, u64>,
    waited_ns: u64,
    looked_ns: u64,
    next_ns: u64,
}

impl IdleTime {
    /// From `now_ns` on, of processes that are there.
    pub fn begin(pids: impl Iterator<Item = u32>, now_ns: u64) -> IdleTime {
        let counts = used_of(&format!("/proc/self/task/{}/schedstat", std::process::id())).is_some_and(|u| u.ran > 0);
        let mut idle = IdleTime {
            known: counts.then(|| Stretches::new(now_ns)),
            threads: FxHashMap::default(),
            processes: FxHashMap::default(),
            waited_ns: 0,
            looked_ns: now_ns,
            next_ns: now_ns,
        };
        if counts {
            idle.see(pids);
        }
        idle
    }

    /// Looks again, unless it did just now.
    pub fn look(&mut self, pids: impl Iterator<Item = u32>, now_ns: u64) {
        if self.known.is_none() || now_ns < self.next_ns {
            return;
        }
        let (threads, processes) = (self.threads.clone(), self.processes.clone());
        let before = thread_cpu_ns();
        let seen = self.see(pids);
        let cost = thread_cpu_ns().saturating_sub(before);
        self.next_ns = now_ns + (COST_DIVISOR * cost).max(BETWEEN.as_nanos() as u64);
        let since = now_ns.saturating_sub(self.looked_ns);
        if monotonic_ns().saturating_sub(now_ns) > since / LONGEST_DIVISOR {
            (self.threads, self.processes) = (threads, processes);
            return;
        }
        self.waited_ns += seen.waited;
        self.looked_ns = now_ns;
        self.known.iter_mut().for_each(|known| known.add(now_ns, seen));
    }

    /// What the threads ran and waited since they were seen last.
    fn see(&mut self, pids: impl Iterator<Item = u32>) -> Seen {
        let (mut seen, mut threads, mut processes) = (Seen::default(), FxHashMap::default(), FxHashMap::default());
        for pid in pids {
            // With the threads that have ended.
            let Some(ran) = process_cpu_ns(pid) else { continue };
            seen.active += since(ran, self.processes.get(&pid).copied());
            processes.insert(pid, ran);
            for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                let name = thread.file_name();
                let Some(tid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
                let Some(now) = used_of(&format!("/proc/{pid}/task/{tid}/schedstat")) else { continue };
                seen.runs |= !seen.runs && runs(&format!("/proc/{pid}/task/{tid}/stat"));
                let before = self.threads.get(&tid);
                let waited = since(now.waited, before.map(|b| b.waited));
                seen.waited += waited;
                seen.longest = seen.longest.max(waited + since(now.ran, before.map(|b| b.ran)));
                threads.insert(tid, now);
            }
        }
        (self.threads, self.processes) = (threads, processes);
        seen.active += seen.waited;
        seen
    }

    /// The counters so far; none where they are not known.
    pub fn counted(&self) -> Option<Idle> {
        let idle_ns = self.known.as_ref()?.between(0, u64::MAX);
        Some(Idle { idle_ns, waited_ns: self.waited_ns })
    }

    /// The counters of a program that ran from `low_ns` to `high_ns` and had a part of the CPU time.
    pub fn counted_between(&self, low_ns: u64, high_ns: u64, share: f64) -> Option<Idle> {
        let idle_ns = self.known.as_ref()?.between(low_ns, high_ns);
        Some(Idle { idle_ns, waited_ns: (self.waited_ns as f64 * share) as u64 })
    }
}

/// What was counted since `before`; all of it for something new, and for another one that has the same number now.
fn since(now: u64, before: Option<u64>) -> u64 {
    before.and_then(|before| now.checked_sub(before)).unwrap_or(now)
}

/// Reads a file `schedstat`: time on a CPU, time runnable without one, and a count
/// (Documentation/scheduler/sched-stats.rst).
fn used_of(path: &str) -> Option<Used> {
    let text = fs::read_to_string(path).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().ok());
    Some(Used { ran: numbers.next()??, waited: numbers.next()?? })
}

/// Reads the state in a file `stat`, behind the name in parentheses: R of a thread that runs or waits for a CPU
/// (proc(5)).
fn runs(path: &str) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('R'))
}

/// Idle time by stretches of the recording.
#[derive(Debug)]
struct Stretches {
    begin_ns: u64,
    list: Vec<Stretch>,
}

/// A stretch of the recording and its idle time.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    end_ns: u64,
    /// The least and the most that it can be.
    least: u64,
    most: u64,
    /// As the looks say.
    seen: u64,
}

impl Stretches {
    fn new(begin_ns: u64) -> Stretches {
        Stretches { begin_ns, list: Vec::new() }
    }

    /// The time until `now_ns`, in which `seen` was seen.
    fn add(&mut self, now_ns: u64, seen: Seen) {
        let low = self.list.last().map_or(self.begin_ns, |last| last.end_ns);
        let length = now_ns.saturating_sub(low);
        self.take_back(seen.longest.saturating_sub(length));
        self.list.push(Stretch {
            end_ns: now_ns,
            least: length.saturating_sub(seen.active),
            most: length.saturating_sub(seen.longest),
            seen: if seen.runs { 0 } else { length },
        });
        if self.list.len() > MOST_STRETCHES {
            let joined = self.list.chunks(2).map(|two| {
                let sum = |of: fn(&Stretch) -> u64| two.iter().map(of).sum();
                let end_ns = two[two.len() - 1].end_ns;
                Stretch { end_ns, least: sum(|s| s.least), most: sum(|s| s.most), seen: sum(|s| s.seen) }
            });
            self.list = joined.collect();
        }
    }

    /// The last `late_ns` were not idle.
    fn take_back(&mut self, mut late_ns: u64) {
        for i in (0..self.list.len()).rev() {
            if late_ns == 0 {
                return;
            }
            let length = self.list[i].end_ns - self.low(i);
            let covered = late_ns.min(length);
            let stretch = &mut self.list[i];
            stretch.least = stretch.least.min(length - covered);
            stretch.most = stretch.most.min(length - covered);
            late_ns -= covered;
        }
    }

    fn low(&self, i: usize) -> u64 {
        i.checked_sub(1).map_or(self.begin_ns, |before| self.list[before].end_ns)
    }

    /// Idle time between two times; of a stretch that is partly inside, in proportion.
    fn between(&self, low_ns: u64, high_ns: u64) -> u64 {
        let (mut least, mut most, mut seen) = (0.0, 0.0, 0.0);
        for (i, stretch) in self.list.iter().enumerate() {
            let low = self.low(i);
            let inside = stretch.end_ns.min(high_ns).saturating_sub(low.max(low_ns));
            let part = inside as f64 / (stretch.end_ns - low).max(1) as f64;
            least += part * stretch.least as f64;
            most += part * stretch.most as f64;
            seen += part * stretch.seen as f64;
        }
        f64::max(least, f64::min(seen, most)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn seen(active: u64, longest: u64) -> Seen {
        Seen { active: active * MS, waited: 0, longest: longest * MS, runs: false }
    }

    #[test]
    fn what_no_thread_ran_or_waited_is_idle() {
        let mut all = Stretches::new(100 * MS);
        all.add(120 * MS, seen(5, 5));
        // Four threads at a time are no more than one.
        all.add(140 * MS, seen(80, 20));
        all.add(160 * MS, seen(0, 0));
        assert_eq!(all.between(0, u64::MAX), 35 * MS);
        assert_eq!(all.between(110 * MS, 150 * MS), 7 * MS + MS / 2 + 10 * MS);
    }

    /// Whether four threads run 5 ms side by side or one after the other in each 20 ms, the looks tell.
    #[test]
    fn looks_tell_threads_at_a_time_from_threads_in_turn() {
        let found = |of_four: u64| {
            let mut all = Stretches::new(0);
            (1..=100).for_each(|i| all.add(i * 20 * MS, Seen { runs: i % 4 < of_four, ..seen(20, 5) }));
            all.between(0, u64::MAX) / MS
        };
        assert_eq!([found(1), found(2), found(4), found(0)], [1_500, 1_000, 0, 1_500]);
    }

    /// The kernel counts a wait when it ends.
    #[test]
    fn a_wait_that_is_counted_late_was_not_idle() {
        let mut all = Stretches::new(0);
        for end in [20, 40, 60] {
            all.add(end * MS, seen(0, 0));
        }
        all.add(80 * MS, seen(50, 50));
        // 10 of 20 to 40 and the first 20.
        assert_eq!(all.between(0, u64::MAX), 30 * MS);
        assert_eq!(all.between(40 * MS, u64::MAX), 0);
    }

    #[test]
    fn a_long_recording_has_longer_stretches() {
        let mut all = Stretches::new(0);
        let count = 3 * MOST_STRETCHES as u64;
        (1..=count).for_each(|i| all.add(i * MS, seen(0, 0)));
        assert!(all.list.len() <= MOST_STRETCHES);
        assert_eq!(all.between(0, u64::MAX), count * MS);
    }

    /// A process that sleeps is idle, and one that computes is not, however busy the machine is.
    #[test]
    fn sleeping_is_told_from_computing() {
        let idle_part = |script: &str| {
            let mut child = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
            let pids = || std::iter::once(child.id());
            let begun = monotonic_ns();
            let mut idle = IdleTime::begin(pids(), begun);
            while monotonic_ns() < begun + 400 * MS {
                std::thread::sleep(Duration::from_millis(5));
                idle.look(pids(), monotonic_ns());
            }
            let found = idle.counted().map(|counted| counted.idle_ns as f64 / (idle.looked_ns - begun) as f64);
            child.kill().unwrap();
            child.wait().unwrap();
            found
        };
        // A kernel without the counters.
        let (Some(asleep), Some(awake)) = (idle_part("sleep 5"), idle_part("while :; do :; done")) else { return };
        assert!(asleep > 0.8 && awake < 0.2, "{asleep} {awake}");
    }
}
