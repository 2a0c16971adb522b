//! Waiting for other threads in loops: what [`AddressKind::Spun`] accesses were charged with. It is no cost of the
//! object that they read, as no placement makes another thread come sooner, and belongs to no entry.
//!
//! [`AddressKind::Spun`]: crate::profile::records::AddressKind::Spun

use rustc_hash::FxHashMap;

use super::types::{Counters, MAX_CODE};
use crate::profile::records::{Frame, ThreadId};

/// Accesses of one thread in one time slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpinCell {
    /// Thread.
    pub thread: ThreadId,
    /// Time slot.
    pub slot: u16,
    /// What was charged.
    pub counters: Counters,
}

/// All of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spinning {
    /// By thread and slot, ascending.
    pub cells: Vec<SpinCell>,
    /// The instructions, most time first; empty for several profiles.
    pub code: Vec<(Frame, Counters)>,
}

impl Spinning {
    /// CPU time that was spent so, ns.
    pub fn cost_ns(&self) -> u64 {
        self.cells.iter().map(|c| c.counters.cost_ns).sum()
    }
}

/// Adds them up.
#[derive(Debug, Default)]
pub(crate) struct SpinTally {
    cells: FxHashMap<(ThreadId, u16), Counters>,
    code: FxHashMap<Frame, Counters>,
}

impl SpinTally {
    pub fn add(&mut self, thread: ThreadId, slot: u16, counters: &Counters) {
        self.cells.entry((thread, slot)).or_default().add(counters);
    }

    pub fn add_code(&mut self, frame: Frame, counters: &Counters) {
        self.code.entry(frame).or_default().add(counters);
    }

    pub fn join(&mut self, other: SpinTally) {
        other.cells.iter().for_each(|((thread, slot), counters)| self.add(*thread, *slot, counters));
        other.code.iter().for_each(|(frame, counters)| self.add_code(*frame, counters));
    }

    /// The sum, with threads numbered by `number`; those without a number are left out.
    pub fn finish(&self, number: impl Fn(ThreadId) -> Option<ThreadId>) -> Spinning {
        let cell = |(&(thread, slot), &counters): (&(ThreadId, u16), &Counters)| {
            Some(SpinCell { thread: number(thread)?, slot, counters })
        };
        let mut cells: Vec<SpinCell> = self.cells.iter().filter_map(cell).collect();
        cells.sort_unstable_by_key(|c| (c.thread, c.slot));
        let mut code: Vec<(Frame, Counters)> = self.code.iter().map(|(f, c)| (*f, *c)).collect();
        code.sort_unstable_by_key(|&(ip, c)| (std::cmp::Reverse((c.cost_ns, c.accesses())), ip));
        code.truncate(MAX_CODE);
        Spinning { cells, code }
    }
}
