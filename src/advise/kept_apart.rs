//! Rules that keep other rules away: after a rebuild call sites are compared by function names, and a rule whose
//! functions name several call sites would take them all, also those that had no rule.
//!
//! Such a call site gets a rule that leaves its objects where they are. The applier then tells the call sites apart by
//! the recorded sizes ([`numamma_plan::callsite::group`]). Small allocations are kept away by their size.
//!
//! No call site has both such a rule and another one, since each would take objects of the other. It needs none:
//! objects that fit no part, size or number of its other rules are left where they are. For the same reason a part of
//! an object gets no such rule of its own; one rule leaves the whole object.

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
    // Nor what is one with something that has a rule.
    let is_placed = |index: usize| {
        let own = &summary.entries[index];
        placed
            .iter()
            .filter_map(|&i| drafts[i].entry)
            .any(|i| i == index || parts::are_of_one(&summary.entries[i], own))
    };
    let has_rules =
        |callsite: &Option<Vec<String>>| drafts.iter().flat_map(|d| d.item.rules()).any(|r| r.callsite == *callsite);
    let mut keepers: Vec<(usize, ObjectRule)> = Vec::new();
    let mut large_only: Vec<usize> = Vec::new();
    for (index, entry) in summary.entries.iter().enumerate().filter(|(index, _)| !is_placed(*index)) {
        let Some(site) = &entry.site else { continue };
        for &draft in &placed {
            let Ok(rule) = &drafts[draft].item.rule else { continue };
            if rule.function.is_none() || !matching::takes_when_rebuilt(summary, rule, site) {
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
                if !has_rules(&new.callsite) && !keepers.iter().any(known) {
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
    sizes.hold(parts::object_size(entry))
}

/// A rule for all allocations of the call site of `entry` that is named like `rule`.
fn keeper(summary: &Summary, entry: &Entry, rule: &ObjectRule) -> ObjectRule {
    let frames = entry.site.as_ref().map_or(&[][..], |s| s.frames.get(..=summary.user_frame(s)).unwrap_or(&s.frames));
    let functions = rule.function.iter().flatten().filter(|f| !is_frameless(f)).cloned();
    ObjectRule {
        name: Some(entry.part.as_ref().map_or(&entry.name, |part| &part.parent).clone()),
        callsite: Some(frames.iter().map(|f| summary.frame_place(*f)).collect()),
        function: Some(functions.collect()),
        sizes: rule.sizes.clone(),
        size: Some(parts::object_size(entry)),
        place: Place { policy: PolicyKind::Default, ..Place::default() },
        ..ObjectRule::default()
    }
}
