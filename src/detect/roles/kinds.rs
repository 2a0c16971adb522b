//! Kinds of threads, and the slot of every thread among the living of its kind.

use std::collections::HashMap;

use numamma_plan::threads::is_openmp_runtime;

use crate::profile::records::{Frame, Location, ModuleId, NO_MODULE, Task, Thread, ThreadId};
use crate::profile::summary::{Summary, outermost};

use super::living::{Living, in_regions, in_rounds};

/// The kind of main threads.
pub(super) const MAIN: usize = 0;
/// Creators above a thread that tell kinds apart; a chain of threads that create each other is one kind from there on.
const MOST_LEVELS: usize = 4;
/// What makes two threads of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Start routine, as far as known.
    pub routine: Option<Frame>,
    /// Place in the program that creates them, where one start routine serves all threads of a language.
    pub site: Option<Frame>,
    /// What they run, where it is recorded. Where no line of the source tells the place, this does.
    pub task: Option<Task>,
    /// Kind that creates them, if main does not.
    pub creator: Option<usize>,
    /// Number of the family of single threads that it was joined with, see `singles`.
    pub family: Option<usize>,
}

/// A slot of a kind below one creator: what its successive threads have in common.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub kind: usize,
    /// Place of the creator; none for main threads.
    pub parent: Option<usize>,
    /// Whether the creator creates them as a member of its own team: OpenMP regions inside regions.
    pub nested: bool,
    pub slot: u32,
    pub threads: Vec<ThreadId>,
}

/// Kinds and places of all threads.
pub(super) struct Kinds {
    pub keys: Vec<Key>,
    pub places: Vec<Place>,
    /// Place of every thread, by id.
    pub place_of: Vec<usize>,
    /// Places of every kind.
    pub of_kind: Vec<Vec<usize>>,
    /// Start routines and sites of every kind, the first [`MOST_ORIGINS`].
    pub origins: Vec<Vec<Origin>>,
}

/// Start routine and site of a thread.
pub(super) type Origin = (Option<Frame>, Option<Frame>);
/// Start routines kept of a kind that was joined of single threads.
const MOST_ORIGINS: usize = 64;

impl Kinds {
    /// Kinds of all threads. `family` names the family that a single thread's kind is joined with; `rounds` are slots
    /// as of [`Kinds::rounds`].
    pub fn of(
        summary: &Summary,
        main_of: &HashMap<u32, ThreadId>,
        family: &HashMap<Key, usize>,
        rounds: &HashMap<ThreadId, u32>,
    ) -> Kinds {
        let main = Key { routine: None, site: None, task: None, creator: None, family: None };
        let mut kinds = Kinds {
            keys: vec![main],
            places: Vec::new(),
            place_of: Vec::new(),
            of_kind: vec![Vec::new()],
            origins: vec![Vec::new()],
        };
        let mut index: HashMap<Key, usize> = HashMap::new();
        let mut levels = vec![0];
        let mut living: HashMap<(usize, Option<usize>), Living> = HashMap::new();
        let in_regions = slots_in_regions(summary);
        let mut place_at: HashMap<(usize, Option<usize>, u32), usize> = HashMap::new();
        let mut sites = Sites::of(summary);
        for thread in &summary.threads {
            let (kind, parent, nested) = if main_of.get(&thread.pid) == Some(&thread.id) {
                (MAIN, None, false)
            } else {
                let (mut key, mut parent, mut nested) = kinds.key_of(summary, thread, main_of, &sites);
                let origin = (key.routine, key.site);
                sites.one_of_all(summary, thread, &mut key);
                if key.creator.is_some_and(|k| levels[k] >= MOST_LEVELS)
                    && let Some(creator) = parent.map(|place| &kinds.places[place])
                {
                    // As if its creator's creator had created it.
                    (key, parent, nested) = (kinds.keys[creator.kind], creator.parent, creator.nested);
                }
                key.family = family.get(&Key { family: None, ..key }).copied();
                if let Some(number) = key.family {
                    key = Key { family: Some(number), routine: None, site: None, task: None, ..key };
                }
                let next = kinds.keys.len();
                let kind = *index.entry(key).or_insert(next);
                if kind == next {
                    kinds.keys.push(key);
                    kinds.of_kind.push(Vec::new());
                    kinds.origins.push(Vec::new());
                    levels.push(key.creator.map_or(0, |k| levels[k] + 1));
                }
                let origins = &mut kinds.origins[kind];
                if origins.len() < MOST_ORIGINS && !origins.contains(&origin) {
                    origins.push(origin);
                }
                (kind, parent, nested)
            };
            let below = (kind, parent);
            let in_region = in_regions.get(&thread.id).filter(|_| kinds.keys[kind].creator.is_some());
            let in_round = || rounds.get(&thread.id).filter(|_| kinds.keys[kind].family.is_none());
            let slot = match in_region.or_else(in_round) {
                Some(slot) => *slot,
                None => living.entry(below).or_default().take(thread),
            };
            let next = kinds.places.len();
            let place = *place_at.entry((kind, parent, slot)).or_insert(next);
            if place == next {
                kinds.of_kind[kind].push(place);
                kinds.places.push(Place { kind, parent, nested, slot, threads: Vec::new() });
            }
            kinds.places[place].threads.push(thread.id);
            kinds.place_of.push(place);
        }
        kinds
    }

    /// Kinds of all threads, without families, and the slots of [`Kinds::rounds`] in them.
    pub fn in_rounds(summary: &Summary, main_of: &HashMap<u32, ThreadId>) -> (Kinds, HashMap<ThreadId, u32>) {
        let none = HashMap::new();
        let kinds = Kinds::of(summary, main_of, &none, &HashMap::new());
        let rounds = kinds.rounds(summary);
        let kinds = if rounds.is_empty() { kinds } else { Kinds::of(summary, main_of, &none, &rounds) };
        (kinds, rounds)
    }

    /// Slots of the threads that main threads make anew in rounds, where those among the living are too many.
    fn rounds(&self, summary: &Summary) -> HashMap<ThreadId, u32> {
        let mut teams: HashMap<(usize, usize), Vec<(&Thread, u32)>> = HashMap::new();
        for (thread, place) in summary.threads.iter().zip(self.place_of.iter().map(|place| &self.places[*place])) {
            if let Some(parent) = place.parent.filter(|parent| self.places[*parent].kind == MAIN) {
                teams.entry((place.kind, parent)).or_default().push((thread, place.slot));
            }
        }
        let numbered = |team: Vec<(&Thread, u32)>| {
            let slots = in_rounds(&team).unwrap_or_default();
            team.into_iter().map(|(thread, _)| thread.id).zip(slots).collect::<Vec<_>>()
        };
        teams.into_values().flat_map(numbered).collect()
    }

    /// Kind of a thread that is not main, the place of its creator, and whether it is nested.
    fn key_of(
        &self,
        summary: &Summary,
        thread: &Thread,
        main_of: &HashMap<u32, ThreadId>,
        sites: &Sites,
    ) -> (Key, Option<usize>, bool) {
        let of = |id: &ThreadId| summary.threads.get(*id as usize).filter(|t| t.pid == thread.pid && t.id < thread.id);
        let main = main_of.get(&thread.pid).filter(|m| **m < thread.id).copied();
        let creator = thread.creator.filter(|id| of(id).is_some()).or(main);
        let parent = creator.and_then(|id| self.place_of.get(id as usize).copied());
        let openmp = is_openmp(summary, thread);
        let mut key = Key { routine: thread.start_routine, site: None, task: None, creator: None, family: None };
        if !openmp {
            key.site = sites.creation_site(summary, thread);
        }
        let Some(place) = parent else { return (key, None, false) };
        if self.places[place].kind != MAIN {
            key.creator = Some(self.places[place].kind);
            return (key, parent, true);
        }
        // Main is worker 0 of its team, and creates a team inside it.
        let inside = openmp && runs(thread) > 1;
        let outer = if inside { self.keys.iter().position(|k| *k == key) } else { None };
        match outer {
            Some(kind) => (Key { creator: Some(kind), ..key }, parent, true),
            None => (key, parent, false),
        }
    }
}

/// Whether a thread starts in an OpenMP runtime.
pub(in crate::detect) fn is_openmp(summary: &Summary, thread: &Thread) -> bool {
    let module = thread.start_routine.and_then(|routine| summary.modules.get(routine.module as usize));
    module.is_some_and(|m| is_openmp_runtime(&m.path))
}

/// Slots of the threads of OpenMP runtimes as of regions inside regions, by their creators.
fn slots_in_regions(summary: &Summary) -> HashMap<ThreadId, u32> {
    // Main creates its own team as well.
    let mut by_creator: HashMap<(u32, Option<ThreadId>, bool), Vec<&Thread>> = HashMap::new();
    for thread in summary.threads.iter().filter(|t| is_openmp(summary, t)) {
        by_creator.entry((thread.pid, thread.creator, runs(thread) > 1)).or_default().push(thread);
    }
    let numbered = |threads: Vec<&Thread>| {
        let slots = in_regions(&threads);
        threads.into_iter().map(|t| t.id).zip(slots).collect::<Vec<_>>()
    };
    by_creator.into_values().flat_map(numbered).collect()
}

/// Groups of neighbouring frames in the module of the start routine, in the stack that created the thread: one for each
/// region of an OpenMP runtime that is entered.
fn runs(thread: &Thread) -> usize {
    let Some(routine) = thread.start_routine else { return 0 };
    let inside = |f: &Frame| f.module == routine.module && routine.module != NO_MODULE;
    let frames = &thread.created_at;
    frames.iter().enumerate().filter(|(i, f)| inside(f) && !frames.get(i + 1).is_some_and(inside)).count()
}

/// Places in the program that create threads. What the compiler makes of one call may be several calls (a vector that
/// grows, a loop that is unrolled), so all of one source line are one place. Without debug information they are told
/// apart by what the threads run, where that is recorded.
#[derive(Default)]
struct Sites<'a> {
    /// The first frame that was seen of each line.
    lines: HashMap<(ModuleId, &'a Location), Frame>,
    /// What the threads run that each frame creates; none where they run different functions.
    tasks: HashMap<Frame, Option<Task>>,
}

impl<'a> Sites<'a> {
    fn of(summary: &Summary) -> Sites<'a> {
        let mut sites = Sites::default();
        for thread in summary.threads.iter().filter(|t| t.task.is_some()) {
            for frame in &thread.created_at {
                let task = sites.tasks.entry(*frame).or_insert(thread.task);
                *task = task.filter(|_| *task == thread.task);
            }
        }
        sites
    }

    /// Gives the key of a thread what all threads of its kind have in common.
    fn one_of_all(&mut self, summary: &'a Summary, thread: &Thread, key: &mut Key) {
        let Some(site) = key.site else { return };
        let line = summary.symbols.get(&site).and_then(|locations| outermost(locations)).filter(|l| l.line.is_some());
        // One line may hold two calls, for threads that run different functions.
        key.task = thread.task;
        match line {
            Some(line) => key.site = Some(*self.lines.entry((site.module, line)).or_insert(site)),
            None if thread.task.is_some() => key.site = None,
            None => {}
        }
    }

    /// Where the program creates the thread, if the start routine belongs to a runtime library and serves all of a
    /// language's threads (std::thread of C++ and Rust).
    fn creation_site(&self, summary: &Summary, thread: &Thread) -> Option<Frame> {
        let generic = thread.start_routine.is_some_and(|routine| summary.is_of_runtime(routine));
        if !generic {
            return None;
        }
        let location = |frame: &Frame| summary.symbols.get(frame).and_then(|locations| outermost(locations));
        let is_standard = |frame: &Frame| {
            let file = location(frame).and_then(|location| location.file.as_deref());
            file.is_some_and(|file| STANDARD_SOURCES.iter().any(|part| file.contains(part)))
        };
        let own = || thread.created_at.iter().copied().filter(|f| !summary.is_of_runtime(*f) && !is_standard(f));
        // Code of the library in the program, of which nothing else tells.
        let for_others = |frame: &Frame| {
            thread.task.is_some()
                && location(frame).is_none_or(|l| l.line.is_none())
                && self.tasks.get(frame).is_some_and(Option::is_none)
        };
        let site = own().find(|frame| !for_others(frame)).or_else(|| own().next());
        site.or_else(|| summary.user_frame_of(&thread.created_at))
    }
}

/// Parts of the paths of headers and sources of the standard libraries of C++ and Rust.
const STANDARD_SOURCES: [&str; 3] = ["/include/c++/", "/rustc/", "/rustlib/src/"];
