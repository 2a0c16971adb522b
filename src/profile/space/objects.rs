//! Objects that were attributed, and call sites: the records of the profile.
//!
//! An object gets its id and its record when an access or touch is attributed to it for the first time, so a program
//! with a hundred million buffers costs records for the sampled ones only. Counts of call sites are always exact.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::shared::{SHARED, SharedMemory};

use crate::profile::records::{
    CallSite, Frame, FreeCount, ModuleId, Object, ObjectId, ObjectKind, PART_LEAST, Record, Resized, SiteCount,
    SiteFrees, SiteId, ThreadId,
};

/// Emitted objects.
#[derive(Debug, Default)]
pub struct Objects {
    /// Those that live, and those that ended and are still to be written: a program may make a hundred thousand a
    /// second.
    table: FxHashMap<ObjectId, Entry>,
    next: ObjectId,
    dirty: Vec<ObjectId>,
    /// Variables that are large enough for parts, by module: address and size in the file.
    variables: BTreeSet<(ModuleId, u64, u64)>,
    /// Those that realloc made of others, still to be written.
    resized: Vec<Resized>,
    /// Memory that several processes may map.
    pub shared: SharedMemory,
}

#[derive(Debug)]
struct Entry {
    object: Object,
    /// Address space the object belongs to: a forked child's blocks still carry the parent's ids.
    serial: u32,
    dirty: bool,
}

impl Objects {
    /// Adds an object (its `id` is set here) of the address space `serial`.
    pub fn add(&mut self, serial: u32, mut object: Object) -> ObjectId {
        let id = self.next;
        self.next += 1;
        object.id = id;
        if let (ObjectKind::Global, Some(module)) = (object.kind, object.module)
            && object.instance.size >= 2 * PART_LEAST
        {
            self.variables.insert((module, object.vaddr, object.instance.size));
        }
        self.table.insert(id, Entry { object, serial, dirty: true });
        self.dirty.push(id);
        id
    }

    /// Module, ELF virtual address and size of the variables added so far that are large enough for parts; ascending.
    pub fn large_variables(&self) -> impl Iterator<Item = (ModuleId, u64, u64)> {
        self.variables.iter().copied()
    }

    /// Takes note that realloc made an object of another one.
    pub fn resized(&mut self, resized: Resized) {
        self.resized.push(resized);
    }

    /// What [`Objects::resized`] was told since the last call.
    pub fn take_resized(&mut self) -> Vec<Resized> {
        std::mem::take(&mut self.resized)
    }

    /// Whether `id` is an object of that address space.
    pub fn belongs(&self, id: ObjectId, serial: u32) -> bool {
        self.table.get(&id).is_some_and(|e| e.serial == serial)
    }

    /// The object with all changes so far; `None` when it ended and was written.
    pub fn get(&self, id: ObjectId) -> Option<&Object> {
        self.table.get(&id).map(|e| &e.object)
    }

    /// Changes an object of that address space; objects of another one stay unchanged.
    pub fn update(&mut self, id: ObjectId, serial: u32, change: impl FnOnce(&mut Object)) {
        let Some(entry) = self.table.get_mut(&id).filter(|e| e.serial == serial) else { return };
        change(&mut entry.object);
        if !entry.dirty {
            entry.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Sets the end time of an object of that address space that has none yet.
    pub fn end(&mut self, id: ObjectId, serial: u32, time_ns: u64) {
        if self.table.get(&id).is_some_and(|e| e.object.instance.died_ns.is_none()) {
            self.update(id, serial, |o| o.instance.died_ns = Some(time_ns));
        }
    }

    /// The object of shared memory, of which a mapping shows `part`.
    pub fn of_shared(&mut self, memory: u32, part: Object) -> ObjectId {
        let Some((id, ended)) = self.shared.object(memory) else {
            let id = self.add(SHARED, part);
            self.shared.set_object(memory, id);
            return id;
        };
        if let Some(mut object) = ended {
            object.instance.died_ns = None;
            self.table.insert(id, Entry { object: *object, serial: SHARED, dirty: true });
            self.dirty.push(id);
        }
        let Some(known) = self.get(id) else { return id };
        let (old, new) = (known.instance, part.instance);
        let base = old.base.min(new.base);
        let size = old.base.saturating_add(old.size).max(new.base.saturating_add(new.size)) - base;
        let is_named = known.site.is_some() || part.site.is_none();
        if is_named && (base, size) == (old.base, old.size) {
            return id;
        }
        self.update(id, SHARED, |object| {
            (object.instance.base, object.instance.size) = (base, size);
            if !is_named {
                (object.site, object.name, object.instance.thread) = (part.site, part.name, new.thread);
            }
        });
        id
    }

    /// A piece of a mapping of shared memory went; with a time in `died`, the object ends with the last one.
    pub fn unmap_shared(&mut self, memory: u32, died: Option<u64>) {
        let Some((id, died)) = self.shared.remove_piece(memory).zip(died) else { return };
        let Some(object) = self.get(id).cloned() else { return };
        self.end(id, SHARED, died);
        self.shared.keep_ended(memory, object);
    }

    /// Objects that are new or changed since the last call, by id.
    pub fn take_changed(&mut self) -> Vec<Object> {
        let mut ids = std::mem::take(&mut self.dirty);
        ids.sort_unstable();
        ids.dedup();
        let table = &mut self.table;
        let changed = ids.into_iter().filter_map(|id| {
            let ended = table.get(&id)?.object.instance.died_ns.is_some();
            if ended {
                return table.remove(&id).map(|entry| entry.object);
            }
            let entry = table.get_mut(&id)?;
            entry.dirty = false;
            Some(entry.object.clone())
        });
        changed.collect()
    }
}

/// Call sites and their counts.
#[derive(Debug, Default)]
pub struct Sites {
    ids: FxHashMap<Box<[Frame]>, SiteId>,
    new: Vec<CallSite>,
    states: Vec<SiteState>,
    dirty: Vec<SiteId>,
}

#[derive(Debug)]
struct SiteState {
    count: SiteCount,
    frees: SiteFrees,
    live: u64,
    first_ns: u64,
    /// Allocations reported, and their bytes, while only a part of the small ones was.
    sampled: (u64, u64),
    /// The one thread that allocated here; none once there are two.
    thread: Option<ThreadId>,
    dirty: bool,
}

impl Sites {
    /// Id of a call stack.
    pub fn intern(&mut self, frames: Vec<Frame>) -> SiteId {
        if let Some(&id) = self.ids.get(frames.as_slice()) {
            return id;
        }
        let id = self.states.len() as SiteId;
        self.ids.insert(frames.clone().into_boxed_slice(), id);
        self.new.push(CallSite { id, frames });
        let count = SiteCount { site: id, ..SiteCount::default() };
        let frees = SiteFrees { site: id, ..SiteFrees::default() };
        self.states.push(SiteState { count, frees, live: 0, first_ns: 0, sampled: (0, 0), thread: None, dirty: true });
        self.dirty.push(id);
        id
    }

    /// All call stacks, in no order.
    pub fn stacks(&self) -> impl Iterator<Item = &[Frame]> {
        self.ids.keys().map(AsRef::as_ref)
    }

    fn touch(&mut self, site: SiteId) -> &mut SiteState {
        let state = &mut self.states[site as usize];
        if !state.dirty {
            state.dirty = true;
            self.dirty.push(site);
        }
        state
    }

    /// One allocation of `size` bytes.
    pub fn add(&mut self, site: SiteId, size: u64, time_ns: u64, thread: ThreadId) {
        let state = self.touch(site);
        if state.count.instances == 0 {
            state.first_ns = time_ns;
            state.thread = Some(thread);
        } else if state.thread != Some(thread) {
            state.thread = None;
        }
        state.count.instances = state.count.instances.saturating_add(1);
        state.frees.reported = state.frees.reported.saturating_add(1);
        state.count.bytes = state.count.bytes.saturating_add(size);
        state.count.max_size = state.count.max_size.max(size);
        self.add_live(site, size);
    }

    /// The allocation added last is one of before, of which `bytes` are left, made larger or smaller.
    pub fn resized(&mut self, site: SiteId, bytes: u64) {
        let state = self.touch(site);
        state.frees.reported = state.frees.reported.saturating_sub(1);
        let count = &mut state.count;
        count.instances = count.instances.saturating_sub(1);
        count.bytes = count.bytes.saturating_sub(bytes);
    }

    /// The allocation added last is one of a part of the small ones that is reported.
    pub fn add_sampled(&mut self, site: SiteId, size: u64) {
        let sampled = &mut self.states[site as usize].sampled;
        *sampled = (sampled.0 + 1, sampled.1.saturating_add(size));
    }

    /// `count` allocations of `bytes` bytes together that were not reported.
    pub fn add_left_out(&mut self, site: SiteId, count: u64, bytes: u64) {
        let state = self.touch(site);
        state.count.instances = state.count.instances.saturating_add(count);
        state.count.bytes = state.count.bytes.saturating_add(bytes);
    }

    /// Shares `count` allocations that were not reported among the sampled ones.
    pub fn share_left_out(&mut self, count: u64) {
        let sampled: u64 = self.states.iter().map(|s| s.sampled.0).sum();
        let part =
            |n: u64| u64::try_from(u128::from(n) * u128::from(count) / u128::from(sampled.max(1))).unwrap_or(u64::MAX);
        let shares: Vec<_> = self.states.iter().map(|s| s.sampled).collect();
        for (site, (instances, bytes)) in shares.into_iter().enumerate().filter(|(_, s)| s.0 > 0) {
            self.add_left_out(site as SiteId, part(instances), part(bytes));
        }
    }

    /// `size` more bytes are alive without an allocation: a child inherited them.
    pub fn add_live(&mut self, site: SiteId, size: u64) {
        let state = self.touch(site);
        state.live = state.live.saturating_add(size);
        state.count.peak_bytes = state.count.peak_bytes.max(state.live);
    }

    /// A block was freed, `by_other`: by another thread than the one that allocated it.
    pub fn freed(&mut self, site: SiteId, is_small: bool, by_other: bool) {
        let frees = &mut self.touch(site).frees;
        let count = if is_small { &mut frees.small } else { &mut frees.large };
        count.add(&FreeCount { all: 1, by_others: u64::from(by_other) });
    }

    /// `size` bytes were freed.
    pub fn sub(&mut self, site: SiteId, size: u64) {
        let state = &mut self.states[site as usize];
        state.live = state.live.saturating_sub(size);
    }

    /// Time of the first allocation, and the thread if only one allocated so far.
    pub fn first(&self, site: SiteId) -> (u64, Option<ThreadId>) {
        let state = &self.states[site as usize];
        (state.first_ns, state.thread)
    }

    /// New sites, then the counts and frees that changed since the last call.
    pub fn take_records(&mut self, out: &mut Vec<Record>) {
        if !self.new.is_empty() {
            out.push(Record::Sites(std::mem::take(&mut self.new)));
        }
        let mut ids = std::mem::take(&mut self.dirty);
        ids.sort_unstable();
        let states = &mut self.states;
        let (mut counts, mut frees) = (Vec::with_capacity(ids.len()), Vec::new());
        for id in ids {
            let state = &mut states[id as usize];
            state.dirty = false;
            counts.push(state.count);
            frees.extend((state.frees.small.all + state.frees.large.all > 0).then_some(state.frees));
        }
        if !counts.is_empty() {
            out.push(Record::SiteCounts(counts));
        }
        if !frees.is_empty() {
            out.push(Record::SiteFrees(frees));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact_and_reported_when_they_change() {
        let mut s = Sites::default();
        let frame = |offset| Frame { module: 0, offset };
        let a = s.intern(vec![frame(1), frame(2)]);
        assert_eq!(s.intern(vec![frame(1), frame(2)]), a);
        let b = s.intern(vec![frame(1)]);
        for (t, size) in [(5, 100), (6, 300)] {
            s.add(a, size, t, 0);
        }
        s.sub(a, 100);
        s.add(a, 50, 7, 1);
        assert_eq!(s.first(a), (5, None));
        let mut out = Vec::new();
        s.take_records(&mut out);
        let expected = SiteCount { site: a, instances: 3, bytes: 450, peak_bytes: 400, max_size: 300 };
        let Record::SiteCounts(counts) = &out[1] else { panic!("{out:?}") };
        assert_eq!(counts, &[expected, SiteCount { site: b, ..SiteCount::default() }]);
        out.clear();
        s.sub(a, 350);
        s.take_records(&mut out);
        assert!(out.is_empty());
    }

    #[test]
    fn only_the_own_address_space_changes_an_object() {
        let mut o = Objects::default();
        let id = o.add(1, super::super::tests::any_object());
        assert_eq!(o.take_changed().len(), 1);
        o.end(id, 2, 9);
        assert!(o.take_changed().is_empty());
        o.end(id, 1, 9);
        o.end(id, 1, 10);
        assert_eq!(o.take_changed()[0].instance.died_ns, Some(9));
    }
}
