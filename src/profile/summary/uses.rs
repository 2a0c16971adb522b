//! The first pass over the accesses: sums by object and instruction, and what the second pass needs of each access
//! where that fits in memory.

use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashMap};

use super::tables::Seen;
use super::types::Counters;
use crate::profile::records::{Folded, Frame, ObjectId, ThreadId};

/// (object, instruction) pairs that have a sum: 24 MiB.
const MAX_USES: usize = 1 << 18;
/// Slots in front of the map: instructions that were seen lately, in the nearest caches.
const RECENT_BITS: u32 = 10;
/// What may be kept for the second pass of a profile that is read alone, as memory, and of one of several that are read
/// at a time. Larger ones are read twice.
pub(super) const HELD_ALONE: usize = 512 << 20;
pub(super) const HELD_BESIDE_OTHERS: usize = 64 << 20;

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
    /// The pair of the access that followed the last one: code accesses the same objects in the same order again.
    next: UseId,
}

/// Accesses by object and instruction.
#[derive(Debug, Default)]
pub(super) struct Uses {
    pub all: Vec<Used>,
    index: FxHashMap<(ObjectId, Frame), UseId>,
    recent: Vec<UseId>,
    /// The pair that was found last; any number at first.
    last: UseId,
}

impl Uses {
    /// The number of a pair; none yet, or none because there are too many.
    #[inline(always)]
    pub(super) fn find(&mut self, object: ObjectId, ip: Frame) -> UseId {
        let next = self.all.get(self.last as usize).map_or(NO_USE, |last| last.next);
        let found = if self.is_of(next, object, ip) { next } else { self.look_up(object, ip) };
        self.last = found;
        found
    }

    #[inline(always)]
    fn is_of(&self, id: UseId, object: ObjectId, ip: Frame) -> bool {
        self.all.get(id as usize).is_some_and(|u| u.object == object && u.ip == ip)
    }

    /// The number of a pair, which is the next one of the last from now on.
    fn look_up(&mut self, object: ObjectId, ip: Frame) -> UseId {
        if self.recent.is_empty() {
            self.recent = vec![NO_USE; 1 << RECENT_BITS];
        }
        // The multiplicative hash is best in its high bits; hashbrown uses the others.
        let slot = (FxBuildHasher.hash_one((object, ip)) >> (u64::BITS - RECENT_BITS)) as usize;
        let mut found = self.recent[slot];
        if !self.is_of(found, object, ip) {
            found = self.index.get(&(object, ip)).copied().unwrap_or(NO_USE);
            self.recent[slot] = found;
        }
        if let Some(last) = self.all.get_mut(self.last as usize) {
            last.next = found;
        }
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
        self.all.push(Used { object: a.object, ip: a.ip, counters, seen, next: NO_USE });
        self.index.insert((a.object, a.ip), new);
        self.last = new;
        new
    }
}

/// What the second pass needs of an access or a sum of accesses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub time_ns: u64,
    pub addr: u64,
    cost_ns: u64,
    pub thread: ThreadId,
    reads: u32,
    writes: u32,
    remote: u32,
    placed: u32,
    /// The number of the pair, and [`OBJECT_ONLY`].
    of: u32,
}

// There are millions of them.
const _: () = assert!(size_of::<Row>() == 48);
/// Set in [`Row::of`] where the page is not known.
const OBJECT_ONLY: u32 = 1 << 31;
const _: () = assert!(MAX_USES < OBJECT_ONLY as usize);

impl Row {
    /// Of accesses of a pair.
    #[inline(always)]
    pub(super) fn new(a: &Folded, of: UseId) -> Row {
        let Counters { reads, writes, remote, placed, cost_ns } = Counters::of(a);
        // The counters of one record fit 32 bits.
        let [reads, writes, remote, placed] = [reads, writes, remote, placed].map(|n| n as u32);
        let of = (of & !OBJECT_ONLY) | if a.object_only { OBJECT_ONLY } else { 0 };
        Row { time_ns: a.time_ns, addr: a.addr, cost_ns, thread: a.thread, reads, writes, remote, placed, of }
    }

    /// The number of the pair.
    #[inline(always)]
    pub(super) fn of(&self) -> UseId {
        self.of & !OBJECT_ONLY
    }

    /// Whether only the object is known, and not the page.
    #[inline(always)]
    pub(super) fn object_only(&self) -> bool {
        self.of & OBJECT_ONLY != 0
    }

    #[inline(always)]
    pub(super) fn counters(&self) -> Counters {
        let [reads, writes, remote, placed] = [self.reads, self.writes, self.remote, self.placed].map(u64::from);
        Counters { reads, writes, remote, placed, cost_ns: self.cost_ns }
    }
}

/// The accesses of a profile, as long as they are few and each is of a pair.
#[derive(Debug)]
pub(super) struct Held {
    lists: Vec<Vec<Row>>,
    bytes: usize,
    most: usize,
}

/// Keeps nothing.
impl Default for Held {
    fn default() -> Held {
        Held::new(0)
    }
}

impl Held {
    /// Keeps at most so many bytes.
    pub(super) fn new(most: usize) -> Held {
        Held { lists: Vec::new(), bytes: 0, most }
    }

    /// Room for the accesses of a record; none where they are not kept.
    pub(super) fn room(&mut self, accesses: usize) -> Option<Vec<Row>> {
        self.bytes = self.bytes.saturating_add(accesses.saturating_mul(size_of::<Row>()));
        if self.bytes > self.most {
            self.give_up();
        }
        (self.bytes <= self.most).then(|| Vec::with_capacity(accesses))
    }

    /// Keeps the accesses of a record that there was room for.
    pub(super) fn keep(&mut self, list: Option<Vec<Row>>) {
        self.lists.extend(list.filter(|_| self.bytes <= self.most));
    }

    /// Keeps none.
    pub(super) fn give_up(&mut self) {
        (self.lists, self.bytes) = (Vec::new(), usize::MAX);
    }

    /// All lists; none when there were too many accesses.
    pub(super) fn take(&mut self) -> Option<Vec<Vec<Row>>> {
        (self.bytes <= self.most).then(|| std::mem::take(&mut self.lists))
    }
}
