//! The address space of one process: its layers, from thread stacks down to kernel mappings.
//!
//! Layers hold indices into per-process tables, so that a layer can be split and merged without changing the
//! tables. [`super::Space`] decides which layer answers; this file updates the layers.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::heap::{Heap, NO_OBJECT};
use super::objects::{Objects, Sites};
use super::ranges::{Ranges, Span, leftovers};
use crate::profile::records::{ObjectId, SiteId, ThreadId};

/// A piece of a kernel mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappingPiece {
    /// PROT_* bits.
    pub prot: u32,
    /// Index into [`Process::mappings`].
    pub mapping: u32,
}

/// A mapping the kernel reported.
#[derive(Debug, Clone)]
pub struct KernelMapping {
    /// `//anon`, `[heap]`, a file, ...
    pub path: Arc<str>,
    /// First report.
    pub born_ns: u64,
    /// Lowest address it had.
    pub low: u64,
    /// Highest address it had.
    pub high: u64,
    /// Its object, or [`NO_OBJECT`].
    pub object: ObjectId,
    pieces: u32,
}

/// A mapping made through a hooked mmap or mremap.
#[derive(Debug, Clone)]
pub struct HookedMapping {
    /// First byte as mapped.
    pub low: u64,
    /// One past the last byte as mapped.
    pub high: u64,
    /// File, or none when anonymous.
    pub path: Option<Arc<str>>,
    /// When it was mapped.
    pub born_ns: u64,
    /// Call site.
    pub site: SiteId,
    /// Thread that mapped it.
    pub thread: ThreadId,
    /// Its object, or [`NO_OBJECT`].
    pub object: ObjectId,
    pieces: u32,
}

/// A thread's stack.
#[derive(Debug, Clone)]
pub struct Stack {
    /// Owner.
    pub thread: ThreadId,
    /// When it was first known.
    pub born_ns: u64,
    /// Detected from a stack pointer, not reported by the preload: it grows with its mapping, and another thread that
    /// runs on it becomes its owner.
    pub guessed: bool,
    /// Its object, or [`NO_OBJECT`].
    pub object: ObjectId,
    /// Object of the static TLS above it, or [`NO_OBJECT`].
    pub tls: ObjectId,
}

/// One address space. `serial` is its identity; a new program in the same process (exec) gets a new one.
#[derive(Debug, Clone)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Identity of the address space.
    pub serial: u32,
    /// Kernel mappings: the layer below all others.
    pub kernel: Ranges<MappingPiece>,
    /// Described by [`MappingPiece::mapping`].
    pub mappings: Table<KernelMapping>,
    /// Mappings that the program made through a hook.
    pub hooked: Ranges<u32>,
    /// Described by the values of `hooked`.
    pub hooks: Table<HookedMapping>,
    /// Loaded modules, by instance index of [`super::modules::Modules`].
    pub loaded: Ranges<u32>,
    /// When each instance was loaded.
    pub loaded_ns: FxHashMap<u32, u64>,
    /// Bounds of `[stack]` as last reported; empty when never.
    pub main_stack: (u64, u64),
    /// Live heap blocks.
    pub heap: Heap,
    /// Thread stacks.
    pub stacks: Ranges<u32>,
    /// Described by the values of `stacks`.
    pub stack_info: Table<Stack>,
    /// Objects of (instance, index in its globals).
    pub globals: FxHashMap<(u32, u32), ObjectId>,
    /// Objects of small blocks by call site.
    pub small: FxHashMap<SiteId, ObjectId>,
    /// Call sites by raw frames, while the loaded modules stay the same.
    pub sites: FxHashMap<Box<[u64]>, SiteId>,
    /// Object of unknown addresses.
    pub unknown: Option<ObjectId>,
    /// Every object emitted for this address space.
    pub emitted: Vec<ObjectId>,
    /// Slots of forked children that have no copy of this address space yet.
    pub pending_forks: Vec<u32>,
}

/// A table with reused slots.
#[derive(Debug, Clone)]
pub struct Table<T> {
    slots: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Table<T> {
    /// Adds `value`.
    pub fn add(&mut self, value: T) -> u32 {
        if let Some(i) = self.free.pop() {
            self.slots[i as usize] = value;
            return i;
        }
        self.slots.push(value);
        (self.slots.len() - 1) as u32
    }

    /// Frees a slot; its value stays readable until the slot is used again.
    pub fn release(&mut self, i: u32) {
        self.free.push(i);
    }
}

impl<T> std::ops::Index<u32> for Table<T> {
    type Output = T;
    fn index(&self, i: u32) -> &T {
        &self.slots[i as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Table<T> {
    fn index_mut(&mut self, i: u32) -> &mut T {
        &mut self.slots[i as usize]
    }
}

impl Process {
    /// An empty address space.
    pub fn new(pid: u32, serial: u32) -> Process {
        Process {
            pid,
            serial,
            kernel: Ranges::default(),
            mappings: Table::default(),
            hooked: Ranges::default(),
            hooks: Table::default(),
            loaded: Ranges::default(),
            loaded_ns: FxHashMap::default(),
            main_stack: (0, 0),
            heap: Heap::default(),
            stacks: Ranges::default(),
            stack_info: Table::default(),
            globals: FxHashMap::default(),
            small: FxHashMap::default(),
            sites: FxHashMap::default(),
            unknown: None,
            emitted: Vec::new(),
            pending_forks: Vec::new(),
        }
    }

    /// The copy for a forked child. Objects still belong to the parent: their ids have its serial.
    pub fn inherit(&self, pid: u32, serial: u32, sites: &mut Sites) -> Process {
        let mut child = self.clone();
        child.pid = pid;
        child.serial = serial;
        child.emitted.clear();
        child.pending_forks.clear();
        child.unknown = None;
        child.globals.clear();
        child.small.clear();
        // The child's threads have other ids: its first one runs on what was the stack of the forking thread.
        for span in self.stacks.iter() {
            child.stack_info[span.value].guessed = true;
        }
        child.each_live(|site, size| sites.add_live(site, size));
        child
    }

    /// Calls `f` with call site and bytes of every live block and hooked mapping.
    pub fn each_live(&self, mut f: impl FnMut(SiteId, u64)) {
        self.heap.for_each(&mut f);
        for span in self.hooked.iter() {
            f(self.hooks[span.value].site, span.high - span.low);
        }
    }

    /// Applies a kernel report that `low..high` now maps `path` with `prot`: a new mapping, or the growth, merging or
    /// re-protection of known ones, which keep their identity.
    pub fn map(&mut self, time_ns: u64, low: u64, high: u64, prot: u32, path: &str, objects: &mut Objects) {
        let same = |s: &Span<MappingPiece>| *self.mappings[s.value.mapping].path == *path;
        let kept = self.kernel.overlapping(low, high).filter(same).find(|s| continues(s, low, high, prot, path));
        let mapping = match kept {
            Some(span) => span.value.mapping,
            None => {
                let path = Arc::from(path);
                self.mappings.add(KernelMapping { path, born_ns: time_ns, low, high, object: NO_OBJECT, pieces: 0 })
            }
        };
        let entry = &mut self.mappings[mapping];
        entry.pieces += 1;
        if low < entry.low || high > entry.high {
            (entry.low, entry.high) = (entry.low.min(low), entry.high.max(high));
            let (base, size) = (entry.low, entry.high - entry.low);
            objects.update(entry.object, self.serial, |o| (o.base, o.size) = (base, size));
        }
        self.unmap_kernel(time_ns, low, high, objects);
        self.kernel.insert(low, high, MappingPiece { prot, mapping });
    }

    /// Removes `low..high` from the kernel mappings.
    pub fn unmap_kernel(&mut self, time_ns: u64, low: u64, high: u64, objects: &mut Objects) {
        for span in self.kernel.cut(low, high) {
            let index = span.value.mapping;
            let entry = &mut self.mappings[index];
            entry.pieces = entry.pieces + leftovers(&span, low, high) - 1;
            if entry.pieces == 0 {
                objects.end(entry.object, self.serial, time_ns);
                self.mappings.release(index);
            }
        }
    }

    /// Removes `low..high` from the hooked mappings.
    pub fn unmap_hooked(&mut self, time_ns: u64, low: u64, high: u64, objects: &mut Objects, sites: &mut Sites) {
        for span in self.hooked.cut(low, high) {
            let entry = &mut self.hooks[span.value];
            sites.sub(entry.site, span.high.min(high) - span.low.max(low));
            entry.pieces = entry.pieces + leftovers(&span, low, high) - 1;
            if entry.pieces == 0 {
                objects.end(entry.object, self.serial, time_ns);
                self.hooks.release(span.value);
            }
        }
    }

    /// Adds a hooked mapping; no other one may overlap `low..high`.
    pub fn map_hooked(&mut self, time_ns: u64, low: u64, high: u64, site: SiteId, thread: ThreadId) {
        let kernel = self.kernel.get(low).map(|s| self.mappings[s.value.mapping].path.clone());
        let path = kernel.filter(|p| !is_anonymous(p));
        let entry = HookedMapping { low, high, path, born_ns: time_ns, site, thread, object: NO_OBJECT, pieces: 1 };
        let index = self.hooks.add(entry);
        self.hooked.insert(low, high, index);
    }

    /// Ends the stacks in `low..high`, which the program has allocated anew (the end of a stack is not reported).
    /// Returns their bounds.
    pub fn end_stacks(&mut self, time_ns: u64, low: u64, high: u64, objects: &mut Objects) -> Vec<Span<u32>> {
        let gone = self.stacks.remove_overlapping(low, high);
        for span in &gone {
            let stack = &self.stack_info[span.value];
            objects.end(stack.object, self.serial, time_ns);
            objects.end(stack.tls, self.serial, time_ns);
            self.stack_info.release(span.value);
        }
        gone
    }

    /// Sets the bounds of a thread's stack. A stack that the thread already has there keeps its identity; others there
    /// end.
    pub fn set_stack(
        &mut self,
        time_ns: u64,
        low: u64,
        high: u64,
        thread: ThreadId,
        guessed: bool,
        objects: &mut Objects,
    ) {
        let mut kept = None;
        for span in self.stacks.remove_overlapping(low, high) {
            let stack = &self.stack_info[span.value];
            if kept.is_none() && stack.thread == thread {
                kept = Some(span.value);
            } else {
                objects.end(stack.object, self.serial, time_ns);
                objects.end(stack.tls, self.serial, time_ns);
                self.stack_info.release(span.value);
            }
        }
        let index = match kept {
            Some(index) => {
                let stack = &mut self.stack_info[index];
                stack.guessed = guessed;
                objects.update(stack.object, self.serial, |o| (o.base, o.size) = (low, high - low));
                index
            }
            None => {
                let (object, tls) = (NO_OBJECT, NO_OBJECT);
                self.stack_info.add(Stack { thread, born_ns: time_ns, guessed, object, tls })
            }
        };
        self.stacks.insert(low, high, index);
    }
}

/// Whether a report about `low..high` continues the mapping of `span` (same path), rather than replacing it after an
/// unmapping that the kernel does not report. It does when the mapping grew or merged (the report covers more than it),
/// when only its protection changed, and always for the two mappings that exist once. An exact or partial repetition
/// with the same protection can only be a new mapping, because mprotect without a change is silent. Memory
/// without access permissions was never accessed: when it gets them (allocator arenas, thread stacks), a new mapping
/// begins.
fn continues(span: &Span<MappingPiece>, low: u64, high: u64, prot: u32, path: &str) -> bool {
    let accessible = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as u32;
    let once = path == "[heap]" || path == "[stack]";
    let grew = span.value.prot == prot && low <= span.low && span.high <= high && (low, high) != (span.low, span.high);
    let changed = span.value.prot != prot && span.value.prot & accessible != 0;
    once || grew || changed
}

/// Whether the kernel gives this name to memory that is not a file chosen by the program.
pub fn is_anonymous(path: &str) -> bool {
    path.is_empty() || path.starts_with("//anon") || path.starts_with("/anon_hugepage") || path.starts_with("/dev/zero")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RW: u32 = 3;
    const MB: u64 = 1 << 20;

    fn ids(p: &Process) -> Vec<(u64, u64, u32)> {
        p.kernel.iter().map(|s| (s.low, s.high, s.value.mapping)).collect()
    }

    #[test]
    fn arenas_grow_and_stacks_stay_apart() {
        let (mut p, mut o) = (Process::new(1, 1), Objects::default());
        // malloc's arena: reserved, then opened from the bottom; the kernel reports the merged part.
        p.map(1, 0, 64 * MB, 0, "//anon", &mut o);
        p.map(2, 0, MB, RW, "//anon", &mut o);
        p.map(3, 0, 2 * MB, RW, "//anon", &mut o);
        assert_eq!(ids(&p), [(0, 2 * MB, 1), (2 * MB, 64 * MB, 0)]);
        // Two thread stacks whose guards merge.
        p.map(4, 100 * MB, 109 * MB, 0, "//anon", &mut o);
        p.map(5, 101 * MB, 109 * MB, RW, "//anon", &mut o);
        p.map(6, 91 * MB, 101 * MB, 0, "//anon", &mut o);
        p.map(7, 92 * MB, 100 * MB, RW, "//anon", &mut o);
        let low = p.kernel.get(93 * MB).unwrap().value.mapping;
        let high = p.kernel.get(102 * MB).unwrap().value.mapping;
        assert_ne!(low, high);
    }

    #[test]
    fn a_repeated_mapping_is_a_new_one_and_a_protected_one_the_same() {
        let (mut p, mut o) = (Process::new(1, 1), Objects::default());
        p.map(1, 0, MB, RW, "//anon", &mut o);
        let mut object = super::super::tests::any_object();
        object.died_ns = None;
        let id = o.add(1, object);
        let index = p.kernel.get(0).unwrap().value.mapping;
        p.mappings[index].object = id;
        o.take_changed();
        p.map(2, 0, MB / 2, 1, "//anon", &mut o);
        assert!(o.take_changed().is_empty());
        p.map(3, 0, MB / 2, 1, "//anon", &mut o);
        p.map(4, MB / 2, MB, RW, "//anon", &mut o);
        assert_eq!(o.take_changed()[0].died_ns, Some(4));
    }

    #[test]
    fn names_without_a_file() {
        for name in ["//anon", "", "/anon_hugepage (deleted)", "/dev/zero (deleted)"] {
            assert!(is_anonymous(name));
        }
        for name in ["/tmp/a", "/memfd:x (deleted)", "/SYSV00000000 (deleted)", "[heap]"] {
            assert!(!is_anonymous(name));
        }
    }
}
