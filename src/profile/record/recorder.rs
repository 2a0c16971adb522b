//! The loop of a recording: drain, process, thin, save memory, write.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use numamma_channel::reader::Channel;
use numamma_channel::trace::reader::Trace;
use numamma_kernel::clock::monotonic_ns;
use numamma_kernel::thp;

use super::budget::{self, Budget, Level};
use super::events::Events;
use super::fault_thinning::{Counted, FaultThinning};
use super::idle::IdleTime;
use super::process::{CpuTime, ProgramUse, cpu_time, host_name, waits_of_children};
use super::switch::Switch;
use super::target::Target;
use super::thinning::Thinning;
use super::waits::WaitLooks;
use super::window::Window;
use super::{FaultsBy, Follow, Options, notes};
use crate::launch::exit::Ended;
use crate::launch::running::Running;
use crate::profile::PAGE;
use crate::profile::compact::Compaction;
use crate::profile::file::Writer;
use crate::profile::perf::PerfRecord;
use crate::profile::perf::calibrate::Costs;
use crate::profile::perf::session::{Faults, Session};
use crate::profile::perf::threads::RunningThread;
use crate::profile::records::{Header, Program};
use crate::topology::Topology;

/// Longest wait between two drains, milliseconds: the memory that the channel has at first then holds 4.9 million
/// events a second of one thread.
const ROUND_MS: u64 = 20;
/// Allocation events one round should bring at most: a twelfth of what one thread may leave in the channel at first.
const EVENTS_PER_ROUND: u64 = 8192;
/// Events younger than this wait for the next round: an older one may not be in its buffer yet.
const SETTLE_NS: u64 = 5_000_000;
/// Time between two writes to the file.
const FLUSH: Duration = Duration::from_secs(1);
/// Time between two calls of [`Options::progress`].
const PROGRESS: Duration = Duration::from_secs(1);
/// Time between two steps that save memory.
const SAVE: Duration = Duration::from_millis(100);
/// Accesses and touches waiting to be written at which they are written early.
const FLUSH_ACCESSES: usize = 1 << 17;
/// Share of the recording's memory for summing up what is in the file.
const COMPACTION_DIVISOR: u64 = 4;

/// A recording that goes on.
pub struct Recorder {
    pub(super) path: PathBuf,
    /// None after a write failed.
    pub(super) writer: Option<Writer>,
    pub(super) header: Header,
    pub(super) session: Option<Session>,
    pub(super) channel: Option<Channel>,
    pub(super) events: Events,
    pub(super) thinning: Thinning,
    pub(super) fault_thinning: FaultThinning,
    /// See [`Options::costs`].
    pub(super) costs: Costs,
    /// CPU time that the page faults of the program cost more so far, under whichever events there were, and the faults
    /// that this holds.
    pub(super) faults_cost_ns: u64,
    faults_charged: u64,
    /// Bytes of the kernel's buffers.
    kernel_bytes: u64,
    /// When memory was saved last.
    pub(super) saved: Option<Instant>,
    /// When ended threads were looked for last.
    swept: Instant,
    pub(super) notes: Vec<String>,
    pub(super) start_ns: u64,
    pub(super) own_cpu_ns: u64,
    /// CPU time of children that ended before: of a shell that has replaced itself by this command.
    pub(super) earlier_children: CpuTime,
    /// CPU time and resident memory of the program.
    pub(super) program: ProgramUse,
    pub(super) idle: IdleTime,
    waits: WaitLooks,
    /// Waits of children that ended before, and of the program before it was executed.
    earlier_waits: u64,
    /// CPU time of the program before samples were taken.
    pub(super) unsampled: CpuTime,
    pub(super) compaction: Compaction,
    /// When names are to be written next; none: at the end.
    pub(super) names_due: Option<Instant>,
    /// See [`Options::follow`].
    pub(super) follow: Follow,
    /// What was started, as typed.
    pub(super) command: Vec<String>,
}

impl Recorder {
    /// A recording of `pids` into the file that is open as `output`.
    pub fn new(
        options: &Options,
        program: Program,
        (path, writer): (PathBuf, Writer),
        pids: &[u32],
        session: Option<Session>,
        channel: Option<Channel>,
        budget: Budget,
    ) -> Recorder {
        let topology = Topology::this_machine();
        let mut notes = options.notes.clone();
        notes.extend(notes::first_touch(session.as_ref()));
        let command = program.argv.clone();
        let header = Header {
            numamma: env!("CARGO_PKG_VERSION").into(),
            program,
            host: host_name(),
            started_unix: std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            pid: pids[0],
            sampling: options.sampling.clone(),
            page_size: PAGE,
            thp: thp::setting().unwrap_or_else(|| "unknown".into()),
            topology: topology.clone(),
            allocations: channel.is_some(),
        };
        let huge_pages = header.thp != "never";
        let mut events = Events::new(pids, options.follow.children(), header.sampling.period_ns, &topology, huge_pages);
        let kernel_bytes = budget.outside;
        events.budget = budget;
        events.switch = Switch::new(options.start_paused);
        events.hint_faults = options.faults_by == Some(FaultsBy::Balancing);
        Recorder {
            path,
            writer: Some(writer),
            header,
            session,
            channel,
            events,
            thinning: Thinning::new(options.sampling.max_overhead),
            fault_thinning: FaultThinning::new(options.sampling.max_overhead, &options.costs),
            costs: options.costs,
            faults_cost_ns: 0,
            faults_charged: 0,
            kernel_bytes,
            saved: None,
            swept: Instant::now(),
            notes,
            start_ns: 0,
            own_cpu_ns: cpu_time(libc::RUSAGE_SELF).total(),
            earlier_children: cpu_time(libc::RUSAGE_CHILDREN),
            program: ProgramUse::begin(pids),
            idle: IdleTime::begin(pids.iter().copied(), monotonic_ns()),
            waits: WaitLooks::default(),
            earlier_waits: waits_of_children(),
            unsampled: CpuTime::default(),
            names_due: options.live.then(Instant::now),
            compaction: Compaction::new(options.compact_at, options.max_memory / COMPACTION_DIVISOR),
            follow: options.follow.clone(),
            command,
        }
    }

    /// Begins the recording of a program that is about to be executed.
    pub fn start(&mut self) {
        self.append_header();
        self.start_ns = monotonic_ns();
        self.idle = IdleTime::begin(self.program.living(), self.start_ns);
        self.waits = WaitLooks::begin(self.program.living(), self.start_ns);
        self.events.start(self.start_ns);
    }

    /// Begins the recording of processes that run.
    pub fn start_attached(
        &mut self,
        threads: &[RunningThread],
        early: Vec<PerfRecord>,
        running: &[Running],
        samples: bool,
    ) {
        self.append_header();
        self.start_ns = monotonic_ns();
        self.idle = IdleTime::begin(self.program.living(), self.start_ns);
        self.waits = WaitLooks::begin(self.program.living(), self.start_ns);
        self.events.start_attached(self.start_ns, threads, early);
        self.notes.extend(notes::attached(running));
        self.notes.extend(notes::unreadable(&self.events.unreadable_files()));
        if let Some(session) = &self.session {
            session.record_faults(Faults::All);
            if samples {
                session.start_samples();
            }
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Drains until the program has ended, or the recording is to end.
    pub fn run(&mut self, target: &Target, options: &Options) -> Ended {
        let mut window = Window::new(Instant::now(), options.delay, options.duration);
        let (mut flushed, mut told) = (Instant::now(), Instant::now());
        let mut timeout = 1;
        loop {
            let before = Instant::now();
            self.wait(window.next_ms(before).map_or(timeout, |next| timeout.min(next)), target);
            // /proc has the times of a program that ended until it is waited for.
            self.program.update();
            self.charge_faults();
            self.idle.look(self.program.living(), monotonic_ns());
            let (threads, topology) = (&mut self.events.threads, &self.header.topology);
            self.waits.look(self.program.living(), monotonic_ns(), threads, topology);
            // Polled before the drain, so that events written before the program's end are in this round.
            let ended = target.poll().or_else(|| self.is_over(&mut window, target).then_some(Ended::Runs));
            // Taken before the drain: what is older than that lay in its buffer then, however long the drain takes.
            let settled = monotonic_ns().saturating_sub(SETTLE_NS);
            let got = self.drain();
            self.process(settled);
            self.program.add(self.events.take_new_processes());
            if let Some(ended) = ended {
                return ended;
            }
            self.thin();
            self.save_memory();
            // Grows slowly after a round with few events, shrinks at once after a round with many.
            timeout = next_timeout(before.elapsed(), got).min(timeout * 2).min(self.fault_thinning.longest_round_ms());
            if flushed.elapsed() >= FLUSH || self.events.pending() >= FLUSH_ACCESSES {
                self.flush();
                flushed = Instant::now();
            }
            if let Some(tell) = options.progress.filter(|_| told.elapsed() >= PROGRESS) {
                let since = Duration::from_nanos(monotonic_ns().saturating_sub(self.start_ns));
                tell(since, self.events.stats.samples);
                told = Instant::now();
            }
        }
    }

    /// Processes the events up to that time.
    pub(super) fn process(&mut self, until_ns: u64) {
        while !self.events.process(until_ns, self.channel.as_mut()) {
            self.flush();
        }
    }

    /// What no look at the threads has seen, once the program was waited for. Only of a program whose children are all
    /// recorded, as the kernel tells the sum of all processes.
    pub(super) fn add_unseen_waits(&mut self) {
        let of_all = waits_of_children().saturating_sub(self.earlier_waits + self.waits.before());
        if of_all > 0 && self.events.not_followed == 0 {
            let end_ns = self.events.ended_ns.unwrap_or_else(monotonic_ns).saturating_sub(self.start_ns);
            self.events.threads.add_unseen_waits(of_all, end_ns);
        }
    }

    /// Begins samples after the delay; true when the recording is to end: then nothing more is recorded.
    fn is_over(&mut self, window: &mut Window, target: &Target) -> bool {
        let now = Instant::now();
        if window.begins(now) {
            self.unsampled = self.program.cpu();
            self.session.iter().for_each(Session::start_samples);
        }
        let over = window.is_over(now) || target.is_to_be_left();
        if over {
            self.session.iter().for_each(Session::stop);
            self.channel.iter().for_each(Channel::stop);
            self.events.tallies.trace.iter().for_each(Trace::stop);
            self.events.ended_ns = Some(monotonic_ns());
        }
        over
    }

    /// Waits until events are to be drained or the program has ended.
    fn wait(&mut self, timeout_ms: u64, target: &Target) {
        let timeout_ms = timeout_ms as i32;
        let ends = target.ends();
        match &mut self.session {
            Some(session) => session.wait(timeout_ms, &ends),
            None => {
                let mut poll =
                    ends.first().map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
                // SAFETY: one entry, or none and a null pointer, which poll accepts.
                unsafe {
                    let fds = poll.as_mut().map_or(std::ptr::null_mut(), |p| p as *mut libc::pollfd);
                    libc::poll(fds, libc::nfds_t::from(!fds.is_null()), timeout_ms)
                };
                self.events.read_maps(self.header.pid, monotonic_ns());
            }
        }
    }

    /// Takes all events written so far; returns the number of allocation events.
    pub(super) fn drain(&mut self) -> u64 {
        if let Some(session) = &mut self.session {
            session.drain(&mut self.events.perf);
        }
        let before = self.events.allocs.len();
        if let Some(channel) = &mut self.channel {
            channel.drain(&mut self.events.allocs);
        }
        (self.events.allocs.len() - before) as u64
    }

    /// Charges the page faults since the last call, which [`FaultThinning`] treated alike.
    fn charge_faults(&mut self) {
        let faults = self.program.faults();
        let new = faults.saturating_sub(self.faults_charged);
        if self.session.is_some() {
            self.faults_cost_ns += new.saturating_mul(self.fault_thinning.each_fault_ns(&self.costs));
        }
        self.faults_charged = faults.max(self.faults_charged);
    }

    fn thin(&mut self) {
        self.thin_faults();
        let Some(channel) = &self.channel else { return };
        let events = self.events.stats.alloc_events + channel.lost();
        self.thinning.watch(monotonic_ns(), events, self.program.cpu().total(), channel, &mut self.events.space);
    }

    fn thin_faults(&mut self) {
        let Some(session) = &self.session else { return };
        let (stats, now_ns) = (&self.events.stats, monotonic_ns());
        let faults = stats.faults - self.events.faults_sampled + self.events.discarded_faults + session.lost().faults;
        let (cpu_ns, sampled) = (self.program.cpu().total(), self.events.faults_sampled);
        let now = Counted { now_ns, cpu_ns, faults, sampled, resident: self.program.resident() };
        if let Some(which) = self.fault_thinning.watch(now) {
            session.record_faults(which);
            self.events.faults_thinned = which != Faults::All;
        }
    }

    /// Keeps the recording within its memory.
    fn save_memory(&mut self) {
        let channel = self.channel.as_ref().map_or(0, Channel::memory);
        self.events.budget.outside = self.kernel_bytes + channel;
        // Without kernel events nothing else tells that threads have ended.
        if let Some(channel) = self.channel.as_mut().filter(|c| self.session.is_none() || c.is_short())
            && self.swept.elapsed() >= SAVE
        {
            channel.free_ended();
            self.swept = Instant::now();
        }
        let level = self.events.update_level();
        if level == Level::Free || self.saved.is_some_and(|at| at.elapsed() < SAVE) {
            return;
        }
        self.flush();
        self.events.save_memory();
        if let Some(channel) = &self.channel {
            self.thinning.save_memory(channel, &mut self.events.space);
        }
        budget::trim();
        self.events.update_level();
        self.saved = Some(Instant::now());
    }
}

/// The wait in which [`EVENTS_PER_ROUND`] events arrive at the rate of the last round, milliseconds.
fn next_timeout(last: Duration, events: u64) -> u64 {
    let fitting = last.as_secs_f64() * 1e3 * EVENTS_PER_ROUND as f64 / events.max(1) as f64;
    (fitting as u64).clamp(1, ROUND_MS)
}
