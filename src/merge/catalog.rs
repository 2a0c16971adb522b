//! One numbering for several profiles: the same module, thread or object of another process gets the same number.
//!
//! A module is the same by its build-id, without one by its path. A thread is the same by how it came about: start
//! routines, the places that create them, and slots (`detect::roles::paths`). An object is the same by what a policy
//! names it by: a variable by module, address and name; an allocation by its call stack and class of sizes; a mapping
//! by its name, in which numbers do not count (process ids).

use std::collections::HashMap;

use numamma_plan::threads::is_openmp_runtime;

use crate::detect::roles::paths::{Path, Step, paths};
use crate::profile::records::{Frame, Location, Module, ModuleId, NO_MODULE, ObjectKind, Task, ThreadId};
use crate::profile::summary::{CallStacks, Entry, Summary, outermost};

/// Length of a run in the times of a [`Process`], whatever it took: processes are compared by the part of their run.
pub(super) const RUN: u64 = 1 << 40;

/// Stands for the start routine of the threads of OpenMP runtimes, which are of several builds on several hosts.
const OPENMP: Frame = Frame { module: NO_MODULE, offset: 1 };

/// What an object is, whatever process it is in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    /// A variable or section: module, address and name, with the offset of a part.
    Static(ObjectKind, Option<ModuleId>, u64, String, Option<u64>),
    /// Allocations with these frames, from the innermost one of the user's code to the one that gives the name.
    Site(ObjectKind, Vec<Frame>),
    /// Anything else by its name, and its number among those of one process with this name.
    Named(ObjectKind, String, usize),
}

/// An object of one process or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Display name.
    pub name: String,
    /// Smallest and largest size of its allocations, where sizes tell objects of one call site apart.
    sizes: Option<(u64, u64)>,
    /// Whether a policy can place it.
    pub placeable: bool,
}

impl Known {
    /// What is known of an entry.
    pub(super) fn of(entry: &Entry) -> Known {
        Known { name: entry.name.clone(), sizes: entry.size_class, placeable: entry.placeable() }
    }
}

/// The numbers given so far.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    pub modules: Vec<Module>,
    module_of: HashMap<String, ModuleId>,
    threads: HashMap<Path, ThreadId>,
    /// The first frame seen of each source line that creates threads: the compiler makes several calls of one.
    lines: HashMap<(ModuleId, Location), Frame>,
    /// Process id that stands for the n-th process of every profile.
    pids: HashMap<u32, u32>,
    objects: HashMap<Key, Vec<u32>>,
    pub known: Vec<Known>,
    /// Names of frames, and what else is known of call stacks.
    pub symbols: HashMap<Frame, Vec<Location>>,
    pub stacks: CallStacks,
}

/// A profile in the numbers of a catalog, its times as parts of [`RUN`]; without modules and names, which the catalog
/// has.
#[derive(Debug)]
pub(super) struct Process {
    pub summary: Summary,
    /// Number of the object of each entry.
    pub objects: Vec<u32>,
}

impl Catalog {
    /// Numbers all of a profile.
    pub fn translate(&mut self, mut summary: Summary) -> Process {
        let objects = self.objects(&summary);
        let paths = paths(&summary);
        let modules: Vec<ModuleId> = summary.modules.iter().map(|m| self.module(m)).collect();
        let frame = |f: Frame| modules.get(f.module as usize).map_or(f, |&module| Frame { module, ..f });
        for (t, path) in summary.threads.iter_mut().zip(&paths) {
            let is_main = t.tid == t.pid;
            let process = path.steps.first().map_or(0, |main| main.slot);
            t.pid = *self.pids.entry(process).or_insert(t.pid);
            t.tid = if is_main { t.pid } else { t.tid };
        }
        let threads: Vec<ThreadId> =
            paths.into_iter().map(|path| self.thread(path, &summary.symbols, &frame)).collect();
        let ns = |ns: u64| scaled(ns, summary.stats.duration_ns, RUN);
        let translation = Translation { modules: &modules, threads: &threads, ns: &ns, frame: &frame };
        summary.threads.iter_mut().zip(&threads).for_each(|(t, &id)| {
            t.id = id;
            t.start_routine = t.start_routine.map(frame);
            t.created_at.iter_mut().for_each(|f| *f = frame(*f));
            t.task = t.task.map(|task| of_task(task, &frame));
            t.creator = t.creator.and_then(|c| translation.thread(c));
            (t.start_ns, t.end_ns) = (ns(t.start_ns), t.end_ns.map(ns));
        });
        summary.entries.iter_mut().for_each(|e| translation.entry(e));
        summary.modules.clear();
        let stacks = std::mem::take(&mut summary.stacks);
        for (f, locations) in std::mem::take(&mut summary.symbols) {
            self.symbols.entry(frame(f)).or_insert(locations);
        }
        for ((inner, outer), locations) in stacks.lost {
            self.stacks.lost.entry((inner.map(frame), frame(outer))).or_insert(locations);
        }
        self.stacks.wrappers.extend(stacks.wrappers);
        Process { summary, objects }
    }

    /// The number of the object that each entry of a profile is.
    pub fn objects(&mut self, summary: &Summary) -> Vec<u32> {
        let mut keys: Vec<Key> = summary.entries.iter().map(|e| key(e, summary)).collect();
        number_names(&mut keys);
        let modules: Vec<ModuleId> = summary.modules.iter().map(|m| self.module(m)).collect();
        let frame = |f: Frame| modules.get(f.module as usize).map_or(f, |&module| Frame { module, ..f });
        summary.entries.iter().zip(keys).map(|(e, k)| self.object(e, k, &frame)).collect()
    }

    fn module(&mut self, module: &Module) -> ModuleId {
        let key = module.build_id.clone().unwrap_or_else(|| module.path.clone());
        let next = self.modules.len() as ModuleId;
        let id = *self.module_of.entry(key).or_insert(next);
        if id == next {
            self.modules.push(Module { id, ..module.clone() });
        }
        id
    }

    /// The number of a thread, with the names of its profile.
    fn thread(
        &mut self,
        mut path: Path,
        symbols: &HashMap<Frame, Vec<Location>>,
        frame: &impl Fn(Frame) -> Frame,
    ) -> ThreadId {
        let (modules, lines) = (&self.modules, &mut self.lines);
        let routine = |f: Frame| {
            let f = frame(f);
            let module = modules.get(f.module as usize);
            if module.is_some_and(|m| is_openmp_runtime(&m.path)) { OPENMP } else { f }
        };
        for s in &mut path.steps {
            let site = s.site.map(|own| {
                let line = symbols.get(&own).and_then(|locations| outermost(locations)).filter(|l| l.line.is_some());
                let own = frame(own);
                line.map_or(own, |line| *lines.entry((own.module, line.clone())).or_insert(own))
            });
            *s = Step { routine: s.routine.map(routine), site, task: s.task.map(|task| of_task(task, frame)), ..*s };
        }
        let next = self.threads.len() as ThreadId;
        *self.threads.entry(path).or_insert(next)
    }

    fn object(&mut self, entry: &Entry, key: Key, frame: &impl Fn(Frame) -> Frame) -> u32 {
        let module = |m: ModuleId| frame(Frame { module: m, offset: 0 }).module;
        let key = match key {
            Key::Static(kind, m, address, name, part) => Key::Static(kind, m.map(module), address, name, part),
            Key::Site(kind, frames) => Key::Site(kind, frames.into_iter().map(frame).collect()),
            named @ Key::Named(..) => named,
        };
        let same = self.objects.entry(key).or_default();
        let known = &mut self.known;
        if let Some(id) = of_size(same, known, entry) {
            return id;
        }
        let id = known.len() as u32;
        same.push(id);
        known.push(Known::of(entry));
        id
    }
}

/// The object among those of one key that an entry is: where sizes tell them apart, the one whose sizes are nearest by
/// their ratio, unless that is [`OTHER_SIZE`] or more.
fn of_size(same: &[u32], known: &mut [Known], entry: &Entry) -> Option<u32> {
    let own = entry.size_class.unwrap_or((entry.size, entry.size));
    let ratio = |id: &u32| match known[*id as usize].sizes {
        Some((_, high)) if own.0 > high => own.0 as f64 / high.max(1) as f64,
        Some((low, _)) if own.1 < low => low as f64 / own.1.max(1) as f64,
        _ => 1.0,
    };
    let nearest = same.iter().copied().min_by(|a, b| ratio(a).total_cmp(&ratio(b)))?;
    if entry.size_class.is_some() && ratio(&nearest) >= OTHER_SIZE {
        return None;
    }
    if let (Some((low, high)), Some(own)) = (&mut known[nearest as usize].sizes, entry.size_class) {
        (*low, *high) = ((*low).min(own.0), (*high).max(own.1));
    }
    Some(nearest)
}

/// Ratio of sizes from which allocations of one call site are other objects, where their sizes tell objects apart.
const OTHER_SIZE: f64 = 2.0;

/// What a thread runs, in the modules of the catalog.
fn of_task(task: Task, frame: &impl Fn(Frame) -> Frame) -> Task {
    Task { class: frame(task.class), function: task.function.map(frame) }
}

/// `ns` of a run of `from` as of one of `to`.
pub(super) fn scaled(ns: u64, from: u64, to: u64) -> u64 {
    (u128::from(ns) * u128::from(to) / u128::from(from.max(1))).min(u128::from(u64::MAX)) as u64
}

fn key(entry: &Entry, summary: &Summary) -> Key {
    let part = entry.part.as_ref().map(|p| p.offset);
    match (entry.kind, &entry.site) {
        (kind @ (ObjectKind::Global | ObjectKind::Section), _) => {
            let name = if entry.linkage.is_empty() { &entry.name } else { &entry.linkage };
            Key::Static(kind, entry.module, entry.vaddr, name.clone(), part)
        }
        (kind, Some(site)) => {
            let (steps, naming) = summary.steps(site);
            let own = summary.names().innermost_own(&steps);
            let index = |at: usize| steps.get(at).map_or(0, |s| s.index);
            let frames = site.frames.get(index(own)..=index(naming)).unwrap_or(&site.frames);
            Key::Site(kind, frames.to_vec())
        }
        (kind, None) => Key::Named(kind, without_numbers(&entry.name), 0),
    }
}

/// Numbers the keys of one process that are the same by their name alone.
fn number_names(keys: &mut [Key]) {
    let mut seen: HashMap<(ObjectKind, String), usize> = HashMap::new();
    for key in keys {
        if let Key::Named(kind, name, number) = key {
            let next = seen.entry((*kind, name.clone())).or_default();
            *number = *next;
            *next += 1;
        }
    }
}

/// A name with `#` for each number in it.
pub(super) fn without_numbers(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            _ => out.push(c),
        }
    }
    out
}

/// The numbers of one profile in those of the catalog.
struct Translation<'a> {
    modules: &'a [ModuleId],
    threads: &'a [ThreadId],
    ns: &'a dyn Fn(u64) -> u64,
    frame: &'a dyn Fn(Frame) -> Frame,
}

impl Translation<'_> {
    fn thread(&self, id: ThreadId) -> Option<ThreadId> {
        self.threads.get(id as usize).copied()
    }

    fn entry(&self, e: &mut Entry) {
        let (ns, frame) = (self.ns, self.frame);
        e.module = e.module.and_then(|m| self.modules.get(m as usize).copied());
        e.site.iter_mut().flat_map(|s| &mut s.frames).for_each(|f| *f = frame(*f));
        for i in &mut e.seen {
            i.thread = i.thread.and_then(|t| self.thread(t));
            (i.born_ns, i.died_ns) = (ns(i.born_ns), i.died_ns.map(ns));
        }
        e.by_code.iter_mut().for_each(|p| p.nest = p.nest.map(frame));
        for cells in std::iter::once(&mut e.cells).chain(e.by_code.iter_mut().map(|p| &mut p.cells)) {
            // Cells of threads without a record do not occur: the summary adds those.
            cells.retain_mut(|c| self.thread(c.thread).map(|t| c.thread = t).is_some());
        }
        e.touches.retain_mut(|r| self.thread(r.thread).map(|t| r.thread = t).is_some());
        e.touches.iter_mut().for_each(|r| r.time_ns = ns(r.time_ns));
        e.details.code.iter_mut().for_each(|(f, _)| *f = frame(*f));
        e.details.access_code.iter_mut().for_each(|c| c.frame = frame(c.frame));
    }
}
