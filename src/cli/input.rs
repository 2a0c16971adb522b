//! The profile, or the policy and the program, that a command line names.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::detect;
use crate::launch::exit::{Failure, say};
use crate::launch::placed::{self, Prepared};
use crate::profile::summary::Summary;

/// Reads a profile, finds the parts of its objects and prints its notes unless `quiet`. When only profiles of MPI ranks
/// exist, the message names one.
///
/// # Errors
/// Why the profile cannot be read.
pub fn load(path: &Path, quiet: bool) -> Result<Summary, String> {
    let rank_0 = || Some(path.with_extension(format!("0.{}", path.extension()?.to_str()?))).filter(|p| p.exists());
    let mut summary = Summary::load(path).map_err(|e| match rank_0().filter(|_| !path.exists()) {
        Some(rank) => {
            format!("{}: there is one profile for each MPI rank; name one: {}", path.display(), rank.display())
        }
        None => e.to_string(),
    })?;
    detect::divide(&mut summary);
    if !quiet {
        summary.notes.iter().for_each(say);
    }
    Ok(summary)
}

/// A program and the policy to run it under.
#[derive(Debug, clap::Args)]
pub struct PlacedProgram {
    /// Policy file, as `numamma advise` writes it
    #[arg(short, long, value_name = "FILE")]
    pub policy: PathBuf,
    /// Program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "PROGRAM [ARGS]")]
    command: Vec<OsString>,
}

impl PlacedProgram {
    /// Checks both and prints the warnings unless `quiet`.
    ///
    /// # Errors
    /// When the policy, the program or the apply library cannot be used.
    pub fn prepare(&self, quiet: bool) -> Result<Prepared, Failure> {
        let prepared = placed::prepare(&self.policy, &self.command)?;
        if !quiet {
            prepared.warning.iter().for_each(say);
        }
        Ok(prepared)
    }
}
