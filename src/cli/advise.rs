//! `numamma advise`: from a profile to a policy.

use std::path::{Path, PathBuf};

use numamma_plan::policy::Size;

use super::output;
use super::target_options::TargetArgs;
use crate::advise::{self, Advice};
use crate::detect;
use crate::launch::exit::{Failure, say};
use crate::profile::summary::AccessFilter;
use crate::topology::Topology;

/// Classify the hot objects of a profile and print a placement policy (TOML)
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Profile to read
    #[arg(value_name = "PROF", default_value = "numamma.prof")]
    profile: PathBuf,
    /// Without a run: place the large variables of this program by Minas' heuristic instead of reading a profile
    #[arg(long = "static", value_name = "PROGRAM", conflicts_with = "profile")]
    program: Option<PathBuf>,
    /// With --static: bytes from which a variable counts, such as 8MiB [default: the last-level cache]
    #[arg(long, value_name = "SIZE", requires = "program", value_parser = size)]
    min_size: Option<Size>,
    #[command(flatten)]
    target: TargetArgs,
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
        Some(program) => unprofiled(&args, program)?,
        None => profiled(&args)?,
    }
    Ok(0)
}

/// `20MiB`, at least a byte.
fn size(text: &str) -> Result<Size, String> {
    let size = Size::parse(text).filter(|s| s.0 > 0);
    size.ok_or_else(|| "write bytes or a binary unit such as 640KiB or 8MiB, at least 1".to_owned())
}

fn unprofiled(args: &Args, program: &Path) -> Result<(), String> {
    let advice = super::advise_static::advice(program, &args.target, args.min_size)?;
    let text = if args.json {
        advise::unprofiled::json(&advice).map_err(|e| format!("the advice cannot be written as JSON: {e}"))? + "\n"
    } else {
        advise::unprofiled::toml(&advice).map_err(|e| format!("the policy cannot be written as TOML: {e}"))?
    };
    output::write(args.output.as_deref(), &text)?;
    if !args.quiet {
        super::advise_static::summarise(&advice);
    }
    Ok(())
}

fn profiled(args: &Args) -> Result<(), String> {
    let summary = super::input::load(&args.profile, args.quiet)?;
    let threads = detect::thread_ranks(&summary).len() as u32;
    let target = args.target.resolve(&Topology::this_machine(), threads, &summary.header.thp)?;
    let patterns = detect::classify_accesses(&summary, args.access);
    let advice =
        advise::advise(&summary, &patterns, &target).map_err(|e| format!("{}: {e}", args.profile.display()))?;
    let text = if args.json {
        advise::json(&advice).map_err(|e| format!("the advice cannot be written as JSON: {e}"))? + "\n"
    } else {
        advise::toml(&advice).map_err(|e| format!("the policy cannot be written as TOML: {e}"))?
    };
    output::write(args.output.as_deref(), &text)?;
    if !args.quiet {
        summarise(&advice);
    }
    Ok(())
}

fn summarise(advice: &Advice) {
    let placed = advice.policy.objects.len();
    // A fold from 0.0: the sum of no floats is -0.0, which would be printed with its sign.
    let share = advice.items.iter().filter(|i| i.rule.is_ok()).fold(0.0, |sum, i| sum + i.share);
    say(format!("{placed} object{} placed, {:.0} % of the cost", if placed == 1 { "" } else { "s" }, 100.0 * share));
    advise::summary_lines(advice).iter().for_each(|line| eprintln!("  {line}"));
    advice.remarks.iter().for_each(say);
}
