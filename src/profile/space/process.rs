//! The address space of one process: its layers, from thread stacks down to kernel mappings.
//!
//! Layers hold indices into per-process tables, so that a layer can be split and merged without changing the
//! tables. [`super::Space`] decides which layer answers; this file updates the layers.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::heap::{Heap, NO_OBJECT};
use super::objects::{Objects, Sites};
use super::shared::View;
use super::table::Table;
use crate::profile::ranges::{Ranges, Span, leftovers};
use crate::profile::records::{Instance, ObjectId, SiteId, ThreadId};

/// A piece of a kernel mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappingPiece {
    /// PROT_* bits.
    pub prot: u32,
    /// Index into [`Process::mappings`].
    pub mapping: u32,
}

/// A mapping that the kernel reported, or that was made through a hooked mmap or mremap.
#[derive(Debug, Clone)]
pub struct Mapping {
    /// `//anon`, `[heap]`, a file, ...; none of a hooked one that is anonymous.
    pub path: Option<Arc<str>>,
    /// Call site of a hooked one.
    pub site: Option<SiteId>,
    /// Bounds: of a hooked one as mapped, of others the lowest and the highest address it had.
    pub instance: Instance,
    /// Its object, or [`NO_OBJECT`].
    pub object: ObjectId,
    /// Of shared memory, which; then `object` is none.
    pub view: Option<View>,
    pieces: u32,
}

/// What a mapping shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown<'a> {
    /// Path that the kernel reports.
    pub path: &'a str,
    /// Of shared memory, which.
    pub view: Option<View>,
}

impl Shown<'_> {
    fn is_of(&self, mapping: &Mapping) -> bool {
        mapping.path.as_deref() == Some(self.path) && mapping.view == self.view
    }
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
#[derive(Debug, Clone, Default)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Identity of the address space.
    pub serial: u32,
    /// Kernel mappings: the layer below all others.
    pub kernel: Ranges<MappingPiece>,
    /// Described by [`MappingPiece::mapping`].
    pub mappings: Table<Mapping>,
    /// Mappings that the program made through a hook, by index into `mappings`.
    pub hooked: Ranges<u32>,
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

impl Process {
    /// An empty address space.
    pub fn new(pid: u32, serial: u32) -> Process {
        Process { pid, serial, ..Process::default() }
    }

    /// The copy for a forked child. Objects still belong to the parent: their ids have its serial.
    pub fn inherit(&self, pid: u32, serial: u32, sites: &mut Sites, objects: &mut Objects) -> Process {
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
        child.each_shared(|memory| objects.shared.add_piece(memory));
        child
    }

    /// The shared memory that the kernel reported at an address.
    pub fn view_at_kernel(&self, addr: u64) -> Option<View> {
        self.mappings[self.kernel.get(addr)?.value.mapping].view
    }

    /// Calls `f` with the memory of every piece of a mapping of shared memory.
    pub fn each_shared(&self, mut f: impl FnMut(u32)) {
        let kernel = self.kernel.iter().map(|span| span.value.mapping);
        for index in kernel.chain(self.hooked.iter().map(|span| span.value)) {
            if let Some(view) = self.mappings[index].view {
                f(view.memory);
            }
        }
    }

    /// The shared memory at an address.
    pub fn view_at(&self, addr: u64) -> Option<View> {
        let hooked = self.hooked.get(addr).map(|span| span.value);
        let index = hooked.or_else(|| self.kernel.get(addr).map(|span| span.value.mapping))?;
        self.mappings[index].view
    }

    /// Calls `f` with call site and bytes of every live block and hooked mapping.
    pub fn each_live(&self, mut f: impl FnMut(SiteId, u64)) {
        self.heap.for_each(&mut f);
        for span in self.hooked.iter() {
            if let Some(site) = self.mappings[span.value].site {
                f(site, span.high - span.low);
            }
        }
    }

    /// Applies a kernel report that `low..high` now maps what is `shown` with `prot`: a new mapping, or the growth,
    /// merging or re-protection of known ones, which keep their identity.
    pub fn map(&mut self, time_ns: u64, low: u64, high: u64, prot: u32, shown: Shown<'_>, objects: &mut Objects) {
        let Shown { path, view } = shown;
        let same = |s: &Span<MappingPiece>| shown.is_of(&self.mappings[s.value.mapping]);
        let kept = self.kernel.overlapping(low, high).filter(same).find(|s| continues(s, low, high, prot, path));
        let mapping = match kept {
            Some(span) => span.value.mapping,
            None => {
                let instance = Instance { base: low, size: high - low, born_ns: time_ns, ..Instance::default() };
                let path = Some(Arc::from(path));
                self.mappings.add(Mapping { path, site: None, instance, object: NO_OBJECT, view, pieces: 0 })
            }
        };
        let entry = &mut self.mappings[mapping];
        entry.pieces += 1;
        let (base, end) = (entry.instance.base.min(low), (entry.instance.base + entry.instance.size).max(high));
        if (base, end - base) != (entry.instance.base, entry.instance.size) {
            (entry.instance.base, entry.instance.size) = (base, end - base);
            objects.update(entry.object, self.serial, |o| (o.instance.base, o.instance.size) = (base, end - base));
        }
        // Before others go, so that shared memory which is mapped over itself does not end.
        view.into_iter().for_each(|view| objects.shared.add_piece(view.memory));
        self.unmap_kernel(time_ns, low, high, objects);
        self.kernel.insert(low, high, MappingPiece { prot, mapping });
    }

    /// The parts of `low..high`, which the kernel reports to map what is `shown` with `prot`, that [`Process::map`]
    /// would not take for a continued mapping: bounds.
    pub fn fresh_parts(&self, low: u64, high: u64, prot: u32, shown: Shown<'_>) -> Vec<(u64, u64)> {
        let path = shown.path;
        let same = |s: &Span<MappingPiece>| shown.is_of(&self.mappings[s.value.mapping]);
        let (mut fresh, mut from) = (Vec::new(), low);
        for span in self.kernel.overlapping(low, high).filter(|s| same(s) && continues(s, low, high, prot, path)) {
            if from < span.low {
                fresh.push((from, span.low));
            }
            from = from.max(span.high);
        }
        if from < high {
            fresh.push((from, high));
        }
        fresh
    }

    /// Removes `low..high` from the kernel mappings.
    pub fn unmap_kernel(&mut self, time_ns: u64, low: u64, high: u64, objects: &mut Objects) {
        for span in self.kernel.cut(low, high) {
            self.cut_piece(span.value.mapping, leftovers(&span, low, high), time_ns, objects);
        }
    }

    /// Removes `low..high` from the hooked mappings.
    pub fn unmap_hooked(&mut self, time_ns: u64, low: u64, high: u64, objects: &mut Objects, sites: &mut Sites) {
        for span in self.hooked.cut(low, high) {
            if let Some(site) = self.mappings[span.value].site {
                sites.sub(site, span.high.min(high) - span.low.max(low));
            }
            self.cut_piece(span.value, leftovers(&span, low, high), time_ns, objects);
        }
    }

    /// Of one piece of a mapping, `left` pieces are left. A mapping ends with its last piece.
    fn cut_piece(&mut self, mapping: u32, left: u32, time_ns: u64, objects: &mut Objects) {
        let entry = &mut self.mappings[mapping];
        entry.pieces = entry.pieces + left - 1;
        if let Some(View { memory, .. }) = entry.view {
            (0..left).for_each(|_| objects.shared.add_piece(memory));
            objects.unmap_shared(memory, Some(time_ns));
        }
        if entry.pieces == 0 {
            objects.end(entry.object, self.serial, time_ns);
            self.mappings.release(mapping);
        }
    }

    /// Adds a hooked mapping; no other one may overlap `low..high`.
    pub fn map_hooked(
        &mut self,
        time_ns: u64,
        (low, high): (u64, u64),
        site: SiteId,
        thread: ThreadId,
        objects: &mut Objects,
    ) {
        let kernel = self.kernel.get(low).map(|s| &self.mappings[s.value.mapping]);
        let view = kernel.and_then(|mapping| mapping.view);
        let path = kernel.and_then(|mapping| mapping.path.clone()).filter(|p| !is_anonymous(p));
        view.into_iter().for_each(|view| objects.shared.add_piece(view.memory));
        let instance = Instance { base: low, size: high - low, born_ns: time_ns, died_ns: None, thread: Some(thread) };
        let index = self.mappings.add(Mapping { path, site: Some(site), instance, object: NO_OBJECT, view, pieces: 1 });
        self.hooked.insert(low, high, index);
    }

    /// Ends the stacks in `low..high`, which the program has allocated anew (the end of a stack is not reported).
    /// Returns their bounds.
    pub fn end_stacks(&mut self, time_ns: u64, low: u64, high: u64, objects: &mut Objects) -> Vec<Span<u32>> {
        let gone = self.stacks.remove_overlapping(low, high);
        for span in &gone {
            self.end_stack(span.value, time_ns, objects);
        }
        gone
    }

    fn end_stack(&mut self, index: u32, time_ns: u64, objects: &mut Objects) {
        let stack = &self.stack_info[index];
        objects.end(stack.object, self.serial, time_ns);
        objects.end(stack.tls, self.serial, time_ns);
        self.stack_info.release(index);
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
            if kept.is_none() && self.stack_info[span.value].thread == thread {
                kept = Some(span.value);
            } else {
                self.end_stack(span.value, time_ns, objects);
            }
        }
        let index = match kept {
            Some(index) => {
                let stack = &mut self.stack_info[index];
                stack.guessed = guessed;
                objects.update(stack.object, self.serial, |o| (o.instance.base, o.instance.size) = (low, high - low));
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
    const ANON: Shown<'_> = Shown { path: "//anon", view: None };

    fn ids(p: &Process) -> Vec<(u64, u64, u32)> {
        p.kernel.iter().map(|s| (s.low, s.high, s.value.mapping)).collect()
    }

    #[test]
    fn arenas_grow_and_stacks_stay_apart() {
        let (mut p, mut o) = (Process::new(1, 1), Objects::default());
        // malloc's arena: reserved, then opened from the bottom; the kernel reports the merged part.
        p.map(1, 0, 64 * MB, 0, ANON, &mut o);
        p.map(2, 0, MB, RW, ANON, &mut o);
        p.map(3, 0, 2 * MB, RW, ANON, &mut o);
        assert_eq!(ids(&p), [(0, 2 * MB, 1), (2 * MB, 64 * MB, 0)]);
        // Two thread stacks whose guards merge.
        p.map(4, 100 * MB, 109 * MB, 0, ANON, &mut o);
        p.map(5, 101 * MB, 109 * MB, RW, ANON, &mut o);
        p.map(6, 91 * MB, 101 * MB, 0, ANON, &mut o);
        p.map(7, 92 * MB, 100 * MB, RW, ANON, &mut o);
        let low = p.kernel.get(93 * MB).unwrap().value.mapping;
        let high = p.kernel.get(102 * MB).unwrap().value.mapping;
        assert_ne!(low, high);
    }

    #[test]
    fn of_a_mapping_that_grew_only_the_new_part_is_fresh() {
        let (mut p, mut o) = (Process::new(1, 1), Objects::default());
        assert_eq!(p.fresh_parts(2 * MB, 3 * MB, RW, ANON), [(2 * MB, 3 * MB)]);
        p.map(1, 2 * MB, 3 * MB, RW, ANON, &mut o);
        assert_eq!(p.fresh_parts(MB, 4 * MB, RW, ANON), [(MB, 2 * MB), (3 * MB, 4 * MB)]);
        assert_eq!(p.fresh_parts(2 * MB, 3 * MB, RW, ANON), [(2 * MB, 3 * MB)], "mapped anew");
        assert_eq!(p.fresh_parts(2 * MB, 3 * MB, 1, ANON), [], "only its protection changed");
        assert_eq!(p.fresh_parts(MB, 4 * MB, RW, Shown { path: "/tmp/a", view: None }), [(MB, 4 * MB)]);
    }

    #[test]
    fn a_repeated_mapping_is_a_new_one_and_a_protected_one_the_same() {
        let (mut p, mut o) = (Process::new(1, 1), Objects::default());
        p.map(1, 0, MB, RW, ANON, &mut o);
        let mut object = super::super::tests::any_object();
        object.instance.died_ns = None;
        let id = o.add(1, object);
        let index = p.kernel.get(0).unwrap().value.mapping;
        p.mappings[index].object = id;
        o.take_changed();
        p.map(2, 0, MB / 2, 1, ANON, &mut o);
        assert!(o.take_changed().is_empty());
        p.map(3, 0, MB / 2, 1, ANON, &mut o);
        p.map(4, MB / 2, MB, RW, ANON, &mut o);
        assert_eq!(o.take_changed()[0].instance.died_ns, Some(4));
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
