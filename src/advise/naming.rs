//! How a rule names its object: a global by its linkage name, an allocation by the innermost frames of its call
//! stack, no more of them than needed.

use numamma_plan::callsite::function::{INLINED, TAIL_CALL};
use numamma_plan::policy::{ObjectRule, Size};

use super::item::Draft;
use super::parts;
use crate::profile::records::{CallSite, NO_MODULE, ObjectKind};
use crate::profile::summary::{Entry, How, Step, Summary, base_name};

/// A rule with only its name filled in, or why the object cannot be named.
pub(super) fn name(summary: &Summary, entry: &Entry) -> Result<ObjectRule, String> {
    if let Some(file) = entry.file() {
        return Err(format!("it shows {file}: files stay where the page cache has them, and no policy reaches them"));
    }
    match entry.kind {
        ObjectKind::Global | ObjectKind::Section if entry.is_read_only(&summary.modules) => {
            Err("it is read-only: its pages are the file's in the page cache, where no policy reaches them".into())
        }
        ObjectKind::Global | ObjectKind::Section if name_in_file(entry).is_empty() => {
            Err("the profile has no name for it, so a policy cannot name it".into())
        }
        ObjectKind::Global | ObjectKind::Section => Ok(global(summary, entry)),
        _ => match &entry.site {
            Some(site) => {
                let sizes = sizes(summary, entry, site);
                let range = entry.part.as_ref().map(|p| parts::range_of(p, entry.size).to_string());
                let instances = entry.numbers.as_ref().map(|n| n.in_policy());
                Ok(ObjectRule { sizes, range, instances, ..at_site(summary, site, summary.user_frame(site) + 1)? })
            }
            None => Err("it is no allocation of a known call site, so a policy cannot name it".into()),
        },
    }
}

/// Section name of an entry that is shown as `.bss of lu.C.x`.
fn section(entry: &Entry) -> &str {
    entry.name.split(" of ").next().unwrap_or(&entry.name)
}

/// Name of a global or a section as its file has it. Empty only in a damaged profile.
fn name_in_file(entry: &Entry) -> &str {
    match entry.kind {
        ObjectKind::Section => section(entry),
        _ if entry.linkage.is_empty() => &entry.name,
        _ => &entry.linkage,
    }
}

fn global(summary: &Summary, entry: &Entry) -> ObjectRule {
    let module = entry.module.and_then(|m| summary.modules.get(m as usize)).map(|m| base_name(&m.path).to_owned());
    ObjectRule {
        global: Some(name_in_file(entry).to_owned()),
        module: module.filter(|m| m != base_name(&summary.header.program.path)),
        address: (entry.vaddr != 0).then_some(parts::variable_address(entry)),
        member: entry.part.as_ref().map(|p| p.member.clone()).filter(|name| !name.is_empty()),
        range: entry.part.as_ref().map(|p| parts::range_of(p, entry.size).to_string()),
        ..ObjectRule::default()
    }
}

fn at_site(summary: &Summary, site: &CallSite, frames: usize) -> Result<ObjectRule, String> {
    let chosen = &site.frames[..frames.min(site.frames.len())];
    if chosen.is_empty() || chosen.iter().any(|f| f.module == NO_MODULE || f.module as usize >= summary.modules.len()) {
        return Err("its call stack leads through code of no file, so a policy cannot name it".into());
    }
    let (steps, naming) = summary.steps(site);
    let line = steps.get(naming).and_then(line);
    let functions: Vec<String> = steps.iter().filter(|s| s.index < chosen.len()).map(function).collect();
    Ok(ObjectRule {
        callsite: Some(chosen.iter().map(|f| summary.frame_place(*f)).collect()),
        function: functions.iter().any(|f| !f.is_empty()).then_some(functions),
        line,
        ..ObjectRule::default()
    })
}

/// The sizes that tell the objects of an entry from others of the same call site; none where there are no others. The
/// bounds lie between the sizes that were seen, so that another input may make the objects somewhat larger or smaller.
fn sizes(summary: &Summary, entry: &Entry, site: &CallSite) -> Option<String> {
    let own = entry.size_class?;
    let frames = site.frames.get(..=summary.user_frame(site))?;
    let is_same = |e: &&Entry| e.kind == entry.kind && e.site.as_ref().is_some_and(|s| s.frames.starts_with(frames));
    let others = || summary.entries.iter().filter(is_same).filter_map(|e| e.size_class);
    let below = others().map(|o| o.1).filter(|high| *high < own.0).max();
    let above = others().map(|o| o.0).filter(|low| *low > own.1).min();
    let between = |low: u64, high: u64| Size(((low as f64 * high as f64).sqrt() as u64).next_multiple_of(PAGE));
    let low = below.map(|low| between(low, own.0).to_string()).unwrap_or_default();
    let high = above.map(|high| between(own.1, high).to_string()).unwrap_or_default();
    (below.is_some() || above.is_some()).then(|| format!("{low}-{high}"))
}

/// Bounds between sizes are rounded to it, which reads better.
const PAGE: u64 = 4096;

/// Name of a function, with a mark where it has no frame of its own. Empty when not known.
fn function(step: &Step<'_>) -> String {
    let mark = match step.how {
        How::Called => "",
        How::Inlined => INLINED,
        How::TailCalled => TAIL_CALL,
    };
    step.symbol().map(|f| format!("{f}{mark}")).unwrap_or_default()
}

fn line(step: &Step<'_>) -> Option<String> {
    let location = step.location?;
    let file = location.file.as_deref().map(base_name)?;
    Some(location.line.map_or_else(|| file.to_owned(), |n| format!("{file}:{n}")))
}

/// Lengthens call sites until no other site of the profile with another placement begins with the same frames. An
/// item whose whole stack is another's beginning cannot be told apart and loses its rule.
pub(super) fn separate(summary: &Summary, drafts: &mut [Draft]) {
    let placed: Vec<(usize, Option<numamma_plan::policy::Place>)> =
        drafts.iter().filter_map(|d| Some((d.entry?, d.item.rule.as_ref().ok().map(|r| r.place.clone())))).collect();
    for draft in drafts {
        let Some(index) = draft.entry else { continue };
        let Ok(rule) = &mut draft.item.rule else { continue };
        let (Some(site), Some(frames)) = (&summary.entries[index].site, rule.callsite.as_ref().map(Vec::len)) else {
            continue;
        };
        let conflicts = |length: usize| {
            summary.entries.iter().enumerate().any(|(other, e)| {
                let place = placed.iter().find(|(i, _)| *i == other).and_then(|(_, p)| p.as_ref());
                // Cold sites may share a rule: where they go does not matter.
                let own = &summary.entries[index];
                if parts::are_of_one(own, e) {
                    return false;
                }
                // The rules for all parts of an object name it alike, wherever they place them.
                let differs = own.part.is_some() || place != Some(&rule.place);
                let verdict_differs = placed.iter().any(|(i, _)| *i == other) && differs;
                // Rules of several classes of sizes say so.
                let apart = own.size_class.zip(e.size_class).is_some_and(|(a, b)| a.1 < b.0 || b.1 < a.0);
                let begins = e.site.as_ref().is_some_and(|s| s.frames.starts_with(&site.frames[..length]));
                other != index && verdict_differs && begins && !apart
            })
        };
        let Some(length) = (frames..=site.frames.len()).find(|n| !conflicts(*n)) else {
            draft.item.rule = Err("another allocation with another pattern has the same call stack".into());
            draft.item.more.clear();
            continue;
        };
        if length == frames {
            continue;
        }
        match at_site(summary, site, length) {
            Ok(longer) => {
                for rule in std::iter::once(rule).chain(&mut draft.item.more) {
                    rule.callsite.clone_from(&longer.callsite);
                    rule.function.clone_from(&longer.function);
                }
            }
            Err(reason) => {
                draft.item.rule = Err(reason);
                draft.item.more.clear();
            }
        }
    }
}
