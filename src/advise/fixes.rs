//! What to change in the source: the findings that a policy mends in each run, as changes that last, and those that no
//! policy mends.
//!
//! Kinds and words follow the fix advice of NumaPerf (Zhao et al.: NumaPerf: Predictive NUMA Profiling, ICS 2021), as
//! far as samples at pages can tell them. False and true sharing of cache lines is proven by the `trace` sampler only,
//! and a hint with others. Waits for locks are counted for the threads that may move by them, and not by lock.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use numamma_plan::policy::{Bind, ObjectRule, PolicyKind};

use super::{Advice, Item, PredictError, Target};
use crate::detect::{
    MIGRATION_SCORE, Pattern, PatternKind, Roles, SampledSharing, migration, roles, sampled_sharing, sharing_score,
};
use crate::profile::records::ThreadId;
use crate::profile::summary::{Counters, Entry, Summary, ratio};

pub use self::fix::{Fix, FixKind, Gain, Place};
use self::gains::Pricing;
use self::places::{allocation, hottest, initialisation};
use self::words::in_words;

mod balance;
mod copies;
mod fix;
mod frees;
mod gains;
mod handed_on;
mod huge;
mod lines;
mod places;
mod words;

/// Share of an object's touched pages from which on one thread has initialised it.
const INITIALISED: f64 = 0.9;
/// Share of an object's accesses, and of its writes, from which on a thread counts as one that uses, or writes, it.
const USES: f64 = 0.05;
/// Share of the run's cost that is most of it.
const MOST: f64 = 0.5;
/// Share of the run's cost from which on a small object that several threads write is worth a look.
const HOT_SMALL: f64 = 0.05;

/// The fixes for a program.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Fixes {
    /// Those of the highest predicted saving first, hints last.
    pub list: Vec<Fix>,
    /// What all placements of the list are expected to bring together, where that is more than what they bring one
    /// after the other: each alone leaves so much on one node that the others do not pay.
    pub together: Option<Gain>,
}

/// The fixes for a program. `advice` is that of `summary` and its `patterns` for `target`.
///
/// # Errors
/// As [`super::predict()`].
pub fn fixes(summary: &Summary, patterns: &[Pattern], target: &Target, advice: &Advice) -> Result<Fixes, PredictError> {
    let pricing = Pricing { summary, patterns, target, advice, advised: OnceCell::new() };
    let roles = roles(summary);
    let entry = |item: &Item| summary.entries.iter().find(|e| e.name == item.name);
    let objects = advice.items.iter().filter_map(|item| Some((item, entry(item)?)));
    let changed: Vec<(&Item, Vec<Fix>)> =
        objects.map(|(item, entry)| (item, of_object(summary, &roles, item, entry))).collect();
    let mut out = gains::priced(&pricing, changed)?;
    // What slows the program down is nothing to do.
    out.retain(|fix| !fix.gain.is_loss());
    // Nor what brings nothing, but where it does so together with the others.
    if out.iter().any(|fix| fix.gain.is_nothing()) && pricing.only_together(&out)?.is_none() {
        out.retain(|fix| !fix.gain.is_nothing());
    }
    let relies_on_threads = out.iter().any(|fix| fix.by_policy);
    let moving = migrating(summary, advice).filter(|_| !is_spread(advice));
    out.extend(moving.or_else(|| binding(summary, advice).filter(|_| relies_on_threads)));
    // Where the policy has no rules, its price is that of binding.
    let only_binds = is_bound_by_policy(advice) && advice.policy.objects.is_empty();
    let advised = if only_binds { pricing.advised()? } else { None };
    let handed_on = handed_on::fixes(summary, &roles, advice, advised);
    out.extend(handed_on.into_iter().filter(|fix| !fix.gain.is_nothing()));
    out.extend(balance::fixes(summary, &roles));
    out.extend(lines::fixes(summary));
    out.extend(frees::fixes(summary));
    for fix in out.iter_mut().filter(|fix| fix.places.is_empty()) {
        fix.places = places::of_threads(summary, &roles);
    }
    let order = |f: &Fix| (f.is_hint, -f.saves.unwrap_or(0.0), -f.share);
    out.sort_by(|a, b| order(a).partial_cmp(&order(b)).unwrap_or(std::cmp::Ordering::Equal));
    let together = pricing.only_together(&out)?;
    Ok(Fixes { list: out, together })
}

/// What the run does not tell, so that it may be there where no fix of `list` says so.
pub fn unjudged(summary: &Summary, roles: &Roles, list: &[Fix]) -> Vec<String> {
    let lines = lines::unjudged(summary, roles, list).map(|found| found.remark());
    let moving = migration(summary).filter(|found| found.is_unjudged()).map(|found| found.remark());
    let is_said = list.iter().any(|fix| fix.kind == FixKind::BindThreads);
    lines.into_iter().chain(moving.filter(|_| !is_said)).collect()
}

/// Why objects that have most of the cost have no placement, although several threads use them and others have touched
/// them first. Readers of the list look for them in it.
pub fn unplaced(summary: &Summary, roles: &Roles, advice: &Advice) -> Vec<String> {
    // Of one that a single thread uses most, the reason is in how it is handed on.
    let is_shared =
        |entry: &Entry| entry.threads().iter().all(|(_, own)| ratio(own.accesses(), entry.total.accesses()) <= MOST);
    let is_of_others = |entry: &Entry| {
        let found = entry.by_others(None, |thread| roles.place(thread));
        entry.size > summary.header.page_size && found.others as f64 > MOST * (found.known + found.unknown) as f64
    };
    let reason = |item: &Item| {
        let entry = summary.entries.iter().find(|e| e.name == item.name).filter(|e| is_shared(e) && is_of_others(e))?;
        let why = item.rule.as_ref().err()?;
        Some(format!(
            "No placement is proposed for {} ({:.1} % of the cost): {why}.",
            in_words(entry),
            100.0 * item.share
        ))
    };
    advice.items.iter().filter(|item| item.share > MOST && item.pattern.is_some()).filter_map(reason).collect()
}

fn of_object(summary: &Summary, roles: &Roles, item: &Item, entry: &Entry) -> Vec<Fix> {
    let Some(pattern) = &item.pattern else { return Vec::new() };
    let new = |kind, what: String, why: String| Fix {
        kind,
        object: Some(entry.name.clone()),
        share: item.share,
        what,
        why,
        saves: None,
        gain: Gain::default(),
        by_policy: true,
        is_hint: false,
        places: [allocation(summary, entry), initialisation(summary, entry), hottest(summary, entry)]
            .into_iter()
            .flatten()
            .collect(),
    };
    let policy = item.rule.as_ref().ok().map(|rule| rule.place.policy);
    let mut out = Vec::new();
    match policy {
        Some(PolicyKind::Interleave | PolicyKind::WeightedInterleave) => {
            out.push(new(
                FixKind::Interleave,
                format!(
                    "interleave {} over the nodes: numa_alloc_interleaved, or mbind(MPOL_INTERLEAVE) before it is \
                     written",
                    in_words(entry)
                ),
                pattern.evidence.clone(),
            ));
            // All use all of it at random; that one thread filled it before is no other use, where all is counted.
            let is_traced = summary.header.sampling.sampler == crate::profile::record::TRACE;
            if pattern.kind == PatternKind::ReadShared || (pattern.kind == PatternKind::Random && is_traced) {
                out.extend(copies::of(summary, entry, &pattern.evidence).map(|found| Fix {
                    by_policy: false,
                    is_hint: found.is_hint,
                    ..new(FixKind::Duplicate, found.what, found.why)
                }));
            }
        }
        Some(_) if is_divided(item) => out.extend(
            parallel_first_touch(roles, entry, &pattern.evidence)
                .map(|(what, why)| new(FixKind::ParallelFirstTouch, what, why)),
        ),
        _ => {}
    }
    // A trace tells it exactly: see `lines`.
    let is_guess = sharing_score(summary).is_none();
    let places: Vec<Place> = hottest(summary, entry).into_iter().collect();
    out.extend(padding(roles, entry, item, pattern.kind, &places).filter(|_| is_guess).map(|(what, why)| Fix {
        gain: Gain::unpriced(at_most("the model has no price for lines that threads take from each other", item.share)),
        by_policy: false,
        is_hint: true,
        ..new(FixKind::Pad, what, why)
    }));
    out.extend(huge::fix(summary, item, entry));
    out
}

/// Why a fix has no price, and what bounds its gain.
fn at_most(unpriced: &str, share: f64) -> String {
    format!(
        "not known: {unpriced}. It is within the {:.1} % of the CPU time at accesses that the object has",
        100.0 * share
    )
}

/// Whether the placement gives each thread its part of the object. What all use on one node is there whichever of its
/// users touches it first.
fn is_divided(item: &Item) -> bool {
    use PolicyKind::{Block, BlockCyclic, Local, Map};
    let in_slices = |pattern: &Pattern| matches!(pattern.kind, PatternKind::Block | PatternKind::BlockCyclic);
    let divides =
        |rule: &ObjectRule| matches!(rule.place.policy, Block | BlockCyclic | Local | Map) || rule.instances.is_some();
    item.rules().any(divides) || item.pattern.as_ref().is_some_and(in_slices)
}

/// What to do where one thread has initialised what others use.
fn parallel_first_touch(roles: &Roles, entry: &Entry, evidence: &str) -> Option<(String, String)> {
    let touched: u64 = entry.touches.iter().map(|t| u64::from(t.pages)).sum();
    let (toucher, pages) = *entry.first_touchers().first()?;
    let users = users(roles, entry, |c| c.accesses());
    let (first, part) = (ratio(pages, touched), ratio_of(entry, toucher));
    if first < INITIALISED || users < 2 || part >= INITIALISED {
        return None;
    }
    let what =
        format!("initialise {} in a loop that is divided among the threads as the loop that uses it", in_words(entry));
    let why = format!(
        "thread {toucher} touched {:.0} % of its pages first and makes {:.0} % of the accesses; {evidence}",
        100.0 * first,
        100.0 * part
    );
    Some((what, why))
}

/// A hint that several threads write within a page, and not all to the same words.
fn padding(roles: &Roles, entry: &Entry, item: &Item, kind: PatternKind, places: &[Place]) -> Option<(String, String)> {
    let writers = users(roles, entry, |c| c.writes);
    if kind != PatternKind::Small || item.share < HOT_SMALL || writers < 2 {
        return None;
    }
    let (when, told) = match sampled_sharing(entry, roles) {
        SampledSharing::Apart | SampledSharing::SameWords => return None,
        SampledSharing::Unknown => (
            "if the threads write different parts of it, ",
            "samples do not tell whether it is the same word".to_owned(),
        ),
        SampledSharing::DifferentWords(a, b) => {
            ("", format!("by samples, they use different words of a cache line, such as those at bytes {a} and {b}"))
        }
    };
    let what = format!(
        "{when}give the part of each thread in {} a cache line of its own ({} or padding)",
        in_words(entry),
        lines::Aligned::of(places).words()
    );
    let why = format!(
        "{writers} threads write its {} bytes, and {:.0} % of the cost is there; {told}",
        entry.size,
        100.0 * item.share
    );
    Some((what, why))
}

/// Threads that make a part of what `count` counts. Those that are made anew in the place of others are one.
fn users(roles: &Roles, entry: &Entry, count: impl Fn(&Counters) -> u64) -> usize {
    let mut by_place = BTreeMap::<Option<u32>, u64>::new();
    for (thread, counters) in entry.threads() {
        *by_place.entry(roles.place(thread)).or_default() += count(&counters);
    }
    let all: u64 = by_place.values().sum();
    by_place.values().filter(|n| **n > 0 && ratio(**n, all) >= USES).count()
}

/// Part of the accesses that `thread` makes.
fn ratio_of(entry: &Entry, thread: ThreadId) -> f64 {
    let own = entry.threads().into_iter().find(|(t, _)| *t == thread).map_or(0, |(_, c)| c.accesses());
    ratio(own, entry.total.accesses())
}

/// Whether the policy binds threads.
fn is_bound_by_policy(advice: &Advice) -> bool {
    advice.policy.threads.as_ref().is_some_and(|threads| threads.bind != Bind::None)
}

/// How to bind threads as `bind = "compact"` of a policy does: in order, the same number on each node. In OpenMP that
/// is `spread`, for nested teams too; `close` would put all on the first nodes of a machine with more cores than
/// threads.
fn how_to_bind(summary: &Summary) -> &'static str {
    match roles(summary).kinds.iter().any(|kind| kind.openmp) {
        true => "start it with OMP_PROC_BIND=spread OMP_PLACES=cores",
        false => {
            "bind its threads as they start (pthread_setaffinity_np): in their order, the same number to the CPUs of \
             each node"
        }
    }
}

/// Whether most of the cost is at objects that the policy spreads over the nodes, and leaves threads alone: these are
/// as near to their data on any node.
fn is_spread(advice: &Advice) -> bool {
    let spread = |item: &&Item| {
        let interleaves = |p| matches!(p, PolicyKind::Interleave | PolicyKind::WeightedInterleave);
        item.rule.as_ref().is_ok_and(|rule| interleaves(rule.place.policy))
    };
    !is_bound_by_policy(advice) && advice.items.iter().filter(spread).map(|item| item.share).sum::<f64>() > MOST
}

/// The threads of a policy that binds them.
fn binding(summary: &Summary, advice: &Advice) -> Option<Fix> {
    let places = advice.items.iter().any(|i| i.rule.is_ok());
    (is_bound_by_policy(advice) && places).then(|| Fix {
        kind: FixKind::BindThreads,
        object: None,
        share: 0.0,
        what: how_to_bind(summary).into(),
        why: "the placements of this list rely on threads that stay on their nodes".into(),
        saves: None,
        gain: Gain::unpriced(
            "none of its own: those of the placements of this list hold for threads that stay on their nodes",
        ),
        by_policy: true,
        is_hint: false,
        places: Vec::new(),
    })
}

/// The fix for threads that wait for each other so often that they are likely to be woken on another CPU.
fn migrating(summary: &Summary, advice: &Advice) -> Option<Fix> {
    let found = migration(summary).filter(|found| found.is_reported())?;
    let changes: u64 = summary.threads.iter().map(|t| t.migrations).sum();
    let what = if roles(summary).kinds.iter().any(|kind| kind.openmp) {
        "start it with OMP_PROC_BIND=spread OMP_PLACES=cores, so that each thread stays on the node of its data"
    } else {
        "bind the threads in turn to the CPUs of each node (pthread_setaffinity_np as they start), or the program to one \
         node with numactl --cpunodebind --membind or taskset if that has CPUs for all"
    };
    let why = format!(
        "thread-migration score {:.0}, reported above {MIGRATION_SCORE}: {} threads wait {:.0} times for locks, conditions, \
         barriers or each other's end in {:.1} s, {:.0} % of it parallel, and each time may be woken on another CPU, away \
         from their memory; samples saw {changes} changes of CPU",
        found.score,
        found.threads,
        found.waits,
        found.seconds,
        100.0 * found.parallel,
    );
    let by_policy = is_bound_by_policy(advice);
    let gain = "not known: the model takes threads to stay on their nodes, and each of these waits is an opportunity to be \
                moved, not a move";
    Some(Fix { by_policy, is_hint: false, ..Fix::about_threads(FixKind::BindThreads, (what.into(), why), gain.into()) })
}

#[cfg(test)]
mod tests;
