//! `numamma run`: run a program placed.

use crate::cli::input::PlacedProgram;
use crate::launch::exit::Failure;

/// Run a program under a policy, with checks first
///
/// The same as LD_PRELOAD=libnumamma-apply.so NUMAMMA_POLICY=policy.toml ./app, after checking the policy
/// against this machine and the program. The exit status is the program's own.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    placed: PlacedProgram,
}

/// Replaces this process by the placed program.
///
/// # Errors
/// When the policy, the program or the library cannot be used, or the program not be executed.
pub fn run(args: Args) -> Result<u8, Failure> {
    Err(args.placed.prepare(args.quiet)?.exec())
}
