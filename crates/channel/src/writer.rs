//! The preload's side: claim a slot, intern a call stack, push a record.
//!
//! No allocation, no locks, no waiting, no panics. The caller makes sure that a signal handler does not
//! call these functions while its thread is inside one (the preload's re-entry guard refuses it), and that [`Local`] is
//! only used by its thread in the process that claimed it.

use core::cell::Cell;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::layout::{ALLOC_HEAP, FREE_HEAP, MAGIC, Map, RING, Record, Ring, SLOTS, STACKS, SlotHead, VERSION};
use crate::{MAX_FRAMES, clock};

/// Table entries compared for one call stack before it is left unrecorded (the table is never more than half full).
const PROBES: usize = 64;
/// A thread without a slot tries again after this many lost events.
const RETRY: u32 = 256;

/// A thread's slot in the channel. All zero bytes mean "none yet", as in new thread-local storage.
#[repr(C)]
pub struct Local {
    /// Process that claimed it; another one (after fork) must claim its own.
    pid: Cell<u32>,
    /// Slot + 1; 0 none.
    slot: Cell<u32>,
    /// Records written.
    head: Cell<u64>,
    /// The recorder's position when last read.
    tail: Cell<u64>,
    /// The slot's ring, if there is a slot.
    ring: Cell<Option<Ring>>,
    /// Events lost since the last try to get a slot.
    missed: Cell<u32>,
}

impl Local {
    /// Whether this thread has tried to claim a slot in process `pid`.
    #[inline(always)]
    pub fn is_for(&self, pid: u32) -> bool {
        self.pid.get() == pid
    }

    /// The slot this thread owns, if it got one.
    #[inline(always)]
    pub fn slot(&self) -> Option<usize> {
        self.slot.get().checked_sub(1).map(|slot| slot as usize)
    }
}

/// Whether the channel is meant for this process; decided before the channel is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Record this process.
    Record,
    /// Another process is the target: only forward.
    Inert,
    /// Not a channel, or of another version.
    Refused,
}

/// Bytes of the header that [`role`] needs.
pub const ROLE_BYTES: usize = 32;

/// Whether process `pid`, child of `parent`, is to be recorded, from the first bytes of the channel.
pub fn role(header: &[u8; ROLE_BYTES], pid: u32, parent: u32) -> Role {
    let word = |at: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&header[at..at + 4]);
        u32::from_le_bytes(bytes)
    };
    let magic = u64::from(word(0)) | u64::from(word(4)) << 32;
    let (version, follow, recorder, target) = (word(8), word(16), word(20), word(24));
    if magic != MAGIC || version != VERSION {
        return Role::Refused;
    }
    // Target 0: the recorder has not stored it yet. Then the target is the recorder's own child.
    let is_target = if target == 0 { parent == recorder } else { target == pid };
    if is_target || follow != 0 { Role::Record } else { Role::Inert }
}

/// Records of a ring that [`is_minor`] records may fill: the rest is reserved for allocations that can be placed. A
/// program that makes millions of small allocations a second may lose small ones, but no array.
const MINOR_ROOM: u64 = (RING - RING / 8) as u64;
/// Allocations from this size on are objects of their own: one page, the unit of placement.
const LARGE: u64 = 4096;

/// Small allocations and all frees, because a free does not know the size. A block whose free was lost ends when its
/// address is allocated again.
fn is_minor(record: &Record) -> bool {
    match record.kind {
        ALLOC_HEAP => record.size < LARGE,
        kind => kind == FREE_HEAP,
    }
}

/// The writing side of a mapped channel.
#[derive(Clone, Copy)]
pub struct Writer {
    map: Map,
    clock: u32,
}

impl Writer {
    /// The writer of a mapping that [`role`] has accepted.
    pub fn new(map: Map) -> Writer {
        Writer { map, clock: map.header().clock }
    }

    /// A new process image begins: marks the slots of an earlier image of this pid (before exec) as abandoned.
    pub fn attach(&self, pid: u32) {
        let high = self.map.header().high_water.load(Acquire) as usize;
        for slot in (0..high.min(SLOTS)).map(|s| self.map.slot(s)) {
            if slot.owner.load(Acquire) >> 32 == u64::from(pid) {
                slot.abandoned.store(1, Release);
            }
        }
        self.map.header().attached.fetch_add(1, AcqRel);
    }

    /// Claims a slot for this thread, whose ring `ring_of` maps. Without a free slot, or without its ring, the
    /// thread's next events are counted as lost.
    pub fn claim(&self, local: &Local, pid: u32, tid: u32, ring_of: impl FnOnce(usize) -> Option<Ring>) {
        local.pid.set(pid);
        local.slot.set(0);
        local.ring.set(None);
        local.missed.set(0);
        let owner = u64::from(pid) << 32 | u64::from(tid);
        for index in 0..SLOTS {
            let slot = self.map.slot(index);
            // Acquire pairs with the recorder's Release when it frees a slot: its tail is final.
            if slot.owner.load(Relaxed) != 0 || slot.owner.compare_exchange(0, owner, AcqRel, Relaxed).is_err() {
                continue;
            }
            let Some(ring) = ring_of(index) else {
                slot.owner.store(0, Release); // nothing was written, and the claim number was never set
                return;
            };
            let header = self.map.header();
            slot.claim.store(header.claims.fetch_add(1, Relaxed), Release);
            header.high_water.fetch_max(index as u32 + 1, AcqRel);
            local.head.set(slot.head.load(Relaxed));
            local.tail.set(slot.tail.0.load(Acquire));
            local.ring.set(Some(ring));
            local.slot.set(index as u32 + 1);
            return;
        }
    }

    /// How much small allocations are thinned now; see [`crate::layout::kept`].
    #[inline(always)]
    pub fn thin(&self) -> u32 {
        self.map.header().thin.load(Relaxed)
    }

    /// Time stamp for a record of a free, taken before the free.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        clock::now(self.clock)
    }

    /// Time stamp for a record of an allocation, taken after it.
    #[inline(always)]
    pub fn now_after_loads(&self) -> u64 {
        clock::now_after_loads(self.clock)
    }

    /// Appends a record, or counts it as lost. The thread has called [`Writer::claim`] for this process.
    #[inline(always)]
    pub fn push(&self, local: &Local, record: Record) {
        let (Some(index), Some(ring)) = (local.slot(), local.ring.get()) else {
            return self.lose_without_slot(local);
        };
        let slot = self.map.slot(index);
        let head = local.head.get();
        if head.wrapping_sub(local.tail.get()) >= MINOR_ROOM && !self.make_room(local, slot, head, &record) {
            return;
        }
        // SAFETY: cells in [tail, tail + RING) belong to the writer until head passes them, and only this
        // thread writes this ring.
        unsafe { ring.cell(head).write(record) };
        local.head.set(head.wrapping_add(1));
        // Release pairs with the recorder's Acquire load: it sees the whole record.
        slot.head.store(head.wrapping_add(1), Release);
    }

    /// Reads the recorder's position again; false, and the record is counted as lost, when the ring is full or has no
    /// room for this kind of record.
    #[cold]
    fn make_room(&self, local: &Local, slot: &SlotHead, head: u64, record: &Record) -> bool {
        // Acquire pairs with the recorder's Release: it has read the cells that are about to be overwritten.
        let tail = slot.tail.0.load(Acquire);
        local.tail.set(tail);
        let room = if is_minor(record) { MINOR_ROOM } else { RING as u64 };
        if head.wrapping_sub(tail) < room {
            return true;
        }
        // Only this thread changes the counter of its slot.
        slot.lost.store(slot.lost.load(Relaxed) + 1, Relaxed);
        false
    }

    #[cold]
    fn lose_without_slot(&self, local: &Local) {
        self.map.header().lost.fetch_add(1, Relaxed);
        local.missed.set(local.missed.get() + 1);
        if local.missed.get() >= RETRY {
            local.pid.set(0); // the next event claims again
        }
    }

    /// Id of a call stack (innermost first, at most [`MAX_FRAMES`] are kept, none of them 0); 0 when the
    /// table is full.
    #[inline]
    pub fn intern(&self, frames: &[u64]) -> u32 {
        let frames = &frames[..frames.len().min(MAX_FRAMES)];
        let hash = hash(frames);
        let tag = hash >> 32;
        for probe in 0..PROBES {
            let entry = self.map.table((hash as usize).wrapping_add(probe));
            // Acquire pairs with the Release of `insert`: the frames of a visible id are complete.
            let mut word = entry.load(Acquire);
            if word == 0 {
                word = self.insert(entry, tag, frames);
            }
            let id = word as u32;
            if id == 0 {
                return 0;
            }
            if word >> 32 == tag && self.is_stack(id, frames) {
                return id;
            }
        }
        0
    }

    /// Puts a new stack at an empty entry and returns what the entry holds then; 0 when no id is left.
    #[cold]
    #[inline(never)]
    fn insert(&self, entry: &core::sync::atomic::AtomicU64, tag: u64, frames: &[u64]) -> u64 {
        let next = &self.map.header().next_stack;
        if next.load(Relaxed) as usize >= STACKS {
            return 0;
        }
        let id = next.fetch_add(1, Relaxed);
        if id as usize >= STACKS {
            return 0;
        }
        for (cell, &frame) in self.map.frames(id).iter().zip(frames) {
            cell.store(frame, Relaxed);
        }
        let word = tag << 32 | u64::from(id);
        // The thread that loses the race wastes one id; two threads rarely add the same stack at the same time.
        match entry.compare_exchange(0, word, AcqRel, Acquire) {
            Ok(_) => word,
            Err(other) => other,
        }
    }

    #[inline]
    fn is_stack(&self, id: u32, frames: &[u64]) -> bool {
        let cells = self.map.frames(id);
        let same = cells.iter().zip(frames).all(|(cell, &frame)| cell.load(Relaxed) == frame);
        same && cells.get(frames.len()).is_none_or(|end| end.load(Relaxed) == 0)
    }
}

/// The exclusive or of both halves of the product: one multiplication spreads both numbers over all bits (wyhash).
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Mixes the frames of a stack, four at a time in two chains: one chain of sixteen steps takes longer than the
/// rest of a lookup. The constants are the golden ratio's and those of SplitMix64.
#[inline(always)]
fn hash(frames: &[u64]) -> u64 {
    const K: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];
    let (mut one, mut two) = (frames.len() as u64 ^ K[1], K[2]);
    for four in frames.chunks(4) {
        let frame = |n: usize| four.get(n).copied().unwrap_or(0);
        one = fold(frame(0) ^ K[0], frame(1) ^ one);
        two = fold(frame(2) ^ K[1], frame(3) ^ two);
    }
    fold(one ^ K[2], two ^ K[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Header;

    #[test]
    fn stacks_that_differ_little_hash_far_apart() {
        // All paths through frames with two call sites each, by depth.
        let site = |level: usize, turn: usize| 0x5555_5555_1000 + (level as u64 % 3) * 0x40 + turn as u64 * 0x12;
        let [mut whole, mut low, mut high] = [const { std::collections::BTreeSet::new() }; 3];
        let mut stacks = 0;
        for path in 0..1_usize << 14 {
            for depth in [14, 15, 16] {
                let frames: Vec<u64> = (0..depth).map(|level| site(level, path >> level & 1)).collect();
                let h = hash(&frames);
                stacks += 1;
                whole.insert(h);
                low.insert(h & 0xf_ffff);
                high.insert(h >> 44);
            }
        }
        assert_eq!(whole.len(), stacks);
        // Random numbers in 2^20 buckets: 49,152^2 / 2^21 = 1,152 collisions.
        for bits in [low.len(), high.len()] {
            assert!(bits > stacks - 1400, "{bits} of {stacks}");
        }
    }

    #[test]
    fn role_reads_the_header_where_it_is() {
        use core::mem::offset_of;
        assert_eq!(
            [offset_of!(Header, version), offset_of!(Header, follow), offset_of!(Header, recorder_pid)],
            [8, 16, 20]
        );
        assert_eq!(offset_of!(Header, target_pid), 24);
        let header = |follow: u32, target: u32| {
            let mut h = [0_u8; ROLE_BYTES];
            h[..8].copy_from_slice(&MAGIC.to_le_bytes());
            for (at, value) in [(8, VERSION), (16, follow), (20, 100), (24, target)] {
                h[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
            h
        };
        assert_eq!(role(&header(0, 7), 7, 100), Role::Record);
        assert_eq!(role(&header(0, 7), 8, 7), Role::Inert);
        assert_eq!(role(&header(1, 7), 8, 7), Role::Record);
        assert_eq!(role(&header(0, 0), 8, 100), Role::Record);
        assert_eq!(role(&header(0, 0), 8, 101), Role::Inert);
        assert_eq!(role(&[0; ROLE_BYTES], 7, 100), Role::Refused);
    }
}
