//! The cost of a profile as stacks, for viewers of flame graphs.
//!
//! A stack begins with the functions that allocated an object (outermost first; a variable has none), then stands the
//! object, then the function or loop whose accesses to it took the time. A profile knows the cost of these by thread
//! and time slot, not by sample: a sample here is what a thread spent in a slot.

use std::collections::BTreeMap;
use std::collections::HashMap;

use numamma_kernel::terminal;

use super::source::Source;
use crate::profile::records::{Frame, ThreadId};
use crate::profile::summary::{Cell, CodePart, Entry, Step, Summary};

/// What stands in a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A function that allocated.
    Allocation,
    /// An object.
    Object,
    /// Code that accessed it.
    Code,
}

/// One place in a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub kind: Kind,
    /// Escaped, as the file is.
    pub name: String,
    pub file: Option<String>,
    pub line: Option<u32>,
}

/// What a thread spent with a stack in a time slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub thread: ThreadId,
    /// None where only the object of the accesses is known.
    pub slot: Option<u16>,
    /// Index into [`Stacks::stacks`].
    pub stack: usize,
    pub cost_ns: u64,
}

/// The stacks of a profile.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    pub places: Vec<Place>,
    /// Indices into `places`, outermost first.
    pub stacks: Vec<Vec<usize>>,
    /// By thread and time.
    pub samples: Vec<Sample>,
    known: HashMap<Place, usize>,
}

impl Stacks {
    pub fn of(source: &Source) -> Stacks {
        let summary = source.view.summary;
        let mut out = Stacks::default();
        for entry in source.view.ranked() {
            let below = out.object(summary, entry);
            if entry.by_code.is_empty() {
                let hottest = entry.details.code.first().map(|(frame, _)| *frame);
                out.code(&below, hottest.map(|frame| function(summary, frame)), &entry.cells);
            }
            for part in &entry.by_code {
                out.code(&below, Some(of_part(part)), &part.cells);
            }
            let unpaged = entry.details.unpaged_by.iter().map(|(thread, c)| ((*thread, None), c.cost_ns));
            let stack = out.stack(below);
            out.add(stack, unpaged);
        }
        out.samples.sort_by_key(|s| (s.thread, s.slot, s.stack));
        out
    }

    /// The stack up to an object.
    fn object(&mut self, summary: &Summary, entry: &Entry) -> Vec<usize> {
        let steps = entry.site.as_ref().map_or(Vec::new(), |site| summary.steps(site).0);
        let mut stack: Vec<usize> =
            steps.iter().rev().map(|step| self.place(of_step(summary, step, Kind::Allocation))).collect();
        stack.push(self.place(named(Kind::Object, &entry.name)));
        stack
    }

    /// Adds the cost of cells that belong to one function.
    fn code(&mut self, below: &[usize], code: Option<Vec<Place>>, cells: &[Cell]) {
        let mut stack = below.to_vec();
        stack.extend(code.into_iter().flatten().map(|place| self.place(place)));
        let mut costs: BTreeMap<(ThreadId, Option<u16>), u64> = BTreeMap::new();
        for cell in cells {
            *costs.entry((cell.thread, Some(cell.slot))).or_default() += cell.counters.cost_ns;
        }
        let stack = self.stack(stack);
        self.add(stack, costs.into_iter());
    }

    fn stack(&mut self, stack: Vec<usize>) -> usize {
        self.stacks.push(stack);
        self.stacks.len() - 1
    }

    fn add(&mut self, stack: usize, costs: impl Iterator<Item = ((ThreadId, Option<u16>), u64)>) {
        let costs = costs.filter(|(_, cost_ns)| *cost_ns > 0);
        self.samples.extend(costs.map(|((thread, slot), cost_ns)| Sample { thread, slot, stack, cost_ns }));
    }

    fn place(&mut self, place: Place) -> usize {
        let new = self.places.len();
        let index = *self.known.entry(place.clone()).or_insert(new);
        if index == new {
            self.places.push(place);
        }
        index
    }
}

fn named(kind: Kind, name: &str) -> Place {
    Place { kind, name: terminal::line(name).into_owned(), file: None, line: None }
}

fn of_step(summary: &Summary, step: &Step<'_>, kind: Kind) -> Place {
    match step.location.and_then(|l| Some((l, l.function.as_deref()?))) {
        Some((l, function)) => Place {
            file: l.file.as_deref().map(|file| terminal::line(file).into_owned()),
            line: l.line,
            ..named(kind, function)
        },
        None => named(kind, &summary.frame_place(step.frame)),
    }
}

/// The function of an instruction, below the functions that it was inlined into.
fn function(summary: &Summary, frame: Frame) -> Vec<Place> {
    summary.names().steps(&[frame]).iter().rev().map(|step| of_step(summary, step, Kind::Code)).collect()
}

fn of_part(part: &CodePart) -> Vec<Place> {
    let name = [&part.place, &part.function].into_iter().find(|name| !name.is_empty());
    vec![named(Kind::Code, name.map_or("other code", String::as_str))]
}
