//! Makes a policy file from patterns: a placement for each object, with its reason.
//!
//! [`advise`] is a pure function of a profile, its patterns and a [`Target`]; [`emit`] writes the result as TOML or
//! JSON. Objects that are not placed stay in the list with the reason, so that the shares of the cost add up. Profiles
//! without samples or threads are refused.

#[cfg(test)]
mod allocator_tests;
mod binding;
mod block_layout;
#[cfg(test)]
mod brief_tests;
#[cfg(test)]
mod by_number_tests;
mod candidates;
mod choose;
mod columns;
mod correction;
mod cost;
mod emit;
mod first_touch;
pub mod fixes;
#[cfg(test)]
mod handed_on_tests;
mod item;
mod kept_apart;
#[cfg(test)]
mod kept_apart_tests;
mod matching;
mod naming;
mod numbered;
mod page_maps;
mod page_nodes;
#[cfg(test)]
mod paper_tests;
mod parts;
#[cfg(test)]
mod parts_tests;
mod phase_demands;
mod phase_placements;
#[cfg(test)]
mod pool_tests;
mod predict;
mod processes;
mod ranks;
mod rules;
mod run_prices;
mod run_sums;
mod scene;
pub mod target_machine;
#[cfg(test)]
mod target_tests;
mod team_sizes;
#[cfg(test)]
mod team_tests;
mod teams;
#[cfg(test)]
mod tests;
mod together;
mod toml_escapes;
#[cfg(test)]
mod unaligned_tests;
#[cfg(test)]
mod unequal_tests;
pub mod unprofiled;
mod unseen_waiting;

use numamma_plan::policy::{Bind, MachineNote, ObjectRule, PatternNote, Policy, PolicyKind, Program, Size, Threads};

use crate::detect::{Pattern, PatternKind, cost_shares, hot, limits::HOT_SHARE, roles};
use crate::profile::records::ObjectKind;
use crate::profile::summary::Summary;

pub use columns::PredictError;
pub use correction::{Correction, Measured};
pub use emit::{Advised, json, toml};
pub use item::Item;
pub use page_nodes::page_nodes;
pub use predict::{Given, ObjectPrice, Prediction, predict, remote_shares};
pub use ranks::{for_ranks, for_runs, of_group};
pub use run_sums::PolicyPrice;
pub use target_machine::Target;

use item::{Draft, Groups};

/// The advice for one program. From a profile: every object that has a rule or at least [`HOT_SHARE`] of the cost,
/// highest first, then the other objects in groups.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice<T = Item> {
    /// The policy; its objects are the rules of `items`, in order.
    pub policy: Policy,
    /// Every object with its rules or the reason why it has none.
    pub items: Vec<T>,
    /// Remarks for the top of the file.
    pub remarks: Vec<String>,
}

/// Why there is no advice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdviceError {
    /// The recorder saw no memory access.
    #[error(
        "the profile holds no memory accesses; let the program run longer or raise the rate with \
         `numamma profile -F 1000 -- ./app` (`numamma doctor` says whether sampling works here)"
    )]
    NoSamples,
    /// The profile names no thread.
    #[error("the profile names no thread; record it again with `numamma profile -- ./app`")]
    NoThreads,
    /// Profile and patterns do not belong together (a mistake of the caller).
    #[error("{patterns} patterns were given for {entries} objects")]
    Patterns {
        /// Entries in the profile.
        entries: usize,
        /// Patterns given.
        patterns: usize,
    },
}

/// Maps each hot object's pattern to the simplest placement whose price on `target` (latencies, controllers and
/// links, see the cost model) is within 2 % of the best page map's, or the cheapest when none is. `patterns` come
/// from [`crate::detect::classify_all`].
///
/// # Errors
/// See [`AdviceError`].
pub fn advise(summary: &Summary, patterns: &[Pattern], target: &Target) -> Result<Advice, AdviceError> {
    if patterns.len() != summary.entries.len() {
        return Err(AdviceError::Patterns { entries: summary.entries.len(), patterns: patterns.len() });
    }
    let roles = roles(summary);
    if roles.is_empty() {
        return Err(AdviceError::NoThreads);
    }
    if summary.entries.iter().all(|e| e.total.accesses() == 0) {
        return Err(AdviceError::NoSamples);
    }
    let shares = cost_shares(summary);
    let world = cost::World::new(summary, &roles, target);
    let scene = scene::Scene { summary, roles: &roles, target, world: &world };
    let mut items = items(&scene, patterns, &shares);
    naming::separate(summary, &mut items);
    kept_apart::add(summary, &mut items);
    let worth = remark_on_worth(&world, &items);
    let (mut out, mut rest): (Vec<Item>, Vec<Item>) =
        items.into_iter().map(|i| i.item).partition(|i| i.pattern.is_some());
    out.append(&mut rest);
    let run_s = summary.duration_ns() as f64 / 1e9;
    let phases = phase_placements::declare_phases(out.iter_mut().filter_map(|i| i.rule.as_mut().ok()), run_s);
    let rules: Vec<ObjectRule> = out.iter().flat_map(Item::rules).cloned().collect();
    let binding = binding::decide(&scene, patterns, &shares, &rules);
    let mut remarks = remarks(summary, target, roles.workers, &rules, &binding);
    remarks.extend(worth);
    remarks.extend(world.time_remarks());
    let teams = if binding.bind { teams::teams(summary, &roles, target) } else { Vec::new() };
    Ok(Advice { policy: Policy { phases, teams, ..policy(summary, target, rules, &binding) }, items: out, remarks })
}

fn items(scene: &scene::Scene<'_>, patterns: &[Pattern], shares: &[f64]) -> Vec<Draft> {
    let summary = scene.summary;
    let hot = hot(summary);
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|a, b| shares[*b].total_cmp(&shares[*a]));
    let mut drafts = Vec::new();
    let mut taken = vec![0.0; scene.world.nodes()];
    let mut groups = Groups::default();
    for index in order {
        let (entry, share) = (&summary.entries[index], shares[index]);
        match entry.kind {
            ObjectKind::Stack | ObjectKind::Tls => groups.stacks.add(share),
            ObjectKind::Unknown => groups.unknown.add(share),
            _ if entry.details.left_out => groups.left_out.add(share),
            _ if !hot[index] => groups.cold.add(share),
            _ => {
                let pattern = &patterns[index];
                let (rule, more, saved, even_so) = match scene.rule(entry, pattern, share, &mut taken) {
                    Ok(rules) => (Ok(rules.rule), rules.more, rules.saved, rules.even_so),
                    Err(why) => (Err(why), Vec::new(), 0.0, None),
                };
                let item = Item { name: entry.name.clone(), share, pattern: Some(pattern.clone()), rule, saved, more };
                drafts.push(Draft { entry: Some(index), item, saved, even_so });
            }
        }
    }
    together::keep(&mut drafts);
    drafts.retain(|draft| {
        let own = draft.item.rule.is_ok() || draft.item.share >= HOT_SHARE;
        if !own {
            groups.cold.add(draft.item.share);
        }
        own
    });
    drafts.extend(groups.drafts());
    drafts
}

/// How the policy binds threads, if it does.
fn threads(target: &Target, bind: bool) -> Threads {
    if bind {
        // A portable policy does not know how many threads there will be.
        Threads { bind: Bind::Compact, count: (!target.portable).then_some(target.threads) }
    } else {
        Threads { bind: Bind::None, count: None }
    }
}

/// The advice with its threads bound, or left alone, whatever [`advise`] found better.
pub fn with_binding(advice: &Advice, summary: &Summary, target: &Target, bind: bool) -> Advice {
    let teams = if bind { teams::teams(summary, &roles(summary), target) } else { Vec::new() };
    let policy = Policy { threads: Some(threads(target, bind)), teams, ..advice.policy.clone() };
    Advice { policy, ..advice.clone() }
}

fn policy(summary: &Summary, target: &Target, rules: Vec<ObjectRule>, binding: &binding::Binding) -> Policy {
    let threads = threads(target, binding.bind);
    Policy {
        version: numamma_plan::policy::POLICY_VERSION,
        program: Some(Program {
            path: summary.header.program.path.clone(),
            build_id: summary.header.program.build_id.clone(),
        }),
        machine: Some(MachineNote { topology: target.topology.clone() }),
        threads: Some(threads),
        teams: Vec::new(),
        phases: Vec::new(),
        objects: rules,
    }
}

/// The remark on a policy without rules.
const NOTHING: &str = "No placement is advised; the policy says why for each object.";

fn remarks(
    summary: &Summary,
    target: &Target,
    threads: u32,
    rules: &[ObjectRule],
    binding: &binding::Binding,
) -> Vec<String> {
    let mut remarks = Vec::new();
    if target.portable {
        remarks.push(
            "This machine has one node, so the policy is portable: it uses all nodes of the machine on which it is \
             applied. `numamma advise --nodes N` makes one for a machine with N nodes."
                .into(),
        );
    } else if target.nodes < 2 {
        remarks.push("The target has one node: all memory is local and nothing needs placing.".into());
    }
    if let Some(recorded) = target.recorded.filter(|_| rules.iter().any(by_threads)) {
        remarks.push(format!(
            "Laid out for {} threads, although the run had {}: a small run, as it seems. If the program has {recorded} \
             on the target, too, parts lie on other nodes than their threads: use `--threads {recorded}`.",
            target.threads, recorded
        ));
    }
    let repeats = |rule: &ObjectRule| rule.place.policy == PolicyKind::BlockCyclic;
    if !target.portable && target.threads != threads && rules.iter().any(repeats) {
        remarks.push(format!(
            "Blocks that repeat keep the period of the run, so that each of {} threads is taken to have a smaller part of it. \
             If the blocks of a thread keep their size instead, as with schedule(static, N), profile with {} threads.",
            target.threads, target.threads
        ));
    }
    if threads == 1 {
        remarks.push("The program has one thread: all its memory is private, and first touch places it.".into());
    } else if rules.is_empty() {
        remarks.push(NOTHING.into());
    }
    remarks.extend(binding.remark.clone());
    if summary.ending.is_none() {
        let which = if summary.profiles > 1 { "At least one" } else { "The" };
        remarks.push(format!("{which} recording was cut off; the advice is based on the recorded part."));
    }
    remarks
}

/// Speed-up below which two digits behind the point show none.
const NO_GAIN: f64 = 1.005;

/// That the placements together do not shorten the run.
fn remark_on_worth(world: &cost::World<'_>, drafts: &[Draft]) -> Option<String> {
    let running_ns = world.clock.running_ns();
    let saved = drafts.iter().map(|d| d.saved).sum::<f64>() * running_ns / (running_ns + world.clock.idle_ns);
    let is_useless =
        !world.target.portable && drafts.iter().any(|d| d.item.rule.is_ok()) && saved < 1.0 - 1.0 / NO_GAIN;
    is_useless.then(|| {
        let caches = if world.knows_caches() {
            ""
        } else {
            " The sizes of the target's caches are not known: give them with --target, as in \"numa:2 l3:1(size=32MiB) \
             core:8 l2:1(size=1MiB)\"."
        };
        format!("All placements together are predicted to make the program 1.00x as fast: not worth applying.{caches}")
    })
}

/// Whether a placement fits only as many threads as it is laid out for.
fn by_threads(rule: &ObjectRule) -> bool {
    use PolicyKind::{Block, BlockCyclic, Map};
    matches!(rule.place.policy, Block | BlockCyclic | Map)
}

/// `1 node`, `8 nodes`.
fn plural(n: usize, word: &str) -> String {
    format!("{n} {word}{}", if n == 1 { "" } else { "s" })
}

/// Note of a pattern for the policy file.
fn note(pattern: &Pattern) -> PatternNote {
    PatternNote {
        kind: pattern.kind.as_str().into(),
        // Of a mixed object, what blocks of `auto` are computed from.
        period: pattern.overall().period.filter(|_| pattern.overall().kind == PatternKind::BlockCyclic).map(Size),
        confidence: Some((pattern.confidence * 100.0).round() / 100.0),
    }
}
