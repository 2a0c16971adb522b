//! The first pass over the accesses: sums by object and instruction, and the accesses themselves for the second pass
//! where they fit in memory.

use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashMap};

use super::tables::Seen;
use super::types::Counters;
use crate::profile::records::{Folded, Frame, ObjectId, Record};

/// (object, instruction) pairs that have a sum: 24 MiB.
const MAX_USES: usize = 1 << 18;
/// Slots in front of the map: instructions that were seen lately, in the nearest caches.
const RECENT_BITS: u32 = 10;
/// What may be kept for the second pass, as memory: profiles are read several at a time. Larger ones are read twice.
const MAX_HELD: u64 = 64 << 20;

/// Number of a [`Used`], or [`NO_USE`].
pub(super) type UseId = u32;
/// A pair beyond [`MAX_USES`].
pub(super) const NO_USE: UseId = UseId::MAX;

/// An object and an instruction that accesses it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Used {
    pub object: ObjectId,
    pub ip: Frame,
    /// Of all its accesses.
    pub counters: Counters,
    /// Where and since when.
    pub seen: Seen,
}

/// Accesses by object and instruction.
#[derive(Debug, Default)]
pub(super) struct Uses {
    pub all: Vec<Used>,
    index: FxHashMap<(ObjectId, Frame), UseId>,
    recent: Vec<UseId>,
}

impl Uses {
    /// The number of a pair; none yet, or none because there are too many.
    #[inline]
    pub(super) fn find(&mut self, object: ObjectId, ip: Frame) -> UseId {
        if self.recent.is_empty() {
            self.recent = vec![NO_USE; 1 << RECENT_BITS];
        }
        // The multiplicative hash is best in its high bits; hashbrown uses the others.
        let slot = (FxBuildHasher.hash_one((object, ip)) >> (u64::BITS - RECENT_BITS)) as usize;
        let recent = self.recent[slot];
        if self.all.get(recent as usize).is_some_and(|u| u.object == object && u.ip == ip) {
            return recent;
        }
        let found = self.index.get(&(object, ip)).copied().unwrap_or(NO_USE);
        self.recent[slot] = found;
        found
    }

    /// Adds accesses; returns the number of their pair, [`NO_USE`] when they were not added.
    #[inline(always)]
    pub(super) fn add(&mut self, a: &Folded) -> UseId {
        let counters = Counters::of(a);
        let found = self.find(a.object, a.ip);
        if let Some(used) = self.all.get_mut(found as usize) {
            used.counters.add(&counters);
            used.seen.extend(a.addr, a.time_ns);
            return found;
        }
        if self.all.len() == MAX_USES {
            return NO_USE;
        }
        let new = self.all.len() as UseId;
        let seen = Seen { lowest: a.addr, highest: a.addr, first_ns: a.time_ns };
        self.all.push(Used { object: a.object, ip: a.ip, counters, seen });
        self.index.insert((a.object, a.ip), new);
        new
    }
}

/// The accesses of a profile with the number of each one's pair, as long as they are few.
#[derive(Debug, Default)]
pub(super) struct Held {
    lists: Vec<(Record, Vec<UseId>)>,
    bytes: u64,
}

impl Held {
    /// Keeps a list of accesses that takes about so many bytes, or gives up all lists when there are too many.
    pub(super) fn keep(&mut self, list: Record, uses: Vec<UseId>, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes).saturating_add((uses.len() * size_of::<UseId>()) as u64);
        if self.bytes > MAX_HELD {
            self.lists = Vec::new();
        } else {
            self.lists.push((list, uses));
        }
    }

    /// Accesses in the lists.
    pub(super) fn accesses(&self) -> usize {
        self.lists.iter().map(|(_, uses)| uses.len()).sum()
    }

    /// All lists; none when there were too many.
    pub(super) fn take(&mut self) -> Option<Vec<(Record, Vec<UseId>)>> {
        (self.bytes <= MAX_HELD).then(|| std::mem::take(&mut self.lists))
    }
}
