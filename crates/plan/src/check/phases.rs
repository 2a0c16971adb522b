//! Validation of the phases of a policy and of the places that rules give for them.

use std::collections::BTreeSet;

use super::{Fault, KeyFault, check_place, check_site, refuse};
use crate::policy::{ObjectRule, Phase, Place, Policy};

/// Most phases that a policy may declare: the preload stores in seven bits per object which place of its rule applies.
pub const MOST_PHASES: usize = 100;

/// Checks the phases of `policy`, and the places of its rules for them.
pub(super) fn check(policy: &Policy) -> Result<(), Fault> {
    let mut names = BTreeSet::new();
    for (index, phase) in policy.phases.iter().enumerate() {
        let in_phase = |fault| Fault::in_table("phase", index, fault);
        check_declaration(phase).map_err(in_phase)?;
        if !names.insert(phase.name.as_str()) {
            let message = format!("two phases have the name `{}`; give each phase a different name", phase.name);
            return refuse("name", message).map_err(in_phase);
        }
    }
    if policy.phases.len() > MOST_PHASES {
        let message = format!("{} phases exceed the limit of {MOST_PHASES}", policy.phases.len());
        return Err(Fault::in_table("phase", MOST_PHASES, ("", message)));
    }
    for (index, rule) in policy.objects.iter().enumerate() {
        for (name, place) in &rule.phases {
            check_phase_of_rule(rule, name, place, &names).map_err(|(key, message)| {
                let key = ["phases", name].into_iter().chain(key.split('.')).filter(|key| !key.is_empty());
                Fault { table: Some(("object", index)), key: key.map(str::to_owned).collect(), message }
            })?;
        }
    }
    Ok(())
}

fn check_declaration(phase: &Phase) -> Result<(), KeyFault> {
    if phase.name.is_empty() {
        return refuse("name", "a phase needs a name, to which rules and numamma_phase() refer");
    }
    if phase.after.is_some_and(|s| !s.is_finite() || s < 0.0) {
        return refuse("after", "`after` is seconds since the program started, such as after = 12.5");
    }
    match (phase.allocation, phase.site().is_named()) {
        (Some(0), _) => return refuse("allocation", "allocations of a call site are counted from 1"),
        (Some(_), false) => {
            let message =
                "`allocation` needs the call site: write callsite = [...], function = [...] or line = \"...\"";
            return refuse("allocation", message);
        }
        (None, true) => {
            let message =
                "the phase names a call site, but not which of its allocations begins it; write allocation = 1";
            return refuse("", message);
        }
        _ => {}
    }
    check_site(phase.site())
}

/// Checks the `place` of `rule` for phase `name`. Keys of a fault are relative to this place.
fn check_phase_of_rule(
    rule: &ObjectRule,
    name: &str,
    place: &Place,
    declared: &BTreeSet<&str>,
) -> Result<(), KeyFault> {
    if !declared.contains(name) {
        let known: Vec<&str> = declared.iter().copied().collect();
        let known = if known.is_empty() { "no phase is".to_owned() } else { format!("declared: {}", known.join(", ")) };
        let message = format!("phase `{name}` is not declared ({known}); write [[phase]] with name = \"{name}\"");
        return refuse("", message);
    }
    // Faults in the pattern, whose keys do not begin with `place`, were found when the rule itself was checked.
    check_place(&ObjectRule { place: place.clone(), ..rule.clone() })
        .map_err(|(key, message)| (key.trim_start_matches("place").trim_start_matches('.'), message))
}
