//! `numamma topology`: this machine.

use std::process::ExitCode;

use crate::topology::machine::Machine;

/// Show NUMA nodes, CPUs, memory and distances
#[derive(Debug, clap::Args)]
pub struct Args {
    /// JSON instead of text; sizes in bytes
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    let machine = Machine::this();
    if !args.json {
        return super::report::print(&crate::report::machine::render(&machine));
    }
    match machine.json() {
        Ok(text) => super::report::print(&text),
        Err(e) => {
            super::say(format!("topology: cannot be written as JSON: {e}"));
            ExitCode::FAILURE
        }
    }
}
