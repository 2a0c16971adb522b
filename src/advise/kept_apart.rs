//! Rules that keep other rules away: after a rebuild call sites are compared by function names, and a rule whose
//! functions name several call sites would take them all, also those that had no rule.
//!
//! Such a call site gets a rule that leaves its objects where they are. The applier then tells the call sites apart by
//! the recorded sizes ([`numamma_plan::callsite::group`]). Small allocations are kept away by their size.

use numamma_plan::callsite::function::is_frameless;
use numamma_plan::callsite::selection::Sizes;
use numamma_plan::policy::{ObjectRule, Place, PolicyKind};

use super::item::Draft;
use super::{matching, parts};
use crate::profile::records::{ObjectKind, SMALL_OBJECT};
use crate::profile::summary::{Entry, Summary};

/// Such rules for one policy: a file that a person can read.
const MAX_RULES: usize = 64;

pub(super) fn add(summary: &Summary, drafts: &mut [Draft]) {
    let placed: Vec<usize> = (0..drafts.len()).filter(|&i| drafts[i].item.rule.is_ok()).collect();
    let is_placed = |index: usize| placed.iter().any(|&i| drafts[i].entry == Some(index));
    let mut keepers: Vec<(usize, ObjectRule)> = Vec::new();
    let mut large_only: Vec<usize> = Vec::new();
    for (index, entry) in summary.entries.iter().enumerate().filter(|(index, _)| !is_placed(*index)) {
        let Some(site) = &entry.site else { continue };
        for &draft in &placed {
            let Ok(rule) = &drafts[draft].item.rule else { continue };
            // A part that is not placed is no part of the other ranges.
            let of_one = drafts[draft].entry.is_some_and(|i| parts::are_of_one(&summary.entries[i], entry));
            if of_one || rule.function.is_none() || !matching::takes_when_rebuilt(summary, rule, site) {
                continue;
            }
            let of = drafts[draft].entry.map(|i| summary.entries[i].kind);
            if entry.kind == ObjectKind::SmallHeap {
                if of == Some(ObjectKind::Heap) && rule.sizes.is_none() {
                    large_only.push(draft);
                }
            } else if holds(rule, entry) && keepers.len() < MAX_RULES {
                let new = keeper(summary, entry, rule);
                let known = |(_, k): &(usize, ObjectRule)| (&k.callsite, &k.function) == (&new.callsite, &new.function);
                if new.callsite != rule.callsite && !keepers.iter().any(known) {
                    keepers.push((index, new));
                }
            }
        }
    }
    for draft in large_only {
        let item = &mut drafts[draft].item;
        item.rule
            .iter_mut()
            .chain(&mut item.more)
            .for_each(|rule| rule.sizes = Some(format!("{}KiB-", SMALL_OBJECT >> 10)));
    }
    for (index, mut rule) in keepers {
        // Cold objects have no item of their own: their rule stands with the group, the last one.
        let own = drafts.iter().position(|d| d.entry == Some(index)).or(drafts.len().checked_sub(1));
        let Some(item) = own.map(|i| &mut drafts[i].item) else { continue };
        rule.why = Some("not placed; listed so that no rule for the same functions takes it after a rebuild".into());
        item.more.push(rule);
    }
}

/// Whether the sizes of a rule hold an entry's.
fn holds(rule: &ObjectRule, entry: &Entry) -> bool {
    let sizes = rule.sizes.as_deref().and_then(|text| Sizes::parse(text).ok()).unwrap_or_default();
    sizes.hold(entry.size)
}

/// A rule for the call site of `entry` that is named like `rule`.
fn keeper(summary: &Summary, entry: &Entry, rule: &ObjectRule) -> ObjectRule {
    let frames = entry.site.as_ref().map_or(&[][..], |s| s.frames.get(..=summary.user_frame(s)).unwrap_or(&s.frames));
    let functions = rule.function.iter().flatten().filter(|f| !is_frameless(f)).cloned();
    ObjectRule {
        name: Some(entry.name.clone()),
        callsite: Some(frames.iter().map(|f| summary.frame_place(*f)).collect()),
        function: Some(functions.collect()),
        sizes: rule.sizes.clone(),
        size: Some(entry.size),
        place: Place { policy: PolicyKind::Default, ..Place::default() },
        ..ObjectRule::default()
    }
}
