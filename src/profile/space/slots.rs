//! The processes of a [`Space`] and how a forked child gets its address space.

use super::Space;
use super::process::Process;

#[derive(Debug)]
pub(super) enum Slot {
    Live(Box<Process>),
    /// A forked child that still equals its parent (the slot given): most exec or exit before either changes.
    Heir {
        pid: u32,
        parent: usize,
    },
    Gone,
}

impl Space {
    /// Empties a slot; `died` ends the objects of its address space.
    pub(super) fn bury(&mut self, slot: usize, died: Option<u64>) {
        self.settle_heirs(slot);
        match std::mem::replace(&mut self.slots[slot], Slot::Gone) {
            Slot::Live(p) => {
                p.each_live(|site, size| self.sites.sub(site, size));
                for &id in died.iter().flat_map(|_| &p.emitted) {
                    self.objects.end(id, p.serial, died.unwrap_or(self.now_ns));
                }
            }
            Slot::Heir { parent, .. } => live(&mut self.slots, parent).heirs.retain(|&s| s as usize != slot),
            Slot::Gone => {}
        }
    }

    pub(super) fn fresh(&mut self, pid: u32) -> Box<Process> {
        self.serials += 1;
        Box::new(Process::new(pid, self.serials))
    }

    /// The slot of a followed process, made when the process is new.
    pub(super) fn slot_of(&mut self, pid: u32) -> Option<usize> {
        if let Some((last, slot)) = self.last
            && last == pid
        {
            return Some(slot);
        }
        let slot = match self.by_pid.get(&pid) {
            Some(&slot) => slot,
            None if self.follow || pid == self.root => {
                let fresh = self.fresh(pid);
                self.slots.push(Slot::Live(fresh));
                self.by_pid.insert(pid, self.slots.len() - 1);
                self.slots.len() - 1
            }
            None => return None,
        };
        self.last = Some((pid, slot));
        Some(slot)
    }

    /// The slot of a followed process, live.
    pub(super) fn find(&mut self, pid: u32) -> Option<usize> {
        let slot = self.slot_of(pid)?;
        if let Slot::Heir { .. } = self.slots[slot] {
            self.settle(slot);
        }
        Some(slot)
    }

    /// As [`Space::find`], for an event that changes the address space: heirs get their copy first.
    pub(super) fn own(&mut self, time_ns: u64, pid: u32) -> Option<usize> {
        self.now_ns = time_ns;
        let slot = self.find(pid)?;
        self.settle_heirs(slot);
        Some(slot)
    }

    pub(super) fn settle_heirs(&mut self, slot: usize) {
        while let Slot::Live(p) = &self.slots[slot]
            && let Some(&heir) = p.heirs.last()
        {
            self.settle(heir as usize);
        }
    }

    /// Gives an heir its own copy.
    pub(super) fn settle(&mut self, slot: usize) {
        let Slot::Heir { pid, parent } = self.slots[slot] else { return };
        self.serials += 1;
        let from = live(&mut self.slots, parent);
        from.heirs.retain(|&s| s as usize != slot);
        let child = from.inherit(pid, self.serials, &mut self.sites);
        self.slots[slot] = Slot::Live(Box::new(child));
    }
}

/// The process in a slot that [`Space::find`] returned.
pub(super) fn live(slots: &mut [Slot], slot: usize) -> &mut Process {
    match &mut slots[slot] {
        Slot::Live(p) => p,
        Slot::Heir { .. } | Slot::Gone => unreachable!("a slot that was found is live until its process is buried"),
    }
}
