//! `numamma profile`: record one run.

use std::ffi::OsString;
use std::path::PathBuf;

use numamma_kernel::terminal::shell_word;
use numamma_plan::output_name;

use crate::launch::executable::{self, Executable};
use crate::launch::exit::{Failure, say};
use crate::launch::library;
use crate::profile::perf::calibrate::{self, Costs};
use crate::profile::perf::{attr, kept};
use crate::profile::record::{self, Options, Recorded};
use crate::profile::records::Sampling;

const NANOSECONDS: f64 = 1e9;

/// Record one run of a program in numamma.prof
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The exit status is the program's own (128 + signal), 2 when nothing could be recorded, 126 or 127 \
                  when the program cannot be executed."
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

    /// Samples per second and thread instead of the calibrated rate
    #[arg(short = 'F', long = "freq", value_name = "HZ", conflicts_with = "count")]
    frequency: Option<f64>,

    /// Nanoseconds of CPU time between two samples of a thread instead of the calibrated rate
    #[arg(short, long, value_name = "NS")]
    count: Option<u64>,

    /// Memory that the recording may take, with K, M or G; beyond it allocations are thinned and counted
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = memory)]
    max_memory: u64,

    /// Record the program's children, too
    #[arg(long)]
    follow: bool,

    /// Print what was chosen and why
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,

    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Sampler {
    /// The best that works here (at present always timer)
    Auto,
    /// CPU clock and registers, addresses by replaying the code
    Timer,
    /// No samples
    None,
}

/// Runs the command.
///
/// # Errors
/// When nothing could be recorded.
pub fn run(args: Args) -> Result<u8, Failure> {
    let recorded = profile(&args)?;
    if !args.quiet {
        summarise(&recorded);
    }
    Ok(recorded.ended.code())
}

fn profile(args: &Args) -> Result<Recorded, Failure> {
    let program = executable::check(&args.command[0])?;
    let output = output_name::expand(&args.output, None);
    if let Some(why) = record::unusable_output(&output) {
        return Err(Failure::usage(why));
    }
    let mut notes = Vec::new();
    let preload = preload_for(&program, &mut notes)?;
    let (sampling, costs) = sampling(args)?;
    if args.verbose {
        say(format_args!("sampler {}: {}", sampling.sampler, sampling.reason));
    }
    for note in notes.iter().filter(|_| !args.quiet) {
        say(note);
    }
    let (argv, max_memory) = (args.command.clone(), args.max_memory);
    let (follow, fault_ns) = (args.follow, costs.fault_ns);
    let options = Options { program, argv, output, sampling, fault_ns, follow, preload, notes, max_memory };
    record::record(options)
}

/// The profile preload, where it can be loaded.
fn preload_for(program: &Executable, notes: &mut Vec<String>) -> Result<Option<PathBuf>, String> {
    if program.is_static {
        notes.push(format!(
            "{} is statically linked: globals and mappings are recorded, allocations and their call sites are not",
            program.elf.display()
        ));
        return Ok(None);
    }
    library::find("profile").map(Some)
}

/// Bytes of a size such as 512M.
fn memory(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    let bytes = bytes.ok_or("give a size such as 512M")?;
    let least = record::LEAST_MEMORY;
    if bytes < least { Err(format!("give at least {}M", least >> 20)) } else { Ok(bytes) }
}

/// How to sample, and what events cost as far as that is known.
fn sampling(args: &Args) -> Result<(Sampling, Costs), String> {
    if !(args.max_overhead > 0.0 && args.max_overhead <= 100.0) {
        return Err(format!("--max-overhead {}: give a percentage above 0 and up to 100", args.max_overhead));
    }
    let max_overhead = args.max_overhead / 100.0;
    if args.sampler == Sampler::None {
        let reason = "no samples were asked for".into();
        let sampling = Sampling { sampler: "none".into(), reason, period_ns: 0, cost_ns: 0, max_overhead };
        return Ok((sampling, kept::read().unwrap_or_default()));
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
    let reason = format!("CPU clock with registers, {rate:.0} samples a second and thread; {why}");
    let (period_ns, cost_ns) = ((NANOSECONDS / rate) as u64, costs.sample_ns);
    Ok((Sampling { sampler: "timer".into(), reason, period_ns, cost_ns, max_overhead }, costs))
}

/// What is said when the tracking of allocations took a larger part of the program's time than the overhead may be.
fn tracking(recorded: &Recorded) -> Option<String> {
    let share = recorded.stats.own as f64 / recorded.stats.samples.max(1) as f64;
    (share > recorded.max_overhead).then(|| {
        format!(
            "{:.0} % of the samples fell into the tracking of allocations; alone the program takes that much less time",
            100.0 * share
        )
    })
}

fn summarise(recorded: &Recorded) {
    let s = &recorded.stats;
    let kinds = [
        (s.lost, "samples"),
        (s.events.mappings_lost, "records of mappings and threads"),
        (s.faults_lost, "page faults"),
        (s.alloc_lost, "allocation events"),
    ];
    let lost: String = kinds.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!(", {n} {what} lost")).collect();
    say(format_args!(
        "{} samples in {:.1} s{lost}; wrote {}{}",
        s.samples,
        s.duration_ns as f64 / NANOSECONDS,
        recorded.path.display(),
        if recorded.complete { "" } else { " (incomplete)" }
    ));
    for note in tracking(recorded).iter().chain(&recorded.notes) {
        say(note);
    }
    let file = recorded.path.display().to_string();
    let file = if file == "numamma.prof" { String::new() } else { format!(" {}", shell_word(&file)) };
    say(format_args!(
        "next: `numamma report{file}` shows it, `numamma advise{file} > policy.toml` says what to place where"
    ));
}
