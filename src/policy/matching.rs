//! Which rule of a policy file an object of a profile falls under, as the apply library would find it: globals by
//! linkage name and module, allocations by the innermost frames of their call stack.

use numamma_plan::policy::{ObjectRule, Policy};

use crate::profile::model::{CallSite, Frame, ObjectKind};
use crate::profile::summary::{Entry, Summary, base_name};

/// Index of the rule for `entry`; of several the one that names most frames.
pub(super) fn rule_of(summary: &Summary, entry: &Entry, policy: &Policy) -> Option<usize> {
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
    fits.max_by_key(|(frames, i)| (*frames, std::cmp::Reverse(*i))).map(|(_, i)| i)
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

fn function(summary: &Summary, frame: Frame) -> Option<&String> {
    summary.symbols.get(&frame)?.last()?.function.as_ref()
}
