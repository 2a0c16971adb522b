//! How a rule names its object: a global by its linkage name, an allocation by the innermost frames of its call
//! stack, no more of them than needed.

use numamma_plan::policy::ObjectRule;

use super::Draft;
use crate::profile::records::{CallSite, Frame, NO_MODULE, ObjectKind};
use crate::profile::summary::{Entry, Summary, base_name};

/// A rule with only its name filled in, or why the object cannot be named.
pub(super) fn name(summary: &Summary, entry: &Entry) -> Result<ObjectRule, String> {
    if let Some(backing) = &entry.details.backing {
        return Err(format!("it shows {backing}, and only private anonymous memory can be placed"));
    }
    match entry.kind {
        ObjectKind::Global | ObjectKind::Section if read_only(summary, entry) => {
            Err("it is read-only: its pages are the file's in the page cache, where no policy reaches them".into())
        }
        ObjectKind::Global | ObjectKind::Section => Ok(global(summary, entry)),
        _ => match &entry.site {
            Some(site) => at_site(summary, site, summary.user_frame(site) + 1),
            None => Err("it is no allocation of a known call site, so a policy cannot name it".into()),
        },
    }
}

fn read_only(summary: &Summary, entry: &Entry) -> bool {
    let module = entry.module.and_then(|m| summary.modules.get(m as usize));
    module.is_some_and(|m| m.read_only.iter().any(|(low, high)| (*low..*high).contains(&entry.vaddr)))
}

/// Section name of an entry that is shown as `.bss of lu.C.x`.
fn section(entry: &Entry) -> &str {
    entry.name.split(" of ").next().unwrap_or(&entry.name)
}

fn global(summary: &Summary, entry: &Entry) -> ObjectRule {
    let name = match entry.kind {
        ObjectKind::Section => section(entry),
        _ if entry.linkage.is_empty() => &entry.name,
        _ => &entry.linkage,
    };
    let module = entry.module.and_then(|m| summary.modules.get(m as usize)).map(|m| base_name(&m.path).to_owned());
    ObjectRule {
        global: Some(name.to_owned()),
        module: module.filter(|m| m != base_name(&summary.header.program.path)),
        address: (entry.vaddr != 0).then_some(entry.vaddr),
        ..ObjectRule::default()
    }
}

fn at_site(summary: &Summary, site: &CallSite, frames: usize) -> Result<ObjectRule, String> {
    let chosen = &site.frames[..frames.min(site.frames.len())];
    if chosen.is_empty() || chosen.iter().any(|f| f.module == NO_MODULE || f.module as usize >= summary.modules.len()) {
        return Err("its call stack leads through code of no file, so a policy cannot name it".into());
    }
    let functions: Vec<String> = chosen.iter().map(|f| function(summary, *f)).collect();
    Ok(ObjectRule {
        callsite: Some(chosen.iter().map(|f| summary.frame_place(*f)).collect()),
        function: functions.iter().any(|f| !f.is_empty()).then_some(functions),
        line: chosen.last().and_then(|f| line(summary, *f)),
        ..ObjectRule::default()
    })
}

/// Name of the function that a frame's code is in: the outermost one, because inlined ones have no address of
/// their own. Empty when not known.
fn function(summary: &Summary, frame: Frame) -> String {
    summary.symbols.get(&frame).and_then(|l| l.last()?.function.clone()).unwrap_or_default()
}

fn line(summary: &Summary, frame: Frame) -> Option<String> {
    let location = summary.symbols.get(&frame)?.iter().find(|l| l.file.is_some())?;
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
                let verdict_differs = placed.iter().any(|(i, _)| *i == other) && place != Some(&rule.place);
                let begins = e.site.as_ref().is_some_and(|s| s.frames.starts_with(&site.frames[..length]));
                other != index && verdict_differs && begins
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
