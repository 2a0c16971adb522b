//! The command line: one thin file per command. Diagnostics go to stderr, data to stdout.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use numamma_kernel::terminal;

use crate::launch::exit::{say, show};
use crate::launch::signals;

pub mod advise;
pub mod advise_static;
pub mod compare;
pub mod doctor;
mod input;
pub mod man;
mod output;
pub mod predict;
pub mod profile;
pub mod report;
pub mod run;
pub mod target_options;
pub mod topology;
pub mod tune;
mod tuned_file;
pub mod verify;

/// Make an unmodified parallel program run well on a NUMA machine.
#[derive(Debug, Parser)]
#[command(name = "numamma", version, about, long_about = LONG_ABOUT, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const LONG_ABOUT: &str = "Make an unmodified parallel program run well on a NUMA machine.

  numamma profile -- ./app                  record one run in numamma.prof
  numamma report                            what was hot, who touched it, from where
  numamma advise > policy.toml              where each hot object should go, and why
  LD_PRELOAD=libnumamma-apply.so NUMAMMA_POLICY=policy.toml ./app
                                            the next run is placed
  numamma verify --policy policy.toml -- ./app
                                            placed, and every page checked
  numamma compare --policies interleave,policy.toml -- ./app
                                            whether it is faster than first touch, with n runs
  numamma tune -- ./app                     all of it: the fastest policy on this machine

No hardware counters, no root and no recompilation are needed.";

#[derive(Debug, Subcommand)]
enum Command {
    Profile(profile::Args),
    Report(report::Args),
    Advise(advise::Args),
    Predict(predict::Args),
    Run(run::Args),
    Verify(verify::Args),
    Compare(compare::Args),
    Tune(tune::Args),
    Topology(topology::Args),
    Doctor(doctor::Args),
    /// For `make install`
    #[command(hide = true)]
    GenerateDocs(man::Args),
}

/// The command line, or the end of this process: with the help that was asked for, or with what is wrong. That quotes
/// arguments, which scripts make of names that others gave, so they are parsed again in the form that can be shown.
fn parsed() -> Cli {
    Cli::try_parse().unwrap_or_else(|e| {
        if !e.use_stderr() {
            e.exit();
        }
        let shown = std::env::args_os().map(|arg| terminal::line(&arg.to_string_lossy()).into_owned());
        let error = Cli::try_parse_from(shown).err().unwrap_or(e);
        show(error.render().to_string().trim_end());
        std::process::exit(error.exit_code())
    })
}

/// Parses the command line, runs the command, and turns what it returns into an exit status; a failure is printed here
/// and nowhere else.
pub fn main() -> ExitCode {
    signals::wait_for_children();
    signals::survive_file_limit();
    let done = match parsed().command {
        Command::Profile(a) => profile::run(a),
        Command::Report(a) => report::run(a),
        Command::Advise(a) => advise::run(a),
        Command::Predict(a) => predict::run(a),
        Command::Run(a) => run::run(a),
        Command::Verify(a) => verify::run(a),
        Command::Compare(a) => compare::run(a),
        Command::Tune(a) => tune::run(a),
        Command::Topology(a) => topology::run(a),
        Command::Doctor(a) => doctor::run(a),
        Command::GenerateDocs(a) => man::run(a),
    };
    ExitCode::from(done.unwrap_or_else(|failure| {
        say(&failure.message);
        failure.exit
    }))
}
