//! Searches the layers of an address space for one address, when the cache has no answer.

use super::heap::{Block, NO_OBJECT, PlacedBlock};
use super::modules::{Instance, Modules};
use super::objects::{Objects, Sites};
use super::process::{MappingPiece, Process};
use super::ranges::Span;
use super::thread_stacks::ThreadStacks;
use crate::profile::records::{Object, ObjectId, ObjectKind};

/// A pthread's static TLS and descriptor: 2.3 KiB of `struct pthread` plus the TLS of libraries, which glibc
/// keeps to a few KiB. A larger range above a stack is not TLS.
pub(super) const MAX_TLS: u64 = 64 << 10;
/// Bytes below the known end of a stack in which an access counts as its growth: the distance that the x86 kernel
/// allowed below the stack pointer until 4.20 (arch/x86/mm/fault.c).
const STACK_GROWTH: u64 = (64 << 10) + 256;
/// A range around an address, narrowed to where the same answer holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct SameAnswer {
    pub low: u64,
    pub high: u64,
}

impl SameAnswer {
    fn narrow(&mut self, low: u64, high: u64) {
        self.low = self.low.max(low);
        self.high = self.high.min(high);
    }
}

/// One search; the layers are searched in order, and each narrows the range to the gap around the address.
pub(super) struct Resolver<'a> {
    pub p: &'a mut Process,
    pub modules: &'a mut Modules,
    pub objects: &'a mut Objects,
    pub sites: &'a Sites,
    pub threads: &'a mut ThreadStacks,
    pub range: SameAnswer,
    pub time_ns: u64,
    pub addr: u64,
}

impl Resolver<'_> {
    /// The id in `known` if it is of this address space, else a new object.
    fn object(&mut self, known: ObjectId, make: impl FnOnce(&mut Self) -> Object) -> ObjectId {
        if known != NO_OBJECT && self.objects.belongs(known, self.p.serial) {
            return known;
        }
        let object = make(self);
        let id = self.objects.add(self.p.serial, object);
        self.p.emitted.push(id);
        id
    }

    fn plain_object(&self, kind: ObjectKind, low: u64, high: u64) -> Object {
        plain_object(self.p.pid, kind, low, high)
    }

    /// The stack that holds the address, else the end of the nearest stack below it.
    pub fn stack(&mut self) -> Result<ObjectId, u64> {
        let span = match self.p.stacks.locate(self.addr) {
            Ok(span) => span,
            Err((low, high)) => {
                self.range.narrow(low, high);
                return Err(low);
            }
        };
        self.range.narrow(span.low, span.high);
        Ok(self.stack_object(span))
    }

    fn stack_object(&mut self, span: Span<u32>) -> ObjectId {
        let stack = self.p.stack_info[span.value].clone();
        let known = stack.object;
        let id = self.object(known, |at| {
            let name = at.threads.stack_name(stack.thread);
            let base = at.plain_object(ObjectKind::Stack, span.low, span.high);
            Object { name, born_ns: stack.born_ns, thread: Some(stack.thread), ..base }
        });
        if id != known {
            self.p.stack_info[span.value].object = id;
            if let Some(t) = self.threads.get(stack.thread) {
                t.stacks.push((id, self.p.serial));
            }
        }
        id
    }

    /// The stack whose known end lies just above the address.
    pub fn growing_stack(&mut self) -> Option<ObjectId> {
        let span = self.p.stacks.overlapping(self.addr, self.addr.saturating_add(STACK_GROWTH)).next()?;
        self.p.stack_info[span.value].guessed.then(|| self.stack_object(span))
    }

    /// The heap block that holds the address.
    fn block(&mut self) -> Option<PlacedBlock> {
        match self.p.heap.lookup(self.addr) {
            Ok(found) => Some(found),
            Err((low, high)) => {
                self.range.narrow(low, high);
                None
            }
        }
    }

    /// Searched before the stacks: no stack fits into a small block, and no stack is reported over a live one.
    pub fn small_block(&mut self) -> Option<ObjectId> {
        let found = self.block()?;
        let Block::Small { site, .. } = found.block else { return None };
        self.range.narrow(found.low, found.high);
        let known = self.p.small.get(&site).copied().unwrap_or(NO_OBJECT);
        let id = self.object(known, |at| {
            let (born_ns, thread) = at.sites.first(site);
            Object { site: Some(site), born_ns, thread, ..at.plain_object(ObjectKind::SmallHeap, 0, 0) }
        });
        if id != known {
            self.p.small.insert(site, id);
        }
        Some(id)
    }

    pub fn large_block(&mut self) -> Option<ObjectId> {
        let found = self.block()?;
        let Block::Large(index) = found.block else { return None };
        self.range.narrow(found.low, found.high);
        let block = *self.p.heap.large(index);
        let id = self.object(block.object, |at| {
            let base = at.plain_object(ObjectKind::Heap, found.low, found.low.saturating_add(block.size));
            Object { site: Some(block.site), born_ns: block.born_ns, thread: Some(block.thread), ..base }
        });
        self.p.heap.large(index).object = id;
        Some(id)
    }

    /// The range that was found; in both cases the answer holds for the bounds of the range or gap only.
    fn narrowed_to<V>(&mut self, found: Result<Span<V>, (u64, u64)>) -> Option<Span<V>> {
        let (low, high) = found.as_ref().map_or_else(|gap| *gap, |span| (span.low, span.high));
        self.range.narrow(low, high);
        found.ok()
    }

    pub fn global(&mut self) -> Option<ObjectId> {
        let found = self.p.loaded.locate(self.addr);
        let span = self.narrowed_to(found)?;
        let Instance { module, bias } = self.modules.get(span.value);
        let globals = self.modules.file(module).globals();
        let piece = match globals.locate(self.addr.wrapping_sub(bias)) {
            Ok(piece) => piece,
            Err((low, high)) => {
                // Bounds that wrapped with the bias lie outside the module, whose own bounds already apply.
                let (low, high) = (low.wrapping_add(bias), high.wrapping_add(bias));
                self.range
                    .narrow(if low <= self.addr { low } else { 0 }, if high > self.addr { high } else { u64::MAX });
                return None;
            }
        };
        self.range.narrow(piece.low.wrapping_add(bias), piece.high.wrapping_add(bias));
        let key = (span.value, piece.object);
        if let Some(&id) = self.p.globals.get(&key) {
            return Some(id);
        }
        let data = globals.objects[piece.object as usize].clone();
        let kind = if data.section { ObjectKind::Section } else { ObjectKind::Global };
        let base = data.vaddr.wrapping_add(bias);
        let born_ns = self.p.loaded_ns.get(&span.value).copied().unwrap_or(0);
        let id = self.object(NO_OBJECT, |at| Object {
            name: data.name,
            module: Some(module),
            vaddr: data.vaddr,
            born_ns,
            ..at.plain_object(kind, base, base.wrapping_add(data.size))
        });
        self.p.globals.insert(key, id);
        Some(id)
    }

    pub fn hooked(&mut self) -> Option<ObjectId> {
        let found = self.p.hooked.locate(self.addr);
        let span = self.narrowed_to(found)?;
        let known = self.p.hooks[span.value].object;
        let id = self.object(known, |at| {
            let hook = &at.p.hooks[span.value];
            Object {
                name: hook.path.as_deref().unwrap_or_default().to_string(),
                site: Some(hook.site),
                born_ns: hook.born_ns,
                thread: Some(hook.thread),
                ..at.plain_object(ObjectKind::Mapping, hook.low, hook.high)
            }
        });
        self.p.hooks[span.value].object = id;
        Some(id)
    }

    /// Static TLS lies above a reported stack, in the same mapping, and ends with the mapping.
    pub fn tls(&mut self, stack_end: u64) -> Option<ObjectId> {
        let segment = self.p.kernel.get(self.addr)?;
        let stack = self.p.stacks.get(stack_end.checked_sub(1)?)?;
        let guessed = self.p.stack_info[stack.value].guessed;
        if guessed || segment.low >= stack_end || segment.high - stack_end > MAX_TLS {
            return None;
        }
        self.range.narrow(stack_end, segment.high);
        let Span { value, .. } = stack;
        let known = self.p.stack_info[value].tls;
        let id = self.object(known, |at| {
            let stack = &at.p.stack_info[value];
            let name = at.threads.stack_name(stack.thread).replacen("stack", "TLS", 1);
            let base = at.plain_object(ObjectKind::Tls, stack_end, segment.high);
            Object { name, born_ns: stack.born_ns, thread: Some(stack.thread), ..base }
        });
        self.p.stack_info[value].tls = id;
        Some(id)
    }

    pub fn kernel(&mut self) -> Option<ObjectId> {
        let span: Span<MappingPiece> = match self.p.kernel.locate(self.addr) {
            Ok(span) => span,
            Err((low, high)) => {
                self.range.narrow(low, high);
                return None;
            }
        };
        self.range.narrow(span.low, span.high);
        let index = span.value.mapping;
        let known = self.p.mappings[index].object;
        let id = self.object(known, |at| {
            let mapping = &at.p.mappings[index];
            let base = at.plain_object(ObjectKind::Mapping, mapping.low, mapping.high);
            Object { name: mapping.path.to_string(), born_ns: mapping.born_ns, ..base }
        });
        self.p.mappings[index].object = id;
        Some(id)
    }

    pub fn unknown(&mut self) -> ObjectId {
        let known = self.p.unknown.unwrap_or(NO_OBJECT);
        let time_ns = self.time_ns;
        let id = self.object(known, |at| Object { born_ns: time_ns, ..at.plain_object(ObjectKind::Unknown, 0, 0) });
        self.p.unknown = Some(id);
        id
    }
}

/// An object of which only kind and bounds are set.
pub(super) fn plain_object(pid: u32, kind: ObjectKind, low: u64, high: u64) -> Object {
    Object {
        id: NO_OBJECT,
        kind,
        name: String::new(),
        module: None,
        vaddr: 0,
        site: None,
        pid,
        base: low,
        size: high.wrapping_sub(low),
        born_ns: 0,
        died_ns: None,
        thread: None,
    }
}
