//! The recorder: starts the program, drains its events, resolves them and writes the profile.
//!
//! Each round (at most [`ROUND_MS`]) drains the kernel's buffers and the program's channel, sorts all events older than
//! [`SETTLE_NS`] by time and processes them: mappings and allocations change the address-space model, samples are
//! replayed to accesses with their object, page faults become first touches. About once a second new records are
//! written, definitions before use, so that a killed recorder leaves a readable profile.

mod budget;
mod events;
mod fault_thinning;
mod maps;
mod nodes;
mod notes;
mod process;
mod thinning;
mod threads;
mod touches;

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use numamma_channel::reader::Channel;
use numamma_kernel::clock::monotonic_ns;
use numamma_kernel::thp;

use self::budget::{Budget, Level};
use self::events::Events;
use self::fault_thinning::{Counted, FaultThinning};
use self::process::{CpuTime, cpu_time, host_name};
use self::thinning::Thinning;
use super::PAGE;
use super::file::Writer;
use super::perf::attr::{FAULT_PERIOD, explain_refusal};
use super::perf::session::{Faults, Session};
use super::records::{EventCounts, Header, Program, Record, Sampling, Stats};
use crate::launch::executable::Executable;
use crate::launch::exit::{Ended, Failure, say};
use crate::launch::held::{self, Held};
use crate::launch::invocation::Invocation;
use crate::launch::library;
use crate::launch::signals::{forget_child, forward_signals};
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
/// Time between two steps that save memory.
const SAVE: Duration = Duration::from_millis(100);
/// Accesses and touches waiting to be written at which they are written early.
const FLUSH_ACCESSES: usize = 1 << 17;

/// What to record.
#[derive(Debug, Clone)]
pub struct Options {
    /// The checked program.
    pub program: Executable,
    /// Its arguments, `argv[0]` first.
    pub argv: Vec<OsString>,
    /// Output file; `%p` becomes the process id.
    pub output: String,
    /// How to sample.
    pub sampling: Sampling,
    /// What the record of a page fault costs the program, nanoseconds; 0 when that is not known.
    pub fault_ns: u64,
    /// Whether children are recorded too.
    pub follow: bool,
    /// The profile preload; none when it cannot be loaded (static program).
    pub preload: Option<PathBuf>,
    /// Notes to store in the profile.
    pub notes: Vec<String>,
    /// Bytes of memory that the recording may take; see [`DEFAULT_MEMORY`].
    pub max_memory: u64,
}

pub use self::budget::{DEFAULT as DEFAULT_MEMORY, LEAST as LEAST_MEMORY};

/// Result of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// The file.
    pub path: PathBuf,
    /// How the program ended.
    pub ended: Ended,
    /// Counters.
    pub stats: Stats,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// The bound of the overhead, a fraction.
    pub max_overhead: f64,
    /// False when the file could not be written to the end.
    pub complete: bool,
}

/// Runs the program and records it.
///
/// # Errors
/// When the recording could not start; then the program was not executed.
pub fn record(options: Options) -> Result<Recorded, Failure> {
    keep_memory();
    let mut budget = Budget::new(options.max_memory);
    let channel = match &options.preload {
        Some(_) => Some(
            Channel::with_pool(options.follow, budget.channel()).map_err(|e| Failure::usage(channel_refused(&e)))?,
        ),
        None => None,
    };
    let mut held = hold(&options, channel.as_ref())?;
    if let Some(channel) = &channel {
        channel.set_target(held.pid as u32);
    }
    let period_ns = options.sampling.period_ns;
    let session = match Session::open(held.pid, period_ns, options.follow, budget.kernel()) {
        Ok(session) => Some(session),
        // Without samples the recording goes on: mappings can be read from /proc, first touches cannot.
        Err(_) if period_ns == 0 => None,
        Err(e) => return Err(Failure::usage(explain_refusal(&e))),
    };
    budget.outside = session.as_ref().map_or(0, |s| s.buffers() as u64);
    let path = PathBuf::from(options.output.replace("%p", &held.pid.to_string()));
    let writer = Writer::create(&path).map_err(|e| Failure::usage(format!("cannot write {}: {e}", path.display())))?;
    let mut recorder = Recorder::new(&options, path, writer, session, channel, held.pid as u32);
    recorder.kernel_bytes = budget.outside;
    recorder.events.budget = budget;
    forward_signals(held.pid);
    recorder.append_header();
    recorder.start_ns = monotonic_ns();
    recorder.events.start(recorder.start_ns);
    if let Err(e) = held.release() {
        let _ = std::fs::remove_file(&recorder.path);
        return Err(Failure::of_exec(&options.program.path, &e));
    }
    let ended = recorder.run(&held);
    forget_child();
    Ok(recorder.finish(ended))
}

/// Makes malloc keep freed memory: otherwise the buffers of every round are mapped, cleared by the kernel and unmapped
/// again, which took a quarter of the recorder's time.
fn keep_memory() {
    /// The largest that glibc accepts (malloc.c, HEAP_MAX_SIZE / 2).
    const LARGEST: libc::c_int = 32 << 20;
    // SAFETY: mallopt only changes glibc's tunables; a refused value changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST);
        libc::mallopt(libc::M_TRIM_THRESHOLD, LARGEST);
    }
}

fn channel_refused(e: &std::io::Error) -> String {
    let limit = if e.raw_os_error() == Some(libc::EFBIG) { "; raise the file size limit (ulimit -f)" } else { "" };
    format!("{e}{limit}")
}

fn hold(options: &Options, channel: Option<&Channel>) -> Result<Held, Failure> {
    let mut env = channel.map(Channel::env).unwrap_or_default();
    if let Some(library) = &options.preload {
        env.extend(library::environment(&options.program, library));
    }
    let program = Invocation { path: options.program.path.clone(), argv: options.argv.clone(), env };
    held::hold(&program).map_err(|e| {
        let limit =
            if e.raw_os_error() == Some(libc::EAGAIN) { "; raise the limit of processes (ulimit -u)" } else { "" };
        Failure::usage(format!("cannot start a process: {e}{limit}"))
    })
}

struct Recorder {
    path: PathBuf,
    /// None after a write failed.
    writer: Option<Writer>,
    header: Header,
    session: Option<Session>,
    channel: Option<Channel>,
    events: Events,
    thinning: Thinning,
    fault_thinning: FaultThinning,
    /// See [`Options::fault_ns`].
    fault_ns: u64,
    /// Bytes of the kernel's buffers.
    kernel_bytes: u64,
    /// When memory was saved last.
    saved: Option<Instant>,
    /// When ended threads were looked for last.
    swept: Instant,
    notes: Vec<String>,
    start_ns: u64,
    own_cpu_ns: u64,
    /// CPU time of the program without its children, as of the last round.
    program_cpu: CpuTime,
    /// Its pages in memory, as of the last round.
    resident: u64,
}

impl Recorder {
    fn new(
        options: &Options,
        path: PathBuf,
        writer: Writer,
        session: Option<Session>,
        channel: Option<Channel>,
        pid: u32,
    ) -> Recorder {
        let topology = Topology::this_machine();
        let mut notes = options.notes.clone();
        notes.extend(notes::first_touch(session.as_ref()));
        let header = Header {
            numamma: env!("CARGO_PKG_VERSION").into(),
            program: Program {
                path: options.program.path.to_string_lossy().into_owned(),
                argv: options.argv.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
                build_id: options.program.build_id.clone(),
            },
            host: host_name(),
            started_unix: std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            pid,
            sampling: options.sampling.clone(),
            page_size: PAGE,
            thp: thp::setting().unwrap_or_else(|| "unknown".into()),
            topology: topology.clone(),
            allocations: channel.is_some(),
        };
        let huge_pages = header.thp != "never";
        let events = Events::new(pid, options.follow, header.sampling.period_ns, &topology, huge_pages);
        Recorder {
            path,
            writer: Some(writer),
            header,
            session,
            channel,
            events,
            thinning: Thinning::new(options.sampling.max_overhead),
            fault_thinning: FaultThinning::new(options.sampling.max_overhead, options.fault_ns),
            fault_ns: options.fault_ns,
            kernel_bytes: 0,
            saved: None,
            swept: Instant::now(),
            notes,
            start_ns: 0,
            own_cpu_ns: cpu_time(libc::RUSAGE_SELF).total(),
            program_cpu: CpuTime::default(),
            resident: 0,
        }
    }

    /// Drains until the program has ended.
    fn run(&mut self, held: &Held) -> Ended {
        let mut flushed = Instant::now();
        let mut timeout = 1;
        let end = held.pidfd();
        loop {
            let before = Instant::now();
            self.wait(timeout, held.pid, end.as_ref());
            // /proc has the times of a program that ended until it is waited for.
            let now = process::program_use(held.pid as u32);
            (self.program_cpu, self.resident) = now.unwrap_or((self.program_cpu, self.resident));
            // Polled before the drain, so that events written before the program's end are in this round.
            let ended = held.poll();
            // Taken before the drain: what is older than that lay in its buffer then, however long the drain takes.
            let settled = monotonic_ns().saturating_sub(SETTLE_NS);
            let got = self.drain();
            self.events.process(settled, self.channel.as_mut());
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
        }
    }

    /// Waits until events are to be drained or the program has ended.
    fn wait(&mut self, timeout_ms: u64, pid: libc::pid_t, end: Option<&OwnedFd>) {
        let timeout_ms = timeout_ms as i32;
        match &mut self.session {
            Some(session) => session.wait(timeout_ms, end.map(AsFd::as_fd)),
            None => {
                let mut poll = end.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
                // SAFETY: one entry, or none and a null pointer, which poll accepts.
                unsafe {
                    let fds = poll.as_mut().map_or(std::ptr::null_mut(), |p| p as *mut libc::pollfd);
                    libc::poll(fds, libc::nfds_t::from(!fds.is_null()), timeout_ms)
                };
                self.events.read_maps(pid as u32, monotonic_ns());
            }
        }
    }

    /// Takes all events written so far; returns the number of allocation events.
    fn drain(&mut self) -> u64 {
        if let Some(session) = &mut self.session {
            session.drain(&mut self.events.perf);
        }
        let before = self.events.allocs.len();
        if let Some(channel) = &mut self.channel {
            channel.drain(&mut self.events.allocs);
        }
        (self.events.allocs.len() - before) as u64
    }

    fn thin(&mut self) {
        self.thin_faults();
        let Some(channel) = &self.channel else { return };
        let events = self.events.stats.alloc_events + channel.lost();
        self.thinning.watch(monotonic_ns(), events, self.program_cpu.total(), channel, &mut self.events.space);
    }

    fn thin_faults(&mut self) {
        let Some(session) = &self.session else { return };
        let (stats, now_ns) = (&self.events.stats, monotonic_ns());
        let faults = stats.faults - self.events.faults_sampled + self.events.discarded_faults + session.lost().faults;
        let (cpu_ns, sampled) = (self.program_cpu.total(), self.events.faults_sampled);
        let now = Counted { now_ns, cpu_ns, faults, sampled, resident: self.resident };
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

    fn flush(&mut self) {
        if let Some(program) = self.events.new_program() {
            let argv = if program.argv.is_empty() { &self.header.program.argv } else { &program.argv };
            self.header.program = Program { argv: argv.clone(), ..program };
            self.append_header();
        }
        let mut records = self.events.take_records();
        let stats = self.stats();
        records.push(Record::Stats(stats));
        records.push(Record::EventCounts(stats.events));
        self.append(&records);
    }

    fn event_counts(&self) -> EventCounts {
        let now = self.events.ended_ns.unwrap_or_else(monotonic_ns);
        let mappings_lost = self.session.as_ref().map_or(0, |s| s.lost().mappings);
        EventCounts {
            fault_ns: self.fault_ns,
            fault_period: FAULT_PERIOD,
            faults_sampled: self.events.faults_sampled,
            thinned_ns: self.fault_thinning.thinned_ns(now),
            unseen_ns: self.fault_thinning.unseen_ns(now),
            mappings_lost,
            // Without losses, a thread that is seen first by something else is one whose start comes late.
            starts_lost: self.events.starts_missed().min(mappings_lost),
        }
    }

    fn stats(&self) -> Stats {
        let mut stats = self.events.stats;
        let now = self.events.ended_ns.unwrap_or_else(monotonic_ns);
        stats.duration_ns = now.saturating_sub(self.start_ns);
        let program = self.cpu();
        stats.cpu_ns = program.total();
        stats.recorder_cpu_ns = cpu_time(libc::RUSAGE_SELF).total().saturating_sub(self.own_cpu_ns);
        if let Some(session) = &self.session {
            let lost = session.lost();
            stats.lost = lost.samples;
            stats.faults_lost = lost.faults;
        }
        stats.events = self.event_counts();
        stats.alloc_lost = self.channel.as_ref().map_or(0, Channel::lost) + self.events.discarded_allocs;
        stats.faults_lost += self.events.discarded_faults;
        // The timer does not sample the kernel.
        let expected = program.user as f64 / self.header.sampling.period_ns.max(1) as f64;
        stats.achieved =
            if self.header.sampling.period_ns > 0 && expected >= 1.0 { stats.samples as f64 / expected } else { 0.0 };
        stats
    }

    /// CPU time of the recorded processes.
    fn cpu(&self) -> CpuTime {
        // The time after the wait is exact but includes all children, so it is used only when all children are
        // recorded.
        let waited = cpu_time(libc::RUSAGE_CHILDREN);
        if waited.total() > 0 && self.events.not_followed == 0 { waited } else { self.program_cpu }
    }

    fn append_header(&mut self) {
        self.append(&[Record::Header(self.header.clone())]);
    }

    /// Appends records; after a failure (disk full) no more records are written and the program goes on.
    fn append(&mut self, records: &[Record]) {
        let Some(writer) = &mut self.writer else { return };
        if let Err(e) = records.iter().try_for_each(|r| writer.append(r)) {
            say(format_args!(
                "cannot write {}: {e}; the program goes on, and the file can be read up to here",
                self.path.display()
            ));
            self.writer = None;
        }
    }

    /// Allocations that the program did not report, as it was asked to.
    fn left_out(&self) -> u64 {
        self.channel.as_ref().map_or(0, Channel::skipped).max(self.events.left_out)
    }

    /// Adds notes about missing data.
    fn closing_notes(&mut self) {
        self.notes.extend(notes::thinned(self.thinning.factor(), self.left_out()));
        self.notes.extend(self.saved.map(|_| notes::memory(self.events.budget.limit())));
        self.notes.extend(notes::lost(&self.stats(), self.session.as_ref()));
        self.notes.extend(notes::faults_thinned(&self.stats()));
        self.notes.extend(notes::children(self.events.child_share(), self.events.not_followed));
    }

    fn finish(mut self, ended: Ended) -> Recorded {
        self.drain();
        self.events.process(u64::MAX, self.channel.as_mut());
        if let Some(channel) = &self.channel
            && !channel.attached()
        {
            self.notes.push(notes::NOT_PRELOADED.into());
            self.header.allocations = false;
            self.append_header();
        }
        let small = self.left_out().saturating_sub(self.events.left_out);
        self.events.space.share_left_out(small);
        self.closing_notes();
        self.flush();
        let space = &mut self.events.space;
        let mut records = vec![Record::Symbols(space.symbols()), Record::Code(space.code_units())];
        records.push(Record::AccessCode(space.access_code()));
        let lost = space.lost_frames();
        if !lost.is_empty() {
            records.push(Record::LostFrames(lost));
        }
        let members = space.members();
        if !members.is_empty() {
            records.push(Record::Members(members));
        }
        if !self.notes.is_empty() {
            records.push(Record::Notes(self.notes.clone()));
        }
        records.push(Record::End(ended));
        self.append(&records);
        let stats = self.stats();
        let (max_overhead, complete) = (self.header.sampling.max_overhead, self.writer.is_some());
        Recorded { path: self.path, ended, stats, notes: self.notes, max_overhead, complete }
    }
}

/// The wait in which [`EVENTS_PER_ROUND`] events arrive at the rate of the last round, milliseconds.
fn next_timeout(last: Duration, events: u64) -> u64 {
    let fitting = last.as_secs_f64() * 1e3 * EVENTS_PER_ROUND as f64 / events.max(1) as f64;
    (fitting as u64).clamp(1, ROUND_MS)
}

/// Why a profile cannot be written under this name; checked before the program is started.
pub fn unusable_output(output: &str) -> Option<String> {
    let path = Path::new(output);
    if output.is_empty() || path.is_dir() {
        return Some(format!("{}: a directory, not a file for the profile; name a file with -o", path.display()));
    }
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty())?;
    let missing = || format!("{}: no such directory for the profile; create it or name another with -o", dir.display());
    (!dir.is_dir()).then(missing)
}
