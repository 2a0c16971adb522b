//! The followed processes and their address spaces: [`Space`], and how a forked child gets its copy.

use std::fs::File;

use rustc_hash::{FxHashMap, FxHashSet};

use super::cache::Cache;
use super::modules::Modules;
use super::objects::{Objects, Sites};
use super::process::Process;
use super::thread_stacks::ThreadStacks;
use crate::profile::records::{Frame, ObjectId};

#[derive(Debug)]
pub(super) enum Slot {
    Live(Box<Process>),
    /// A forked child whose address space still equals its parent's (the slot given). The copy is made when either
    /// changes; most children exec or exit before.
    PendingFork {
        pid: u32,
        parent: usize,
    },
    Gone,
}

/// The files to read a process's memory by.
#[derive(Debug)]
pub(super) struct ProcessMemory {
    /// Of the process with this serial number.
    pub(super) serial: u32,
    pub(super) memory: File,
    pub(super) pagemap: File,
}

/// The model of every followed process.
#[derive(Debug, Default)]
pub struct Space {
    pub(super) roots: Vec<u32>,
    pub(super) follow: bool,
    pub(super) slots: Vec<Slot>,
    pub(super) by_pid: FxHashMap<u32, usize>,
    /// Process found last (pid, slot).
    pub(super) last: Option<(u32, usize)>,
    pub(super) serials: u32,
    pub(super) now_ns: u64,
    pub(super) modules: Modules,
    pub(super) objects: Objects,
    /// Only a part of the small blocks is reported.
    pub(super) thinned: bool,
    pub(super) sites: Sites,
    pub(super) cache: Cache,
    pub(super) threads: ThreadStacks,
    /// Objects for the addresses of processes that are not followed.
    pub(super) unfollowed: FxHashMap<u32, ObjectId>,
    /// Frames returned so far, and whether each is a return address.
    pub(super) frames: FxHashMap<Frame, bool>,
    pub(super) named: FxHashSet<Frame>,
    /// Code outside every ELF file, and the first address of the mapping that held it.
    pub(super) regions: FxHashMap<u64, u64>,
    /// Samples by the instruction that was charged and the bytes from its first one to the sample.
    pub(super) waits: FxHashMap<(Frame, u8), u64>,
    /// Of the process whose memory was read last.
    pub(super) memory: Option<ProcessMemory>,
}

impl Space {
    /// The model of process `root_pid`, and of its children when `follow`.
    pub fn new(root_pid: u32, follow: bool) -> Space {
        Space::of(vec![root_pid], follow)
    }

    /// The model of the processes `roots`, and of their children when `follow`.
    pub fn of(roots: Vec<u32>, follow: bool) -> Space {
        Space { roots, follow, ..Space::default() }
    }

    /// Empties a slot and, with a time in `died`, ends the objects of its address space.
    pub(super) fn empty_slot(&mut self, slot: usize, died: Option<u64>) {
        self.copy_pending_forks(slot);
        match std::mem::replace(&mut self.slots[slot], Slot::Gone) {
            Slot::Live(p) => {
                p.each_live(|site, size| self.sites.sub(site, size));
                p.each_shared(|memory| self.objects.unmap_shared(memory, died));
                for &id in died.iter().flat_map(|_| &p.emitted) {
                    self.objects.end(id, p.serial, died.unwrap_or(self.now_ns));
                }
            }
            Slot::PendingFork { parent, .. } => {
                process_in(&mut self.slots, parent).pending_forks.retain(|&s| s as usize != slot)
            }
            Slot::Gone => {}
        }
    }

    pub(super) fn new_process(&mut self, pid: u32) -> Box<Process> {
        self.serials += 1;
        Box::new(Process::new(pid, self.serials))
    }

    /// The slot of a followed process; added when the process is new.
    pub(super) fn slot_of(&mut self, pid: u32) -> Option<usize> {
        if let Some((last, slot)) = self.last
            && last == pid
        {
            return Some(slot);
        }
        let slot = match self.by_pid.get(&pid) {
            Some(&slot) => slot,
            None if self.follow || self.roots.contains(&pid) => {
                let fresh = self.new_process(pid);
                self.slots.push(Slot::Live(fresh));
                self.by_pid.insert(pid, self.slots.len() - 1);
                self.slots.len() - 1
            }
            None => return None,
        };
        self.last = Some((pid, slot));
        Some(slot)
    }

    /// The slot of a followed process, which then is [`Slot::Live`].
    pub(super) fn find(&mut self, pid: u32) -> Option<usize> {
        let slot = self.slot_of(pid)?;
        if let Slot::PendingFork { .. } = self.slots[slot] {
            self.copy_parent(slot);
        }
        Some(slot)
    }

    /// As [`Space::find`], for an event that changes the address space: forked children get their copy first.
    pub(super) fn find_to_change(&mut self, time_ns: u64, pid: u32) -> Option<usize> {
        self.now_ns = time_ns;
        let slot = self.find(pid)?;
        self.copy_pending_forks(slot);
        Some(slot)
    }

    pub(super) fn copy_pending_forks(&mut self, slot: usize) {
        while let Slot::Live(p) = &self.slots[slot]
            && let Some(&child) = p.pending_forks.last()
        {
            self.copy_parent(child as usize);
        }
    }

    /// Copies the parent's address space to a forked child that has no copy yet.
    pub(super) fn copy_parent(&mut self, slot: usize) {
        let Slot::PendingFork { pid, parent } = self.slots[slot] else { return };
        self.serials += 1;
        let from = process_in(&mut self.slots, parent);
        from.pending_forks.retain(|&s| s as usize != slot);
        let child = from.inherit(pid, self.serials, &mut self.sites, &mut self.objects);
        self.slots[slot] = Slot::Live(Box::new(child));
    }
}

/// The process in a slot that [`Space::find`] returned.
pub(super) fn process_in(slots: &mut [Slot], slot: usize) -> &mut Process {
    match &mut slots[slot] {
        Slot::Live(p) => p,
        Slot::PendingFork { .. } | Slot::Gone => {
            unreachable!("a slot that was found is live until it is emptied")
        }
    }
}
