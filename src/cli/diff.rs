//! `numamma diff`: two profiles compared, and conditions on the difference for scripts.

use std::path::PathBuf;

use super::input::Profiles;
use super::output::{self, color_is_welcome, print, terminal_size};
use crate::launch::exit::{EXIT_FAILURE, Failure, say};
use crate::merge::diff::Difference;
use crate::merge::diff::condition::{Condition, Judged};
use crate::report::difference::{self, Style};
use crate::report::{DEFAULT_TOP, difference_json, glossary, html};

/// Compare two profiles: before and after a change, two versions, two ranks
///
/// Objects are matched by identity (variable, call stack of the same build), in
/// another build by name, functions and size; one that is on another line now is
/// matched, too, and its old name is shown.
///
/// A profile holds samples, so every change has an interval of 95 %: of shares
/// by Newcombe's method 10 (1998), of ratios as Donner and Zou say (2012). How
/// much runs vary besides is not in it; `numamma compare` measures times.
///
/// Each side is a profile or a directory of *.prof, as for `numamma report`. For
/// several files on a side, put --to between the two lists:
///   numamma diff before.*.prof --to after.*.prof
///
/// --fail-if is for scripts: METRIC > CHANGE or METRIC < CHANGE
///   METRIC   cost, remote or by_others of the run; OBJECT:cost and so on of an
///            object, by its name or a part of it
///   CHANGE   with a sign: percent of the value before (+5%), or points of the
///            share (-10pp)
///   cost     in percent: CPU time at memory accesses; in points: of the run its
///            share of the samples, of an object its share of the run's cost
/// It is fulfilled only if the whole interval is beyond CHANGE. Few samples
/// therefore fulfil nothing.
///
/// Exit status: 0; 1 when a condition of --fail-if is fulfilled, or a profile of
/// several was left out; 2 when the command line or a profile cannot be used, or
/// a figure of the run that --fail-if names is not known on both sides.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, override_usage = "numamma diff [OPTIONS] BEFORE AFTER\n       \
          numamma diff [OPTIONS] BEFORE... --to AFTER...", after_long_help = glossary::DIFF)]
pub struct Args {
    /// The profiles before and after, or directories of *.prof; with --to all of them are before
    #[arg(value_name = "PROF", required = true)]
    profiles: Vec<PathBuf>,
    /// The profiles after, or directories of *.prof
    #[arg(long, value_name = "PROF", num_args = 1..)]
    to: Vec<PathBuf>,
    /// Exit with status 1 if the change is surely so, as 'by_others > +5pp'; may be given several times
    #[arg(long, value_name = "EXPR", value_parser = str::parse::<Condition>)]
    fail_if: Vec<Condition>,
    /// Show at most N objects [default: 15, all with --json]
    #[arg(long, value_name = "N", conflicts_with = "all", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
    /// Show every object
    #[arg(long)]
    all: bool,
    /// JSON instead of text; sizes in bytes, times in seconds, shares from 0 to 1
    #[arg(long)]
    json: bool,
    /// Write the difference as one HTML file for any browser, without network
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "top", "all"])]
    html: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// When a profile or a condition cannot be used, or stdout not be written.
pub fn run(args: Args) -> Result<u8, Failure> {
    let (before, after) = sides(&args)?;
    let names = (before.name(), after.name());
    let (before, left_out) = before.load_undivided()?;
    let (after, also_left_out) = after.load_undivided()?;
    let difference = Difference::of(&before, &after);
    let judged = judge(&args.fail_if, &difference)?;
    let default_top = if args.json || args.html.is_some() { None } else { Some(DEFAULT_TOP) };
    let style = Style {
        names,
        top: if args.all { None } else { args.top.map(|n| n as usize).or(default_top) },
        width: terminal_size().0,
        color: color_is_welcome(),
    };
    if let Some(path) = &args.html {
        let report = difference_json::render(&difference, &style, &judged);
        output::file(path, &html::difference(report))?;
    } else if args.json {
        let report = difference_json::render(&difference, &style, &judged);
        print(&output::json("the difference", &report)?, false)?;
    } else {
        print(&difference::render(&difference, &style), style.color)?;
    }
    let told = judged.iter().filter(|(_, judged)| judged.fulfilled || judged.change.is_none());
    told.for_each(|(condition, judged)| say(difference::judged(condition, judged)));
    let fails = judged.iter().any(|(_, judged)| judged.fulfilled);
    Ok(if fails { EXIT_FAILURE } else { left_out.max(also_left_out) })
}

/// The profiles of each side.
fn sides(args: &Args) -> Result<(Profiles, Profiles), String> {
    match (&args.profiles[..], &args.to[..]) {
        ([before, after], []) => Ok((Profiles::of(before), Profiles::of(after))),
        (before, after @ [_, ..]) => Ok((Profiles::all(before), Profiles::all(after))),
        ([_], []) => Err("a second profile is missing: numamma diff BEFORE AFTER".to_owned()),
        (several, []) => Err(format!(
            "{} profiles are named, and not which of them are before and after: put --to between them, or name a \
             directory for each side",
            several.len()
        )),
    }
}

/// Judges all conditions. A figure of the run that is not known would let a script pass forever.
fn judge(conditions: &[Condition], difference: &Difference) -> Result<Vec<(Condition, Judged)>, String> {
    let one = |condition: &Condition| {
        let named = |e| format!("--fail-if '{}': {e}", condition.text);
        let row = condition.object.as_deref().map(|o| difference::row(difference, o)).transpose().map_err(named)?;
        let judged = condition.judge(difference, row);
        if judged.change.is_none() && row.is_none() {
            return Err(format!(
                "--fail-if '{}': {} of the run is not known before and after{}",
                condition.text,
                condition.metric,
                difference::why_unknown(difference, condition)
            ));
        }
        Ok((condition.clone(), judged))
    };
    conditions.iter().map(one).collect()
}
