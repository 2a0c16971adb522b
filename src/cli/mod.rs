//! The command line: one file per command, thin. Our words go to stderr, data to stdout.

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::launch::exit::{EXIT_USAGE, say};
use crate::profile::summary::Summary;

pub mod advise;
pub mod advise_static;
pub mod compare;
pub mod doctor;
pub mod man;
pub mod predict;
pub mod profile;
pub mod report;
pub mod run;
pub mod target;
pub mod topology;
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
    Topology(topology::Args),
    Doctor(doctor::Args),
    /// For `make install`
    #[command(hide = true)]
    GenerateDocs(man::Args),
}

/// Parses the command line and runs the command.
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Profile(a) => profile::run(a),
        Command::Report(a) => report::run(a),
        Command::Advise(a) => advise::run(a),
        Command::Predict(a) => predict::run(a),
        Command::Run(a) => run::run(a),
        Command::Verify(a) => verify::run(a),
        Command::Compare(a) => compare::run(a),
        Command::Topology(a) => topology::run(a),
        Command::Doctor(a) => doctor::run(a),
        Command::GenerateDocs(a) => man::run(a),
    }
}

/// Reads a profile; when only those of MPI ranks are there, the message names one.
fn load(path: &Path) -> Result<Summary, String> {
    let rank_0 = || Some(path.with_extension(format!("0.{}", path.extension()?.to_str()?))).filter(|p| p.exists());
    Summary::load(path).map_err(|e| match rank_0().filter(|_| !path.exists()) {
        Some(rank) => {
            format!("{}: the profiles are one for each MPI rank; name one: {}", path.display(), rank.display())
        }
        None => e.to_string(),
    })
}
