//! Functions of the program that only hand out memory, found from the call stacks of the profile.
//!
//! A function that allocates at one place is a wrapper when several of its callers have large objects from it at the
//! same time: these are different objects for the programmer, and their callers tell them apart. A function that
//! allocates at several places, one that is called again after its memory was freed, and one that something else than
//! the program's own code calls (`main`, the start routine of a thread, a parallel region) gives the objects its name.

use std::collections::{HashMap, HashSet};

use rustc_hash::FxHashMap;

use super::stacks::{CallStacks, NameTables, Step};
use crate::profile::records::{CallSite, Frame, Object, ObjectKind, SiteId};

/// Wrappers around wrappers that are found.
const LEVELS: usize = 4;
/// Objects of one call site that are compared, the largest ones.
const MAX_LIVES: usize = 64;
/// Objects of one function that are compared.
const MAX_COMPARED: usize = 512;
/// Part of the shorter life in which two objects must both exist: a block that grows exists twice only while it is
/// copied.
const TOGETHER: f64 = 0.1;

/// Size and time of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    pub size: u64,
    pub born_ns: u64,
    pub died_ns: u64,
}

impl Life {
    /// Whether both existed at the same time.
    pub fn overlaps(&self, other: &Life) -> bool {
        let both = self.died_ns.min(other.died_ns).saturating_sub(self.born_ns.max(other.born_ns));
        let length = |l: &Life| l.died_ns.saturating_sub(l.born_ns);
        both > 0 && both as f64 >= TOGETHER * length(self).min(length(other)) as f64
    }
}

/// The large objects of each call site, largest first.
pub(super) fn lives<'a>(objects: impl Iterator<Item = &'a Object>) -> FxHashMap<SiteId, Vec<Life>> {
    let mut out: FxHashMap<SiteId, Vec<Life>> = FxHashMap::default();
    for object in objects {
        let large = matches!(object.kind, ObjectKind::Heap | ObjectKind::Mapping);
        let Some(site) = object.site.filter(|_| large) else { continue };
        let i = &object.instance;
        let died_ns = i.died_ns.unwrap_or(u64::MAX);
        out.entry(site).or_default().push(Life { size: i.size, born_ns: i.born_ns, died_ns });
    }
    for list in out.values_mut() {
        list.sort_unstable_by_key(|l| (std::cmp::Reverse(l.size), l.born_ns));
        list.truncate(MAX_LIVES);
    }
    out
}

/// Where in the source a step is; its address where that is not known.
type Place<'a> = (Option<&'a str>, Option<&'a str>, Option<u32>, Option<Frame>);

fn place<'a>(step: &Step<'a>) -> Place<'a> {
    match step.location {
        Some(l) if l.line.is_some() => (l.function.as_deref(), l.file.as_deref(), l.line, None),
        Some(l) => (l.function.as_deref(), None, None, Some(step.frame)),
        None => (None, None, None, Some(step.frame)),
    }
}

/// What one caller of a function got from it.
#[derive(Default)]
struct Caller<'a> {
    places: HashSet<Place<'a>>,
    lives: Vec<Life>,
}

/// What is known of one function.
#[derive(Default)]
struct Candidate<'a> {
    callers: HashMap<Place<'a>, Caller<'a>>,
    refused: bool,
}

impl Candidate<'_> {
    fn is_wrapper(&self) -> bool {
        if self.refused || self.callers.len() < 2 || self.callers.values().any(|c| c.places.len() > 1) {
            return false;
        }
        let each = MAX_COMPARED / self.callers.len().min(MAX_COMPARED);
        let lives: Vec<(usize, Life)> = (0..)
            .zip(self.callers.values())
            .take(MAX_COMPARED)
            .flat_map(|(n, c)| c.lives.iter().take(each).map(move |l| (n, *l)))
            .collect();
        let together = |(i, (n, life)): (usize, &(usize, Life))| {
            lives[i + 1..].iter().any(|(other, l)| other != n && l.overlaps(life))
        };
        lives.iter().enumerate().any(together)
    }
}

/// The names of such functions.
pub(super) fn learn(
    names: &NameTables<'_>,
    stack_of: &FxHashMap<SiteId, CallSite>,
    lives: &FxHashMap<SiteId, Vec<Life>>,
) -> HashSet<String> {
    let mut known = CallStacks { lost: HashMap::new(), ..names.stacks.clone() };
    let mut sites: Vec<(&SiteId, Vec<Step<'_>>)> =
        lives.keys().filter_map(|id| Some((id, names.steps(&stack_of.get(id)?.frames)))).collect();
    sites.sort_unstable_by_key(|(id, _)| **id);
    for _ in 0..LEVELS {
        let found = outermost(&NameTables { stacks: &known, ..*names }, &sites, lives);
        if found.is_empty() {
            break;
        }
        known.wrappers.extend(found);
    }
    known.wrappers
}

type Site<'a> = (&'a SiteId, Vec<Step<'a>>);

/// Functions that serve several callers, with the functions inside of them that serve only them.
fn outermost(names: &NameTables<'_>, sites: &[Site<'_>], lives: &FxHashMap<SiteId, Vec<Life>>) -> Vec<String> {
    // Functions with one caller, which decides on both.
    let mut inner: HashSet<&str> = HashSet::new();
    for _ in 0..LEVELS {
        let position = |steps: &[Step<'_>]| {
            let naming = names.naming_step(steps);
            let outside = |s: &Step<'_>| s.function().is_none_or(|f| !inner.contains(f));
            steps.get(naming..)?.iter().position(outside).map(|n| (naming, naming + n))
        };
        let candidates = candidates(names, sites, lives, &position);
        let wrappers: HashSet<&str> = candidates.iter().filter(|(_, c)| c.is_wrapper()).map(|(f, _)| *f).collect();
        if !wrappers.is_empty() {
            let of_site = |(_, steps): &Site<'_>| -> Vec<String> {
                let Some((first, last)) = position(steps) else { return Vec::new() };
                let serves = steps[last].function().is_some_and(|f| wrappers.contains(f));
                let functions = steps[first..=last].iter().filter_map(Step::function).map(str::to_owned);
                if serves { functions.collect() } else { Vec::new() }
            };
            return sites.iter().flat_map(of_site).collect();
        }
        let with_one: Vec<&str> =
            candidates.iter().filter(|(_, c)| !c.refused && c.callers.len() == 1).map(|(f, _)| *f).collect();
        if with_one.is_empty() {
            return Vec::new();
        }
        inner.extend(with_one);
    }
    Vec::new()
}

/// The first and last step of a stack whose functions one caller decides on.
type Position<'p> = dyn Fn(&[Step<'_>]) -> Option<(usize, usize)> + 'p;

/// The functions at `position` (the second of its values) of the stacks, with their callers.
fn candidates<'a>(
    names: &NameTables<'_>,
    sites: &'a [Site<'a>],
    lives: &FxHashMap<SiteId, Vec<Life>>,
    position: &Position<'_>,
) -> HashMap<&'a str, Candidate<'a>> {
    let mut candidates: HashMap<&str, Candidate<'_>> = HashMap::new();
    for (id, steps) in sites {
        let Some((_, at)) = position(steps) else { continue };
        let step = &steps[at];
        let Some(function) = step.function().filter(|_| !names.is_known_wrapper(step)) else { continue };
        let candidate = candidates.entry(function).or_default();
        let own = |c: &&Step<'_>| {
            c.frame.module == step.frame.module
                && !names.is_known_wrapper(c)
                && c.function().is_some_and(|f| f != function)
        };
        let Some(caller) = steps.get(at + 1).filter(own) else {
            candidate.refused = true;
            continue;
        };
        let caller = candidate.callers.entry(place(caller)).or_default();
        caller.places.insert(place(step));
        caller.lives.extend(lives.get(id).into_iter().flatten());
    }
    candidates
}
