//! The object at each address: modules, globals, heap blocks, stacks and mappings of each process over time.
//!
//! The recorder passes events in time order and asks for the object of an address at the same point of time; of the
//! past only objects that were attributed are kept. The layers are searched in this order: small heap blocks, thread
//! stacks, large heap blocks, globals and sections of loaded modules, mappings the program made itself, static TLS,
//! kernel mappings.
//!
//! Memory is bounded by the live objects plus those that were attributed. Addresses that wrap and events of processes
//! that are not followed are ignored. One thread uses a [`Space`]; all answers depend on the events only.

mod attribute;
mod cache;
mod code;
mod code_units;
mod debugfile;
mod dwarf_calls;
mod elf;
mod frees;
mod functions;
mod globals;
mod heap;
mod load;
mod members;
mod module_file;
mod modules;
mod objects;
mod process;
mod processes;
#[cfg(test)]
mod real_tests;
mod resized;
mod resolve;
mod shared;
pub mod static_data;
mod symbols;
mod table;
mod tail_calls;
#[cfg(test)]
mod tests;
mod thread_stacks;

use numamma_channel::Origin;

use self::cache::Cache;
use self::heap::{Block, LargeBlock, NO_OBJECT};
use self::modules::{LoadedModule, MappedFile, Modules};
use self::objects::{Objects, Sites};
use self::process::{Process, Shown};
use self::processes::{Slot, process_in};
use self::shared::SHARED;
use super::PAGE;
use super::perf::Mapping;
use super::ranges::Span;
use super::records::{
    Frame, LostFrames, Member, Members, NO_MODULE, Object, ObjectId, ObjectKind, Record, SMALL_OBJECT, SiteId, Symbol,
    ThreadId,
};

pub use self::code::{Code, Sampled};
pub use self::processes::Space;
pub use self::resized::Before;
pub use self::shared::View;

/// Bytes from which glibc maps a block (M_MMAP_THRESHOLD of mallopt(3), which may rise), and where in its first page
/// the block begins: behind the two words of its header (`struct malloc_chunk` of malloc.c).
const MMAP_THRESHOLD: u64 = 128 << 10;
const MAPPED_HEADER: u64 = 16;

impl Space {
    /// The kernel reported a mapping.
    pub fn mmap(&mut self, time_ns: u64, pid: u32, mapping: &Mapping) {
        let Mapping { addr, len, pgoff, prot, ref path, .. } = *mapping;
        let (Some(high), Some(slot)) = (addr.checked_add(len).filter(|h| *h > addr), self.find_to_change(time_ns, pid))
        else {
            return;
        };
        self.unload_replaced(slot, time_ns, addr, high, prot, path);
        let view = self.objects.shared.view(mapping);
        let p = process_in(&mut self.slots, slot);
        p.map(time_ns, addr, high, prot, Shown { path, view }, &mut self.objects);
        self.cache.forget(p.serial, addr, high);
        if path == "[stack]" {
            p.main_stack = (addr, high);
            self.grow_stack(slot, time_ns, addr, high);
        }
        let executable = prot & libc::PROT_EXEC as u32 != 0;
        // Libraries without code are loaded too; other data files are not opened.
        let file = path.starts_with('/') && (executable || path.contains(".so"));
        if !process::is_anonymous(path) && (file || path == "[vdso]") {
            self.load(slot, time_ns, executable, MappedFile { pid, low: addr, high, pgoff, path });
        }
    }

    /// The parts of a mapping that the kernel reports in which there was none that it continues: bounds.
    pub fn fresh_parts(&mut self, pid: u32, mapping: &Mapping) -> Vec<(u64, u64)> {
        let Mapping { addr, len, prot, ref path, .. } = *mapping;
        let high = addr.saturating_add(len);
        let Some(slot) = self.find(pid) else { return vec![(addr, high)] };
        let view = self.objects.shared.view(mapping);
        process_in(&mut self.slots, slot).fresh_parts(addr, high, prot, Shown { path, view })
    }

    /// The mapping of shared memory at an address of a process.
    pub fn view_at(&mut self, pid: u32, addr: u64) -> Option<View> {
        if self.objects.shared.is_empty() {
            return None;
        }
        let slot = self.find(pid)?;
        process_in(&mut self.slots, slot).view_at(addr)
    }

    /// First byte, and one past the last, of the live heap block that starts at `addr`.
    pub fn block(&mut self, pid: u32, addr: u64) -> Option<(u64, u64)> {
        let slot = self.find(pid)?;
        let found = process_in(&mut self.slots, slot).heap.at_or_before(addr).filter(|block| block.low == addr)?;
        Some((found.low, found.high))
    }

    /// The address in an object, to which [`Space::attribute`] has attributed an address of a process.
    pub fn address_in(&mut self, object: ObjectId, pid: u32, addr: u64) -> u64 {
        let view = if self.is_shared(object) { self.view_at(pid, addr) } else { None };
        view.map_or(addr, |view| view.place(addr))
    }

    /// Whether an object is memory that several processes may map.
    pub fn is_shared(&self, id: ObjectId) -> bool {
        self.objects.belongs(id, SHARED)
    }

    /// Whether an object is shared memory that a call of the program mapped.
    pub fn is_shared_by_program(&self, id: ObjectId) -> bool {
        self.is_shared(id) && self.objects.get(id).is_some_and(|object| object.site.is_some())
    }

    /// Shared memory that is gone since the last call.
    pub fn take_forgotten(&mut self) -> Vec<u32> {
        self.objects.shared.take_forgotten()
    }

    /// The process runs a new program: its address space is replaced.
    pub fn exec(&mut self, time_ns: u64, pid: u32) {
        self.now_ns = time_ns;
        let Some(slot) = self.slot_of(pid) else { return };
        self.empty_slot(slot, Some(time_ns));
        let fresh = self.new_process(pid);
        self.slots[slot] = Slot::Live(fresh);
    }

    /// A new process with a copy of its parent's address space. Ignored unless children are followed.
    pub fn fork_process(&mut self, time_ns: u64, parent_pid: u32, pid: u32) {
        self.now_ns = time_ns;
        if !self.follow || parent_pid == pid {
            return;
        }
        let Some(parent) = self.find(parent_pid) else { return };
        if self.by_pid.contains_key(&pid) {
            self.exit_process(pid);
        }
        let slot = self.slots.len();
        process_in(&mut self.slots, parent).pending_forks.push(slot as u32);
        self.by_pid.insert(pid, slot);
        self.slots.push(Slot::PendingFork { pid, parent });
    }

    /// The process ended. Objects of the root process get no end time: they existed until the end of the run.
    pub fn exit_process(&mut self, pid: u32) {
        let Some(&slot) = self.by_pid.get(&pid) else { return };
        let died = (!self.roots.contains(&pid)).then_some(self.now_ns);
        self.empty_slot(slot, died);
        self.by_pid.remove(&pid);
        self.last = None;
    }

    /// `count` more allocations of `size` bytes were made from a call stack and not reported.
    pub fn count_left_out(&mut self, pid: u32, frames: &[u64], count: u32, size: u64) {
        if let Some(slot) = self.find(pid) {
            let site = self.site(slot, frames);
            self.sites.add_left_out(site, u64::from(count), size.saturating_mul(u64::from(count)));
        }
    }

    /// Of the small blocks allocated since [`Space::thin`], `count` were not reported: the call sites get them in
    /// proportion to the reported ones.
    pub fn share_left_out(&mut self, count: u64) {
        self.sites.share_left_out(count);
    }

    /// Frees the small blocks that `kept` refuses, in all processes: their frees are not reported any more.
    pub fn thin(&mut self, kept: impl Fn(u64) -> bool) {
        self.thinned = true;
        for slot in &mut self.slots {
            // A child whose copy is pending gets what is left in its parent.
            let Slot::Live(process) = slot else { continue };
            for addr in process.heap.small_starts().into_iter().filter(|a| !kept(*a)) {
                free_block(process, addr, self.now_ns, &mut self.objects, &mut self.sites, &mut self.cache);
            }
        }
    }

    /// Frees the blocks of any size that `kept` refuses, in all processes, to save memory. Accesses to them are then
    /// charged to the heap as a whole.
    pub fn forget(&mut self, kept: impl Fn(u64) -> bool) {
        for slot in &mut self.slots {
            let Slot::Live(process) = slot else { continue };
            for addr in process.heap.starts().into_iter().filter(|a| !kept(*a)) {
                free_block(process, addr, self.now_ns, &mut self.objects, &mut self.sites, &mut self.cache);
            }
        }
    }

    /// Bounds of a thread's stack (from pthread_getattr_np) and the thread's name.
    pub fn thread_stack(&mut self, time_ns: u64, pid: u32, thread: ThreadId, low: u64, high: u64, name: &str) {
        self.thread_name(thread, name);
        let Some(slot) = self.find_to_change(time_ns, pid) else { return };
        if low >= high {
            return;
        }
        // The frees of blocks inside the stack were lost; a block that holds the stack is live.
        let p = process_in(&mut self.slots, slot);
        let dead = |f: &Span<Block>| f.low >= low && !(f.low == low && f.high >= high);
        while let Some(found) = p.heap.at_or_before(high - 1).filter(dead) {
            free_block(p, found.low, time_ns, &mut self.objects, &mut self.sites, &mut self.cache);
        }
        self.set_stack_bounds(slot, time_ns, thread, (low, high), false);
    }

    /// A thread was renamed.
    pub fn thread_name(&mut self, thread: ThreadId, name: &str) {
        for (id, serial) in self.threads.rename(thread, name) {
            let name = self.threads.stack_name(thread);
            self.objects.update(id, serial, |o| o.name = name);
        }
    }

    /// `size` bytes at `addr` were allocated by `thread`; `frames` are the return addresses, innermost first.
    #[allow(clippy::too_many_arguments)] // the fields of the preload's event
    pub fn alloc(
        &mut self,
        time_ns: u64,
        pid: u32,
        thread: ThreadId,
        addr: u64,
        size: u64,
        frames: &[u64],
        origin: Origin,
    ) {
        let Some(slot) = self.find_to_change(time_ns, pid) else { return };
        let end = addr.checked_add(size.max(1));
        let empty = origin == Origin::Mmap && size == 0;
        let Some(high) = end.filter(|_| addr != 0 && !empty) else { return };
        let site = self.site(slot, frames);
        let p = process_in(&mut self.slots, slot);
        let view = if origin == Origin::Mmap { p.view_at_kernel(addr) } else { None };
        match view.is_none_or(|view| self.objects.shared.allocate(view.memory)) {
            true => self.sites.add(site, size, time_ns, thread),
            // It was there before: another process maps it, too.
            false => self.sites.add_live(site, size),
        }
        if self.thinned && size < SMALL_OBJECT && origin == Origin::Heap {
            self.sites.add_sampled(site, size);
        }
        let p = process_in(&mut self.slots, slot);
        self.cache.forget(p.serial, addr, high);
        for gone in p.end_stacks(time_ns, addr, high, &mut self.objects) {
            self.cache.forget(p.serial, gone.low, gone.high.saturating_add(resolve::MAX_TLS));
        }
        match origin {
            Origin::Heap => {
                // The free of a block that overlaps was lost.
                while let Some(found) = p.heap.at_or_before(high - 1).filter(|f| f.high > addr) {
                    free_block(p, found.low, time_ns, &mut self.objects, &mut self.sites, &mut self.cache);
                }
                if size < SMALL_OBJECT {
                    p.heap.insert_small(addr, size, site, thread);
                } else {
                    let (object, before) = (NO_OBJECT, NO_OBJECT);
                    let born_ns = time_ns;
                    p.heap.insert_large(addr, LargeBlock { size, born_ns, site, thread, object, before, calls: 0 });
                }
            }
            Origin::Mmap => {
                p.unmap_hooked(time_ns, addr, high, &mut self.objects, &mut self.sites);
                p.map_hooked(time_ns, (addr, high), site, thread, &mut self.objects);
            }
        }
    }

    /// The block at `addr` was freed, or `size` bytes from `addr` were unmapped. Unknown addresses are ignored. Returns
    /// the address and the bytes of what is not mapped any more, as far as that is known.
    pub fn free(&mut self, time_ns: u64, pid: u32, addr: u64, size: u64, origin: Origin) -> Option<(u64, u64)> {
        let slot = self.find_to_change(time_ns, pid)?;
        let p = process_in(&mut self.slots, slot);
        match origin {
            Origin::Heap => {
                let freed = p.heap.at_or_before(addr).filter(|block| block.low == addr).map(|b| b.high - b.low);
                free_block(p, addr, time_ns, &mut self.objects, &mut self.sites, &mut self.cache);
                let mapped = |size: &u64| *size >= MMAP_THRESHOLD && addr % PAGE == MAPPED_HEADER;
                freed.filter(mapped).map(|size| (addr - MAPPED_HEADER, size + MAPPED_HEADER))
            }
            Origin::Mmap => {
                let high = addr.checked_add(size).filter(|h| *h > addr)?;
                p.unmap_hooked(time_ns, addr, high, &mut self.objects, &mut self.sites);
                p.unmap_kernel(time_ns, addr, high, &mut self.objects);
                self.cache.forget(p.serial, addr, high);
                Some((addr, size))
            }
        }
    }

    fn site(&mut self, slot: usize, frames: &[u64]) -> SiteId {
        let p = process_in(&mut self.slots, slot);
        if let Some(&site) = p.sites.get(frames) {
            return site;
        }
        let call_stack = self.call_stack(slot, frames);
        let p = process_in(&mut self.slots, slot);
        let site = self.sites.intern(call_stack);
        p.sites.insert(frames.into(), site);
        site
    }

    fn call_stack(&mut self, slot: usize, frames: &[u64]) -> Vec<Frame> {
        let p = process_in(&mut self.slots, slot);
        // The call, not the return address, is inside the calling function: it may be its last instruction.
        let call_stack: Vec<Frame> =
            frames.iter().map(|&ip| frame_in(p, &self.modules, ip.saturating_sub(1), ip)).collect();
        for &frame in &call_stack {
            self.frames.insert(frame, true);
        }
        call_stack
    }

    /// Modules and offsets of return addresses; empty for a process that is not known.
    pub fn return_addresses(&mut self, pid: u32, frames: &[u64]) -> Vec<Frame> {
        self.find(pid).map_or_else(Vec::new, |slot| self.call_stack(slot, frames))
    }

    /// Module and offset of an instruction pointer.
    pub fn frame(&mut self, pid: u32, ip: u64) -> Frame {
        let frame = match self.find(pid) {
            Some(slot) => frame_in(process_in(&mut self.slots, slot), &self.modules, ip, ip),
            None => Frame { module: NO_MODULE, offset: ip },
        };
        self.keep_region(pid, frame);
        self.frames.entry(frame).or_insert(false);
        frame
    }

    /// Module and offset of an address of code or data in an ELF file.
    pub fn module_frame(&mut self, pid: u32, addr: u64) -> Option<Frame> {
        let slot = self.find(pid)?;
        let frame = frame_in(process_in(&mut self.slots, slot), &self.modules, addr, addr);
        (frame.module != NO_MODULE).then_some(frame)
    }

    /// Module and offset of an address of code in an ELF file.
    pub fn code_frame(&mut self, pid: u32, addr: u64) -> Option<Frame> {
        let frame = self.module_frame(pid, addr)?;
        self.modules.file(frame.module).functions().at(frame.offset).map(|_| frame)
    }

    /// Path of a module that [`Space::frame`] returned.
    pub fn module_path(&self, module: crate::profile::records::ModuleId) -> Option<&str> {
        self.modules.path(module)
    }

    /// Whether the code at an address is that of a file that could be read.
    pub fn is_loaded(&mut self, pid: u32, addr: u64) -> bool {
        self.find(pid).is_some_and(|slot| process_in(&mut self.slots, slot).loaded.get(addr).is_some())
    }

    /// Whether the object has some of the `len` bytes at `addr`.
    pub fn overlaps(&self, id: ObjectId, addr: u64, len: u64) -> bool {
        let has = |o: &Object| addr < o.instance.base + o.instance.size && o.instance.base < addr + len;
        self.objects.get(id).is_some_and(has)
    }

    /// Whether an object is memory of one process without an origin in the program: no variable, no block, no mapping
    /// made by a hooked call.
    pub fn is_anonymous(&self, id: ObjectId) -> bool {
        let anonymous = |o: &Object| matches!(o.kind, ObjectKind::Mapping | ObjectKind::Unknown) && o.site.is_none();
        !self.is_shared(id) && self.objects.get(id).is_some_and(anonymous)
    }

    /// Code bytes and function bounds of a process.
    pub fn code(&mut self, pid: u32) -> Code<'_> {
        Code::new(self, pid, None)
    }

    /// The same for the replay of a sample, with the objects at that time.
    pub fn code_for(&mut self, pid: u32, sampled: Sampled) -> Code<'_> {
        Code::new(self, pid, Some(sampled))
    }

    /// Modules, call sites, their counts, objects, and what realloc made of others, that are new or changed since the
    /// last call, in this order.
    pub fn take_records(&mut self) -> Vec<Record> {
        let mut out = Vec::new();
        let modules = self.modules.take_new();
        if !modules.is_empty() {
            out.push(Record::Modules(modules));
        }
        self.sites.take_records(&mut out);
        let objects = self.objects.take_changed();
        if !objects.is_empty() {
            out.push(Record::Objects(objects));
        }
        let resized = self.objects.take_resized();
        if !resized.is_empty() {
            out.push(Record::Resized(resized));
        }
        out
    }

    /// Names of the frames returned so far (in call sites and by [`Space::frame`]) and not named by an earlier call.
    /// Frames without a name are left out. Reads debug information: call it when the program has ended.
    pub fn symbols(&mut self) -> Vec<Symbol> {
        let mut todo: Vec<(Frame, bool)> =
            self.frames.iter().map(|(f, call)| (*f, *call)).filter(|(f, _)| !self.named.contains(f)).collect();
        todo.sort_unstable();
        self.named.extend(todo.iter().map(|(f, _)| *f));
        symbols::name(&mut self.modules, &todo)
    }

    /// Functions that are missing in the call stacks because they left by a tail call. Reads debug information: call it
    /// when the program has ended.
    pub fn lost_frames(&mut self) -> Vec<LostFrames> {
        tail_calls::find(&mut self.modules, self.sites.stacks())
    }

    /// First address of a variable, and its members; without any for other objects. Reads debug information.
    pub fn members_of(&mut self, id: ObjectId) -> (u64, Vec<Member>) {
        let variable = self.objects.get(id).filter(|object| object.kind == ObjectKind::Global);
        let Some((module, object)) = variable.and_then(|object| Some((object.module?, object))) else {
            return (0, Vec::new());
        };
        let place = (object.vaddr, object.instance.size);
        let base = object.instance.base;
        (base, members::find_with_items(self.modules.file(module), place))
    }

    /// Paths of the programs and libraries that were loaded.
    pub fn modules(&self) -> impl Iterator<Item = &str> {
        (0..self.modules.count()).filter_map(|n| self.modules.path(n as crate::profile::records::ModuleId))
    }

    /// The members of the large variables that were attributed. Reads debug information: call it when the program has
    /// ended.
    pub fn members(&mut self) -> Vec<Members> {
        let variables: Vec<_> = self.objects.large_variables().collect();
        let mut out = Vec::new();
        for group in variables.chunk_by(|a, b| a.0 == b.0) {
            let module = group[0].0;
            let places: Vec<(u64, u64)> = group.iter().map(|&(_, vaddr, size)| (vaddr, size)).collect();
            let found = members::find(self.modules.file(module), &places).into_iter().zip(&places);
            let several = found.filter(|(members, _)| members.len() > 1);
            out.extend(several.map(|(members, &(vaddr, _))| Members { module, vaddr, members }));
        }
        out
    }
}

/// The frame of `ip`, which belongs to the module that holds `inside`.
fn frame_in(p: &Process, modules: &Modules, inside: u64, ip: u64) -> Frame {
    match p.loaded.get(inside) {
        Some(span) => {
            let LoadedModule { module, bias } = modules.get(span.value);
            Frame { module, offset: ip.wrapping_sub(bias) }
        }
        None => Frame { module: NO_MODULE, offset: ip },
    }
}

fn free_block(p: &mut Process, addr: u64, time_ns: u64, objects: &mut Objects, sites: &mut Sites, cache: &mut Cache) {
    let Some((Span { low, high, value: block }, large)) = p.heap.remove(addr) else { return };
    match (block, large) {
        (Block::Small { site, size, .. }, _) => {
            sites.sub(site, u64::from(size));
            cache.forget(p.serial, low, high);
        }
        (Block::Large(_), Some(block)) => {
            sites.sub(block.site, block.size);
            if block.object != NO_OBJECT {
                objects.end(block.object, p.serial, time_ns);
                cache.forget(p.serial, low, high);
            }
        }
        (Block::Large(_), None) => {}
    }
}
