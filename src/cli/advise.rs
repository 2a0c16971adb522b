//! `numamma advise`: from a profile to a policy.

use std::path::PathBuf;

use numamma_plan::policy::Size;

use super::output;
use super::target_options::TargetArgs;
use crate::advise::{self, Advice, Advised};
use crate::detect;
use crate::launch::exit::{Failure, say, show};
use crate::profile::summary::AccessFilter;
use crate::report::advice as summary;
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
        Some(program) => {
            let advice = super::advise_static::advice(program, &args.target, args.min_size)?;
            write(&args, &advice, summary::unprofiled)?;
        }
        None => write(&args, &profiled(&args)?, summary::profiled)?,
    }
    Ok(0)
}

/// `20MiB`, at least a byte.
fn size(text: &str) -> Result<Size, String> {
    let size = Size::parse(text).filter(|s| s.0 > 0);
    size.ok_or_else(|| "write bytes or a binary unit such as 640KiB or 8MiB, at least 1".to_owned())
}

fn profiled(args: &Args) -> Result<Advice, String> {
    let summary = super::input::load(&args.profile, args.quiet)?;
    let threads = detect::roles(&summary).workers;
    let mut target = args.target.resolve(&Topology::this_machine(), threads, &summary.header.thp)?;
    super::tuned_file::correct(&mut target, &args.profile, &summary.header.program, args.quiet);
    let patterns = detect::classify_accesses(&summary, args.access);
    advise::advise(&summary, &patterns, &target).map_err(|e| format!("{}: {e}", args.profile.display()))
}

/// Writes the advice, and on stderr its title and lines as `summary` gives them, with the remarks.
fn write<T: Advised>(
    args: &Args,
    advice: &Advice<T>,
    summary: impl Fn(&Advice<T>) -> (String, Vec<String>),
) -> Result<(), String> {
    let text = if args.json {
        output::json("the advice", &advise::json(advice))?
    } else {
        advise::toml(advice).map_err(|e| format!("the policy cannot be written as TOML: {e}"))?
    };
    output::write(args.output.as_deref(), &text)?;
    if !args.quiet {
        let (title, lines) = summary(advice);
        say(title);
        lines.iter().for_each(|line| show(&format!("  {line}")));
        advice.remarks.iter().for_each(say);
    }
    Ok(())
}
