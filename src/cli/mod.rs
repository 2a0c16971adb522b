//! The command line: one thin file per command. Diagnostics go to stderr, data to stdout.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use numamma_kernel::terminal;

use crate::launch::exit::{EXIT_FAILURE, Ended, Failure, end_as, say, show};
pub use crate::launch::memory::OrExit;
use crate::launch::signals;

pub mod advise;
pub mod advise_static;
pub mod compare;
pub mod diff;
pub mod doctor;
pub mod export;
mod fault_sampler;
mod fixes;
mod html;
mod input;
pub mod man;
mod output;
mod pager;
pub mod plot;
pub mod predict;
pub mod profile;
mod progress;
pub mod report;
pub mod run;
mod selection_options;
pub mod target_options;
mod time_option;
pub mod top;
pub mod topology;
pub mod trace_flags;
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

  numamma profile -- ./app        record one run in numamma.prof; ./app may be
                                  a script, make or mpirun
  numamma report                  what was hot, who touched it, from where
  numamma advise > policy.toml    where each hot object should go, and why
  LD_PRELOAD=libnumamma-apply.so NUMAMMA_POLICY=policy.toml ./app
                                  the next run is placed
  numamma verify --policy policy.toml -- ./app
                                  placed, and every page checked
  numamma compare --policies interleave,policy.toml -- ./app
                                  whether it is faster than first touch
  numamma diff old.prof new.prof  what changed between two profiles
  numamma export -f parquet       tables for DuckDB, Polars and others
  numamma fixes                   what to change in the source, with the lines
  numamma plot '#0' -o f.svg      a figure of an object
  numamma tune -- ./app           all of it: the fastest policy on this machine
  numamma top -- ./app            the objects by cost while it runs

No hardware counters, no root and no recompilation are needed.";

#[derive(Debug, Subcommand)]
enum Command {
    Profile(profile::Args),
    Report(report::Args),
    Advise(advise::Args),
    Predict(predict::Args),
    Plot(plot::Args),
    Run(run::Args),
    Verify(verify::Args),
    Compare(compare::Args),
    Diff(diff::Args),
    Fixes(fixes::Args),
    Export(export::Args),
    Tune(tune::Args),
    Top(top::Args),
    Topology(topology::Args),
    TraceFlags(trace_flags::Args),
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
            std::process::exit(match output::help(&e) {
                Ok(()) => 0,
                Err(message) => {
                    say(message);
                    EXIT_FAILURE.into()
                }
            });
        }
        let shown = std::env::args_os().map(|arg| terminal::line(&arg.to_string_lossy()).into_owned());
        let error = Cli::try_parse_from(shown).err().unwrap_or(e);
        show(error.render().to_string().trim_end());
        std::process::exit(error.exit_code())
    })
}

/// Parses the command line, runs the command, and ends as that says; a failure is printed here and nowhere else.
pub fn main() -> ExitCode {
    signals::wait_for_children();
    signals::survive_file_limit();
    ExitCode::from(end_as(if stack_limit() >= LEAST_STACK { work() } else { work_with_stack() }))
}

fn work_with_stack() -> Ended {
    let thread = std::thread::Builder::new().stack_size(LEAST_STACK).spawn(work);
    thread.map_or_else(|_| work(), |thread| thread.join().unwrap_or(Ended::with(EXIT_FAILURE)))
}

/// Stack that every command gets along with: several times what was measured with `ulimit -s` (80 KiB overflow).
const LEAST_STACK: usize = 1 << 20;

/// Bytes that the stack of the main thread may take.
fn stack_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the structure is writable; after a failure it is as it was.
    unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

fn work() -> Ended {
    let own = |status: Result<u8, Failure>| status.map(Ended::with);
    let done = match parsed().command {
        Command::Profile(a) => profile::run(a),
        Command::Report(a) => own(report::run(a)),
        Command::Advise(a) => own(advise::run(a)),
        Command::Predict(a) => own(predict::run(a)),
        Command::Plot(a) => own(plot::run(a)),
        Command::Run(a) => own(run::run(a)),
        Command::Verify(a) => verify::run(a),
        Command::Compare(a) => compare::run(a),
        Command::Diff(a) => own(diff::run(a)),
        Command::Fixes(a) => own(fixes::run(a)),
        Command::Export(a) => own(export::run(a)),
        Command::Tune(a) => tune::run(a),
        Command::Top(a) => top::run(a),
        Command::Topology(a) => own(topology::run(a)),
        Command::TraceFlags(a) => own(trace_flags::run(a)),
        Command::Doctor(a) => own(doctor::run(a)),
        Command::GenerateDocs(a) => own(man::run(a)),
    };
    done.unwrap_or_else(|failure| {
        say(&failure.message);
        failure.end
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Where the help keeps line breaks of the source, a terminal of 80 columns must not add others.
    #[test]
    fn lines_of_the_help_that_are_kept_fit_a_terminal() {
        let root = Cli::command();
        let commands = || std::iter::once(&root).chain(root.get_subcommands());
        let mut kept = 0;
        for command in commands() {
            let text = [command.get_long_about(), command.get_after_long_help(), command.get_after_help()];
            let text: String = text.into_iter().flatten().map(|text| format!("{text}\n\n")).collect();
            for paragraph in text.split("\n\n").filter(|paragraph| paragraph.contains('\n')) {
                let wide = paragraph.lines().find(|line| line.chars().count() > 80);
                assert_eq!(wide, None, "{}", command.get_name());
                kept += 1;
            }
        }
        assert!(kept > 5, "{kept}");
    }
}
