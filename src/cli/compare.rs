//! `numamma compare`: the program under each policy, measured on this machine.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use numamma_plan::machine::Machine;

use super::output::{self, print};
use crate::apply::compare::candidates::{self, Candidates, WORDS};
use crate::apply::compare::{self, Comparison, Ending, Plan};
use crate::apply::verify::ReportDir;
use crate::launch::exit::{Ended, Failure, say};
use crate::report::comparison::{self, Setting};
use crate::report::units::plural;

/// Run a program under several policies and say whether one is faster
///
/// Each policy gets one warm-up run (--warmup) that is not counted, then N timed
/// runs, in rounds in random order. Times are of the whole program, from its
/// start to its end.
///
/// Policies:
///   first-touch    the bare program; always measured, the others are compared
///                  with it
///   interleave     every page of the program round robin over the nodes, as
///                  numactl --interleave=all
///   block-naive    every object of the policy files named beside it in one
///                  block per node (size / nodes), threads bound as the first of
///                  them says; without a policy file: the program's variables of
///                  at least the last-level cache
///   advised        what `numamma advise` says of ./numamma.prof
///   FILE           a policy file, applied as `numamma run` does
///
/// The verdict: median times, a confidence interval from order statistics (95 %
/// from 6 runs on, the table says how much with fewer), and the Mann-Whitney U
/// test against first-touch at p < 0.05. "No difference seen" comes with the
/// number of runs that a difference of 3 % would need. No policy is called slower
/// where runs take less than 0.1 s: loading the library takes some milliseconds.
///
/// The program's stdout is not shown, only compared between policies. Its stdin
/// is empty unless it is redirected from a file, which every run then reads from
/// the beginning. Ctrl-C shows what was measured, and ends it by its signal.
///
/// Exit status: 0 when all runs were made, the program's own if it failed
/// (128 + signal), 2 if the command line or a policy cannot be used.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, override_usage = "numamma compare [OPTIONS] [--] PROGRAM [ARGS]...")]
pub struct Args {
    /// Timed runs of each policy
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Untimed runs of each policy before, of which the first is checked
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    warmup: u32,
    /// Names of policies and policy files, separated by commas [default: first-touch,interleave,block-naive]
    #[arg(short, long, value_name = "LIST", value_delimiter = ',')]
    policies: Option<Vec<String>>,
    /// Draw the order of runs again as in an earlier comparison [default: another each time; it is printed]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Print JSON instead of the table; times in seconds, shares from 0 to 1
    #[arg(long)]
    json: bool,
    /// Write the JSON of --json to FILE, besides the table
    #[arg(long, value_name = "FILE")]
    export_json: Option<PathBuf>,
    /// Compare even if the program exits with a status other than 0 (a signal is always a failure)
    #[arg(short, long)]
    ignore_status: bool,
    /// Print nothing but errors and the result
    #[arg(short, long)]
    quiet: bool,
    /// Program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM [ARGS]")]
    command: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
/// When a policy or the program cannot be used, or the program failed.
pub fn run(args: Args) -> Result<Ended, Failure> {
    let dir = ReportDir::new().map_err(|e| Failure::usage(format!("cannot make a directory for policies: {e}")))?;
    let asked = args.policies.clone().unwrap_or_else(|| WORDS.map(str::to_owned).to_vec());
    let report = dir.file();
    let own = report.parent().unwrap_or(&report).to_owned();
    if asked.iter().any(|name| name.trim() == candidates::ADVISED) {
        output::file(&own.join(candidates::ADVISED_FILE), &super::advise::without_arguments(args.quiet)?)?;
    }
    let Candidates { list, notes } = candidates::prepare(&asked, args.policies.is_some(), &args.command, &own)?;
    let seed = args.seed.unwrap_or_else(clock);
    let setting = Setting {
        command: args.command.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
        memory_nodes: Machine::this().memory_nodes.len(),
        runs: args.runs,
        seed,
    };
    let first = few_runs(args.runs).into_iter().chain(no_input());
    let notes: Vec<String> = first.chain(machine_notes(setting.memory_nodes)).chain(notes).collect();
    if !args.quiet {
        notes.iter().for_each(say);
        let (policies, runs) = (policies(list.len()), plural(args.runs.into(), "run"));
        let warmups = plural(args.warmup.into(), "warm-up");
        say(format!("{policies}, {warmups} and {runs} each, --seed {seed}"));
    }
    let plan = Plan { candidates: list, runs: args.runs, warmups: args.warmup, seed, any_status: args.ignore_status };
    let mut is_first = true;
    let mut measured = compare::measure(&plan, &report, |round, policy, seconds| {
        if !args.quiet {
            // Before the many runs that it concerns; with their median again at the end.
            comparison::short(seconds).filter(|_| is_first).iter().for_each(say);
            is_first = false;
            let round = if round == 0 { "warm-up".to_owned() } else { format!("run {round} of {}", args.runs) };
            say(format!("{round}: {policy} {seconds:.3} s"));
        }
    });
    if !args.quiet {
        measured.notes.iter().for_each(say);
    }
    measured.notes.extend(comparison::doubts(&measured.samples));
    if !args.quiet {
        comparison::doubts(&measured.samples).iter().for_each(say);
    }
    measured.notes.splice(0..0, notes);
    conclude(&args, &setting, &measured)
}

fn policies(n: usize) -> String {
    if n == 1 { "1 policy".to_owned() } else { format!("{n} policies") }
}

/// Said before the runs are made: so few can tell nothing.
fn few_runs(runs: u32) -> Option<String> {
    comparison::least_runs(runs).map(|least| {
        format!(
            "{} of each policy can never tell a difference from chance: -n {least} is the least",
            plural(runs.into(), "run")
        )
    })
}

/// What is piped in cannot be read again by each run.
fn no_input() -> Option<String> {
    let stdin = std::io::stdin();
    let is_file = std::fs::metadata("/proc/self/fd/0").is_ok_and(|file| file.is_file());
    let is_nothing = std::fs::read_link("/proc/self/fd/0").is_ok_and(|file| file.as_os_str() == "/dev/null");
    (!stdin.is_terminal() && !is_file && !is_nothing).then(|| {
        "the program's standard input is empty: every run would need what is piped in; redirect it from a file"
            .to_owned()
    })
}

/// Properties of this machine that limit what a comparison can show.
pub(super) fn machine_notes(memory_nodes: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if memory_nodes == 1 {
        notes.push(
            "this machine has one node with memory, so all policies place alike here: a difference can only come from \
             binding, start-up or chance"
                .to_owned(),
        );
    }
    let balancing = std::fs::read_to_string("/proc/sys/kernel/numa_balancing").unwrap_or_default();
    if memory_nodes > 1 && !["", "0"].contains(&balancing.trim()) {
        notes.push(
            "kernel.numa_balancing is on: the kernel moves the pages of first-touch towards their users while it runs"
                .to_owned(),
        );
    }
    notes
}

fn clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs())
}

fn conclude(args: &Args, setting: &Setting, measured: &Comparison) -> Result<Ended, Failure> {
    let rows = comparison::rows(&measured.samples, setting.memory_nodes);
    let some = rows.iter().any(|r| r.n > 0);
    let complete = measured.ending == Ending::Complete;
    let report = comparison::Report { setting, complete, notes: &measured.notes, policies: &rows };
    if let Some(file) = &args.export_json {
        output::file(file, &output::json("the comparison", &report)?)?;
    }
    if args.json {
        print(&output::json("the comparison", &report)?, false)?;
    } else if some {
        print(&comparison::text(&rows, output::columns(libc::STDOUT_FILENO)), false)?;
    }
    match &measured.ending {
        Ending::Complete => Ok(Ended::with(0)),
        Ending::Interrupted(signal) => {
            let left = if some { "the table shows the runs made until then" } else { "no run had ended" };
            say(format!("stopped by signal {signal}: {left}"));
            Ok(Ended::Signalled(*signal))
        }
        Ending::Failed(failure) => Err(failure.clone()),
    }
}
