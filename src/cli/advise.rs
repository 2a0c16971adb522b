//! `numamma advise`: from a profile to a policy.

use std::path::PathBuf;

use numamma_plan::policy::Size;

use super::input::Profiles;
use super::output;
use super::selection_options::SelectionArgs;
use super::target_options::TargetArgs;
use crate::advise::{self, Advice, Advised};
use crate::detect;
use crate::launch::exit::{Failure, say, show};
use crate::merge::{Group, Many};
use crate::profile::summary::{AccessFilter, Summary, ratio};
use crate::report::advice as summary;
use crate::topology::Topology;

/// Classify the hot objects of a profile and print a placement policy (TOML)
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    #[command(flatten)]
    profiles: Profiles,
    /// Without a run: place the large variables of this program by Minas' heuristic instead of reading a profile
    #[arg(long = "static", value_name = "PROGRAM", conflicts_with_all = ["profiles", "include", "exclude"])]
    program: Option<PathBuf>,
    /// With --static: bytes from which a variable counts, such as 8MiB [default: the last-level cache]
    #[arg(long, value_name = "SIZE", requires = "program", value_parser = size)]
    min_size: Option<Size>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Classify by reads only or writes only
    #[arg(long, value_enum, default_value_t = AccessFilter::All)]
    access: AccessFilter,
    /// Write to FILE instead of stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// JSON instead of TOML: every object with pattern, evidence and placement; sizes in bytes
    #[arg(long)]
    json: bool,
    /// No summary on stderr
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the command.
///
/// # Errors
/// When an input cannot be used or the policy not be written.
pub fn run(args: Args) -> Result<u8, Failure> {
    match &args.program {
        Some(program) => {
            let advice = super::advise_static::advice(program, &args.target, args.min_size)?;
            write(&args, &advice, summary::unprofiled)?;
            Ok(0)
        }
        None => {
            let loaded = args.profiles.load(args.quiet)?;
            write(&args, &profiled(&args, loaded.many)?, summary::profiled)?;
            Ok(loaded.status)
        }
    }
}

/// The policy that `numamma advise` without arguments writes, with its remarks printed unless `quiet`.
///
/// # Errors
/// When there is no such profile, or nothing can be advised.
pub(super) fn without_arguments(quiet: bool) -> Result<String, String> {
    let args = Args { quiet, ..Args::default() };
    let advice = profiled(&args, args.profiles.load(quiet)?.many)?;
    if !quiet {
        advice.remarks.iter().for_each(say);
    }
    toml(&advice)
}

/// `20MiB`, at least a byte.
fn size(text: &str) -> Result<Size, String> {
    let size = Size::parse(text).filter(|s| s.0 > 0);
    size.ok_or_else(|| "write bytes or a binary unit such as 640KiB or 8MiB, at least 1".to_owned())
}

/// The advice for all profiles: one for each group of ranks that do alike, put together.
fn profiled(args: &Args, mut many: Many) -> Result<Advice, String> {
    args.selection.apply(&mut many);
    let of = |summary: &Summary| {
        let threads = detect::roles(summary).workers;
        let mut target = args.target.resolve(&Topology::this_machine(), threads, &summary.header.thp)?;
        if let Some(only) = args.profiles.only() {
            super::tuned_file::correct(&mut target, only, &summary.header.program, args.quiet);
        }
        let patterns = detect::classify_accesses(summary, args.access);
        advise::advise(summary, &patterns, &target).map_err(|e| format!("{}: {e}", args.profiles.name()))
    };
    let mut advice = if many.groups.is_empty() {
        of(&many.whole)?
    } else {
        let all = many.whole.total();
        let own = |group: &Group| {
            let own = group.summary.total();
            let by_cost = ratio(own.cost_ns, all.cost_ns);
            let part = if all.cost_ns > 0 { by_cost } else { ratio(own.accesses(), all.accesses()) };
            Ok(advise::of_group(of(&group.summary)?, part))
        };
        let groups = many.groups.iter().map(own).collect::<Result<Vec<_>, String>>()?;
        match many.ranks() {
            Some(ranks) => advise::for_ranks(ranks.into_iter().zip(groups).collect()),
            None => advise::for_runs((0..).map(|group| many.words(group)).zip(groups).collect()),
        }
    };
    advice.remarks.extend(super::input::remark(&many));
    Ok(advice)
}

/// Writes the advice, and on stderr its title and lines as `summary` gives them, with the remarks.
fn write<T: Advised>(
    args: &Args,
    advice: &Advice<T>,
    summary: impl Fn(&Advice<T>) -> (String, Vec<String>),
) -> Result<(), String> {
    let text = if args.json { output::json("the advice", &advise::json(advice))? } else { toml(advice)? };
    output::write(args.output.as_deref(), &text)?;
    if !args.quiet {
        let (title, lines) = summary(advice);
        say(title);
        lines.iter().for_each(|line| show(&format!("  {line}")));
        advice.remarks.iter().for_each(say);
    }
    Ok(())
}

/// The policy file, which is one that `numamma run` reads.
fn toml<T: Advised>(advice: &Advice<T>) -> Result<String, String> {
    let text = advise::toml(advice).map_err(|e| format!("the policy cannot be written as TOML: {e}"))?;
    match numamma_plan::check::parse(&text) {
        Ok(_) => Ok(text),
        Err(e) => Err(format!(
            "this advice would be a policy that NumaMMA refuses ({e}); that is a mistake of NumaMMA: please report it \
             with the profile, and leave the object of that line out with --exclude meanwhile"
        )),
    }
}
