//! `numamma profile`: record one run.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use numamma_kernel::terminal::shell_word;
use numamma_plan::output_name;

use super::fault_sampler::{self, Way};
use super::{progress, time_option};
use crate::launch::elsewhere;
use crate::launch::executable::{self, Executable, Hooks};
use crate::launch::exit::{Ended, Failure, say};
use crate::launch::library;
use crate::launch::running::Running;
use crate::launch::wrapper;
use crate::profile::perf::calibrate::{self, Costs};
use crate::profile::perf::{attr, kept};
use crate::profile::record::{
    self, ATTACH, CHARGE_NS, FAULT, FaultsBy, Follow, Launch, Options, Recorded, Subject, TRACE,
};
use crate::profile::records::Sampling;
use crate::report::units::plural;

const NANOSECONDS: f64 = 1e9;
/// Samples in the tracking of allocations from which on their share is said: fewer are chance.
const LEAST_OWN: u64 = 5;

/// Record one run of a program, or a program that runs already, in numamma.prof
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "numamma profile [OPTIONS] [--] PROGRAM [ARGS]...\n       \
                      numamma profile [OPTIONS] --pid PID[,PID...]",
    after_help = "It ends as the program does, with its exit status or by the signal that ended it; with 2 when \
                  nothing could be recorded, 126 or 127 when the program cannot be executed.\n\nWith --pid the program is neither stopped nor changed. The \
                  recording ends with --duration, Ctrl-C (SIGINT, SIGTERM) or the program; the profile is written and \
                  the exit status is 0. Allocations, with the code that made them, are recorded only in programs that \
                  are started here."
)]
pub struct Args {
    /// Output file: %p process id, %h host, %r MPI rank; an older one is kept as FILE.old. An MPI rank puts its number
    /// into a name without %p and %r: numamma.3.prof
    #[arg(short, long, value_name = "FILE", default_value = "numamma.prof")]
    output: String,

    /// Where accesses come from: timer works everywhere perf events do; none records allocations and mappings only
    #[arg(long, value_enum, default_value_t = Sampler::Auto)]
    sampler: Sampler,

    /// Bound of the slow-down the sampling rate is calibrated to, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0)]
    max_overhead: f64,

    /// With --sampler fault: least time between two windows, in each of which every page faults when it is first used;
    /// it is longer where the faults would take more than --max-overhead [default: 60ms]
    #[arg(long, value_name = "TIME", value_parser = time_option::parse)]
    interval: Option<Duration>,

    /// Samples per second and thread instead of the calibrated rate
    #[arg(short = 'F', long = "freq", value_name = "HZ", conflicts_with = "count")]
    frequency: Option<f64>,

    /// Nanoseconds of CPU time between two samples of a thread instead of the calibrated rate
    #[arg(short, long, value_name = "NS")]
    count: Option<u64>,

    /// Memory that the recording may take, with K, M or G; beyond it allocations are thinned and counted
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = memory)]
    max_memory: u64,

    /// Sum up what the file holds when it has grown by SIZE, with K, M or G, and doubled: of runs of hours it
    /// stays small
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size, conflicts_with = "raw")]
    compact_at: u64,

    /// Keep every access and every object in the file, which then grows as long as the program runs
    #[arg(long)]
    raw: bool,

    /// Write names while the program runs, for `numamma top`
    #[arg(long, hide = true)]
    live: bool,

    /// Record all processes that the program starts, as one (with --pid those that it starts from now on). Without it,
    /// of a command that starts others (a script, make, mpirun, env, python3) the program that has the time is recorded
    #[arg(long)]
    follow: bool,

    /// Record only the process that is started, even if that is a script or a launcher
    #[arg(long, conflicts_with_all = ["follow", "pid"])]
    no_follow: bool,

    /// Of the programs that the command starts, record the one of this name instead of the one that has the time
    #[arg(long, value_name = "NAME", conflicts_with_all = ["follow", "no_follow", "pid"])]
    program: Option<String>,

    /// Attach to a process that runs, with all its threads, instead of starting a program; several with commas
    #[arg(short, long, value_name = "PID", value_delimiter = ',', conflicts_with = "command",
          value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,

    /// End the recording after TIME (500ms, 90s, 10m); the program goes on, and if it was started here its end is
    /// awaited
    #[arg(long, value_name = "TIME", value_parser = time_option::parse)]
    duration: Option<Duration>,

    /// Take no samples in the first TIME; allocations, mappings and first touches are recorded from the start, and
    /// --duration counts from its end
    #[arg(long, value_name = "TIME", value_parser = time_option::parse)]
    delay: Option<Duration>,

    /// Take no samples until the program calls numamma_profile(1); see numamma.h
    #[arg(long, conflicts_with = "pid")]
    start_paused: bool,

    /// Print the report of the profile when the program has ended
    #[arg(long)]
    report: bool,

    /// Print what was chosen and why
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,

    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,

    /// The program and its arguments
    #[arg(required_unless_present = "pid", trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Sampler {
    /// The best that works here (at present always timer)
    Auto,
    /// CPU clock and registers, addresses by replaying the code
    Timer,
    /// Every access, counted by a program that was compiled for it: see `numamma trace-flags`
    Trace,
    /// The first use of each page in windows, by page faults (userfaultfd): Linux 6.8 and CAP_SYS_PTRACE; or
    /// uses of pages by NUMA balancing of the kernel
    Fault,
    /// No samples
    None,
}

/// Runs the command.
///
/// # Errors
/// When nothing could be recorded.
pub fn run(args: Args) -> Result<Ended, Failure> {
    let recorded = profile(&args)?;
    if !args.quiet {
        summarise(&recorded, &args.command);
    }
    let ended = recorded.wait();
    if args.report {
        super::report::of_profile(&recorded.path)?;
    }
    Ok(ended)
}

fn profile(args: &Args) -> Result<Recorded, Failure> {
    let mut notes = Vec::new();
    let faults_by = (args.sampler == Sampler::Fault).then(|| faults_by(args)).transpose()?;
    let (subject, follow) = subject(args, faults_by, &mut notes)?;
    let output = output_name::expand(&args.output, None);
    if let Some(why) = record::unusable_output(&output) {
        return Err(Failure::usage(why));
    }
    let (sampling, costs) = sampling(args, faults_by)?;
    if args.verbose {
        let rate = match sampling.period_ns {
            0 | CHARGE_NS => String::new(),
            period => format!("{:.0} samples a second and thread; ", NANOSECONDS / period as f64),
        };
        say(format_args!("sampler {}: {rate}{}", sampling.sampler, sampling.reason));
    }
    for note in notes.iter().filter(|_| !args.quiet) {
        say(note);
    }
    notes.extend(args.delay.map(|delay| format!("samples were taken from {delay:?} after the start on (--delay)")));
    let recorded = record::record(Options {
        subject,
        output,
        sampling,
        costs,
        faults_by,
        follow,
        delay: args.delay,
        duration: args.duration,
        start_paused: args.start_paused,
        notes,
        max_memory: args.max_memory,
        live: args.live,
        compact_at: (!args.raw).then_some(args.compact_at),
        progress: progress::may_mix_with_a_program(args.quiet).then_some(progress::recorded),
    });
    progress::end_of_recording();
    recorded
}

/// What is to be recorded, and which of its processes, with what is missing then added to `notes`.
fn subject(args: &Args, faults_by: Option<FaultsBy>, notes: &mut Vec<String>) -> Result<(Subject, Follow), Failure> {
    let Some(name) = args.command.first() else {
        let once = args.pid.iter().enumerate().filter(|(at, pid)| !args.pid[..*at].contains(pid));
        let running = once.map(|(_, pid)| Running::find(*pid)).collect::<Result<_, _>>()?;
        return Ok((Subject::Running(running), if args.follow { Follow::All } else { Follow::No }));
    };
    let program = executable::check(name)?;
    let follow = match &args.program {
        _ if args.follow => Follow::All,
        Some(name) => Follow::Program(Some(name.clone())),
        None if !args.no_follow && wrapper::may_start_programs(&program) => Follow::Program(None),
        None => Follow::No,
    };
    let words: Vec<String> = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(behind) = elsewhere::behind(&words).filter(|_| !args.quiet) {
        say(format_args!("what {} starts will not be recorded; to record that: {behind}", words[0]));
    }
    let preload = preload_for(&program, &follow, matches!(faults_by, Some(FaultsBy::Moving(_))), notes)?;
    let may_start_others = args.follow || args.program.is_some() || wrapper::starts_programs(&program);
    if args.start_paused && program.is_static && !may_start_others {
        return Err(Failure::usage(format!(
            "--start-paused: {} is statically linked, so its numamma_profile(1) reaches no library that could start \
             the samples; use --delay",
            program.elf.display()
        )));
    }
    let hooks = (args.sampler == Sampler::Trace).then(|| hooks_for(&program, &follow)).transpose()?;
    Ok((Subject::Launch(Launch { program, argv: args.command.clone(), preload, hooks }), follow))
}

/// The profile preload, where it can be loaded: by the program, or by one that it starts.
fn preload_for(
    program: &Executable,
    follow: &Follow,
    fault: bool,
    notes: &mut Vec<String>,
) -> Result<Option<PathBuf>, Failure> {
    if program.is_static && !follow.children() && fault {
        return Err(Failure::usage(format!(
            "--sampler fault: {} is statically linked and loads no preload library that could make its pages fault; use \
             --sampler timer",
            program.elf.display()
        )));
    }
    if program.is_static && !follow.children() {
        notes.push(format!(
            "{} is statically linked: globals and mappings are recorded, allocations and their call sites are not",
            program.elf.display()
        ));
        return Ok(None);
    }
    library::find_for(program, "profile").map(Some)
}

/// The directory of the hooks, if the program, or one that it starts, may call them.
fn hooks_for(program: &Executable, follow: &Follow) -> Result<PathBuf, String> {
    let why = match program.hooks {
        Hooks::OfLibrary => return library::find_trace(),
        Hooks::No if follow.children() => return library::find_trace(),
        Hooks::No => "its code calls no hooks; build it again with these flags",
        Hooks::Own => "it carries ThreadSanitizer's own library; link it again with these flags",
    };
    Err(format!(
        "--sampler trace: {}: {why}: {}, in bash; or use --sampler timer, which needs no flags",
        program.elf.display(),
        super::trace_flags::COMMAND
    ))
}

/// Bytes of a limit such as 512M.
fn memory(text: &str) -> Result<u64, String> {
    at_least(text, record::LEAST_MEMORY)
}

/// Bytes of a file.
fn size(text: &str) -> Result<u64, String> {
    at_least(text, 64 << 10)
}

fn at_least(text: &str, least: u64) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    let bytes = bytes.ok_or("give a size such as 512M")?;
    if bytes < least { Err(format!("give at least {}K", least >> 10)) } else { Ok(bytes) }
}

/// How to sample, and what events cost as far as that is known.
fn sampling(args: &Args, faults_by: Option<FaultsBy>) -> Result<(Sampling, Costs), String> {
    if !(args.max_overhead > 0.0 && args.max_overhead <= 100.0) {
        return Err(format!("--max-overhead {}: give a percentage above 0 and up to 100", args.max_overhead));
    }
    let max_overhead = args.max_overhead / 100.0;
    if args.sampler == Sampler::None {
        let reason = "no samples were asked for".into();
        let sampling = Sampling { sampler: "none".into(), reason, period_ns: 0, cost_ns: 0, max_overhead };
        return Ok((sampling, kept::read().unwrap_or_default()));
    }
    if let Some(by) = faults_by {
        return fault_sampling(args, by, max_overhead);
    }
    if args.interval.is_some() {
        return Err("--interval is of --sampler fault; add that, or leave it out".into());
    }
    if args.sampler == Sampler::Trace {
        return trace_sampling(args, max_overhead);
    }
    let given = args.frequency.or(args.count.map(|ns| NANOSECONDS / ns.max(1) as f64));
    let (rate, costs, why) = match given {
        Some(rate) if !(1.0..=calibrate::MAX_RATE).contains(&rate) => {
            return Err(format!(
                "{rate:.0} samples a second are out of range: 1 to {:.0} (faster timers have locked up virtual \
                 machines)",
                calibrate::MAX_RATE
            ));
        }
        Some(rate) => {
            let costs = kept::read().unwrap_or_default();
            (rate, Costs { sample_ns: 0, ..costs }, "rate as asked for".to_owned())
        }
        None => {
            let costs = calibrate::kept_or_measured().map_err(|e| attr::explain_refusal(&e))?;
            let rate = calibrate::rate_for(max_overhead, costs.sample_ns);
            (rate, costs, format!("a sample costs at least {:.1} us here", costs.sample_ns as f64 / 1e3))
        }
    };
    let reason = format!("CPU clock with registers; {why}");
    let (period_ns, cost_ns) = ((NANOSECONDS / rate) as u64, costs.sample_ns);
    Ok((Sampling { sampler: "timer".into(), reason, period_ns, cost_ns, max_overhead }, costs))
}

/// Every access is counted, and charged alike.
fn trace_sampling(args: &Args, max_overhead: f64) -> Result<(Sampling, Costs), String> {
    let refused = [
        (!args.pid.is_empty(), "--pid: the hooks count from the start of a program"),
        (args.delay.is_some(), "--delay; numamma_profile() of numamma.h switches the counting on and off"),
        (args.frequency.is_some() || args.count.is_some(), "a rate: every access is counted"),
    ];
    if let Some((_, what)) = refused.iter().find(|(given, _)| *given) {
        return Err(format!("--sampler trace does not go with {what}"));
    }
    let reason = "every access, counted by the hooks of the compiler, each charged 1 ns".into();
    let sampling = Sampling { sampler: TRACE.into(), reason, period_ns: CHARGE_NS, cost_ns: 0, max_overhead };
    Ok((sampling, kept::read().unwrap_or_default()))
}

/// The first use of each page in a window, charged alike.
/// Who makes pages fault for the `fault` sampler: the preload library where it may, else the kernel where it does.
fn faults_by(args: &Args) -> Result<FaultsBy, String> {
    let by_preload = args.pid.is_empty();
    let way = fault_sampler::usable(by_preload)
        .map_err(|lack| format!("--sampler fault: {}. Try: {}; or use --sampler timer", lack.why, lack.enable))?;
    match way {
        Way::Moving => Ok(FaultsBy::Moving(args.interval.unwrap_or(fault_sampler::DEFAULT_INTERVAL))),
        Way::Balancing if args.interval.is_none() => Ok(FaultsBy::Balancing),
        Way::Balancing => {
            Err("--interval: here the kernel makes pages fault (NUMA balancing), as often as it decides; leave \
                               --interval out, or run numamma as root"
                .into())
        }
    }
}

fn fault_sampling(args: &Args, by: FaultsBy, max_overhead: f64) -> Result<(Sampling, Costs), String> {
    let refused = [
        (args.delay.is_some(), "--delay; numamma_profile() of numamma.h switches the samples on and off"),
        (args.frequency.is_some() || args.count.is_some(), "a rate: --interval is the time between windows"),
    ];
    if let Some((_, what)) = refused.iter().find(|(given, _)| *given) {
        return Err(format!("--sampler fault does not go with {what}"));
    }
    let reason = match by {
        FaultsBy::Moving(_) => "first use of each page in each window, by page faults, each charged 1 ns".into(),
        FaultsBy::Balancing => "uses of pages that NUMA balancing of the kernel made fault, each charged 1 ns".into(),
    };
    let sampling = Sampling { sampler: FAULT.into(), reason, period_ns: CHARGE_NS, cost_ns: 0, max_overhead };
    Ok((sampling, kept::read().unwrap_or_default()))
}

/// What is said when the tracking of allocations took a larger part of the program's time than the overhead may be.
fn tracking(recorded: &Recorded) -> Option<String> {
    let share = recorded.stats.own as f64 / recorded.stats.samples.max(1) as f64;
    (share > recorded.max_overhead && recorded.stats.own >= LEAST_OWN).then(|| {
        format!(
            "{:.0} % of the samples fell into the tracking of allocations; alone the program takes that much less time",
            100.0 * share
        )
    })
}

fn summarise(recorded: &Recorded, command: &[OsString]) {
    let s = &recorded.stats;
    let what = if recorded.traced { "access" } else { "sample" };
    let kinds = [
        (s.lost, what),
        (s.events.mappings_lost, "mapping or thread record"),
        (s.faults_lost, "page fault"),
        (s.alloc_lost, "allocation event"),
    ];
    let lost: String =
        kinds.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!(", {} lost", plural(*n, what))).collect();
    say(format_args!(
        "{} in {:.1} s{lost}; wrote {}{}",
        plural(s.samples, what),
        s.duration_ns as f64 / NANOSECONDS,
        recorded.path.display(),
        if recorded.complete { "" } else { " (incomplete)" }
    ));
    for note in tracking(recorded).iter().chain(&recorded.notes) {
        say(note);
    }
    if recorded.running.is_some() {
        say("the program goes on unobserved");
    }
    let has_answer = |note: &String| note.contains(ATTACH);
    let is_answered = recorded.notes.iter().any(has_answer) || record::behind(&recorded.notes).is_some();
    if s.samples == 0 && recorded.samples_wanted && !is_answered {
        say(format_args!(
            "no sample was taken: the program used {:.2} s of CPU time; let it work for a few seconds. Work that it \
             leaves to a process that runs already is recorded with: {ATTACH}",
            s.cpu_ns as f64 / NANOSECONDS
        ));
    }
    say(format_args!("next: {}", next(recorded, command)));
}

/// What to type next; without an access there is nothing to advise.
fn next(recorded: &Recorded, command: &[OsString]) -> String {
    let file = recorded.path.display().to_string();
    let file = if file == "numamma.prof" { String::new() } else { format!(" {}", shell_word(&file)) };
    if let Some(behind) = record::behind(&recorded.notes) {
        return format!("`{behind}`");
    }
    if recorded.stats.resolved > 0 {
        return format!(
            "`numamma report{file}` shows it, `numamma advise{file} > policy.toml` says what to place where"
        );
    }
    if recorded.not_followed > 0 && !command.is_empty() {
        let words: Vec<String> = command.iter().map(|word| shell_word(&word.to_string_lossy())).collect();
        return format!("`numamma profile --follow -- {}` records the processes that it starts, too", words.join(" "));
    }
    if record::has_no_window(&recorded.notes) && !command.is_empty() {
        let words: Vec<String> = command.iter().map(|word| shell_word(&word.to_string_lossy())).collect();
        return format!("`numamma profile --sampler timer -- {}` needs no windows", words.join(" "));
    }
    format!("`numamma report{file}` shows what was seen; to advise takes samples at memory accesses")
}
