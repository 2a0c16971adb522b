//! Finds the object of an address.

use super::process::is_anonymous;
use super::processes::{Space, process_in};
use super::resolve::{MAX_TLS, Resolver, SameAnswer};
use crate::profile::records::{Object, ObjectId, ObjectKind, ThreadId};

impl Space {
    /// The object at `addr` when `thread` of process `pid`, whose stack pointer is `sp` (0 when not known), accesses
    /// it.
    pub fn attribute(&mut self, time_ns: u64, pid: u32, thread: ThreadId, sp: u64, addr: u64) -> ObjectId {
        self.now_ns = time_ns;
        let Some(slot) = self.find(pid) else { return self.unfollowed_object(pid) };
        let serial = process_in(&mut self.slots, slot).serial;
        if sp != 0 && !self.threads.is_on_known_stack(thread, serial, sp) {
            self.detect_stack(slot, time_ns, thread, sp);
        }
        match self.cache.get(serial, addr) {
            Some(object) => object,
            None => {
                self.detect_main_stack(slot, time_ns, thread, addr);
                self.resolve(slot, time_ns, addr)
            }
        }
    }

    fn unfollowed_object(&mut self, pid: u32) -> ObjectId {
        let objects = &mut self.objects;
        let unknown = || Object { kind: ObjectKind::Unknown, pid, ..Object::default() };
        *self.unfollowed.entry(pid).or_insert_with(|| objects.add(0, unknown()))
    }

    pub(super) fn set_stack_bounds(
        &mut self,
        slot: usize,
        time_ns: u64,
        thread: ThreadId,
        (low, high): (u64, u64),
        guessed: bool,
    ) {
        let p = process_in(&mut self.slots, slot);
        // A stack recorded there before may have been larger.
        for old in p.stacks.overlapping(low, high) {
            self.cache.forget(p.serial, old.low, old.high);
        }
        p.set_stack(time_ns, low, high, thread, guessed, &mut self.objects);
        self.cache.forget(p.serial, low, high.saturating_add(MAX_TLS));
        if let Some(t) = self.threads.get(thread) {
            (t.serial, t.range) = (p.serial, low..high);
            t.announced |= !guessed;
        }
    }

    /// Called when the stack pointer of a thread leaves the known range: the mapping that holds it becomes the thread's
    /// stack, unless the program made that memory (coroutines) or the preload reported the thread's stack.
    fn detect_stack(&mut self, slot: usize, time_ns: u64, thread: ThreadId, sp: u64) {
        let p = process_in(&mut self.slots, slot);
        let (mut range, mut own) = ((sp, sp.saturating_add(1)), false);
        if let Some(span) = p.stacks.get(sp) {
            let stack = &p.stack_info[span.value];
            range = (span.low, span.high);
            own = stack.guessed && stack.thread != thread;
        } else if let Ok(found) = p.heap.lookup(sp) {
            range = (found.low, found.high);
        } else if let Some(span) = p.hooked.get(sp) {
            range = (span.low, span.high);
        } else if let Some(span) = p.loaded.get(sp) {
            range = (span.low, span.high);
        } else if let Some(span) = p.kernel.get(sp) {
            range = (span.low, span.high);
            let path = p.mappings[span.value.mapping].path.as_deref().unwrap_or_default();
            // Memory with heap blocks in it belongs to an allocator.
            let blocks = p.heap.at_or_before(span.high - 1).is_some_and(|f| f.high > span.low);
            own = path == "[stack]" || is_anonymous(path) && !blocks;
        }
        let Some(t) = self.threads.get(thread) else { return };
        // A new program (exec) in the thread: the bounds reported before are void.
        t.announced &= t.serial == p.serial;
        let announced = t.announced;
        (t.serial, t.range) = (p.serial, range.0..range.1);
        if own && !announced {
            self.set_stack_bounds(slot, time_ns, thread, range, true);
        }
    }

    /// Page faults have no stack pointer: a thread that touches `[stack]` while no thread's stack is known there is the
    /// main thread.
    fn detect_main_stack(&mut self, slot: usize, time_ns: u64, thread: ThreadId, addr: u64) {
        let p = process_in(&mut self.slots, slot);
        let (low, high) = p.main_stack;
        if low <= addr && addr < high && p.stacks.get(addr).is_none() {
            self.detect_stack(slot, time_ns, thread, addr);
        }
    }

    /// The kernel reported `[stack]` as `low..high`: the stack detected there grows with it.
    pub(super) fn grow_stack(&mut self, slot: usize, time_ns: u64, low: u64, high: u64) {
        let p = process_in(&mut self.slots, slot);
        let found = p.stacks.overlapping(low, high).map(|s| &p.stack_info[s.value]).find(|s| s.guessed);
        if let Some(thread) = found.map(|s| s.thread) {
            self.set_stack_bounds(slot, time_ns, thread, (low, high), true);
        }
    }

    fn resolve(&mut self, slot: usize, time_ns: u64, addr: u64) -> ObjectId {
        let p = process_in(&mut self.slots, slot);
        let mut at = Resolver {
            p,
            modules: &mut self.modules,
            objects: &mut self.objects,
            sites: &self.sites,
            threads: &mut self.threads,
            range: SameAnswer { low: 0, high: u64::MAX },
            time_ns,
            addr,
        };
        let found = at.small_block().or_else(|| match at.stack() {
            Ok(object) => Some(object),
            Err(stack_end) => at
                .large_block()
                .or_else(|| at.global())
                .or_else(|| at.hooked())
                .or_else(|| at.tls(stack_end))
                .or_else(|| at.kernel()),
        });
        let object = match found {
            Some(object) => object,
            None => match at.growing_stack() {
                // Not cached: the next event may report the growth.
                Some(object) => return object,
                None => at.unknown(),
            },
        };
        let SameAnswer { low, high } = at.range;
        self.cache.put(process_in(&mut self.slots, slot).serial, addr, low, high, object);
        object
    }
}
