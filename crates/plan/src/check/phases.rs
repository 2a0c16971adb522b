//! Validation of the phases of a policy and of the places that rules give for them.

use std::collections::BTreeSet;

use super::{Fault, KeyFault, place_fault, site_fault};
use crate::callsite::line::SourceLine;
use crate::policy::{ObjectRule, Phase, Policy};

/// Most phases that a policy may declare: the preload stores in seven bits per object which place of its rule applies.
pub const MOST_PHASES: usize = 100;

/// The first fault in the phases of `policy`.
pub(super) fn phase_fault(policy: &Policy) -> Option<Fault> {
    let mut names = BTreeSet::new();
    for (index, phase) in policy.phases.iter().enumerate() {
        let of = |(key, message): KeyFault| Fault::at("phase", index, key, message);
        if let Some(fault) = declaration_fault(phase) {
            return Some(of(fault));
        }
        if !names.insert(phase.name.as_str()) {
            return Some(of((
                &["name"],
                format!("two phases have the name `{}`; give each phase a different name", phase.name),
            )));
        }
    }
    if let Some(index) = (policy.phases.len() > MOST_PHASES).then_some(MOST_PHASES) {
        let message = format!("{} phases exceed the limit of {MOST_PHASES}", policy.phases.len());
        return Some(Fault::at("phase", index, &[], message));
    }
    policy.objects.iter().enumerate().find_map(|(index, rule)| {
        let (name, key, message) = rule.phases.keys().find_map(|name| object_fault(rule, name, &names))?;
        let key = ["phases", name].into_iter().chain(key.iter().copied()).map(str::to_owned).collect();
        Some(Fault { table: Some(("object", index)), key, message })
    })
}

fn declaration_fault(phase: &Phase) -> Option<KeyFault> {
    if phase.name.is_empty() {
        return Some((&["name"], "a phase needs a name, to which rules and numamma_phase() refer".into()));
    }
    if phase.after.is_some_and(|s| !s.is_finite() || s < 0.0) {
        return Some((&["after"], "`after` is seconds since the program started, such as after = 12.5".into()));
    }
    let by_site = phase.callsite.is_some() || phase.function.is_some() || phase.line.is_some();
    match (phase.allocation, by_site) {
        (Some(0), _) => {
            return Some((&["allocation"], "allocations of a call site are counted from 1".into()));
        }
        (Some(_), false) => {
            let message =
                "`allocation` needs the call site: write callsite = [...], function = [...] or line = \"...\"";
            return Some((&["allocation"], message.into()));
        }
        (None, true) => {
            return Some((
                &[],
                "the phase names a call site, but not which of its allocations begins it; write allocation = 1".into(),
            ));
        }
        _ => {}
    }
    if let Some(fault) = site_fault(phase.callsite.as_deref(), phase.function.as_deref()) {
        return Some(fault);
    }
    if let Some(Err(e)) = phase.line_alone().map(SourceLine::parse) {
        return Some((&["line"], e.to_string()));
    }
    None
}

/// The first fault in the place of `rule` for phase `name`: the name of the phase, the keys below it, and the message.
fn object_fault<'a>(
    rule: &ObjectRule,
    name: &'a str,
    declared: &BTreeSet<&str>,
) -> Option<(&'a str, &'static [&'static str], String)> {
    if !declared.contains(name) {
        let known: Vec<&str> = declared.iter().copied().collect();
        let known = if known.is_empty() { "no phase is".to_owned() } else { format!("declared: {}", known.join(", ")) };
        let message = format!("phase `{name}` is not declared ({known}); write [[phase]] with name = \"{name}\"");
        return Some((name, &[], message));
    }
    let place = rule.phases.get(name)?.clone();
    let (key, message) = place_fault(&ObjectRule { place, ..rule.clone() })?;
    // The key begins with `place`: faults in the pattern were found when the rule itself was checked.
    Some((name, key.get(1..).unwrap_or_default(), message))
}
