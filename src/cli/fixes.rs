//! `numamma fixes`: what to change in the source.

use std::path::PathBuf;

use super::input::Profiles;
use super::output;
use super::selection_options::SelectionArgs;
use super::target_options::TargetArgs;
use super::tuned_file;
use crate::advise::{self, fixes};
use crate::detect;
use crate::launch::exit::{Failure, say};
use crate::report::fixes as shown;
use crate::topology::Topology;

/// List what to change in the source of a profiled program, with the lines
///
/// A policy places an unmodified program in each run; these are changes that last, and what no policy mends: where one
/// thread initialises data that many use, what to interleave or to copy for each node, which threads have more work
/// than others, which blocks are freed by other threads than those that allocated them, and what threads write in one
/// cache line: proven by the trace sampler, hints with others. Each has the gain that is expected on the target, with
/// its range (95 %, errors of the model are not in it), or says why it has none and
/// what is known instead. What a policy does as well is marked so. Lines need debug information (-g).
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    profiles: Profiles,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    /// JSON instead of text
    #[arg(long, conflicts_with = "sarif")]
    json: bool,
    /// SARIF 2.1.0 for tools of code review instead of text
    #[arg(long)]
    sarif: bool,
    /// Write to FILE instead of stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// When an input cannot be used or the list not be written.
pub fn run(args: Args) -> Result<u8, Failure> {
    let mut loaded = args.profiles.load(false)?;
    args.selection.apply(&mut loaded.many);
    // Of ranks that do not do alike the largest group: sources are changed for most.
    let many = loaded.many;
    let summary = many.groups.first().map_or(&many.whole, |group| &group.summary);
    let threads = detect::roles(summary).workers;
    let mut target = args.target.resolve(&Topology::this_machine(), threads, &summary.header.thp)?;
    if let Some(only) = args.profiles.only() {
        tuned_file::correct(&mut target, only, &summary.header.program, false);
    }
    let patterns = detect::classify_all(summary);
    let named = |e: &dyn std::fmt::Display| format!("{}: {e}", args.profiles.name());
    let advice = advise::advise(summary, &patterns, &target).map_err(|e| named(&e))?;
    let found = fixes::fixes(summary, &patterns, &target, &advice).map_err(|e| named(&e))?;
    let unjudged = fixes::unjudged(summary, &detect::roles(summary), &found.list);
    let unplaced = fixes::unplaced(summary, &detect::roles(summary), &advice);
    let remarks = || unplaced.iter().chain(&unjudged);
    if args.json || args.sarif {
        remarks().for_each(say);
    }
    let text = if args.json {
        output::json("the fixes", &found.list)?
    } else if args.sarif {
        output::json("the fixes", &shown::sarif(&found.list, &target.model.name, &summary.header.program.path))?
    } else {
        let together = found.together.as_ref();
        let mut text = shown::text(&found.list, together, &target.model.name, output::terminal_size().0);
        text.extend(remarks().map(|remark| shown::remark(remark, output::terminal_size().0)));
        text
    };
    if let Some(short) = detect::short_threads(summary) {
        say(short.remark());
    }
    output::write(args.output.as_deref(), &text)?;
    Ok(loaded.status)
}
