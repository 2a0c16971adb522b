//! `numamma run`: run a program placed.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::launch::exit::{Failure, say};
use crate::launch::placed;

/// Run a program under a policy, with checks first
///
/// The same as LD_PRELOAD=libnumamma-apply.so NUMAMMA_POLICY=policy.toml ./app, after checking the policy
/// against this machine and the program. The exit status is the program's own.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Policy file, as `numamma advise` writes it
    #[arg(short, long, value_name = "FILE")]
    policy: PathBuf,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
    /// Program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "PROGRAM [ARGS]")]
    command: Vec<OsString>,
}

/// Replaces this process by the placed program.
///
/// # Errors
/// When the policy, the program or the library cannot be used, or the program not be executed.
pub fn run(args: Args) -> Result<u8, Failure> {
    let prepared = placed::prepare(&args.policy, &args.command)?;
    if !args.quiet {
        prepared.warnings.iter().for_each(say);
    }
    Err(prepared.exec())
}
