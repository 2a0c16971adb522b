//! `numamma doctor`: what works on this machine, found by trying it, and the command that enables the rest.

use super::output::{self, print};
use crate::launch::exit::{EXIT_FAILURE, Failure};
use crate::report::checks::{self, Group, State};

mod machine;
mod placing;
mod profiling;

/// Say what works on this machine and how to enable the rest
///
/// Everything is tried out as the current user. The exit status is 0 when programs can be profiled and placed here,
/// 1 when something that is needed for it does not work.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// When stdout cannot be written.
pub fn run(args: Args) -> Result<u8, Failure> {
    let groups = [
        Group { title: "Profiling", checks: profiling::checks() },
        Group { title: "Placing", checks: placing::checks() },
        Group { title: "Machine", checks: machine::checks() },
    ];
    print(
        &if args.json {
            output::json("what was found", &groups)?
        } else {
            checks::text(&groups, output::columns(libc::STDOUT_FILENO))
        },
        false,
    )?;
    let broken = groups.iter().flat_map(|g| &g.checks).any(|c| c.state == State::Missing);
    Ok(if broken { EXIT_FAILURE } else { 0 })
}

/// A file of one line, trimmed; none when it cannot be read.
fn line(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|t| t.trim().to_owned())
}
