//! The recorder: starts the program or attaches to one that runs, drains its events, resolves them and writes the
//! profile.
//!
//! Each round (at most `ROUND_MS` of recorder.rs) drains the kernel's buffers and the program's channel, sorts all
//! events older than `SETTLE_NS` by time and processes them: mappings and allocations change the address-space model,
//! samples are replayed to accesses with their object, page faults become first touches. About once a second new
//! records are written, definitions before use, so that a killed recorder leaves a readable profile.

mod budget;
mod events;
mod fault_thinning;
mod faults;
mod idle;
mod maps;
mod nodes;
mod notes;
mod one_program;
mod process;
mod processes;
mod recorder;
mod shared_lines;
mod switch;
mod tallies;
mod target;
mod thinning;
mod threads;
mod touches;
mod waits;
mod window;
mod writing;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use numamma_channel::reader::Channel;
use numamma_channel::trace::reader::Trace;

use self::budget::Budget;
use self::recorder::Recorder;
use self::target::Target;
use super::file::Writer;
use super::perf::attr::{explain_refusal, explain_refused_attach};
use super::perf::calibrate::Costs;
use super::perf::session::{Session, Wanted};
use super::perf::threads::{self as running_threads, Attached};
use super::records::{Program, Sampling, Stats};
use crate::launch::executable::Executable;
use crate::launch::exit::{Ended, Failure, say};
use crate::launch::held::{self, Held};
use crate::launch::invocation::Invocation;
use crate::launch::library;
use crate::launch::running::Running;
use crate::launch::signals::{forget_child, forward_signals, note_ending_signals};

/// Most recordings that write beside each other what was asked to be one file.
const MAX_RECORDINGS: u32 = 10_000;

/// What to record.
#[derive(Debug)]
pub struct Options {
    /// The program.
    pub subject: Subject,
    /// Output file; `%p` becomes the process id.
    pub output: String,
    /// How to sample.
    pub sampling: Sampling,
    /// What events cost the program; 0 what is not known.
    pub costs: Costs,
    /// Who makes pages fault for the `fault` sampler; none for another one.
    pub faults_by: Option<FaultsBy>,
    /// Whose events are recorded.
    pub follow: Follow,
    /// Time before the first sample. All else is recorded from the start.
    pub delay: Option<Duration>,
    /// Time from the start, or from the end of the delay, after which the recording ends if the program does not
    /// before.
    pub duration: Option<Duration>,
    /// Whether samples are dropped until the program switches them on (`numamma_profile(1)` of numamma.h).
    pub start_paused: bool,
    /// Notes to store in the profile.
    pub notes: Vec<String>,
    /// Bytes of memory that the recording may take; see [`DEFAULT_MEMORY`].
    pub max_memory: u64,
    /// Whether names are written while the program runs, for a reader that does not wait for its end.
    pub live: bool,
    /// Bytes by which the file grows at least before it is compacted; none: it keeps every access and every object,
    /// however large it becomes.
    pub compact_at: Option<u64>,
    /// Called about once a second with the time since the start and the samples so far.
    pub progress: Option<fn(Duration, u64)>,
}

/// What is recorded besides the process that is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Follow {
    /// Nothing.
    No,
    /// All processes that it starts, and their children.
    All,
    /// Of these, and of itself, those that run the program which has the time, or the one of this name.
    Program(Option<String>),
}

impl Follow {
    /// Whether children are recorded.
    pub fn children(&self) -> bool {
        *self != Follow::No
    }
}

/// A program to record.
#[derive(Debug)]
pub enum Subject {
    /// It is started.
    Launch(Launch),
    /// These processes, at least one, run already.
    Running(Vec<Running>),
}

/// A program to start.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The checked program.
    pub program: Executable,
    /// Its arguments, `argv[0]` first.
    pub argv: Vec<OsString>,
    /// The profile preload; none when it cannot be loaded (static program).
    pub preload: Option<PathBuf>,
    /// Directory of the library whose hooks count its accesses (sampler `trace`).
    pub hooks: Option<PathBuf>,
}

pub use self::notes::{ATTACH, NOT_FOLLOWED, behind};

/// Name of the sampler that counts all accesses.
pub const TRACE: &str = "trace";

pub use self::faults::{FAULT, FaultsBy, has_no_window};
pub use self::tallies::CHARGE_NS;

pub use self::budget::{DEFAULT as DEFAULT_MEMORY, LEAST as LEAST_MEMORY};

/// Result of a recording.
#[derive(Debug)]
pub struct Recorded {
    /// The file.
    pub path: PathBuf,
    /// How the program ended, as far as the recording knows.
    pub ended: Ended,
    /// The program, if it was started for the recording and has not ended.
    pub running: Option<Held>,
    /// Counters.
    pub stats: Stats,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// The bound of the overhead, a fraction.
    pub max_overhead: f64,
    /// Whether samples were to be taken.
    pub samples_wanted: bool,
    /// Whether the samples are accesses themselves.
    pub traced: bool,
    /// Processes that the program started and that were not recorded.
    pub not_followed: u64,
    /// False when the file could not be written to the end.
    pub complete: bool,
}

impl Recorded {
    /// Waits for a program that was started for the recording and has not ended; returns how it ended.
    pub fn wait(&self) -> Ended {
        let Some(held) = &self.running else { return self.ended };
        let ended = held.wait();
        forget_child();
        ended
    }
}

/// Records a program.
///
/// # Errors
/// When the recording could not start; then a program to start was not executed.
pub fn record(mut options: Options) -> Result<Recorded, Failure> {
    keep_memory();
    match std::mem::replace(&mut options.subject, Subject::Running(Vec::new())) {
        Subject::Launch(launch) => record_launched(&options, launch),
        Subject::Running(running) => record_running(&options, running),
    }
}

fn record_launched(options: &Options, mut launch: Launch) -> Result<Recorded, Failure> {
    let mut budget = Budget::new(options.max_memory);
    let wanted_channel = launch.preload.is_some();
    let channel = wanted_channel.then(|| Channel::with_pool(options.follow.children(), budget.channel())).transpose();
    let channel = match channel {
        // Only programs that it starts would use the channel, and it may start none.
        Err(_) if launch.program.is_static => None,
        other => other.map_err(|e| Failure::usage(e.to_string()))?,
    };
    if channel.is_none() {
        launch.preload = None;
    }
    if let (Some(FaultsBy::Moving(interval)), Some(channel)) = (options.faults_by, &channel) {
        faults::want(channel, interval, options.sampling.max_overhead);
    }
    let trace = launch.hooks.is_some().then(|| Trace::create(options.follow.children(), budget.trace())).transpose();
    let trace = trace.map_err(|e| Failure::usage(e.to_string()))?;
    let mut held = hold(&launch, channel.as_ref(), trace.as_ref())?;
    if let Some(trace) = &trace {
        trace.set_target(held.pid as u32);
    }
    if let Some(channel) = &channel {
        channel.set_target(held.pid as u32);
    }
    let session = match Session::open(held.pid, wanted(options, &budget)) {
        Ok(session) => Some(session),
        // Without samples the recording goes on: mappings can be read from /proc, first touches cannot.
        Err(_) if options.sampling.period_ns == 0 => None,
        Err(e) => return Err(Failure::usage(explain_refusal(&e))),
    };
    budget.outside = session.as_ref().map_or(0, |s| s.buffers() as u64);
    let program = Program {
        path: launch.program.path.to_string_lossy().into_owned(),
        argv: launch.argv.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
        build_id: launch.program.build_id.clone(),
    };
    let (path, writer) = create(options, held.pid as u32)?;
    let has_channel = channel.is_some();
    let mut recorder = Recorder::new(options, program, (path, writer), &[held.pid as u32], session, channel, budget);
    recorder.events.tallies.trace = trace;
    if wanted_channel && !has_channel {
        recorder.notes.push(notes::NO_CHANNEL.to_owned());
    }
    forward_signals(held.pid);
    recorder.start();
    if let Err(e) = held.release() {
        let _ = std::fs::remove_file(recorder.path());
        return Err(Failure::of_exec(&launch.program.path, &e));
    }
    let target = Target::launched(held);
    let ended = recorder.run(&target, options);
    if ended != Ended::Runs {
        forget_child();
    }
    let running = target.into_launched().filter(|_| ended == Ended::Runs);
    Ok(recorder.finish(ended, running))
}

fn record_running(options: &Options, running: Vec<Running>) -> Result<Recorded, Failure> {
    let mut budget = Budget::new(options.max_memory);
    let gone = |running: &Running| Failure::usage(format!("process {} has ended", running.pid));
    let Some(first) = running.first() else { return Err(Failure::usage("no process to attach to")) };
    let program = Program {
        path: first.path.to_string_lossy().into_owned(),
        argv: first.argv.clone(),
        build_id: first.build_id.clone(),
    };
    let pids: Vec<u32> = running.iter().map(|r| r.pid).collect();
    let attached = running_threads::attach(&pids, wanted(options, &budget)).map_err(|e| match e.raw_os_error() {
        Some(libc::ESRCH) => gone(first),
        _ => Failure::usage(explain_refused_attach(&e)),
    })?;
    // The events are those of the processes that were found only if these still run.
    if let Some(ended) = running.iter().find(|r| r.has_ended()) {
        return Err(gone(ended));
    }
    let Attached { session, threads, early } = attached;
    budget.outside = session.buffers() as u64;
    // Before the file: Ctrl-C leaves none, or a whole one.
    note_ending_signals();
    let (path, writer) = create(options, first.pid)?;
    let mut recorder = Recorder::new(options, program, (path, writer), &pids, Some(session), None, budget);
    recorder.start_attached(&threads, early, &running, options.delay.is_none());
    let target = Target::Attached(running);
    let ended = recorder.run(&target, options);
    Ok(recorder.finish(ended, None))
}

fn wanted(options: &Options, budget: &Budget) -> Wanted {
    Wanted {
        // Where accesses come from elsewhere, the kernel takes no samples.
        period_ns: if [TRACE, FAULT].contains(&options.sampling.sampler.as_str()) {
            0
        } else {
            options.sampling.period_ns
        },
        follow: options.follow.children(),
        memory: budget.kernel(),
        samples_at_start: options.delay.is_none(),
    }
}

/// Opens the profile, under another name while a recording has the one that was asked for.
fn create(options: &Options, pid: u32) -> Result<(PathBuf, Writer), Failure> {
    let asked = PathBuf::from(options.output.replace("%p", &pid.to_string()));
    let cannot = |e| Failure::usage(format!("cannot write {}: {e}", asked.display()));
    // Containers with a directory in common have processes of one number.
    let others = (1..MAX_RECORDINGS).map(|count| match count {
        1 => with_number(&asked, &pid.to_string()),
        _ => with_number(&asked, &format!("{pid}.{count}")),
    });
    for path in std::iter::once(asked.clone()).chain(others) {
        match Writer::create(&path) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(cannot(e)),
            Ok(writer) => {
                if path != asked {
                    let (asked, own) = (asked.display(), path.display());
                    say(format_args!("{asked} is being written by another recording; this one is {own}"));
                }
                return Ok((path, writer));
            }
        }
    }
    Err(cannot(io::Error::other("other recordings are writing it and all names like it")))
}

/// `numamma.4711.prof` of `numamma.prof`.
fn with_number(path: &Path, number: &str) -> PathBuf {
    let mut ending = OsString::from(number);
    if let Some(old) = path.extension() {
        ending.push(".");
        ending.push(old);
    }
    path.with_extension(ending)
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

fn hold(launch: &Launch, channel: Option<&Channel>, trace: Option<&Trace>) -> Result<Held, Failure> {
    let mut env = channel.map(Channel::env).unwrap_or_default();
    env.extend(trace.map(Trace::env).unwrap_or_default());
    env.extend(launch.hooks.as_deref().map(library::trace_environment));
    if let Some(library) = &launch.preload {
        env.extend(library::environment(&launch.program, library));
    }
    let program = Invocation { path: launch.program.path.clone(), argv: launch.argv.clone(), env };
    held::hold(&program).map_err(|e| {
        let limit =
            if e.raw_os_error() == Some(libc::EAGAIN) { "; raise the limit of processes (ulimit -u)" } else { "" };
        Failure::usage(format!("cannot start a process: {e}{limit}"))
    })
}

/// Why a profile cannot be written under this name; checked before the program is started.
pub fn unusable_output(output: &str) -> Option<String> {
    let path = Path::new(output);
    if output.is_empty() {
        return Some("the name of the profile is empty; name a file with -o".to_owned());
    }
    if path.is_dir() {
        return Some(format!("{}: a directory, not a file for the profile; name a file with -o", path.display()));
    }
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty())?;
    let missing = || format!("{}: no such directory for the profile; create it or name another with -o", dir.display());
    (!dir.is_dir()).then(missing)
}
