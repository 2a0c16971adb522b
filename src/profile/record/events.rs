//! Processes events in time order: to accesses, touches and the tables they refer to.

use numamma_channel::reader::Channel;
use numamma_channel::{Event, EventKind, Origin};
use rustc_hash::{FxHashMap, FxHashSet};

use super::budget::{Budget, Level};
use super::maps::Maps;
use super::nodes::Nodes;
use super::processes::{ProcessId, Processes};
use super::switch::Switch;
use super::tallies::Tallies;
use super::threads::Threads;
use super::touches::{At, Candidate, Touches};
use crate::profile::PAGE;
use crate::profile::perf::attr::FAULT_PERIOD;
use crate::profile::perf::{PerfEvent, PerfRecord, UserState};
use crate::profile::records::{Access, Folded, ModuleId, Program, Record, Stats, ThreadId};
use crate::profile::replay::{Outcome, ReplayAccess, Replayer};
use crate::profile::space::{Before, Sampled, Space};
use crate::topology::Topology;

/// Threads whose call stack of creation is kept, so that memory is bounded when every task gets a thread: 16 MiB.
const MOST_CREATIONS: ThreadId = 1 << 16;

/// Index of rsp in [`crate::profile::perf::Regs::gpr`].
const RSP: usize = 4;

/// One past the highest address of a program, with five levels of page tables (Documentation/arch/x86/x86_64/mm.rst).
const USER_END: u64 = 1 << 56;

/// Events that are processed between two looks at the memory in use.
const EVENTS_BETWEEN_LOOKS: usize = 1 << 14;

/// File names of the profile preload, installed and in a build tree.
const PRELOAD_NAMES: [&str; 2] = ["libnumamma-profile.so", "libnumamma_preload_profile.so"];

/// The state between drains.
#[derive(Default)]
pub struct Events {
    /// Kernel records not yet processed.
    pub perf: Vec<PerfRecord>,
    /// Allocation events not yet processed.
    pub allocs: Vec<Event>,
    /// The object at each address.
    pub space: Space,
    /// Counters; those of losses and times are filled in by the recorder.
    pub stats: Stats,
    /// When the program's last thread ended, CLOCK_MONOTONIC.
    pub ended_ns: Option<u64>,
    /// Large allocations that were left out, counted by those recorded after them.
    pub left_out: u64,
    /// Processes the program started that are not recorded.
    pub not_followed: u64,
    /// Allocation events discarded because memory was full.
    pub discarded_allocs: u64,
    /// Page faults discarded because memory was full.
    pub discarded_faults: u64,
    /// Page faults that were sampled while not all were recorded.
    pub faults_sampled: u64,
    /// Mappings, heaps that grew among them, that the kernel told of.
    pub mappings: u64,
    /// Whether not all page faults are recorded now.
    pub faults_thinned: bool,
    /// The memory that the recording may take.
    pub budget: Budget,
    /// What the hooks of the program count, of the `trace` sampler.
    pub tallies: Tallies,
    known: tallied::Known,
    /// What the `fault` sampler saw, not written yet.
    faults_seen: Vec<Folded>,
    /// Process and thread of each `fault` sampler: what such a thread does is not the program's.
    samplers: FxHashSet<(u32, u32)>,
    /// Whether a page fault of a page that was touched before is a use of it, see [`Events::used_again`].
    pub hint_faults: bool,
    /// Whether samples are wanted, as the program says.
    pub switch: Switch,
    full: bool,
    /// Whether [`Events::process`] stopped before its end.
    stopped: bool,
    /// The processes to record, besides their children if these are followed.
    targets: Vec<u32>,
    follow: bool,
    period_ns: u64,
    origin_ns: u64,
    /// The threads of the recorded processes.
    pub threads: Threads,
    touches: Touches,
    nodes: Nodes,
    replayer: Replayer,
    /// Whether a module is the profile preload.
    preload_modules: FxHashMap<ModuleId, bool>,
    replayed: Vec<ReplayAccess>,
    /// What the realloc ends that each thread is in.
    before: FxHashMap<ThreadId, Before>,
    accesses: Vec<Access>,
    /// Process of each access from `unplaced` on, and the address there.
    places: Vec<(u32, u64)>,
    /// First access without a node.
    unplaced: usize,
    keys: Vec<Key>,
    maps: Maps,
    execs: u32,
    /// A program that was executed after the first one, in the same process.
    new_program: Option<Program>,
    /// Samples of children that are not followed.
    child_samples: u64,
    /// Who runs what, where children are followed.
    pub processes: Processes,
}

/// Sort key of an event: by time. At the same time kernel records come first: a mapping before the allocation in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    time_ns: u64,
    channel: bool,
    index: u32,
}

impl Events {
    /// For the processes `targets`.
    pub fn new(targets: &[u32], follow: bool, period_ns: u64, topology: &Topology, huge_pages: bool) -> Events {
        Events {
            space: Space::of(targets.to_vec(), follow),
            budget: Budget::new(super::budget::DEFAULT),
            targets: targets.to_vec(),
            follow,
            period_ns,
            touches: Touches::new(huge_pages),
            nodes: Nodes::new(topology),
            ..Events::default()
        }
    }

    /// Sets the start of a run, in which no program was executed yet.
    pub fn start(&mut self, now_ns: u64) {
        self.origin_ns = now_ns;
        for target in self.targets.clone() {
            self.threads.start(target, target, 0, String::new(), None);
        }
    }

    /// Processes all events up to `until_ns` in the order of time; later ones stay. False when it stopped before that,
    /// because records are to be written first ([`Events::take_records`]): call it again then, with the same time.
    pub fn process(&mut self, until_ns: u64, mut channel: Option<&mut Channel>) -> bool {
        if !self.stopped {
            self.read_tallies(until_ns == u64::MAX);
        }
        let perf = std::mem::take(&mut self.perf);
        let allocs = std::mem::take(&mut self.allocs);
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        keys.extend(perf.iter().enumerate().map(|(i, r)| Key { time_ns: r.time_ns, channel: false, index: i as u32 }));
        keys.extend(allocs.iter().enumerate().map(|(i, e)| Key { time_ns: e.time_ns, channel: true, index: i as u32 }));
        keys.sort(); // merges runs that are sorted already, one per buffer
        let due = keys.partition_point(|k| k.time_ns <= until_ns);
        let mut now = 0;
        let mut perf: Vec<Option<PerfRecord>> = perf.into_iter().map(Some).collect();
        for (n, key) in keys[..due].iter().enumerate() {
            if self.tallies.is_full() {
                break;
            }
            now = n + 1;
            if n % EVENTS_BETWEEN_LOOKS == EVENTS_BETWEEN_LOOKS - 1 {
                self.update_level();
            }
            if key.channel {
                self.alloc_event(&allocs[key.index as usize], channel.as_deref());
            } else if let Some(record) = perf[key.index as usize].take() {
                self.kernel_event(record, channel.as_deref_mut());
            }
        }
        self.stopped = now < due || !self.tally_rest(until_ns);
        self.perf = perf.into_iter().flatten().collect();
        if self.faults_thinned {
            self.touches.forget_candidates();
        }
        self.allocs = keys[now..].iter().filter(|k| k.channel).map(|k| allocs[k.index as usize]).collect();
        self.keys = keys;
        let unplaced = self.unplaced;
        self.nodes.fill(&mut self.accesses[unplaced..], &self.places, until_ns);
        self.places.clear();
        self.unplaced = self.accesses.len();
        self.touches.forget_shared(&self.space.take_forgotten());
        for candidate in self.touches.take_candidates() {
            if self.nodes.all_present(candidate.pid, &self.touches.pages(&candidate)) {
                self.touch_huge_page(&candidate);
            }
        }
        !self.stopped
    }

    /// Its pages are of the object that was touched first, as far as that goes, and of its neighbours.
    fn touch_huge_page(&mut self, candidate: &Candidate) {
        let Candidate { pid, object, thread, time_ns, .. } = *candidate;
        let (touches, space) = (&mut self.touches, &mut self.space);
        touches.touch_whole_block(candidate, |addr| match space.overlaps(object, addr, PAGE) {
            true => Some(object),
            // What lies beside shared memory is of its process alone.
            false if space.is_shared(object) => None,
            false => Some(space.attribute(time_ns, pid, thread, 0, addr)),
        });
    }

    /// Looks how much memory is used; at the limit no allocations and page faults are taken any more.
    pub fn update_level(&mut self) -> Level {
        let level = self.budget.level();
        self.full = level == Level::Full;
        level
    }

    /// Frees what can be built again.
    pub fn save_memory(&mut self) {
        self.nodes.forget();
        (self.keys, self.replayed) = (Vec::new(), Vec::new());
        self.perf.shrink_to_fit();
        self.allocs.shrink_to_fit();
    }

    fn relative(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.origin_ns)
    }

    fn wanted(&self, pid: u32) -> bool {
        self.follow || self.targets.contains(&pid)
    }

    /// Share of all samples that fell into children that are not followed, 0 to 1.
    pub fn child_share(&self) -> f64 {
        self.child_samples as f64 / (self.child_samples + self.stats.samples).max(1) as f64
    }

    fn alloc_event(&mut self, event: &Event, channel: Option<&Channel>) {
        let Event { pid, tid, .. } = *event;
        if !self.wanted(pid) {
            return;
        }
        if let EventKind::Access { addr, tid, write, .. } = event.what {
            // The kernel says which thread faulted, not where its code was.
            return self.used(pid, tid, addr, 0, write, self.relative(event.time_ns));
        }
        if self.full && matches!(event.what, EventKind::Alloc { .. }) {
            self.discarded_allocs += 1;
            return;
        }
        self.count(pid, |stats| stats.alloc_events += 1);
        let time = self.relative(event.time_ns);
        let thread = self.threads.get(pid, tid, time);
        self.tally_before(event, time);
        match event.what {
            EventKind::Alloc { addr, size, stack, origin, left_out, resized } => {
                let frames = channel.map(|c| c.stack(stack));
                let frames = frames.as_deref().unwrap_or(&[]);
                self.space.alloc(time, pid, thread, addr, size, frames, origin);
                let before = if resized { self.before.remove(&thread) } else { None };
                // Those that were left out may lie between the two events.
                if let Some(before) = before.filter(|_| origin == Origin::Heap && left_out == 0) {
                    self.space.reallocated(pid, addr, before);
                }
                if left_out > 0 {
                    self.left_out += u64::from(left_out);
                    self.space.count_left_out(pid, frames, left_out, size);
                }
                self.touched_by_allocator(pid, thread, addr, size, time);
            }
            EventKind::Sampling { on } => self.switch.set(pid, on),
            EventKind::Free { addr, size, origin, resized } => {
                match (origin, resized) {
                    (Origin::Heap, true) => self.before_realloc(pid, thread, addr),
                    (Origin::Heap, false) => {
                        let threads = &self.threads;
                        self.space.count_free(pid, addr, thread, |by| threads.is_of(by, pid));
                    }
                    (Origin::Mmap, _) => {}
                }
                if let Some((addr, len)) = self.space.free(time, pid, addr, size, origin) {
                    self.touches.forget_unmapped(pid, addr, len);
                }
            }
            EventKind::ThreadStart { start_routine, stack_low, stack_high, created_at } => {
                let name = self.threads.name(thread).to_owned();
                self.space.thread_stack(time, pid, thread, stack_low, stack_high, &name);
                if start_routine != 0 {
                    let frame = self.space.frame(pid, start_routine);
                    self.threads.set_start_routine(thread, frame);
                }
                if let Some(channel) = channel.filter(|_| created_at != 0 && thread < MOST_CREATIONS) {
                    let frames = self.space.return_addresses(pid, &channel.stack(created_at));
                    self.threads.set_created_at(thread, frames);
                }
            }
            EventKind::ThreadTask { first, words } if thread < MOST_CREATIONS => {
                for (index, word) in (first..).zip(words) {
                    let (code, data) = (self.space.code_frame(pid, word), self.space.module_frame(pid, word));
                    self.threads.task_word(thread, index, code, data);
                }
            }
            EventKind::ThreadTask { .. } | EventKind::Access { .. } => {}
        }
    }

    fn before_realloc(&mut self, pid: u32, thread: ThreadId, addr: u64) {
        match self.space.before_realloc(pid, addr) {
            Some(before) => self.before.insert(thread, before),
            None => self.before.remove(&thread),
        };
    }

    /// The allocator touches pages of a block (its header, the bytes that calloc clears and realloc copies) before it
    /// returns the block. They count as first touches of the block by that thread.
    fn touched_by_allocator(&mut self, pid: u32, thread: ThreadId, addr: u64, size: u64, time: u64) {
        let Some(before) = self.touches.last_in(thread, addr, size) else { return };
        if self.space.is_anonymous(before) {
            let block = self.space.attribute(time, pid, thread, 0, addr);
            self.touches.reassign(thread, addr, size, block);
        }
    }

    fn kernel_event(&mut self, record: PerfRecord, channel: Option<&mut Channel>) {
        let PerfRecord { time_ns, pid, tid, event } = record;
        if !self.wanted(pid) {
            match event {
                PerfEvent::Sample { .. } => self.child_samples += 1,
                PerfEvent::Fork { parent_pid, .. } => {
                    self.not_followed += u64::from(self.targets.contains(&parent_pid))
                }
                _ => {}
            }
            return;
        }
        if self.is_samplers(pid, tid, &event) {
            return;
        }
        let time = self.relative(time_ns);
        match event {
            PerfEvent::Sample { cpu, user } => self.sample(pid, tid, cpu, user, time),
            PerfEvent::Fault { addr, ip, sampled } => {
                if !self.fault(pid, tid, addr, time, sampled) && self.hint_faults {
                    self.used_again(pid, tid, addr, ip, time);
                }
            }
            PerfEvent::Mmap(mapping) => {
                self.mappings += 1;
                self.touches.forget(pid, mapping.addr, mapping.len);
                for (low, high) in self.space.fresh_parts(pid, &mapping) {
                    self.touches.forget_unmapped(pid, low, high - low);
                }
                self.space.mmap(time, pid, &mapping);
                if self.follow && mapping.prot & libc::PROT_EXEC as u32 != 0 {
                    self.processes.maps_code(pid, &mapping.path);
                }
            }
            PerfEvent::Comm { name, exec } => {
                if exec {
                    self.tally_end(pid, 0, time_ns);
                }
                self.comm(pid, tid, name, exec, time);
            }
            PerfEvent::Fork { parent_pid, parent_tid } => {
                if pid != parent_pid {
                    self.switch.forked(parent_pid, pid);
                    self.space.fork_process(time, parent_pid, pid);
                    if self.follow {
                        self.processes.fork(parent_pid, pid, time);
                    }
                }
                let parent = self.threads.get(parent_pid, parent_tid, time);
                let name = self.threads.name(parent).to_owned();
                self.threads.start(pid, tid, time, name, Some(parent));
            }
            PerfEvent::Exit => {
                self.tally_end(pid, tid, time_ns);
                self.threads.end(pid, tid, time);
                self.samplers.remove(&(pid, tid));
                if let Some(channel) = channel {
                    channel.thread_gone(pid, tid);
                }
                if !self.threads.any_alive(pid) {
                    if !self.targets.contains(&pid) {
                        self.space.exit_process(pid);
                    } else if !self.targets.iter().any(|target| self.threads.any_alive(*target)) {
                        self.ended_ns = Some(time_ns);
                    }
                    self.touches.forget_process(pid);
                }
            }
            PerfEvent::Lost(_) => {}
        }
    }

    fn comm(&mut self, pid: u32, tid: u32, name: String, exec: bool, time: u64) {
        if exec {
            self.space.exec(time, pid);
            self.touches.forget_process(pid);
            self.threads.end_others(pid, tid, time);
            if self.follow {
                self.processes.exec(pid, program_of(pid));
            }
            if self.targets.first() == Some(&pid) {
                self.execs += 1;
                // The first exec is the program the header names.
                if self.execs > 1 {
                    self.new_program = program_of(pid).or(self.new_program.take());
                }
            }
        }
        let thread = self.threads.get(pid, tid, time);
        self.space.thread_name(thread, &name);
        self.threads.rename(thread, name);
    }

    fn sample(&mut self, pid: u32, tid: u32, cpu: u16, user: Option<Box<UserState>>, time: u64) {
        if !self.switch.is_on(pid) {
            return;
        }
        let thread = self.threads.get(pid, tid, time);
        self.threads.sampled(thread, cpu);
        self.count(pid, |stats| stats.samples += 1);
        let Some(UserState { regs, stack }) = user.as_deref() else {
            self.count(pid, |stats| stats.undecoded += 1);
            return;
        };
        if self.is_preload_code(pid, regs.ip) {
            self.count(pid, |stats| stats.own += 1);
            return;
        }
        let mut replayed = std::mem::take(&mut self.replayed);
        let sampled = Sampled { time_ns: time, thread, sp: regs.gpr[RSP] };
        let mut code = self.space.code_for(pid, sampled);
        let outcome = self.replayer.replay(regs, stack, &mut code, &mut replayed);
        self.count(pid, |stats| {
            *match outcome {
                Outcome::Resolved => &mut stats.resolved,
                Outcome::NoAccess => &mut stats.no_access,
                Outcome::Unresolved => &mut stats.unresolved,
                Outcome::Vsib => &mut stats.vsib,
                Outcome::Tls => &mut stats.tls,
                Outcome::Undecoded => &mut stats.undecoded,
            } += 1;
        });
        for found in &replayed {
            self.access(found, pid, thread, cpu, regs.gpr[RSP], time);
            if found.carries_cost {
                let ip = self.space.frame(pid, found.ip);
                self.space.count_wait(ip, regs.ip.wrapping_sub(found.ip));
            }
        }
        self.replayed = replayed;
    }

    /// Counts an event of a process: in the whole and, where children are followed, for the process.
    fn count(&mut self, pid: u32, add: impl Fn(&mut Stats)) {
        add(&mut self.stats);
        if self.follow {
            add(self.processes.counters(pid));
        }
    }

    /// Processes that began since the last call.
    pub fn take_new_processes(&mut self) -> Vec<u32> {
        self.processes.take_new()
    }

    /// When the first thread of some processes began and the last one ended, nanoseconds since the start of the
    /// recording; the end is none while one lives.
    pub fn lifetime(&self, processes: &[ProcessId]) -> (u64, Option<u64>) {
        self.threads.lifetime(processes)
    }

    /// Whether code belongs to the profile preload, whose accesses are not the program's.
    fn is_preload_code(&mut self, pid: u32, ip: u64) -> bool {
        let module = self.space.frame(pid, ip).module;
        let space = &self.space;
        *self.preload_modules.entry(module).or_insert_with(|| {
            let file = space.module_path(module).and_then(|p| p.rsplit('/').next()).unwrap_or("");
            PRELOAD_NAMES.contains(&file)
        })
    }

    fn access(&mut self, found: &ReplayAccess, pid: u32, thread: ThreadId, cpu: u16, sp: u64, time: u64) {
        let object = self.space.attribute(time, pid, thread, sp, found.addr);
        let ip = self.space.frame(pid, found.ip);
        self.places.push((pid, found.addr));
        self.accesses.push(Access {
            time_ns: time,
            thread,
            cpu,
            object,
            addr: self.space.address_in(object, pid, found.addr),
            size: found.size,
            write: found.write,
            certainty: found.certainty,
            cost_ns: if found.carries_cost { u32::try_from(self.period_ns).unwrap_or(u32::MAX) } else { 0 },
            node: 0,
            ip,
        });
    }

    /// False where the page was touched before.
    fn fault(&mut self, pid: u32, tid: u32, addr: u64, time: u64, sampled: bool) -> bool {
        // An access to an address that no program has is an error of the program, not a first touch.
        if addr >= USER_END {
            return true;
        }
        if self.full {
            self.discarded_faults += 1;
            return true;
        }
        self.count(pid, |stats| stats.faults += 1);
        self.faults_sampled += u64::from(sampled);
        let view = self.space.view_at(pid, addr);
        if !self.touches.mark_touched(At::of(pid, addr, view)) {
            return false;
        }
        let thread = self.threads.get(pid, tid, time);
        let object = self.space.attribute(time, pid, thread, 0, addr);
        if self.follow && self.space.is_shared_by_program(object) {
            self.processes.fills(pid, if sampled { u64::from(FAULT_PERIOD) } else { 1 });
        }
        let at = At::of(pid, addr, view.filter(|_| self.space.is_shared(object)));
        if sampled {
            self.touches.add_sampled(object, at.addr(), thread, time);
        } else {
            self.touches.add(at, object, thread, time);
        }
        true
    }

    /// Threads and processes whose start was not seen.
    pub fn starts_missed(&self) -> u64 {
        self.threads.missed
    }

    /// Mappings from /proc, for kernels that give no events.
    pub fn read_maps(&mut self, pid: u32, now_ns: u64) {
        let time = self.relative(now_ns);
        for m in self.maps.new_mappings(pid) {
            self.space.mmap(time, pid, &m);
        }
    }

    /// Accesses and touches waiting to be written.
    pub fn pending(&self) -> usize {
        self.accesses.len() + self.touches.len() + self.tallies.pending() + self.faults_seen.len()
    }

    /// The program executed in the target process since the last call.
    pub fn new_program(&mut self) -> Option<Program> {
        self.new_program.take()
    }

    /// Records that are new since the last call, definitions before use.
    pub fn take_records(&mut self) -> Vec<Record> {
        let mut records = self.space.take_records();
        let threads = self.threads.take_changed();
        if !threads.is_empty() {
            records.push(Record::Threads(threads));
        }
        let tasks = self.threads.take_tasks();
        if !tasks.is_empty() {
            records.push(Record::ThreadTasks(tasks));
        }
        let waits = self.threads.take_waits();
        if !waits.is_empty() {
            records.push(Record::ThreadWaits(waits));
        }
        if !self.accesses.is_empty() {
            // On a loaded machine a sample may arrive after later ones of another CPU were processed.
            if !self.accesses.is_sorted_by_key(|a| a.time_ns) {
                self.accesses.sort_by_key(|a| a.time_ns);
            }
            records.push(Record::Accesses(std::mem::take(&mut self.accesses)));
            self.unplaced = 0;
        }
        let mut sums = self.tallies.take_sums();
        sums.append(&mut self.faults_seen);
        if !sums.is_empty() {
            records.push(Record::Folded(sums));
        }
        let touches = self.touches.take();
        if !touches.is_empty() {
            records.push(Record::Touches(touches));
        }
        let sampled = self.touches.take_sampled();
        if !sampled.is_empty() {
            records.push(Record::SampledTouches(sampled));
        }
        records
    }
}

/// The program that a process runs now.
fn program_of(pid: u32) -> Option<Program> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let argv = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let argv = argv.split(|&b| b == 0).filter(|a| !a.is_empty()).map(|a| String::from_utf8_lossy(a).into_owned());
    let build_id = crate::launch::executable::check(path.as_os_str()).ok().and_then(|t| t.build_id);
    Some(Program { path: path.to_string_lossy().into_owned(), build_id, argv: argv.collect() })
}

mod attached;
mod faulted;
mod tallied;
#[cfg(test)]
mod tests;
