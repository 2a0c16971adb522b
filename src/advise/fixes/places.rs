//! Where in the source an object is allocated, initialised and used.

use super::fix::Place;
use crate::profile::records::{Frame, Location};
use crate::profile::summary::{CodePart, Entry, Step, Summary};

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

/// The code that only the first toucher runs at the object, and before the other code, where samples saw it.
pub(super) fn initialisation(summary: &Summary, entry: &Entry) -> Option<Place> {
    let (toucher, _) = *entry.first_touchers().first()?;
    let begins = |part: &CodePart| part.cells.iter().map(|c| c.slot).min();
    let own = |part: &&CodePart| part.nest.is_some() && part.cells.iter().all(|c| c.thread == toucher);
    let first = entry.by_code.iter().filter(own).min_by_key(|part| begins(part))?;
    let others = entry.by_code.iter().filter(|part| !own(part)).filter_map(begins).min()?;
    if begins(first)? > others {
        return None;
    }
    let location = summary.symbols.get(&first.nest?).and_then(|l| l.first());
    Some(location.map_or_else(|| of_words(&first.place), |l| place("initialisation", l)))
}

/// `function file:line`.
fn of_words(words: &str) -> Place {
    let (function, line) = words.rsplit_once(' ').unwrap_or((words, ""));
    let at = line.rsplit_once(':').and_then(|(file, line)| Some((file.to_owned(), line.parse().ok()?)));
    let (file, line) = at.unzip();
    Place { role: "initialisation", function: function.to_owned(), file, line }
}
