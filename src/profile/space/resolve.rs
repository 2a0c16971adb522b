//! Searches the layers of an address space for one address, when the cache has no answer.

use super::heap::{Block, NO_OBJECT};
use super::modules::{LoadedModule, Modules};
use super::objects::{Objects, Sites};
use super::process::{Mapping, Process};
use super::thread_stacks::ThreadStacks;
use crate::profile::ranges::Span;
use crate::profile::records::{Instance, Object, ObjectId, ObjectKind, Resized, ThreadId};

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

/// Objects of a process from which on its list of them is cleared of those that ended, each time it has doubled.
const MANY_EMITTED: usize = 1 << 16;

impl Resolver<'_> {
    /// The id in `known` if it is of this address space, else a new object.
    fn object(&mut self, known: ObjectId, make: impl FnOnce(&mut Self) -> Object) -> ObjectId {
        if known != NO_OBJECT && self.objects.belongs(known, self.p.serial) {
            return known;
        }
        let object = Object { pid: self.p.pid, ..make(self) };
        let id = self.objects.add(self.p.serial, object);
        self.p.emitted.push(id);
        if self.p.emitted.len().is_power_of_two() && self.p.emitted.len() >= MANY_EMITTED {
            let (objects, serial) = (&self.objects, self.p.serial);
            self.p.emitted.retain(|id| objects.belongs(*id, serial));
        }
        id
    }

    /// The range that was found; in both cases the answer holds for the bounds of the range or gap only.
    fn narrowed_to<V>(&mut self, found: Result<Span<V>, (u64, u64)>) -> Result<Span<V>, (u64, u64)> {
        let (low, high) = found.as_ref().map_or_else(|gap| *gap, |span| (span.low, span.high));
        self.range.narrow(low, high);
        found
    }

    /// The stack that holds the address, else the end of the nearest stack below it.
    pub fn stack(&mut self) -> Result<ObjectId, u64> {
        let found = self.p.stacks.locate(self.addr);
        let span = self.narrowed_to(found).map_err(|(low, _)| low)?;
        Ok(self.stack_object(span))
    }

    fn stack_object(&mut self, span: Span<u32>) -> ObjectId {
        let stack = self.p.stack_info[span.value].clone();
        let known = stack.object;
        let id = self.object(known, |at| {
            let name = at.threads.stack_name(stack.thread);
            let instance = instance(span.low, span.high, stack.born_ns, Some(stack.thread));
            Object { kind: ObjectKind::Stack, name, instance, ..Object::default() }
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
    fn block(&mut self) -> Option<Span<Block>> {
        let found = self.p.heap.lookup(self.addr);
        self.narrowed_to(found).ok()
    }

    /// Searched before the stacks: no stack fits into a small block, and no stack is reported over a live one.
    pub fn small_block(&mut self) -> Option<ObjectId> {
        let found = self.block()?;
        let Block::Small { site, .. } = found.value else { return None };
        let known = self.p.small.get(&site).copied().unwrap_or(NO_OBJECT);
        let id = self.object(known, |at| {
            let (born_ns, thread) = at.sites.first(site);
            let instance = instance(0, 0, born_ns, thread);
            Object { kind: ObjectKind::SmallHeap, site: Some(site), instance, ..Object::default() }
        });
        if id != known {
            self.p.small.insert(site, id);
        }
        Some(id)
    }

    pub fn large_block(&mut self) -> Option<ObjectId> {
        let found = self.block()?;
        let Block::Large(index) = found.value else { return None };
        let block = *self.p.heap.large(index);
        let end = found.low.saturating_add(block.size);
        let id = self.object(block.object, |_| Object {
            kind: ObjectKind::Heap,
            site: Some(block.site),
            instance: instance(found.low, end, block.born_ns, Some(block.thread)),
            ..Object::default()
        });
        self.p.heap.large(index).object = id;
        if id != block.object && block.before != NO_OBJECT {
            self.objects.resized(Resized { object: id, before: block.before, calls: block.calls.into() });
        }
        Some(id)
    }

    pub fn global(&mut self) -> Option<ObjectId> {
        let found = self.p.loaded.locate(self.addr);
        let span = self.narrowed_to(found).ok()?;
        let LoadedModule { module, bias } = self.modules.get(span.value);
        let globals = self.modules.file(module).globals();
        let piece = match globals.pieces.locate(self.addr.wrapping_sub(bias)) {
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
        let key = (span.value, piece.value);
        if let Some(&id) = self.p.globals.get(&key) {
            return Some(id);
        }
        let data = globals.objects[piece.value as usize].clone();
        let kind = if data.section { ObjectKind::Section } else { ObjectKind::Global };
        let base = data.vaddr.wrapping_add(bias);
        let born_ns = self.p.loaded_ns.get(&span.value).copied().unwrap_or(0);
        let id = self.object(NO_OBJECT, |_| Object {
            kind,
            name: data.name,
            module: Some(module),
            vaddr: data.vaddr,
            instance: instance(base, base.wrapping_add(data.size), born_ns, None),
            ..Object::default()
        });
        self.p.globals.insert(key, id);
        Some(id)
    }

    /// A mapping that the program made through a hook.
    pub fn hooked(&mut self) -> Option<ObjectId> {
        let found = self.p.hooked.locate(self.addr);
        let span = self.narrowed_to(found).ok()?;
        Some(self.mapping_object(span.value))
    }

    /// A mapping that the kernel reported.
    pub fn kernel(&mut self) -> Option<ObjectId> {
        let found = self.p.kernel.locate(self.addr);
        let span = self.narrowed_to(found).ok()?;
        Some(self.mapping_object(span.value.mapping))
    }

    fn mapping_object(&mut self, index: u32) -> ObjectId {
        if let Some(view) = self.p.mappings[index].view {
            let Mapping { path, site, instance, .. } = &self.p.mappings[index];
            let name = path.as_deref().unwrap_or_default().to_string();
            let instance = Instance { base: view.place(instance.base), ..*instance };
            let part = Object { kind: ObjectKind::Mapping, name, site: *site, instance, ..Object::default() };
            return self.objects.of_shared(view.memory, part);
        }
        let known = self.p.mappings[index].object;
        let id = self.object(known, |at| {
            let Mapping { path, site, instance, .. } = &at.p.mappings[index];
            let name = path.as_deref().unwrap_or_default().to_string();
            Object { kind: ObjectKind::Mapping, name, site: *site, instance: *instance, ..Object::default() }
        });
        self.p.mappings[index].object = id;
        id
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
            let instance = instance(stack_end, segment.high, stack.born_ns, Some(stack.thread));
            Object { kind: ObjectKind::Tls, name, instance, ..Object::default() }
        });
        self.p.stack_info[value].tls = id;
        Some(id)
    }

    pub fn unknown(&mut self) -> ObjectId {
        let known = self.p.unknown.unwrap_or(NO_OBJECT);
        let instance = instance(0, 0, self.time_ns, None);
        let id = self.object(known, |_| Object { kind: ObjectKind::Unknown, instance, ..Object::default() });
        self.p.unknown = Some(id);
        id
    }
}

fn instance(low: u64, high: u64, born_ns: u64, thread: Option<ThreadId>) -> Instance {
    Instance { base: low, size: high.wrapping_sub(low), born_ns, died_ns: None, thread }
}
