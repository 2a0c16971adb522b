//! Folded stacks, as flamegraph.pl and inferno read them: places from the outermost to the innermost, `;` between two,
//! and the cost in microseconds of CPU time.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::source::Source;
use super::stacks::{Kind, Place, Stacks};

/// The lines of a profile, which begin with its rank where it has one.
pub(super) fn add(source: &Source, out: &mut BTreeMap<String, u64>) {
    let stacks = Stacks::of(source);
    let root = source.view.summary.rank.map(|rank| format!("rank {rank};")).unwrap_or_default();
    for sample in &stacks.samples {
        let places = stacks.stacks[sample.stack].iter().map(|&p| frame(&stacks.places[p]));
        let line = format!("{root}{}", places.collect::<Vec<_>>().join(";"));
        *out.entry(line).or_default() += sample.cost_ns;
    }
}

/// The text of all profiles.
pub(super) fn text(lines: &BTreeMap<String, u64>) -> String {
    let mut out = String::new();
    for (line, ns) in lines.iter().filter(|(_, ns)| **ns >= 500) {
        let _ = writeln!(out, "{line} {}", (ns + 500) / 1000);
    }
    out
}

/// A place; objects in brackets, so that they are told from functions.
fn frame(place: &Place) -> String {
    let name = place.name.replace(';', ":");
    if place.kind == Kind::Object { format!("[{name}]") } else { name }
}
