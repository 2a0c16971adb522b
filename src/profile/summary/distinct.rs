//! Names that differ: what is added to the names of objects that would be called the same.
//!
//! In this order, as far as needed: `small` for allocations that are counted together, an inner or outer function of
//! the call stack at its line, the module of a variable, the size, and at last a number in the order of the code.
//! Objects that were not accessed are in no table and keep their names.

use std::collections::BTreeMap;

use numamma_plan::policy::Size;

use super::identity::{base_name, step_name};
use super::stacks::NameTables;
use super::types::Entry;
use crate::profile::records::ObjectKind;

/// Frames outside of the one that names an object, of which one may be added to the name.
const MAX_OUTER: usize = 16;

/// Makes the names of all entries differ.
pub(super) fn separate(entries: &mut [Entry], names: &NameTables<'_>) {
    // How a function of the stack is added, by its distance from the one that gives the name: among all, or among those
    // that are no wrappers known by their names, which tell more.
    let outer = |distance: usize, any: bool| {
        move |e: &Entry| {
            let steps = names.steps(&e.site.as_ref()?.frames);
            let outer = steps.iter().skip(names.naming_step(&steps) + 1);
            let step = outer.filter(|step| any || !names.is_known_wrapper(step)).nth(distance)?;
            Some(format!("{} < {}", e.name, step_name(step, names)))
        }
    };
    let inner = |e: &Entry| {
        let steps = names.steps(&e.site.as_ref()?.frames);
        let (own, named) = (names.innermost_own(&steps), names.naming_step(&steps));
        (own < named).then(|| format!("{} < {}", step_name(&steps[own], names), e.name))
    };
    // Of an equal name, the larger objects keep it.
    lengthen(entries, |e| match e.kind {
        ObjectKind::SmallHeap => Some(format!("{} (small)", e.name)),
        ObjectKind::Mapping => Some(format!("{} (mapping)", e.name)),
        _ => None,
    });
    lengthen(entries, inner);
    (0..MAX_OUTER).for_each(|distance| lengthen(entries, outer(distance, false)));
    (0..MAX_OUTER).for_each(|distance| lengthen(entries, outer(distance, true)));
    lengthen(entries, |e| {
        let module = names.modules.get(e.module? as usize)?;
        (e.kind == ObjectKind::Global).then(|| format!("{} of {}", e.name, base_name(&module.path)))
    });
    lengthen(entries, |e| Some(format!("{} ({})", e.name, Size(e.size))));
    number(entries);
}

/// Gives `longer` names to entries with equal names, where that tells at least two of them apart.
fn lengthen(entries: &mut [Entry], longer: impl Fn(&Entry) -> Option<String>) {
    for group in equal(entries) {
        let new: Vec<Option<String>> = group.iter().map(|&i| longer(&entries[i])).collect();
        if new.iter().any(|name| *name != new[0]) {
            for (i, name) in group.into_iter().zip(new) {
                entries[i].name = name.unwrap_or_else(|| std::mem::take(&mut entries[i].name));
            }
        }
    }
}

fn number(entries: &mut [Entry]) {
    // A numbered name may be that of another variable.
    while let Some(mut group) = equal(entries).into_iter().next() {
        group.sort_by_key(|&i| {
            let e = &entries[i];
            (e.module, e.vaddr, e.site.as_ref().map(|s| s.frames.clone()), i)
        });
        for (number, i) in (1..).zip(group) {
            entries[i].name = format!("{} #{number}", entries[i].name);
        }
    }
}

/// Indices of entries with the same name, for every such name.
fn equal(entries: &[Entry]) -> Vec<Vec<usize>> {
    let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, e) in entries.iter().enumerate().filter(|(_, e)| e.total.accesses() > 0) {
        by_name.entry(&e.name).or_default().push(i);
    }
    by_name.into_values().filter(|group| group.len() > 1).collect()
}
