//! Blocks that one kind of threads touches first and another one uses, as a producer and its consumer.

use super::fix::{Fix, FixKind, Gain};
use super::places::{allocation, hottest};
use super::words::in_words;
use super::{HOT_SMALL, is_bound_by_policy};
use crate::advise::{Advice, Item, PolicyPrice};
use crate::detect::{PatternKind, Roles};
use crate::profile::records::ThreadId;
use crate::profile::summary::{Entry, Summary};

/// A fix for each object that counts; `advised` is the price of the advised policy, where that does nothing but bind.
pub(super) fn fixes(summary: &Summary, roles: &Roles, advice: &Advice, advised: Option<&PolicyPrice>) -> Vec<Fix> {
    let entry = |item: &Item| summary.entries.iter().find(|e| e.name == item.name);
    let of = |item: &Item| fix(summary, roles, (item, entry(item)?), is_bound_by_policy(advice), advised);
    advice.items.iter().filter_map(of).collect()
}

fn fix(
    summary: &Summary,
    roles: &Roles,
    (item, entry): (&Item, &Entry),
    by_policy: bool,
    advised: Option<&PolicyPrice>,
) -> Option<Fix> {
    let is_private = item.pattern.as_ref().is_some_and(|pattern| pattern.kind == PatternKind::Private);
    let users = roles.user_kind_of_others(entry).filter(|_| is_private && item.rule.is_err())?;
    if item.share < HOT_SMALL {
        return None;
    }
    let (toucher, _) = *entry.first_touchers().iter().find(|(thread, _)| roles.is_other_kind(*thread, users))?;
    let kind_of = |thread: ThreadId| roles.of(thread).map(|role| role.kind);
    let by = entry.by_others(None, |thread| kind_of(thread).map(|kind| kind as u32));
    Some(Fix {
        kind: FixKind::BindThreads,
        object: Some(entry.name.clone()),
        share: item.share,
        what: format!(
            "of {}, bind the thread that writes one first ({}) and the one that uses it ({}) to CPUs of one node \
             (pthread_setaffinity_np), or let the thread that uses a block allocate and write it first",
            in_words(entry),
            of_kind(summary, roles, kind_of(toucher)?),
            of_kind(summary, roles, users),
        ),
        why: format!(
            "{:.0} % of the {} accesses whose page's first toucher is known are to pages that a thread of another kind \
             touched first: where nothing binds the two, they are on one node by chance",
            100.0 * by.share().unwrap_or(0.0),
            by.known,
        ),
        saves: advised.map(|price| 1.0 - price.time),
        gain: advised.map_or_else(|| Gain::unpriced("not known: the model has no price for binding alone"), Gain::of),
        by_policy,
        is_hint: false,
        places: [allocation(summary, entry), hottest(summary, entry)].into_iter().flatten().collect(),
    })
}

/// What the threads of a kind run, or where they are created.
fn of_kind(summary: &Summary, roles: &Roles, kind: usize) -> String {
    let origin = roles.kinds.get(kind).and_then(|kind| kind.origins.first().copied());
    let frame = origin.and_then(|(routine, site)| site.or(routine));
    frame.map_or_else(|| format!("kind {kind}"), |frame| summary.frame_name(frame))
}
