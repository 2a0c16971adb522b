//! The sum of one object over processes.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use super::cells::{Cells, Thinning};
use super::sum::renumbered;
use crate::profile::ranges::Ranges;
use crate::profile::records::{AccessCode, Frame, Instance, Location, ThreadId};
use crate::profile::summary::{
    Cell, CodePart, Counters, Entry, Extrapolated, MAX_CODE, MAX_PARTS, PageRange, TouchRun, function_of, ordered_code,
};

/// An object.
#[derive(Debug)]
pub(super) struct Sum {
    /// Everything but cells, instances and first touches.
    entry: Entry,
    /// Instances by the thread that allocated them and their number among its own.
    instances: FxHashMap<(Option<ThreadId>, u32), u32>,
    cells: Cells,
    by_code: Vec<Part>,
    /// Pages whose first toucher is known, instances in the upper half.
    touched: Ranges<()>,
    code: FxHashMap<Frame, Counters>,
    access_code: FxHashMap<Frame, AccessCode>,
}

/// The accesses of one function or loop.
#[derive(Debug)]
struct Part {
    named: CodePart,
    cells: Cells,
}

impl Sum {
    /// An object without accesses that is like an entry.
    pub fn like(entry: &Entry) -> Sum {
        let bare = Entry {
            kind: entry.kind,
            name: entry.name.clone(),
            linkage: entry.linkage.clone(),
            module: entry.module,
            vaddr: entry.vaddr,
            part: entry.part.clone(),
            site: entry.site.clone(),
            size: entry.size,
            size_class: entry.size_class,
            ..Entry::default()
        };
        Sum {
            entry: bare,
            instances: FxHashMap::default(),
            cells: Cells::default(),
            by_code: Vec::new(),
            touched: Ranges::default(),
            code: FxHashMap::default(),
            access_code: FxHashMap::default(),
        }
    }

    /// Adds the object of a process: of its cells those that `keeps`.
    pub fn add(&mut self, e: &Entry, symbols: &HashMap<Frame, Vec<Location>>, keeps: impl Fn(&Cell) -> bool) {
        let own = &mut self.entry;
        own.size = own.size.max(e.size);
        own.instances = own.instances.max(e.instances);
        if let (Some((low, high)), Some(more)) = (&mut own.size_class, e.size_class) {
            (*low, *high) = ((*low).min(more.0), (*high).max(more.1));
        }
        own.total.add(&e.total);
        own.details.unpaged.add(&e.details.unpaged);
        own.details.frees.add(&e.details.frees);
        own.details.page_entries.add(&e.details.page_entries);
        own.details.unpaged_by.extend(&e.details.unpaged_by);
        if own.details.backing.is_none() {
            own.details.backing.clone_from(&e.details.backing);
            own.details.is_shared_memory = e.details.is_shared_memory;
        }
        let instance = self.number(&e.seen);
        let kept = |cells: &[Cell]| -> Vec<Cell> {
            let place = |c: &Cell| Some(Cell { instance: *instance.get(c.instance as usize)?, ..*c });
            cells.iter().filter_map(place).filter(|c| keeps(c)).collect()
        };
        self.add_code(e, symbols, &kept);
        self.cells.extend(kept(&e.cells).into_iter());
        self.add_touches(e, &instance);
        for (frame, counters) in &e.details.code {
            self.code.entry(*frame).or_default().add(counters);
        }
        for more in &e.details.access_code {
            match self.access_code.get_mut(&more.frame) {
                Some(known) => {
                    known.behind = known.behind.saturating_add(more.behind);
                    known.later = known.later.saturating_add(more.later);
                }
                None => drop(self.access_code.insert(more.frame, *more)),
            }
        }
    }

    /// The numbers of a process's instances here.
    fn number(&mut self, seen: &[Instance]) -> Vec<u32> {
        let mut next: FxHashMap<Option<ThreadId>, u32> = FxHashMap::default();
        let mut numbers = Vec::with_capacity(seen.len());
        for instance in seen {
            let nth = next.entry(instance.thread).or_default();
            let key = (instance.thread, *nth);
            *nth += 1;
            let new = self.entry.seen.len() as u32;
            let number = *self.instances.entry(key).or_insert(new);
            if number == new {
                self.entry.seen.push(*instance);
            }
            if let Some(known) = self.entry.seen.get_mut(number as usize) {
                known.size = known.size.max(instance.size);
            }
            numbers.push(number);
        }
        numbers
    }

    /// Adds the cells by code. Where one function makes nearly all accesses of a process, its profile does not divide
    /// them, and they are those of the function of its hottest instruction.
    fn add_code(&mut self, e: &Entry, symbols: &HashMap<Frame, Vec<Location>>, kept: &impl Fn(&[Cell]) -> Vec<Cell>) {
        if self.by_code.is_empty() && e.by_code.is_empty() {
            return;
        }
        if self.by_code.is_empty() && self.cells.len() > 0 {
            e.by_code.iter().for_each(|part| {
                self.part(part);
            });
            let hottest = self.code.iter().max_by_key(|(f, c)| (c.accesses(), **f)).map(|(f, _)| *f);
            let before = self.cells.all().to_vec();
            let at = self.part_of_function(hottest.and_then(|f| function_of(symbols, f)));
            self.by_code[at].cells.extend(before.into_iter());
        }
        for part in &e.by_code {
            let at = self.part(part);
            self.by_code[at].cells.extend(kept(&part.cells).into_iter());
        }
        if e.by_code.is_empty() {
            let hottest = e.details.code.first().map(|(f, _)| *f);
            let at = self.part_of_function(hottest.and_then(|f| function_of(symbols, f)));
            self.by_code[at].cells.extend(kept(&e.cells).into_iter());
        }
    }

    /// Index of the part that is like another: of the same loop, else the rest.
    fn part(&mut self, like: &CodePart) -> usize {
        let known = self.by_code.iter().position(|p| p.named.nest == like.nest);
        let new = if known.is_none() && self.by_code.len() > MAX_PARTS { None } else { Some(like) };
        match (known, new) {
            (Some(at), _) => at,
            (None, Some(like)) => {
                let named = CodePart { cells: Vec::new(), total: Counters::default(), ..like.clone() };
                self.by_code.push(Part { named, cells: Cells::default() });
                self.by_code.len() - 1
            }
            (None, None) => self.part_of_function(None),
        }
    }

    /// Index of the only part of a function, else of the rest.
    fn part_of_function(&mut self, function: Option<&str>) -> usize {
        let of = |p: &&Part| p.named.nest.is_some() && Some(p.named.function.as_str()) == function;
        let only = self.by_code.iter().filter(of).count() == 1;
        let at = if only { self.by_code.iter().position(|p| of(&p)) } else { None };
        at.or_else(|| self.by_code.iter().position(|p| p.named.nest.is_none())).unwrap_or_else(|| {
            self.by_code.push(Part { named: CodePart::default(), cells: Cells::default() });
            self.by_code.len() - 1
        })
    }

    /// Adds the first touchers of pages that have none yet: the profiles that come first have the say.
    fn add_touches(&mut self, e: &Entry, instance: &[u32]) {
        let mut new: Vec<(u64, u64)> = Vec::new();
        for run in &e.touches {
            let Some(&number) = instance.get(run.instance as usize) else { continue };
            let first = u64::from(number) << 32 | u64::from(run.page);
            let free = self.touched.fill(first, first + u64::from(run.pages), ());
            let part = |&(low, high): &(u64, u64)| TouchRun {
                instance: number,
                page: low as u32,
                pages: (high - low) as u32,
                ..*run
            };
            self.entry.touches.extend(free.iter().map(part));
            new.extend(free);
        }
        let Extrapolated { between, around } = &e.details.extrapolated;
        if between.is_empty() && around.is_empty() {
            return;
        }
        let mut filled = Ranges::default();
        new.into_iter().for_each(|(low, high)| filled.insert(low, high, ()));
        let own = &mut self.entry.details.extrapolated;
        for (ranges, all) in [(between, &mut own.between), (around, &mut own.around)] {
            for r in ranges {
                let Some(&number) = instance.get(r.instance as usize) else { continue };
                let base = u64::from(number) << 32;
                let (low, high) = (base | u64::from(r.low), base + u64::from(r.high));
                let inside = filled.overlapping(low, high).map(|s| (s.low.max(low), s.high.min(high)));
                all.extend(inside.map(|(low, high)| PageRange {
                    instance: number,
                    low: low as u32,
                    high: low as u32 + (high - low) as u32,
                }));
            }
        }
    }

    /// The object as an entry in the numbers of the catalog.
    pub fn as_entry(&mut self) -> Entry {
        let part = |p: &mut Part| {
            let cells = p.cells.all().to_vec();
            CodePart { total: Cells::total(&cells), cells, ..p.named.clone() }
        };
        let mut entry = self.entry.clone();
        entry.cells = self.cells.all().to_vec();
        entry.by_code = self.by_code.iter_mut().map(part).collect();
        entry.details.code = self.code.iter().map(|(ip, counters)| (*ip, *counters)).collect();
        entry.details.code.sort_unstable_by_key(|&(ip, c)| (std::cmp::Reverse((c.cost_ns, c.accesses())), ip));
        entry.details.access_code = self.access_code.values().copied().collect();
        entry
    }

    /// Cells in memory.
    pub fn len(&self) -> usize {
        self.cells.len() + self.by_code.iter().map(|p| p.cells.len()).sum::<usize>()
    }

    /// Joins the cells of different processes.
    pub fn settle(&mut self) {
        self.cells.settle();
        self.by_code.iter_mut().for_each(|p| p.cells.settle());
    }

    /// Drops cells that are no longer kept.
    pub fn thin(&mut self, object: u32, thinning: Thinning) {
        self.cells.thin(object, thinning);
        self.by_code.iter_mut().for_each(|p| p.cells.thin(object, thinning));
    }

    /// The object as an entry of a profile: instances in order of birth, threads by `number`, times by `ns`.
    pub fn finish(mut self, number: &FxHashMap<ThreadId, ThreadId>, ns: &impl Fn(u64) -> u64) -> Entry {
        let mut entry = self.entry;
        let mut order: Vec<usize> = (0..entry.seen.len()).collect();
        order.sort_by_key(|&i| (entry.seen[i].born_ns, i));
        let mut instance = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(&old, new)| instance[old] = new);
        let of_thread = |t: ThreadId| number.get(&t).copied();
        let moved = |i: &Instance| Instance {
            born_ns: ns(i.born_ns),
            died_ns: i.died_ns.map(ns),
            thread: i.thread.and_then(of_thread),
            ..*i
        };
        entry.seen = order.iter().map(|&old| moved(&entry.seen[old])).collect();
        entry.cells = renumbered(&mut self.cells, &instance, number);
        let part = |mut p: Part| {
            let cells = renumbered(&mut p.cells, &instance, number);
            CodePart { total: Cells::total(&cells), cells, ..p.named }
        };
        let parts: Vec<CodePart> = self.by_code.into_iter().map(part).filter(|p| !p.cells.is_empty()).collect();
        entry.by_code = ordered_code(parts);
        entry.touches.retain_mut(|r| {
            let (Some(&i), Some(t)) = (instance.get(r.instance as usize), of_thread(r.thread)) else { return false };
            (r.instance, r.thread, r.time_ns) = (i, t, ns(r.time_ns));
            true
        });
        entry.touches.sort_unstable_by_key(|r| (r.instance, r.page));
        entry.details.unpaged_by.retain_mut(|by| of_thread(by.0).map(|thread| by.0 = thread).is_some());
        entry.details.unpaged_by.sort_by_key(|by| by.0);
        let Extrapolated { between, around } = &mut entry.details.extrapolated;
        for list in [between, around] {
            list.iter_mut().for_each(|r| r.instance = instance.get(r.instance as usize).copied().unwrap_or_default());
            list.sort_unstable_by_key(|r| (r.instance, r.low));
        }
        let mut code: Vec<(Frame, Counters)> = self.code.into_iter().collect();
        code.sort_unstable_by_key(|&(ip, c)| (std::cmp::Reverse((c.cost_ns, c.accesses())), ip));
        code.truncate(MAX_CODE);
        entry.details.access_code = code.iter().filter_map(|(ip, _)| self.access_code.get(ip).copied()).collect();
        entry.details.code = code;
        entry
    }
}
