//! The preload's side: claim a slot, intern a call stack, push a record.
//!
//! No allocation, no locks, no waiting, no panics. The caller makes sure that a signal handler does not
//! call these functions while its thread is inside one (the preload's re-entry guard refuses it), and that [`Local`] is
//! only used by its thread in the process that claimed it.

use core::cell::Cell;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::layout::{
    ALLOC_HEAP, CHUNK, FREE_HEAP, KIND_BITS, MAGIC, Map, Pool, RESIZED, Record, SLOTS, SMALL, STACKS, VERSION,
};
use crate::trace::layout as trace;
use crate::{MAX_FRAMES, clock};

/// Table entries compared for one call stack before it is left unrecorded (the table is never more than half full).
const PROBES: usize = 64;
/// Allocations that are left out between two times that the recorder is told their number.
const SKIPPED_TOLD: u64 = 1024;
/// A thread without a slot tries again after this many lost events.
const RETRY: u32 = 32;

/// A thread's slot in the channel. All zero bytes mean "none yet", as in new thread-local storage.
#[repr(C)]
pub struct Local {
    /// Process that claimed it; another one (after fork) must claim its own.
    pid: Cell<u32>,
    /// Slot + 1; 0 none.
    slot: Cell<u32>,
    /// Records written.
    head: Cell<u64>,
    /// Where the next record goes.
    next: Cell<*mut Record>,
    /// The end of the chunk that `next` points into.
    end: Cell<*mut Record>,
    /// The chunk.
    chunk: Cell<u32>,
    /// Events lost since the last try to get a slot.
    missed: Cell<u32>,
    /// Where the thread started, for the try that succeeds.
    pub start_routine: Cell<usize>,
    /// Id of the call stack that created it, likewise.
    pub created_at: Cell<u32>,
    /// Allocations left out at the recorder's request.
    skipped: Cell<u64>,
}

impl Local {
    /// Whether this thread has tried to claim a slot in process `pid`.
    #[inline(always)]
    pub fn is_for(&self, pid: u32) -> bool {
        self.pid.get() == pid
    }

    /// Counts an allocation that is left out; true when it is time to tell the recorder.
    #[inline(always)]
    pub fn skip(&self) -> bool {
        let skipped = self.skipped.get().wrapping_add(1);
        self.skipped.set(skipped);
        skipped.is_multiple_of(SKIPPED_TOLD)
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
pub const ROLE_BYTES: usize = 48;

/// Whether process `pid`, child of `parent`, is to be recorded, from the first bytes of the channel. `nonce` is the
/// number that the environment gives for it. Both pids are those of the recorder's process namespace.
pub fn role(header: &[u8; ROLE_BYTES], nonce: [u64; 2], pid: u32, parent: u32) -> Role {
    role_in((MAGIC, VERSION), header, nonce, pid, parent)
}

/// The same, from the first bytes of the memory of a trace.
pub fn role_in_trace(header: &[u8; ROLE_BYTES], nonce: [u64; 2], pid: u32, parent: u32) -> Role {
    role_in((trace::MAGIC, trace::VERSION), header, nonce, pid, parent)
}

fn role_in(format: (u64, u32), header: &[u8; ROLE_BYTES], nonce: [u64; 2], pid: u32, parent: u32) -> Role {
    let word = |at: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&header[at..at + 4]);
        u32::from_le_bytes(bytes)
    };
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let (version, follow, recorder, target) = (word(8), word(16), word(20), word(24));
    if (long(0), version) != format || [long(32), long(40)] != nonce {
        return Role::Refused;
    }
    // Target 0: the recorder has not stored it yet. Then the target is the recorder's own child.
    let is_target = if target == 0 { parent == recorder } else { target == pid };
    if is_target || follow != 0 { Role::Record } else { Role::Inert }
}

/// Part of all chunks that [`is_minor`] records leave to others, see [`Writer::may_take`]: a program that makes
/// millions of small allocations a second may lose small ones, but no array and no thread.
const MINOR_LEAVES: u32 = 4;
/// Part of all chunks that allocations that can be placed leave to new threads, which need a chunk each.
const MAJOR_LEAVES: u32 = 8;

/// Small allocations and all frees, because a free does not know the size. A block whose free was lost ends when its
/// address is allocated again.
fn is_minor(record: &Record) -> bool {
    match record.kind & ((1 << KIND_BITS) - 1) & !RESIZED {
        ALLOC_HEAP => record.size < SMALL as u64,
        kind => kind == FREE_HEAP,
    }
}

/// The writing side of a mapped channel.
#[derive(Clone, Copy)]
pub struct Writer<P> {
    map: Map,
    pool: P,
    clock: u32,
}

impl<P: Pool> Writer<P> {
    /// The writer of a mapping that [`role`] has accepted, with the channel's chunks.
    #[inline(always)]
    pub fn new(map: Map, pool: P) -> Writer<P> {
        Writer { map, pool, clock: map.header().clock }
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

    /// Claims a slot for this thread. Without a free slot, or without a chunk, the thread's next events are counted as
    /// lost.
    pub fn claim(&self, local: &Local, pid: u32, tid: u32) {
        local.pid.set(pid);
        local.slot.set(0);
        local.head.set(0);
        local.next.set(null_mut());
        local.end.set(null_mut());
        local.missed.set(0);
        local.skipped.set(0);
        let Some(index) = self.free_slot(u64::from(pid) << 32 | u64::from(tid)) else { return };
        let slot = self.map.slot(index);
        if !self.start_chunk(local) {
            slot.owner.store(0, Release); // nothing was written, and the claim number was never set
            return;
        }
        let header = self.map.header();
        slot.first.store(local.chunk.get() + 1, Relaxed);
        slot.claim.store(header.claims.fetch_add(1, Relaxed), Release);
        header.high_water.fetch_max(index as u32 + 1, AcqRel);
        local.slot.set(index as u32 + 1);
    }

    /// Makes `owner` the owner of a free slot.
    fn free_slot(&self, owner: u64) -> Option<usize> {
        let hint = &self.map.header().free_slot;
        let start = hint.load(Relaxed) as usize % SLOTS;
        for index in (start..SLOTS).chain(0..start) {
            let slot = self.map.slot(index);
            // Acquire pairs with the recorder's Release when it frees a slot: its fields are reset.
            if slot.owner.load(Relaxed) == 0 && slot.owner.compare_exchange(0, owner, AcqRel, Relaxed).is_ok() {
                hint.store(index as u32 + 1, Relaxed);
                return Some(index);
            }
        }
        None
    }

    /// Lets the thread's records go to the start of a chunk that was free.
    fn start_chunk(&self, local: &Local) -> bool {
        let Some(chunk) = self.map.take_chunk() else { return false };
        let Some(first) = self.pool.chunk(chunk) else {
            self.map.put_chunk(chunk);
            return false;
        };
        self.map.link(chunk).store(0, Relaxed);
        local.chunk.set(chunk);
        local.next.set(first.as_ptr());
        // SAFETY: one past the last record of the chunk.
        local.end.set(unsafe { first.as_ptr().add(CHUNK) });
        true
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

    /// Large allocations that a call site may have recorded now, and the number that changes when it may have as many
    /// again; 0: all.
    #[inline(always)]
    pub fn quota(&self) -> (u32, u32) {
        let header = self.map.header();
        (header.quota.load(Relaxed), header.epoch.load(Relaxed))
    }

    /// Appends a record, or counts it as lost and returns false. The thread has called [`Writer::claim`] for this
    /// process.
    #[inline(always)]
    pub fn push(&self, local: &Local, record: Record) -> bool {
        if local.next.get() == local.end.get() && !self.next_chunk(local, &record) {
            return false;
        }
        let next = local.next.get();
        // SAFETY: [next, end) belongs to this thread until the head passes it.
        unsafe { Record::store(next, record) };
        // SAFETY: at most `end`.
        local.next.set(unsafe { next.add(1) });
        let head = local.head.get().wrapping_add(1);
        local.head.set(head);
        // Release pairs with the recorder's Acquire load: it sees the whole record.
        self.map.slot((local.slot.get() as usize).wrapping_sub(1)).head.store(head, Release);
        true
    }

    /// Goes on in another chunk; false, and the record is counted as lost, when there is none for it.
    #[cold]
    #[inline(never)]
    fn next_chunk(&self, local: &Local, record: &Record) -> bool {
        let Some(index) = local.slot() else {
            self.lose_without_slot(local);
            return false;
        };
        let (slot, full) = (self.map.slot(index), local.chunk.get());
        let waiting = local.head.get().wrapping_sub(slot.tail.0.load(Acquire));
        if !self.may_take(waiting, record) || !self.start_chunk(local) {
            // Only this thread changes the counter of its slot.
            slot.lost.store(slot.lost.load(Relaxed) + 1, Relaxed);
            return false;
        }
        slot.skipped.store(local.skipped.get(), Relaxed);
        // The recorder reads the link when it sees a head beyond the full chunk.
        self.map.link(full).store(local.chunk.get() + 1, Release);
        true
    }

    /// Whether a thread with so many unread records may take a chunk: its share of the pool shrinks as the pool fills
    /// (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998), so that some
    /// chunks are always left for other threads.
    fn may_take(&self, waiting: u64, record: &Record) -> bool {
        let header = self.map.header();
        let leaves = if is_minor(record) { MINOR_LEAVES } else { MAJOR_LEAVES };
        let free = header.free.count.load(Relaxed).saturating_sub(header.granted.load(Relaxed) / leaves);
        waiting / (CHUNK as u64) < u64::from(free)
    }

    /// Counts an allocation that is left out at the recorder's request.
    #[inline(always)]
    pub fn skip(&self, local: &Local) {
        if local.skip() {
            self.tell_skipped(local);
        }
    }

    /// Tells the recorder how many allocations were left out.
    #[cold]
    #[inline(never)]
    pub fn tell_skipped(&self, local: &Local) {
        if let Some(slot) = local.slot() {
            self.map.slot(slot).skipped.store(local.skipped.get(), Relaxed);
        }
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
            let at = (hash as usize).wrapping_add(probe);
            // Acquire pairs with the Release of `insert`: the frames of a visible id are complete.
            let mut word = self.map.table(at).load(Acquire);
            if word == 0 {
                word = self.insert(at, tag, frames);
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

    /// Puts a new stack at an empty entry of the table and returns what the entry holds then; 0 when no id is left.
    #[cold]
    #[inline(never)]
    fn insert(&self, at: usize, tag: u64, frames: &[u64]) -> u64 {
        let next = &self.map.header().next_stack;
        // Ids from `granted` on get memory when the recorder comes to it; the add cannot wrap, because it is made by
        // one thread for each id that it passes.
        let granted = self.map.header().stacks_granted.load(Acquire).min(STACKS as u32);
        if next.load(Relaxed) >= granted {
            return 0;
        }
        let id = next.fetch_add(1, Relaxed);
        if id >= granted {
            return 0;
        }
        for (cell, &frame) in self.map.frames(id).iter().zip(frames) {
            cell.store(frame, Relaxed);
        }
        let word = tag << 32 | u64::from(id);
        // The thread that loses the race wastes one id; two threads rarely add the same stack at the same time.
        match self.map.table(at).compare_exchange(0, word, AcqRel, Acquire) {
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
        assert_eq!([offset_of!(Header, target_pid), offset_of!(Header, nonce)], [24, 32]);
        let role = |header: &[u8; ROLE_BYTES], pid, parent| role(header, [5, 6], pid, parent);
        let header = |follow: u32, target: u32| {
            let mut h = [0_u8; ROLE_BYTES];
            h[..8].copy_from_slice(&MAGIC.to_le_bytes());
            h[32..40].copy_from_slice(&5_u64.to_le_bytes());
            h[40..48].copy_from_slice(&6_u64.to_le_bytes());
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
        assert_eq!(super::role(&header(0, 7), [5, 7], 7, 100), Role::Refused, "another channel");
    }
}
