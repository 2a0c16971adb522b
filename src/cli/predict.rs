//! `numamma predict`: a profile priced on a target machine under several policies.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::input::{Loaded, Profiles};
use super::output::{self, color_is_welcome, print, terminal_size};
use super::target_options::TargetArgs;
use super::tuned_file;
use crate::advise::{self, Given, Prediction};
use crate::detect;
use crate::launch::exit::Failure;
use crate::merge::Group;
use crate::profile::summary::Summary;
use crate::report::prediction as table;
use crate::report::units::printable;
use crate::topology::Topology;

/// Estimate what policies would gain on a machine, from a profile and a model of the machine
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    profiles: Profiles,
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
  busiest node  share of the cache lines that the memory of one node serves (1 /
                nodes when even)
  time          estimated for the whole run, over that of the baseline: first
                touch as the target does it by default, with the kernel's NUMA
                balancing or without (/proc/sys/kernel/numa_balancing)
  speed-up      the inverse, and the range in which the samples leave it (95 %);
                errors of the model are not in it
Rows:
  first-touch    the recorded first touchers on the target's threads
  first-touch, balanced
                 the same, and the kernel moves pages to the nodes that use them
                 (numa_balancing)
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
    let loaded = args.profiles.load(args.quiet)?;
    print(&render(&args, color, &loaded)?, color)?;
    Ok(loaded.status)
}

fn render(args: &Args, color: bool, loaded: &Loaded) -> Result<String, String> {
    let given = args.policy.iter().map(|p| read(p)).collect::<Result<Vec<Given>, String>>()?;
    let many = &loaded.many;
    let (width, _) = terminal_size();
    let options = table::Options { width, color, objects: args.objects };
    let rank = |member: usize| many.members.get(member).and_then(|m| m.rank);
    if many.groups.is_empty() {
        let all = priced(args, &many.whole, &given, rank(0))?;
        return if args.json { output::json("the prediction", &all) } else { Ok(table::text(&all, &options)) };
    }
    // Groups that differ have different advice and different prices: one table each.
    let priced = |group: &Group| priced(args, &group.summary, &given, group.members.first().and_then(|m| rank(*m)));
    let groups = many.groups.iter().map(priced).collect::<Result<Vec<Prediction>, String>>()?;
    if args.json {
        let mut json =
            serde_json::to_value(groups.first()).map_err(|e| format!("the prediction cannot be written: {e}"))?;
        let row = |(group, prediction): (&Group, &Prediction)| {
            let members = || group.members.iter().filter_map(|m| many.members.get(*m));
            let files: Vec<String> = members().map(|m| m.file.display().to_string()).collect();
            let ranks: Vec<u32> = members().filter_map(|m| m.rank).collect();
            json!({ "ranks": ranks, "profiles": files, "prediction": prediction })
        };
        json["groups"] = many.groups.iter().zip(&groups).map(row).collect();
        return output::json("the prediction", &json);
    }
    let text = |(group, p): (usize, &Prediction)| {
        format!("For {}\n{}", printable(&many.words(group)), table::text(p, &options))
    };
    Ok(groups.iter().enumerate().map(text).collect::<Vec<_>>().join("\n"))
}

/// The prices of one group of processes that do alike, one of which has this rank.
fn priced(args: &Args, summary: &Summary, given: &[Given], rank: Option<u32>) -> Result<Prediction, String> {
    let threads = detect::roles(summary).workers;
    let mut target = args.target.resolve(&Topology::this_machine(), threads, &summary.header.thp)?;
    if let Some(only) = args.profiles.only() {
        tuned_file::correct(&mut target, only, &summary.header.program, args.quiet);
    }
    let patterns = detect::classify_all(summary);
    let named = |e: &dyn std::fmt::Display| format!("{}: {e}", args.profiles.name());
    let advice = advise::advise(summary, &patterns, &target).map_err(|e| named(&e))?;
    let of_rank = |given: &Given| {
        let mut given = given.clone();
        given.policy.objects.retain(|rule| numamma_plan::ranks::applies(rule.ranks.as_deref(), rank));
        given
    };
    let given: Vec<Given> = given.iter().map(of_rank).collect();
    advise::predict(summary, &patterns, &target, &advice, &given).map_err(|e| match e {
        advise::PredictError::Profile(e) => named(&e),
        rule => rule.to_string(),
    })
}

fn read(path: &Path) -> Result<Given, String> {
    let show = path.display();
    let text =
        numamma_plan::policy_file::read(path).map_err(|e| format!("{show}: {e}; check the path given to --policy"))?;
    let policy = numamma_plan::check::parse(&text).map_err(|e| format!("{show}: {e}"))?;
    Ok(Given { name: show.to_string(), policy })
}
