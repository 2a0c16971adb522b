//! Which process runs which program, and where the samples fell: what tells the program that a wrapper was typed for.

use rustc_hash::FxHashMap;

use crate::profile::records::{Program, Stats};

/// Share of the samples of a program's busiest process below which another process of the same program counts as its
/// launcher: a hundredth, below which an object is cold in the report.
/// The same share of the first touches of shared memory: a process that fills it for the others is one of them.
const LITTLE: f64 = 0.01;
/// Share of all samples from which on a program is busy. What a shell, a launcher or an interpreter needs to start
/// another program is less, but for runs of a second.
const BUSY: f64 = 0.05;

/// What tells a process from all others: its id, and the time in which the id was its own, nanoseconds since the
/// start of the recording. The kernel gives the id of a process that ended to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId {
    /// The kernel's id.
    pub pid: u32,
    /// When it began; 0 where it was there before.
    pub from_ns: u64,
    /// When another one with its id began.
    pub until_ns: u64,
}

impl ProcessId {
    /// Whether this is the process that began as `pid`, or began a thread, at a time.
    pub fn began(&self, pid: u32, time_ns: u64) -> bool {
        self.pid == pid && (self.from_ns..self.until_ns).contains(&time_ns)
    }

    /// Whether something of the process `pid` that was there from `born_ns` on may be of this one.
    pub fn may_have(&self, pid: u32, born_ns: u64, died_ns: Option<u64>) -> bool {
        self.pid == pid && born_ns < self.until_ns && died_ns.is_none_or(|died| died > self.from_ns)
    }
}

/// A recorded process.
#[derive(Debug, Clone, Default)]
struct Process {
    from_ns: u64,
    /// What it executed last; a forked child has that of its parent.
    program: Program,
    /// Counters of its samples and events.
    counted: Stats,
    /// Pages of shared memory of the program that it touched first.
    filled: u64,
}

/// All processes of a recording.
#[derive(Debug, Default)]
pub struct Processes {
    /// The last one of each id.
    of: FxHashMap<u32, Process>,
    /// Those with samples whose id another one has now.
    former: Vec<(ProcessId, Process)>,
    /// How often an id was used again.
    again: usize,
    /// Processes that began since the last call of [`Processes::take_new`].
    new: Vec<u32>,
}

/// A program with the processes that ran it.
#[derive(Debug, Clone, PartialEq)]
pub struct Busy {
    /// What ran.
    pub program: Program,
    /// Those of its processes that did not only start the others, ascending.
    pub processes: Vec<ProcessId>,
    /// Counters of these processes.
    pub counted: Stats,
    /// Their share of all samples, or without samples of all page faults, 0 to 1.
    pub share: f64,
}

impl Processes {
    /// A process forks.
    pub fn fork(&mut self, parent: u32, pid: u32, time_ns: u64) {
        let program = self.of.get(&parent).map(|p| p.program.clone()).unwrap_or_default();
        let new = Process { from_ns: time_ns, program, ..Process::default() };
        if let Some(before) = self.of.insert(pid, new) {
            self.again += 1;
            if before.counted.samples > 0 {
                self.former.push((ProcessId { pid, from_ns: before.from_ns, until_ns: time_ns }, before));
            }
        }
        self.new.push(pid);
    }

    /// A process executes a program; none when that ended before it could be asked for.
    pub fn exec(&mut self, pid: u32, program: Option<Program>) {
        self.of.entry(pid).or_default().program = program.unwrap_or_default();
    }

    /// A process maps code from a file: the first after an exec is that of the program.
    pub fn maps_code(&mut self, pid: u32, path: &str) {
        if let Some(process) = self.of.get_mut(&pid).filter(|p| p.program.path.is_empty()) {
            process.program = Program { path: path.to_owned(), argv: vec![path.to_owned()], build_id: None };
        }
    }

    /// Counters to add to for events of a process.
    pub fn counters(&mut self, pid: u32) -> &mut Stats {
        &mut self.of.entry(pid).or_default().counted
    }

    /// A process touches pages of shared memory first.
    pub fn fills(&mut self, pid: u32, pages: u64) {
        self.of.entry(pid).or_default().filled += pages;
    }

    /// Processes that began since the last call.
    pub fn take_new(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.new)
    }

    /// The programs of all processes, in no order.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.of.values().map(|process| &process.program)
    }

    /// All processes.
    pub fn count(&self) -> usize {
        self.of.len() + self.again
    }

    fn all(&self) -> impl Iterator<Item = (ProcessId, &Process)> {
        let last = self.of.iter().map(|(&pid, p)| (ProcessId { pid, from_ns: p.from_ns, until_ns: u64::MAX }, p));
        last.chain(self.former.iter().map(|(id, p)| (*id, p)))
    }

    /// The programs that had the time, the one with most first; `wanted` first where a program has that name or path.
    pub fn busy(&self, wanted: Option<&str>) -> Vec<Busy> {
        let samples: u64 = self.all().map(|(_, p)| p.counted.samples).sum();
        let weight = |counted: &Stats| if samples > 0 { counted.samples } else { counted.faults };
        let all: u64 = self.all().map(|(_, p)| weight(&p.counted)).sum();
        let mut by_path: FxHashMap<&str, Vec<(ProcessId, &Process)>> = FxHashMap::default();
        for (id, process) in self.all() {
            by_path.entry(&process.program.path).or_default().push((id, process));
        }
        let mut programs: Vec<Busy> = by_path.into_values().map(|list| busiest(list, weight, all)).collect();
        let is_wanted = |busy: &Busy| wanted.is_some_and(|name| is_named(&busy.program, name));
        programs.retain(|busy| busy.share >= BUSY || is_wanted(busy));
        programs.sort_by(|a, b| {
            let key = |busy: &Busy| (is_wanted(busy), weight(&busy.counted));
            key(b).cmp(&key(a)).then_with(|| a.processes.cmp(&b.processes))
        });
        programs
    }
}

/// A program of the processes `list`, of which `weight` says which had the time; `all`: the weight of all programs.
fn busiest(mut list: Vec<(ProcessId, &Process)>, weight: impl Fn(&Stats) -> u64, all: u64) -> Busy {
    let most = list.iter().map(|(_, p)| weight(&p.counted)).max().unwrap_or(0);
    let filled: u64 = list.iter().map(|(_, p)| p.filled).sum();
    let fills = |p: &Process| p.filled > 0 && p.filled as f64 >= LITTLE * filled as f64;
    list.retain(|(_, p)| weight(&p.counted) as f64 >= LITTLE * most as f64 || fills(p));
    list.sort_by_key(|(id, p)| (std::cmp::Reverse(weight(&p.counted)), *id));
    let program = list.first().map(|(_, p)| p.program.clone()).unwrap_or_default();
    let counted = list.iter().fold(Stats::default(), |sum, (_, p)| sum_of(sum, &p.counted));
    let mut processes: Vec<ProcessId> = list.iter().map(|(id, _)| *id).collect();
    processes.sort_unstable();
    Busy { program, processes, share: weight(&counted) as f64 / all.max(1) as f64, counted }
}

/// The counters that are kept by process.
fn sum_of(a: Stats, b: &Stats) -> Stats {
    Stats {
        samples: a.samples + b.samples,
        resolved: a.resolved + b.resolved,
        no_access: a.no_access + b.no_access,
        unresolved: a.unresolved + b.unresolved,
        vsib: a.vsib + b.vsib,
        undecoded: a.undecoded + b.undecoded,
        own: a.own + b.own,
        tls: a.tls + b.tls,
        faults: a.faults + b.faults,
        alloc_events: a.alloc_events + b.alloc_events,
        ..a
    }
}

/// Whether `name` is the path of a program, or the paths end in the same file name.
pub fn is_named(program: &Program, name: &str) -> bool {
    let file = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    program.path == name || file(&program.path) == file(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(path: &str) -> Program {
        Program { path: path.into(), argv: vec![path.into()], build_id: None }
    }

    fn pids(busy: &Busy) -> Vec<u32> {
        busy.processes.iter().map(|p| p.pid).collect()
    }

    fn sampled(processes: &mut Processes, pid: u32, samples: u64) {
        processes.counters(pid).samples += samples;
    }

    #[test]
    fn the_program_with_the_time_comes_first_and_its_launcher_is_none_of_it() {
        let mut p = Processes::default();
        p.exec(1, Some(program("/bin/sh")));
        for (pid, path, samples) in [(2, "/x/a", 300), (3, "/x/b", 700), (4, "/x/b", 690), (5, "/x/b", 2)] {
            p.fork(1, pid, 10);
            p.exec(pid, Some(program(path)));
            sampled(&mut p, pid, samples);
        }
        let busy = p.busy(None);
        let named: Vec<_> = busy.iter().map(|b| (b.program.path.as_str(), pids(b), b.counted.samples)).collect();
        assert_eq!(named, [("/x/b", vec![3, 4], 1390), ("/x/a", vec![2], 300)]);
        assert_eq!(p.busy(Some("a"))[0].program.path, "/x/a");
        assert_eq!(pids(&p.busy(Some("sh"))[0]), [1], "one that is asked for needs no samples");
        assert_eq!(p.take_new(), [2, 3, 4, 5]);
        p.fills(5, 10);
        p.fills(3, 1000);
        assert_eq!(pids(&p.busy(None)[0]), [3, 4], "a hundredth of the shared memory is little, too");
        p.fills(5, 20);
        assert_eq!(pids(&p.busy(None)[0]), [3, 4, 5]);
    }

    #[test]
    fn a_program_that_ended_before_it_was_asked_for_is_known_by_its_code() {
        let mut p = Processes::default();
        p.fork(1, 2, 10);
        p.exec(2, None);
        p.maps_code(2, "/x/a");
        p.maps_code(2, "/lib/libc.so.6");
        sampled(&mut p, 2, 1);
        assert_eq!(p.busy(None)[0].program, program("/x/a"));
    }

    #[test]
    fn without_samples_page_faults_tell() {
        let mut p = Processes::default();
        p.exec(1, Some(program("/bin/sh")));
        p.counters(1).faults = 10;
        p.fork(1, 2, 10);
        p.exec(2, Some(program("/x/a")));
        p.counters(2).faults = 90;
        assert_eq!(pids(&p.busy(None)[0]), [2]);
    }

    #[test]
    fn an_id_that_is_used_again_is_another_process() {
        let mut p = Processes::default();
        p.exec(1, Some(program("/bin/sh")));
        for (time, path, samples) in [(10, "/x/a", 300), (20, "/x/none", 0), (30, "/x/b", 700)] {
            p.fork(1, 2, time);
            p.exec(2, Some(program(path)));
            sampled(&mut p, 2, samples);
        }
        let busy = p.busy(None);
        let named: Vec<_> = busy.iter().map(|b| (b.program.path.as_str(), b.processes.clone(), b.share)).collect();
        let id = |from_ns, until_ns| vec![ProcessId { pid: 2, from_ns, until_ns }];
        assert_eq!(named, [("/x/b", id(30, u64::MAX), 0.7), ("/x/a", id(10, 20), 0.3)]);
        assert_eq!(p.count(), 4);
        let [a, b] = [busy[1].processes[0], busy[0].processes[0]];
        assert!(a.began(2, 10) && !a.began(2, 20) && b.began(2, 30) && !b.began(3, 30));
        // What a process has from its parent is older than it is.
        assert!(b.may_have(2, 5, None) && !b.may_have(2, 12, Some(18)) && a.may_have(2, 12, Some(18)));
        assert!(!a.may_have(2, 31, None));
    }
}
