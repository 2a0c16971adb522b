//! What a thread is by how it came about, so that the same thread is found in another run of the program.

use super::kinds::{Kinds, MAIN};
use super::main_threads;
use crate::profile::records::{Frame, Task};
use crate::profile::summary::Summary;

/// One thread on the way from a main thread to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Step {
    /// Start routine, as far as known; none for main threads.
    pub routine: Option<Frame>,
    /// Place in the program that creates it, where one start routine serves all threads of a language.
    pub site: Option<Frame>,
    /// What it runs, where that tells the threads of one place apart.
    pub task: Option<Task>,
    /// Whether its creator creates it as a member of its own team.
    pub nested: bool,
    /// Slot among the living of its kind, below its creator; of main threads, the number of the process.
    pub slot: u32,
}

/// How a thread came about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Path {
    /// From the main thread of its process to the thread.
    pub steps: Vec<Step>,
    /// Number among the successive threads of its slot.
    pub nth: u32,
}

/// The paths of all threads of a profile, in their order. No two threads of a profile have the same.
pub fn paths(summary: &Summary) -> Vec<Path> {
    let (kinds, _) = Kinds::in_rounds(summary, &main_threads(&summary.threads));
    let mut steps: Vec<Vec<Step>> = Vec::with_capacity(kinds.places.len());
    for (index, place) in kinds.places.iter().enumerate() {
        // A creator's place is older than the places of its threads.
        let mut own = place.parent.filter(|p| *p < index).map(|p| steps[p].clone()).unwrap_or_default();
        let key = if place.kind == MAIN { None } else { kinds.keys.get(place.kind) };
        own.push(Step {
            routine: key.and_then(|key| key.routine),
            site: key.and_then(|key| key.site),
            task: key.and_then(|key| key.task),
            nested: place.nested,
            slot: place.slot,
        });
        steps.push(own);
    }
    let mut next = vec![0; steps.len()];
    let path = |&place: &usize| {
        next[place] += 1;
        Path { steps: steps[place].clone(), nth: next[place] - 1 }
    };
    kinds.place_of.iter().map(path).collect()
}
