//! How often threads waited, and for what.
//!
//! The kernel counts for each thread how often it gave its CPU away because it could not go on (voluntary context
//! switches): these waits, and no others, may end on another CPU. A counter of the kernel sees the waits of every
//! runtime library, also those that call futex(2) themselves (libgomp, Rust, Go), and costs the program nothing.
//!
//! What a thread waited for is asked at each look: the waits since the look before count as of the kind in which the
//! thread is found. A thread that runs at that moment tells nothing, and neither does one without new waits. What
//! threads did after they were looked at last is missing until the program has ended: then the kernel tells the sum of
//! all, and the rest is divided by the time that each thread was not looked at and by how often it waited before.

use std::fs::{self, File};
use std::io::Read;

use numamma_kernel::clock::thread_cpu_ns;
use numamma_kernel::lists;
use rustc_hash::FxHashMap;

use super::threads::Threads;
use crate::profile::records::Waits;
use crate::topology::Topology;

/// Least time between two looks.
const BETWEEN_NS: u64 = 20_000_000;
/// A look takes the recorder one in so many parts of the time at most: half a hundredth of a CPU.
const COST_DIVISOR: u64 = 200;

/// System calls that wait for other threads: locks, conditions, barriers and joins are built of them. Those without a
/// name in the library are futex_waitv and futex_wait (arch/x86/entry/syscalls/syscall_64.tbl).
const FOR_THREADS: [i64; 5] = [libc::SYS_futex, 449, 455, libc::SYS_semop, libc::SYS_semtimedop];

/// What the kernel has counted of a thread so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counted {
    waits: u64,
    /// CPU time, and time that it waited for a CPU.
    ran_ns: u64,
    queued_ns: u64,
}

/// What a thread that is looked at does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// It waits for another thread.
    ForThreads,
    /// It waits for a time, a device, a file, a page.
    Otherwise,
    /// It runs, or waits for a CPU.
    Runs,
    /// The kernel does not say.
    Unknown,
}

/// The looks of a recording.
#[derive(Debug, Default)]
pub(super) struct WaitLooks {
    /// What threads had counted before the recording, by thread id.
    before: FxHashMap<u32, Counted>,
    begun_ns: u64,
    next_ns: u64,
    /// The text that was read last.
    status: String,
}

impl WaitLooks {
    /// From `now_ns` on, of processes that are there.
    pub fn begin(pids: impl Iterator<Item = u32>, now_ns: u64) -> WaitLooks {
        let mut looks =
            WaitLooks { before: FxHashMap::default(), begun_ns: now_ns, next_ns: now_ns, status: String::new() };
        for pid in pids {
            for tid in thread_ids(pid) {
                let counted = looks.counted(pid, tid).unwrap_or_default();
                looks.before.insert(tid, counted);
            }
        }
        looks
    }

    /// Waits of all threads before the recording.
    pub fn before(&self) -> u64 {
        self.before.values().map(|counted| counted.waits).sum()
    }

    /// Looks again, unless it did just now.
    pub fn look(&mut self, pids: impl Iterator<Item = u32>, now_ns: u64, threads: &mut Threads, topology: &Topology) {
        if now_ns < self.next_ns {
            return;
        }
        let before = thread_cpu_ns();
        for pid in pids {
            for tid in thread_ids(pid) {
                self.look_at((pid, tid), now_ns.saturating_sub(self.begun_ns), threads, topology);
            }
        }
        let cost = thread_cpu_ns().saturating_sub(before);
        self.next_ns = now_ns + (COST_DIVISOR * cost).max(BETWEEN_NS);
    }

    /// `now_ns` since the start of the recording.
    fn look_at(&mut self, (pid, tid): (u32, u32), now_ns: u64, threads: &mut Threads, topology: &Topology) {
        // Of a thread that is not known yet nothing is lost: its counters begin with it.
        let Some((start_ns, mut waits)) = threads.waits(pid, tid) else { return };
        // First: where the recorder keeps the thread from its CPU, it is soon found waiting for that.
        let doing = doing(pid, tid);
        let Some(counted) = self.counted(pid, tid) else { return };
        let before = self.before.get(&tid).filter(|_| start_ns == 0).copied().unwrap_or_default();
        // A new thread with the number of one whose end was not processed yet has counted less.
        let Some(all) = counted.waits.checked_sub(before.waits).filter(|all| *all >= waits.all) else { return };
        let new = all - waits.all;
        match doing {
            Doing::ForThreads => waits.for_threads += new,
            Doing::Otherwise => waits.otherwise += new,
            Doing::Runs | Doing::Unknown => {}
        }
        waits.all = all;
        waits.seen_ns = now_ns.saturating_sub(start_ns);
        waits.ran_ns = counted.ran_ns.saturating_sub(before.ran_ns);
        let queued_ns = counted.queued_ns.saturating_sub(before.queued_ns);
        waits.blocked_ns = blocked_ns(&waits, queued_ns, doing);
        waits.bound = is_bound(&lists::allowed_cpus(&self.status).unwrap_or_default(), topology);
        threads.set_waits(pid, tid, waits);
    }

    /// What a thread has counted so far. Leaves its `status` behind.
    fn counted(&mut self, pid: u32, tid: u32) -> Option<Counted> {
        read(&mut self.status, pid, tid, "schedstat");
        // Time on a CPU and time runnable without one (Documentation/scheduler/sched-stats.rst).
        let mut numbers = self.status.split_ascii_whitespace().map(|word| word.parse().unwrap_or(0));
        let (ran_ns, queued_ns) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        read(&mut self.status, pid, tid, "status");
        let line = self.status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some(Counted { waits: line.trim().parse().ok()?, ran_ns, queued_ns })
    }
}

/// Time of `waits.seen_ns` in which a thread neither ran nor waited for a CPU; `waits.blocked_ns` is that until the
/// look before. The kernel counts a wait for a CPU when it ends, so that a thread that is found in one, of which a busy
/// machine has many of tens of milliseconds, seems to have been blocked. What is not known of it is left to the next
/// look.
fn blocked_ns(waits: &Waits, queued_ns: u64, doing: Doing) -> u64 {
    let inactive_ns = waits.seen_ns.saturating_sub(waits.ran_ns.saturating_add(queued_ns));
    match doing {
        Doing::Runs => inactive_ns.min(waits.blocked_ns),
        Doing::ForThreads | Doing::Otherwise | Doing::Unknown => inactive_ns,
    }
}

/// The threads that a process has now.
fn thread_ids(pid: u32) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Reads a file of a thread; nothing when it cannot be read.
fn read(text: &mut String, pid: u32, tid: u32, name: &str) {
    text.clear();
    let file = File::open(format!("/proc/{pid}/task/{tid}/{name}"));
    if file.and_then(|mut file| file.read_to_string(text)).is_err() {
        text.clear();
    }
}

/// What a thread does now.
fn doing(pid: u32, tid: u32) -> Doing {
    let mut text = String::new();
    read(&mut text, pid, tid, "syscall");
    match of_system_call(&text) {
        // The file needs the right to trace the thread; the name of the kernel's function needs less.
        Doing::Unknown if text.is_empty() => {
            read(&mut text, pid, tid, "wchan");
            of_function(&text)
        }
        known => known,
    }
}

/// As /proc/PID/syscall says (proc(5)): `running`, or the number of the system call, -1 outside of one.
fn of_system_call(text: &str) -> Doing {
    match text.split_ascii_whitespace().next().map(str::parse::<i64>) {
        Some(Ok(number)) if FOR_THREADS.contains(&number) => Doing::ForThreads,
        Some(Ok(_)) => Doing::Otherwise,
        Some(Err(_)) => Doing::Runs,
        None => Doing::Unknown,
    }
}

/// As /proc/PID/wchan says: the function of the kernel in which it sleeps, 0 when it does not or the kernel keeps it.
fn of_function(text: &str) -> Doing {
    match text.trim() {
        "" | "0" => Doing::Unknown,
        name if name.starts_with("futex") || name.contains("semtimedop") => Doing::ForThreads,
        _ => Doing::Otherwise,
    }
}

/// Whether a thread that may run on these CPUs stays near its memory: all belong to one node of several, or there is
/// one.
fn is_bound(cpus: &[u32], topology: &Topology) -> bool {
    let node = |cpu: &u32| topology.node_of_cpu(*cpu);
    match cpus {
        [] => false,
        [_] => true,
        [first, rest @ ..] => topology.nodes.len() > 1 && rest.iter().all(|cpu| node(cpu) == node(first)),
    }
}

/// Divides the waits that no look has seen. `threads`: the time that each was not looked at, and what was seen. A
/// thread that was not seen at all is taken to have waited as often as the mean of the others.
pub(super) fn divide(rest: u64, threads: &mut [(u64, Waits)]) {
    let rate = |all: u64, ns: u64| if ns > 0 { all as f64 / ns as f64 } else { 0.0 };
    let (all, seen_ns) = threads.iter().fold((0, 0), |(all, ns), (_, waits)| (all + waits.all, ns + waits.seen_ns));
    let mean = rate(all, seen_ns);
    let expected = |(unseen_ns, waits): &(u64, Waits)| {
        let own = if waits.seen_ns > 0 { rate(waits.all, waits.seen_ns) } else { mean };
        *unseen_ns as f64 * own
    };
    let by_time = threads.iter().map(expected).sum::<f64>() <= 0.0;
    let weight = |row: &(u64, Waits)| if by_time { row.0 as f64 } else { expected(row) };
    let whole: f64 = threads.iter().map(weight).sum();
    if whole <= 0.0 {
        return;
    }
    let (mut before, mut given) = (0.0, 0);
    for row in threads {
        before += weight(row);
        // Rounded from the start, so that the parts add up.
        let until = ((rest as f64 * before / whole).round() as u64).max(given);
        row.1.all += until - given;
        given = until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_waits_for_is_read() {
        assert_eq!(of_system_call("202 0x7f 0x80 0x2\n"), Doing::ForThreads);
        assert_eq!(of_system_call("230 0x0 0x0\n"), Doing::Otherwise);
        assert_eq!(of_system_call("-1 0x7ffd 0x7f59\n"), Doing::Otherwise);
        assert_eq!([of_system_call("running\n"), of_system_call("")], [Doing::Runs, Doing::Unknown]);
        assert_eq!(of_function("futex_wait_queue"), Doing::ForThreads);
        assert_eq!(of_function("hrtimer_nanosleep"), Doing::Otherwise);
        assert_eq!([of_function("0"), of_function("")], [Doing::Unknown; 2]);
    }

    #[test]
    fn who_waits_for_a_cpu_is_not_blocked() {
        let waits = Waits { seen_ns: 100, ran_ns: 30, blocked_ns: 5, ..Waits::default() };
        assert_eq!(blocked_ns(&waits, 20, Doing::Runs), 5, "in a wait for a CPU of 45 so far");
        assert_eq!(blocked_ns(&waits, 68, Doing::Runs), 2, "it was in one at the look before");
        for doing in [Doing::ForThreads, Doing::Otherwise, Doing::Unknown] {
            assert_eq!(blocked_ns(&waits, 20, doing), 50, "{doing:?}");
        }
    }

    #[test]
    fn bound_is_on_one_node() {
        let two = Topology::uniform(2, 4);
        assert!(is_bound(&[0], &two) && is_bound(&two.nodes[1].cpus, &two));
        assert!(!is_bound(&[0, two.nodes[1].cpus[0]], &two));
        // Where there is one node, threads lose their caches.
        assert!(!is_bound(&[0, 1], &Topology::uniform(1, 4)) && is_bound(&[1], &Topology::uniform(1, 4)));
        assert!(!is_bound(&[], &two));
    }

    #[test]
    fn the_rest_goes_to_those_that_were_not_seen() {
        let of = |all, seen_ns| Waits { all, seen_ns, ..Waits::default() };
        let divided = |rest, mut rows: Vec<(u64, Waits)>| {
            divide(rest, &mut rows);
            rows.iter().map(|(_, waits)| waits.all).collect::<Vec<_>>()
        };
        // Main waits for the end of the others, of which one was seen to the end and one was not seen.
        let rows = vec![(10, of(0, 90)), (10, of(80, 80)), (0, of(100, 90)), (10, of(0, 0))];
        assert_eq!(divided(170, rows), [0, 80 + 100, 100, 70]);
        assert_eq!(divided(10, vec![(30, of(0, 0)), (70, of(0, 0))]), [3, 7], "nothing but times");
        assert_eq!(divided(3, vec![(0, of(1, 1))]), [1], "nothing was unseen");
        assert!(divided(3, Vec::new()).is_empty());
    }

    /// A thread of this process in a lock, and one in a pipe.
    #[test]
    fn a_thread_in_a_lock_is_told_from_one_that_reads() {
        use std::sync::{Arc, Barrier};
        let (end, barrier) = (std::os::unix::net::UnixStream::pair().unwrap(), Arc::new(Barrier::new(2)));
        let (sender, tids) = std::sync::mpsc::channel();
        // SAFETY: gettid has no preconditions.
        let tell = move |sender: std::sync::mpsc::Sender<i32>| sender.send(unsafe { libc::gettid() }).unwrap();
        let (inside, to_lock) = (barrier.clone(), sender.clone());
        let lock = std::thread::spawn(move || {
            tell(to_lock);
            inside.wait();
        });
        let locked = tids.recv().unwrap() as u32;
        let (mut near, far) = end;
        let pipe = std::thread::spawn(move || {
            tell(sender);
            near.read_to_end(&mut Vec::new()).unwrap();
        });
        let reading = tids.recv().unwrap() as u32;
        let pid = std::process::id();
        let until = |tid| loop {
            match doing(pid, tid) {
                Doing::Runs | Doing::Unknown => std::thread::yield_now(),
                known => break known,
            }
        };
        // A page that is not in memory is waited for, too.
        while until(locked) != Doing::ForThreads {}
        assert_eq!(until(reading), Doing::Otherwise);
        barrier.wait();
        drop(far);
        lock.join().unwrap();
        pipe.join().unwrap();
    }
}
