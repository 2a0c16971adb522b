//! `numamma verify`: run placed, then check every page.

use std::path::PathBuf;

use numamma_plan::output_name;

use crate::apply::given::Started;
use crate::apply::verify::{Answer, ReportDir, judge};
use crate::cli::input::PlacedProgram;
use crate::cli::output;
use crate::launch::exit::{Ended, Failure, show};
use crate::report::verification;

/// Exit status when a page is off plan, an object was not found, or the run could not be checked.
const EXIT_OFF_PLAN: u8 = 1;

/// Run a program under a policy and check every page against the plan
///
/// Exit status: 1 if a page is off plan or an object of the policy was not found; otherwise it ends as the program
/// does, by a signal, too, after which nothing may be checked. Pages that spilled to another node because theirs was
/// full are counted and named, but do not change the exit status.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = crate::report::glossary::VERIFY,
    override_usage = "numamma verify [OPTIONS] --policy FILE [--] PROGRAM [ARGS]..."
)]
pub struct Args {
    /// Print the counts as JSON on stdout, after the program's own output
    #[arg(long)]
    json: bool,
    /// Write the counts as JSON to FILE (%p process id, %h host, %r MPI rank)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print no table
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    placed: PlacedProgram,
}

/// Runs the command.
///
/// # Errors
/// When the program could not be run placed, or the answer not be written.
pub fn run(args: Args) -> Result<Ended, Failure> {
    let prepared = args.placed.prepare(args.quiet)?;
    let dir = ReportDir::new().map_err(|e| Failure::usage(format!("cannot make a directory for the report: {e}")))?;
    let started = Started::now(&prepared.executable.elf, &prepared.policy);
    let (ended, pid) = prepared.spawn_and_wait(&dir.file())?;
    let outcome = judge(&dir.file(), ended, Some((&started, pid)), prepared.other_program().as_deref());
    if !args.quiet {
        show(&verification::text(&outcome, output::columns(libc::STDERR_FILENO)));
    }
    let (program, policy) = (prepared.executable.path.to_string_lossy(), args.placed.policy.to_string_lossy());
    let exit_status = ended.code();
    write_json(&args, &Answer { program: &program, policy: &policy, exit_status, outcome: &outcome })?;
    // A program that died before it could be checked is a failed check, too.
    Ok(if outcome.ok || matches!(ended, Ended::Signalled(_)) { ended } else { Ended::with(EXIT_OFF_PLAN) })
}

fn write_json(args: &Args, answer: &Answer<'_>) -> Result<(), String> {
    let json = output::json("the answer", answer)?;
    if let Some(file) = &args.output {
        let file =
            file.to_str().map_or_else(|| file.clone(), |f| output_name::expand(f, Some(std::process::id())).into());
        output::file(&file, &json)?;
    }
    if args.json {
        // What the program did counts more than whether its report could be printed.
        let _ = output::write(None, &json);
    }
    Ok(())
}
