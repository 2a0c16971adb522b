//! Which rule of a policy file an object of a profile falls under, as the apply library would find it: globals by
//! linkage name and module, allocations by the innermost frames of their call stack.

use std::collections::HashMap;

use numamma_plan::policy::{ObjectRule, Policy};
use numamma_plan::selection::{Instances, Sizes};
use numamma_plan::source::SourceLine;

use crate::profile::model::{CallSite, Frame, ObjectKind};
use crate::profile::summary::{Entry, Summary, base_name};

/// Index of the rule for each instance of `entry`, in order of birth; one for an entry without instances. The
/// profile may have seen fewer allocations than the library counts.
pub(super) fn rules_of(summary: &Summary, entry: &Entry, policy: &Policy) -> Vec<Option<usize>> {
    let fits = fitting(summary, entry, policy);
    let mut counts = HashMap::new();
    let mut rule_of = |size: u64| {
        let holds = |rule: &ObjectRule| match rule.sizes.as_deref().map(Sizes::parse) {
            Some(Ok(sizes)) => sizes.hold(size),
            _ => true,
        };
        let mut numbers = HashMap::new();
        let mut takes = |index: usize| {
            let rule = &policy.objects[index];
            let site = (&rule.callsite, &rule.function, &rule.sizes);
            let number = *numbers.entry(site).or_insert_with(|| {
                let count = counts.entry(site).or_insert(0_u64);
                *count += 1;
                *count
            });
            match rule.instances.as_deref().map(Instances::parse) {
                Some(Ok(list)) => list.hold(number),
                _ => true,
            }
        };
        // Every rule counts, also those behind the one that takes it.
        let taking: Vec<usize> =
            fits.iter().copied().filter(|&i| holds(&policy.objects[i])).filter(|&i| takes(i)).collect();
        taking.first().copied()
    };
    match entry.seen.as_slice() {
        [] => vec![rule_of(entry.size)],
        seen => seen.iter().map(|instance| rule_of(instance.size)).collect(),
    }
}

/// Rules that name `entry`: those with most frames first, then in the order of the file.
fn fitting(summary: &Summary, entry: &Entry, policy: &Policy) -> Vec<usize> {
    // Addresses are those of one build.
    let build = policy.program.as_ref().and_then(|p| p.build_id.as_ref());
    let same_build = build.is_some() && build == summary.header.build_id.as_ref();
    let fits = policy.objects.iter().enumerate().filter_map(|(i, rule)| {
        let frames = match entry.kind {
            ObjectKind::Global | ObjectKind::Section => usize::from(is_global(summary, entry, rule, same_build)),
            _ => entry.site.as_ref().map_or(0, |site| frames(summary, site, rule)),
        };
        (frames > 0).then_some((frames, i))
    });
    let mut fits: Vec<(usize, usize)> = fits.collect();
    fits.sort_by_key(|(frames, i)| (std::cmp::Reverse(*frames), *i));
    fits.into_iter().map(|(_, i)| i).collect()
}

fn is_global(summary: &Summary, entry: &Entry, rule: &ObjectRule, same_build: bool) -> bool {
    let Some(global) = &rule.global else { return false };
    let named = match entry.kind {
        ObjectKind::Section => entry.name.split(" of ").next() == Some(global),
        _ => *global == entry.linkage || (entry.linkage.is_empty() && *global == entry.name),
    };
    let module = entry.module.and_then(|m| summary.modules.get(m as usize)).map(|m| base_name(&m.path));
    let wanted = rule.module.as_deref().unwrap_or_else(|| base_name(&summary.header.program));
    let placed = !same_build || rule.address.is_none_or(|a| a == entry.vaddr);
    named && placed && module.is_none_or(|m| m == wanted)
}

/// Number of frames by which a rule names a call site; 0 when it does not.
fn frames(summary: &Summary, site: &CallSite, rule: &ObjectRule) -> usize {
    if let Some(wanted) = &rule.callsite {
        let same = site.frames.len() >= wanted.len()
            && site.frames.iter().zip(wanted).all(|(frame, text)| summary.frame_place(*frame) == *text);
        if same {
            return wanted.len();
        }
    }
    if let Some(line) = rule.line_alone() {
        return usize::from(is_on(summary, site, line));
    }
    let Some(wanted) = &rule.function else { return 0 };
    // Wrappers such as operator new stand inside the user's own function.
    let starts = 0..=summary.user_frame(site).min(site.frames.len().saturating_sub(1));
    let called = |frame: &Frame, name: &String| name.is_empty() || function(summary, *frame) == Some(name);
    let fits = |start: usize| {
        let rest = site.frames.get(start..).unwrap_or_default();
        rest.len() >= wanted.len() && rest.iter().zip(wanted).all(|(f, name)| called(f, name))
    };
    if starts.into_iter().any(fits) { wanted.len() } else { 0 }
}

/// Whether the user's own frame of a call site lies on a line.
fn is_on(summary: &Summary, site: &CallSite, line: &str) -> bool {
    let frame = site.frames.get(summary.user_frame(site));
    let location = frame.and_then(|f| summary.symbols.get(f)?.iter().find(|l| l.file.is_some()));
    let (Some(location), Ok(wanted)) = (location, SourceLine::parse(line)) else { return false };
    let file = location.file.as_deref().unwrap_or_default();
    location.line.map(u64::from) == Some(wanted.line) && wanted.is_in(b"", file.as_bytes())
}

fn function(summary: &Summary, frame: Frame) -> Option<&String> {
    summary.symbols.get(&frame)?.last()?.function.as_ref()
}
