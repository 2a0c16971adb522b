//! `numamma predict`: a profile priced on a target machine under several policies.

use std::path::{Path, PathBuf};

use super::output::{self, color_is_welcome, print, terminal_size};
use super::target_options::TargetArgs;
use super::tuned_file;
use crate::advise::{self, Given};
use crate::detect;
use crate::launch::exit::Failure;
use crate::report::prediction as table;
use crate::topology::Topology;

/// Estimate what policies would gain on a machine, from a profile and a model of the machine
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Profile to read
    #[arg(value_name = "PROF", default_value = "numamma.prof")]
    profile: PathBuf,
    #[command(flatten)]
    target: TargetArgs,
    /// Price this policy file, too; may be given several times
    #[arg(long, value_name = "FILE")]
    policy: Vec<PathBuf>,
    /// A table for every hot object as well
    #[arg(long)]
    objects: bool,
    /// JSON instead of text: policies[{name, local_share, busiest_node_share, time, speedup, low, high}], baseline (the
    /// name of the policy that is 1)
    #[arg(long)]
    json: bool,
    /// No notes about the profile on stderr
    #[arg(short, long)]
    quiet: bool,
}

const EXAMPLES: &str = "Columns:
  local         share of the cache lines that come from the thread's own node
  busiest node  share of the cache lines that one node's memory serves (1 / nodes when even)
  time          estimated for the whole run, over that of the baseline: first touch as the target does it by default,
                with the kernel's NUMA balancing or without (/proc/sys/kernel/numa_balancing)
  speed-up      the inverse, and the range in which the samples leave it (95 %); errors of the model are not in it
Rows:
  first-touch    the recorded first touchers on the target's threads
  first-touch, balanced
                 the same, and the kernel moves pages to the nodes that use them (numa_balancing)
  interleave     every object page by page over all nodes
  block-naive    every object in blocks of size / nodes
  advised        what `numamma advise` says for the same target
  FILE           each policy given
  best possible  the best that was found, page by page

Examples:
  numamma predict --target \"pack:4 numa:2 core:6\"
  numamma predict run.prof --nodes 4 --policy policy.toml --objects";

/// Runs the command.
///
/// # Errors
/// When an input cannot be used or stdout not be written.
pub fn run(args: Args) -> Result<u8, Failure> {
    let color = color_is_welcome() && !args.json;
    print(&render(&args, color)?, color)?;
    Ok(0)
}

fn render(args: &Args, color: bool) -> Result<String, String> {
    let given = args.policy.iter().map(|p| read(p)).collect::<Result<Vec<Given>, String>>()?;
    let summary = super::input::load(&args.profile, args.quiet)?;
    let threads = detect::roles(&summary).workers;
    let mut target = args.target.resolve(&Topology::this_machine(), threads, &summary.header.thp)?;
    tuned_file::correct(&mut target, &args.profile, &summary.header.program, args.quiet);
    let patterns = detect::classify_all(&summary);
    let named = |e: &dyn std::fmt::Display| format!("{}: {e}", args.profile.display());
    let advice = advise::advise(&summary, &patterns, &target).map_err(|e| named(&e))?;
    let prediction = advise::predict(&summary, &patterns, &target, &advice, &given).map_err(|e| match e {
        advise::PredictError::Profile(e) => named(&e),
        rule => rule.to_string(),
    })?;
    if args.json {
        return output::json("the prediction", &prediction);
    }
    let (width, _) = terminal_size();
    Ok(table::text(&prediction, &table::Options { width, color, objects: args.objects }))
}

fn read(path: &Path) -> Result<Given, String> {
    let show = path.display();
    let text =
        numamma_plan::policy_file::read(path).map_err(|e| format!("{show}: {e}; check the path given to --policy"))?;
    let policy = numamma_plan::check::parse(&text).map_err(|e| format!("{show}: {e}"))?;
    Ok(Given { name: show.to_string(), policy })
}
