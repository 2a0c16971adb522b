//! Groups objects to entries, and numbers the pages of each object.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::chains::Chains;
use super::identity::{base_name, demangle, step_name};
use super::parts::{self, Division, Piece, Place};
use super::size_classes::SizeClasses;
use super::stacks::{CallStacks, NameTables};
use super::tables::{Seen, Tables};
use super::types::{Details, Entry, Part};
use super::wrappers;
use crate::profile::records::*;

/// Objects with the same key are one entry.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    /// A variable or section of one module.
    Static(ObjectKind, Option<ModuleId>, u64, String),
    /// All allocations with these frames, from the innermost one of the user's code to the one that gives the name, and
    /// of this class of sizes.
    Site(ObjectKind, Rc<[Frame]>, u32),
    /// All objects of the kind with this name; stacks, TLS and unknown addresses have one entry each.
    Named(ObjectKind, String),
}

/// The entries, still without counters, and the place of every object.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub entries: Vec<Entry>,
    /// Of every object that was seen.
    pub places: FxHashMap<ObjectId, Place>,
    /// Which of them are one instance.
    pub chains: Chains,
    /// Objects in parts.
    pub divisions: Vec<Division>,
    /// Instances of parts whose first page belongs to the part before.
    pub without_first_page: FxHashSet<usize>,
    /// First global instance number of each entry.
    pub first_instance: Vec<u32>,
    /// Pages of all instances before each instance, and of all.
    pub pages_before: Vec<u64>,
    /// Modules and threads without holes.
    pub modules: Vec<Module>,
    pub threads: Vec<Thread>,
    pub stacks: CallStacks,
    pub page_shift: u32,
}

impl Layout {
    pub(super) fn build(tables: &mut Tables) -> Layout {
        let modules = tables.modules.filled(|id| Module { id, path: format!("module {id}"), ..Module::default() });
        let mut threads = tables.threads.filled(missing_thread);
        threads.iter_mut().for_each(|thread| {
            thread.task = tables.tasks.get(&thread.id).copied();
            thread.waits = tables.waits.get(&thread.id).copied();
        });
        let page_size = if tables.header.page_size.is_power_of_two() { tables.header.page_size } else { 4096 };
        tables.header.page_size = page_size;
        let mut stacks = CallStacks { lost: std::mem::take(&mut tables.lost), ..CallStacks::default() };
        let names = NameTables { modules: &modules, symbols: &tables.symbols, stacks: &stacks };
        stacks.wrappers = wrappers::learn(&names, &tables.sites, &wrappers::lives(tables.objects.values()));
        let names = NameTables { modules: &modules, symbols: &tables.symbols, stacks: &stacks };
        let mut build = Build {
            tables,
            names,
            naming_frames: FxHashMap::default(),
            size_classes: SizeClasses::default(),
            index: HashMap::new(),
            entries: Vec::new(),
            sites: Vec::new(),
            pieces: FxHashMap::default(),
            parts: 0,
            chains: Chains::default(),
        };
        let owner = build.group();
        build.describe();
        let (entries, pieces, chains) = (build.entries, build.pieces, build.chains);
        let page_shift = page_size.trailing_zeros();
        let mut layout = Layout { entries, chains, modules, threads, stacks, page_shift, ..Layout::default() };
        layout.number(tables, &owner, &pieces);
        layout
    }

    /// The entries that the accesses of an object may belong to.
    pub(super) fn entries_of(&self, object: ObjectId) -> impl Iterator<Item = u32> {
        let place = self.places.get(&object);
        let parts = place.and_then(|p| p.division).and_then(|d| self.divisions.get(d as usize));
        let count = parts.map_or(1, |d| d.places.len() as u32);
        place.into_iter().flat_map(move |p| p.entry..p.entry + count)
    }

    /// The entry of an object that is not in parts.
    pub(super) fn whole(&self, object: ObjectId) -> Option<u32> {
        self.places.get(&object).filter(|place| place.division.is_none()).map(|place| place.entry)
    }

    /// Gives every seen object its instance, in order of entry, birth and id. An object in parts has one of each, and
    /// the stages of a chain have one together.
    fn number(&mut self, tables: &Tables, owner: &FxHashMap<ObjectId, u32>, pieces: &FxHashMap<u32, Vec<Piece>>) {
        let mut seen: Vec<(u32, u64, ObjectId, Instance)> = Vec::new();
        let mut stages: FxHashMap<ObjectId, Vec<(ObjectId, u64)>> = FxHashMap::default();
        for (&id, &what) in &tables.seen {
            let Some(&entry) = owner.get(&id) else { continue };
            let instance = instance_of(tables.objects.get(&id), what, self.page_shift);
            let last = self.chains.last(id);
            stages.entry(last).or_default().push((id, instance.base));
            if last != id && tables.seen.contains_key(&last) {
                continue;
            }
            // That of the last stage, which is not seen where only earlier ones were used.
            let whole = self.chains.whole(last);
            let base = tables.objects.get(&last).filter(|_| last != id).map_or(instance.base, |o| o.instance.base);
            let (id, instance) = (last, whole.map_or(instance, |whole| Instance { base, ..whole }));
            match (pieces.get(&entry), tables.objects.get(&id)) {
                (Some(pieces), Some(object)) => {
                    let own = (entry..).zip(parts::instances(pieces, &object.instance));
                    seen.extend(own.map(|(entry, part)| (entry, part.born_ns, id, part)));
                }
                _ => seen.push((entry, instance.born_ns, id, instance)),
            }
        }
        seen.sort_by_key(|&(entry, born, id, _)| (entry, born, id));
        seen.dedup_by_key(|&mut (entry, _, id, part)| (entry, id, part.base));
        self.first_instance = vec![0; self.entries.len() + 1];
        let mut pages = 0u64;
        for (n, &(entry, _, id, instance)) in seen.iter().enumerate() {
            let first_page = instance.base >> self.page_shift;
            let place = Place { entry, instance: n as u32, first_page, pages_before: pages, division: None };
            self.pages_before.push(pages);
            let divided = owner.get(&id).and_then(|first| pieces.get(first));
            let mut highest = tables.seen.get(&id).map_or(instance.base, |s| s.highest);
            for (stage, base) in stages.get(&id).into_iter().flatten().filter(|(stage, _)| *stage != id) {
                self.places.insert(*stage, Place { first_page: base >> self.page_shift, ..place });
                let used =
                    tables.seen.get(stage).map_or(0, |s| (s.highest >> self.page_shift) - (base >> self.page_shift));
                highest = highest.max(instance.base.saturating_add(used << self.page_shift));
            }
            if divided.is_some() {
                highest = highest.min(instance.base.saturating_add(instance.size.max(1) - 1));
                self.add_part(id, place, instance.base);
            } else {
                self.places.insert(id, place);
            }
            // Pages whose number does not fit a cell are counted without one.
            pages += (highest >> self.page_shift).saturating_sub(first_page).min(u64::from(u32::MAX)) + 1;
            let of = &mut self.entries[entry as usize];
            of.seen.push(instance);
            of.details.resizes = of.details.resizes.saturating_add(self.chains.calls(id));
        }
        self.pages_before.push(pages);
        let mut next = 0;
        for (entry, first) in self.entries.iter_mut().zip(&mut self.first_instance) {
            *first = next;
            next += entry.seen.len() as u32;
            entry.instances = entry.instances.max(entry.seen.len() as u64).max(1);
        }
        self.first_instance[self.entries.len()] = next;
    }

    /// Adds the place of one part of an object; parts come in ascending order.
    fn add_part(&mut self, id: ObjectId, place: Place, base: u64) {
        let division = match self.places.get(&id).and_then(|first| first.division) {
            Some(known) => known,
            None => {
                let new = self.divisions.len() as u32;
                self.divisions.push(Division::default());
                self.places.insert(id, Place { division: Some(new), ..place });
                new
            }
        };
        if let Some(division) = self.divisions.get_mut(division as usize) {
            division.places.push(place);
            division.starts.push(base);
        }
    }
}

fn instance_of(object: Option<&Object>, what: Seen, page_shift: u32) -> Instance {
    let lowest = (what.lowest >> page_shift) << page_shift;
    match object.map(|o| o.instance) {
        Some(known) if (1..=what.lowest).contains(&known.base) => known,
        // An address below the base cannot be counted from it; the recorder saw the object grow downwards.
        Some(known) => Instance { base: lowest, ..known },
        None => Instance { base: lowest, born_ns: what.first_ns, ..Instance::default() },
    }
}

struct Build<'a> {
    tables: &'a Tables,
    names: NameTables<'a>,
    naming_frames: FxHashMap<SiteId, Option<Rc<[Frame]>>>,
    size_classes: SizeClasses,
    index: HashMap<Key, u32>,
    entries: Vec<Entry>,
    /// Call sites behind each entry with the number of objects recorded for it.
    sites: Vec<FxHashMap<SiteId, u64>>,
    /// Parts of variables, by the entry of the first part; those of the others follow it.
    pieces: FxHashMap<u32, Vec<Piece>>,
    /// Parts so far.
    parts: usize,
    chains: Chains,
}

impl<'a> Build<'a> {
    /// The entry of every object id. Ids without a record are unknown addresses.
    fn group(&mut self) -> FxHashMap<ObjectId, u32> {
        let tables = self.tables;
        let mut ids: Vec<ObjectId> = tables.objects.keys().chain(tables.seen.keys()).copied().collect();
        ids.sort_unstable();
        ids.dedup();
        self.chains = self.find_chains();
        for &id in &ids {
            let Some(object) = self.object(id).filter(|_| self.chains.last(id) == id) else { continue };
            if let Some(frames) = object.site.and_then(|site| self.naming_frames(site)) {
                self.size_classes.add(&object, &frames);
            }
        }
        self.size_classes.divide();
        let mut owner = FxHashMap::default();
        for id in ids {
            let Some(object) = self.object(id) else {
                owner.insert(id, self.entry(Key::Named(ObjectKind::Unknown, String::new()), None));
                continue;
            };
            let key = self.key(&object);
            let entry = self.entry(key, Some(&object));
            if let Some(site) = object.site {
                let alike = u64::from(self.chains.last(id) == id) + tables.more.get(&id).copied().unwrap_or(0);
                let count = self.sites[entry as usize].entry(site).or_default();
                *count = count.saturating_add(alike);
            }
            owner.insert(id, entry);
            if self.pieces.contains_key(&entry) {
                continue;
            }
            let (entry_of, size) = (&mut self.entries[entry as usize], object.instance.size);
            entry_of.size = entry_of.size.max(size);
            if let Some((low, high)) = &mut entry_of.size_class {
                (*low, *high) = ((*low).min(size), (*high).max(size));
            }
        }
        owner
    }

    /// The object that an id belongs to: the last stage of a chain, with the instance of them all.
    fn object(&self, id: ObjectId) -> Option<Cow<'a, Object>> {
        let last = self.chains.last(id);
        let object = self.tables.objects.get(&last)?;
        Some(match self.chains.whole(last) {
            Some(instance) => Cow::Owned(Object { instance, ..object.clone() }),
            None => Cow::Borrowed(object),
        })
    }

    fn find_chains(&mut self) -> Chains {
        let tables = self.tables;
        let mut frames = |o: &Object| o.site.and_then(|site| self.naming_frames(site));
        Chains::find(tables, |a, b| frames(a).is_some_and(|of_a| frames(b) == Some(of_a)))
    }

    fn key(&mut self, o: &Object) -> Key {
        match o.kind {
            ObjectKind::Global | ObjectKind::Section => Key::Static(o.kind, o.module, o.vaddr, o.name.clone()),
            ObjectKind::Stack | ObjectKind::Tls | ObjectKind::Unknown => Key::Named(o.kind, String::new()),
            ObjectKind::Heap | ObjectKind::SmallHeap | ObjectKind::Mapping => {
                match o.site.and_then(|s| self.naming_frames(s)) {
                    Some(frames) => {
                        let class = self.size_classes.of(o, &frames).unwrap_or_default();
                        Key::Site(o.kind, frames, class)
                    }
                    None => Key::Named(o.kind, o.name.clone()),
                }
            }
        }
    }

    /// The frames of a call stack from the innermost one of the user's code to the one that names the objects.
    fn naming_frames(&mut self, site: SiteId) -> Option<Rc<[Frame]>> {
        let (tables, names) = (self.tables, self.names);
        let find = || {
            let frames = &tables.sites.get(&site)?.frames;
            let steps = names.steps(frames);
            let (own, naming) = (names.innermost_own(&steps), names.naming_step(&steps));
            let frames = frames.get(steps.get(own)?.index..=steps.get(naming)?.index)?;
            Some(Rc::from(frames))
        };
        self.naming_frames.entry(site).or_insert_with(find).clone()
    }

    /// `function file:line` of what names the objects of a call stack.
    fn site_name(&self, site: Option<SiteId>) -> String {
        let frames = site.and_then(|s| self.tables.sites.get(&s)).map_or(&[][..], |s| &s.frames);
        let steps = self.names.steps(frames);
        steps.get(self.names.naming_step(&steps)).map(|step| step_name(step, &self.names)).unwrap_or_default()
    }

    fn entry(&mut self, key: Key, object: Option<&Object>) -> u32 {
        if let Some(&entry) = self.index.get(&key) {
            return entry;
        }
        let kind = object.map_or(ObjectKind::Unknown, |o| o.kind);
        let is_static = matches!(kind, ObjectKind::Global | ObjectKind::Section);
        let of_static = object.filter(|_| is_static);
        let name = match &key {
            Key::Static(_, module, _, name) => self.static_name(kind, *module, name),
            Key::Site(..) => self.site_name(object.and_then(|o| o.site)),
            Key::Named(kind, name) => kind_name(*kind, name),
        };
        let size_class = match &key {
            Key::Site(kind, frames, _) if self.size_classes.several(*kind, frames) => {
                object.map(|o| (o.instance.size, o.instance.size))
            }
            _ => None,
        };
        let linkage = object.filter(|o| o.kind == ObjectKind::Global).map_or(String::new(), |o| o.name.clone());
        let first = self.entries.len() as u32;
        let pieces = object.map(|o| self.pieces_of(o)).unwrap_or_default();
        for piece in &pieces {
            let part = Part {
                parent: name.clone(),
                parent_size: object.map_or(0, |o| o.instance.size),
                member: piece.name.clone(),
                offset: piece.offset,
            };
            self.entries.push(Entry {
                kind,
                name: format!("{name}.{}", piece.name),
                linkage: linkage.clone(),
                module: object.and_then(|o| o.module),
                vaddr: object.map_or(0, |o| o.vaddr.wrapping_add(piece.offset)),
                size: piece.size,
                part: Some(part),
                ..Entry::default()
            });
            self.sites.push(FxHashMap::default());
        }
        if !pieces.is_empty() {
            self.parts += pieces.len();
            self.pieces.insert(first, pieces);
            self.index.insert(key, first);
            return first;
        }
        self.entries.push(Entry {
            kind,
            name,
            linkage,
            size_class,
            module: of_static.and_then(|o| o.module),
            vaddr: of_static.map_or(0, |o| o.vaddr),
            details: Details {
                backing: object.and_then(backing),
                is_shared_memory: object.is_some_and(is_shared_memory),
                ..Details::default()
            },
            ..Entry::default()
        });
        self.sites.push(FxHashMap::default());
        let entry = self.entries.len() as u32 - 1;
        self.index.insert(key, entry);
        entry
    }

    /// The parts of a variable whose members are known; empty when it is not divided.
    fn pieces_of(&self, object: &Object) -> Vec<Piece> {
        let members = object.module.and_then(|m| self.tables.members.get(&(m, object.vaddr)));
        let instance = object.instance;
        match members {
            Some(members)
                if object.kind == ObjectKind::Global
                    && 2 * self.tables.header.page_size <= PART_LEAST
                    && instance.base.checked_add(instance.size).is_some()
                    && object.name.len() <= parts::LONGEST_NAME
                    && self.parts <= parts::MOST_PARTS_OF_ALL =>
            {
                parts::pieces(members, instance.size)
            }
            _ => Vec::new(),
        }
    }

    fn static_name(&self, kind: ObjectKind, module: Option<ModuleId>, name: &str) -> String {
        let module = module.and_then(|m| self.names.modules.get(m as usize)).map(|m| base_name(&m.path));
        match (kind, module) {
            (ObjectKind::Section, Some(module)) => format!("{name} of {module}"),
            _ => demangle(name),
        }
    }

    /// Fills in sizes, counts and the representative stack from the counts of the call sites.
    fn describe(&mut self) {
        // The counts of sites with both large and small objects can only be split by subtraction.
        let mut large: FxHashMap<SiteId, u64> = FxHashMap::default();
        // So can those of sites whose objects are of several classes of sizes.
        let mut entries_of: FxHashMap<SiteId, u32> = FxHashMap::default();
        let mut small: FxHashMap<SiteId, ()> = FxHashMap::default();
        for (entry, sites) in self.entries.iter().zip(&self.sites) {
            for (&site, &objects) in sites {
                match entry.kind {
                    ObjectKind::SmallHeap => drop(small.insert(site, ())),
                    _ => {
                        let count = large.entry(site).or_default();
                        *count = count.saturating_add(objects);
                        *entries_of.entry(site).or_default() += 1;
                    }
                }
            }
        }
        for (entry, sites) in self.entries.iter_mut().zip(&self.sites) {
            let mut sites: Vec<_> = sites.iter().map(|(&s, &n)| (s, n)).collect();
            sites.sort_unstable();
            let counts = |s: &SiteId| self.tables.counts.get(s).copied().unwrap_or_default();
            let best = sites.iter().max_by_key(|(s, _)| (counts(s).bytes, std::cmp::Reverse(*s)));
            entry.site = best.and_then(|(s, _)| self.tables.sites.get(s)).cloned();
            let is_small = entry.kind == ObjectKind::SmallHeap;
            for (site, objects) in &sites {
                let count = counts(site);
                let divided = !is_small && entries_of.get(site).is_some_and(|n| *n > 1);
                let instances = match (is_small, small.contains_key(site), large.get(site)) {
                    (true, _, Some(&n)) => count.instances.saturating_sub(n).max(1),
                    (false, true, _) => *objects,
                    _ if divided => *objects,
                    _ => count.instances.max(*objects),
                };
                entry.instances = entry.instances.saturating_add(instances);
                let frees = self.tables.frees.get(site).copied().unwrap_or_default();
                // Of which class of sizes they were is not known.
                let own = if divided { FreeCount::default() } else { frees.large };
                let seen = if is_small { &frees.small } else { &own };
                entry.details.frees.add(&seen.scaled(count.instances, frees.reported));
                match is_small {
                    true => entry.size = entry.size.saturating_add(count.peak_bytes),
                    false if !small.contains_key(site) && !divided => entry.size = entry.size.max(count.max_size),
                    false => {}
                }
            }
        }
    }
}

/// The file or shared memory behind a mapping (private anonymous memory has no name or `//anon`).
fn backing(o: &Object) -> Option<String> {
    let shown = o.kind == ObjectKind::Mapping && o.name.starts_with('/') && !o.name.starts_with("//anon");
    shown.then(|| o.name.clone())
}

/// Whether a mapping shows memory of tmpfs or hugetlbfs, as far as its name says so. A private mapping of it, which the
/// recorder attributes to its process, shows copies.
fn is_shared_memory(o: &Object) -> bool {
    const NAMES: [&str; 6] =
        ["/dev/shm/", "/memfd:", "/SYSV", "/dev/zero (deleted)", "/anon_hugepage", "/dev/hugepages/"];
    o.kind == ObjectKind::Mapping && o.pid == 0 && NAMES.iter().any(|name| o.name.starts_with(name))
}

fn kind_name(kind: ObjectKind, name: &str) -> String {
    let fixed = match kind {
        ObjectKind::Stack => "thread stacks",
        ObjectKind::Tls => "thread-local variables",
        ObjectKind::Unknown => "unknown addresses",
        ObjectKind::Heap if name.is_empty() => "heap without call stack",
        ObjectKind::SmallHeap if name.is_empty() => "small allocations without call stack",
        // `//anon` is what the kernel's mapping events call memory without a file.
        ObjectKind::Mapping if name.is_empty() || name == "//anon" => "anonymous memory",
        ObjectKind::Mapping if name.contains("memfd:numamma-channel") => "numamma's own buffers",
        _ => name,
    };
    fixed.to_owned()
}

/// Replaces the record of a thread that was lost with the end of the file.
pub(super) fn missing_thread(id: ThreadId) -> Thread {
    Thread { id, name: "?".into(), ..Thread::default() }
}
