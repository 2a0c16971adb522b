//! Where in the source an object is allocated, initialised and used.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::fix::Place;
use crate::detect::Roles;
use crate::detect::roles::Kind;
use crate::profile::records::{Frame, Location};
use crate::profile::summary::{CodePart, Entry, Step, Summary, base_name};

/// A place of this role.
pub(super) fn place(role: &'static str, location: &Location) -> Place {
    let Location { function, file, line } = location.clone();
    Place { role, function: function.unwrap_or_default(), file, line }
}

/// Where the object is allocated, for one on the heap.
pub(super) fn allocation(summary: &Summary, entry: &Entry) -> Option<Place> {
    let (steps, naming) = summary.steps(entry.site.as_ref()?);
    let location = steps.get(naming).and_then(|step: &Step<'_>| step.location)?;
    Some(place("allocation", location))
}

/// The instruction with the highest cost at the object.
pub(super) fn hottest(summary: &Summary, entry: &Entry) -> Option<Place> {
    let frame: Frame = entry.details.code.first()?.0;
    Some(place("use", summary.symbols.get(&frame)?.first()?))
}

/// The code that only the first toucher runs at the object, and before the other threads use it, where samples saw it.
pub(super) fn initialisation(summary: &Summary, entry: &Entry) -> Option<Place> {
    let (toucher, _) = *entry.first_touchers().first()?;
    let begins = |part: &CodePart| part.cells.iter().map(|c| c.slot).min();
    let own = |part: &&CodePart| part.nest.is_some() && part.cells.iter().all(|c| c.thread == toucher);
    // Code that has no place of its own may be that of several threads, the toucher's among them.
    let others = entry.by_code.iter().flat_map(|part| &part.cells).filter(|c| c.thread != toucher);
    let others = others.map(|c| c.slot).min()?;
    let first = entry.by_code.iter().filter(own).min_by_key(|part| (begins(part), Reverse(part.total.accesses())))?;
    if begins(first)? > others {
        return None;
    }
    Some(of_part(summary, "initialisation", first))
}

/// Where a function or a loop makes most of its accesses.
pub(super) fn of_part(summary: &Summary, role: &'static str, part: &CodePart) -> Place {
    let location = part.nest.and_then(|nest| summary.symbols.get(&nest)).and_then(|l| l.first());
    location.map_or_else(|| of_words(summary, role, &part.place), |l| place(role, l))
}

/// Where the threads that work are created, or what they run, a place for each kind; of OpenMP, whose runtime does
/// both, the code with the highest cost.
pub(super) fn of_threads(summary: &Summary, roles: &Roles) -> Vec<Place> {
    let location = |frame: Option<Frame>| summary.symbols.get(&frame?)?.first();
    let of_kind = |kind: &Kind| {
        let (routine, site) = *kind.origins.first().filter(|_| !kind.openmp && !kind.slots.is_empty())?;
        let created = || Some(place("creation", location(site)?));
        created().or_else(|| Some(place("start", location(routine)?)))
    };
    let mut found: Vec<Place> = roles.kinds.iter().filter_map(of_kind).collect();
    found.retain(|place| place.line.is_some());
    if found.is_empty() {
        found.extend(summary.entries.iter().find_map(|entry| hottest(summary, entry)));
    }
    found
}

/// `function file:line`, with the path of the file where one of that name is in the symbols.
fn of_words(summary: &Summary, role: &'static str, words: &str) -> Place {
    let (function, line) = words.rsplit_once(' ').unwrap_or((words, ""));
    let at = line.rsplit_once(':').and_then(|(file, line)| Some((path_of(summary, file), line.parse().ok()?)));
    let (file, line) = at.unzip();
    Place { role, function: function.to_owned(), file, line }
}

/// The path of a source file by its last part, if the symbols have exactly one; else that part.
fn path_of(summary: &Summary, name: &str) -> String {
    let files = summary.symbols.values().flatten().filter_map(|location| location.file.as_deref());
    let paths: BTreeSet<&str> = files.filter(|file| base_name(file) == name).collect();
    let mut paths = paths.into_iter();
    match (paths.next(), paths.next()) {
        (Some(path), None) => path.to_owned(),
        _ => name.to_owned(),
    }
}
