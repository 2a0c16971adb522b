//! `numamma verify`: run placed, then check every page.

use std::path::PathBuf;

use numamma_plan::output_name;

use crate::apply::verify::{Answer, ReportDir, judge};
use crate::cli::input::PlacedProgram;
use crate::launch::exit::Failure;
use crate::report::verification;

/// Exit status when a page is off plan, an object was not found, or the run could not be checked.
const EXIT_OFF_PLAN: u8 = 1;

/// Run a program under a policy and check every page against the plan
///
/// Exit status: 1 if a page is off plan, an object of the policy was not found or the program died before
/// it could be checked; otherwise the program's own.
#[derive(Debug, clap::Args)]
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
pub fn run(args: Args) -> Result<u8, Failure> {
    let prepared = args.placed.prepare(args.quiet)?;
    let dir = ReportDir::new().map_err(|e| Failure::usage(format!("cannot make a directory for the report: {e}")))?;
    let ended = prepared.spawn_and_wait(&dir.file())?;
    let program = prepared.executable.path.to_string_lossy();
    let answer = judge(&dir.file(), &program, &args.placed.policy.to_string_lossy(), ended);
    if !args.quiet {
        eprintln!("{}", verification::text(&answer));
    }
    write_json(&args, &answer)?;
    Ok(if answer.ok { ended.code() } else { EXIT_OFF_PLAN })
}

fn write_json(args: &Args, answer: &Answer) -> Result<(), String> {
    let json = serde_json::to_string_pretty(answer).map_err(|e| format!("cannot write JSON: {e}"))?;
    if let Some(file) = &args.output {
        let file =
            file.to_str().map_or_else(|| file.clone(), |f| output_name::expand(f, Some(std::process::id())).into());
        std::fs::write(&file, format!("{json}\n")).map_err(|e| format!("{}: cannot write it: {e}", file.display()))?;
    }
    if args.json {
        use std::io::Write;
        // A reader that stops early (`| head`) is no error.
        let _ = writeln!(std::io::stdout(), "{json}");
    }
    Ok(())
}
