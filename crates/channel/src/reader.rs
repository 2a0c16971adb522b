//! The recorder's side: create the channel, drain it, convert the times.
//!
//! Call [`Channel::drain`] often (every few milliseconds), and [`Channel::thread_gone`] for every thread that exited,
//! or slots run out. Data written by the program is not trusted: positions, chunks, kinds, times and addresses out of
//! range are skipped and counted as lost, and no drain brings more events than fit into the pool.

use std::ffi::OsString;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use numamma_kernel::clock::monotonic_ns;

use crate::clock::Converter;
use crate::faults::Faults;
use crate::layout::{self, CHUNK, KIND_BITS, Map, Pool, Record, SLOTS};
use crate::memory::{Mapped, Memory};
use crate::{CHANNEL_ENV, Event, EventKind, FOLLOW_ENV, MAX_FRAMES, Origin};

/// Bytes of the pool when the caller gives no limit: two million events.
pub const POOL_BYTES: usize = 64 << 20;
/// Every allocator aligns to this; the recorder's tables rely on it.
const HEAP_ALIGN: u64 = 8;

/// The reading side.
pub struct Channel {
    memory: Memory,
    map: Map,
    pool: Mapped,
    follow: bool,
    clock: Converter,
    /// Where the reading of each slot is.
    cursors: Vec<Cursor>,
    /// Threads reported as gone whose slot could not be freed yet.
    gone: Vec<(u32, u32)>,
    /// Records with values out of range.
    invalid: u64,
    /// Losses and skipped events of slots that were freed.
    ended: Counts,
    /// Head of each slot at the start of a drain.
    heads: Vec<u64>,
}

/// What has been read of a slot.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    /// Records read.
    tail: u64,
    /// 1 + the chunk of the next record; 0 before the first.
    chunk: u32,
    /// Records read of that chunk.
    at: usize,
    /// The list of chunks is not one that the preload writes: nothing more is read from this owner.
    broken: bool,
}

/// Events that did not arrive.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    lost: u64,
    skipped: u64,
}

impl Channel {
    /// Creates a channel with [`POOL_BYTES`]. `follow`: children of the target are recorded too.
    ///
    /// # Errors
    /// When the kernel has no memfd or no memory for it; the message says which.
    pub fn create(follow: bool) -> io::Result<Channel> {
        Channel::with_pool(follow, POOL_BYTES)
    }

    /// Creates a channel whose records take at most `pool` bytes of memory.
    ///
    /// # Errors
    /// As [`Channel::create`].
    pub fn with_pool(follow: bool, pool: usize) -> io::Result<Channel> {
        let clock = crate::clock::choose();
        let mut memory = Memory::create(pool, clock, follow)?;
        memory.top_up(0);
        let (map, pool) = (memory.map(), memory.pool());
        let cursors = vec![Cursor::default(); SLOTS];
        Ok(Channel {
            memory,
            map,
            pool,
            follow,
            clock: Converter::new(clock),
            cursors,
            gone: Vec::new(),
            invalid: 0,
            ended: Counts::default(),
            heads: Vec::new(),
        })
    }

    /// Variables to set for the program, besides `LD_PRELOAD`.
    pub fn env(&self) -> Vec<(OsString, OsString)> {
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.memory.fd().as_raw_fd());
        let [low, high] = self.map.header().nonce;
        let name = format!("{path}:{}:{low:x}:{high:x}", self.memory.inode());
        let follow = if self.follow { "1" } else { "0" };
        vec![(CHANNEL_ENV.into(), name.into()), (FOLLOW_ENV.into(), follow.into())]
    }

    /// Sets the process to record. Should be called before it executes the program; until then the preload records any
    /// child of this process.
    pub fn set_target(&self, pid: u32) {
        self.map.header().target_pid.store(pid, Release);
    }

    /// Asks the program to record only one in `2^k` small allocations, `mask` = 2^k - 1.
    pub fn set_thin(&self, mask: u32) {
        self.map.header().thin.store(mask, Relaxed);
    }

    /// Asks the program to record nothing any more.
    pub fn stop(&self) {
        self.map.header().thin.store(layout::STOP, Relaxed);
    }

    /// Asks the program to record only so many large allocations of a call site until the next [`Channel::new_epoch`].
    pub fn set_quota(&self, quota: u32) {
        self.map.header().quota.store(quota, Relaxed);
    }

    /// Begins a new count of the large allocations of each call site.
    pub fn new_epoch(&self) {
        self.map.header().epoch.fetch_add(1, Relaxed);
    }

    /// Wants the `fault` sampler to arm pages no more often than once in `interval_ns`, and so that threads wait no
    /// more than `budget_ppm` parts per million of the time. Called before the program starts.
    pub fn want_faults(&self, interval_ns: u64, budget_ppm: u32) {
        let faults = &self.map.header().faults;
        faults.budget_ppm.store(budget_ppm, Relaxed);
        faults.interval_ns.store(interval_ns, Release);
    }

    /// What the `fault` sampler says.
    pub fn faults(&self) -> &Faults {
        &self.map.header().faults
    }

    /// Bytes of memory that the channel takes.
    pub fn memory(&self) -> u64 {
        self.memory.bytes()
    }

    /// Whether the preload has attached: if not, the program is static, setuid or refused the library.
    pub fn attached(&self) -> bool {
        self.images() > 0
    }

    /// Process images that attached: one, and one more for each exec and followed child.
    pub fn images(&self) -> u32 {
        self.map.header().attached.load(Acquire)
    }

    /// Appends all events written so far: those of one thread in order, threads one after the other.
    pub fn drain(&mut self, out: &mut Vec<Event>) {
        let high = self.high_water();
        let free = self.map.header().free.count.load(Relaxed);
        self.heads.clear();
        // Acquire pairs with the writer's Release: records below the head are complete.
        self.heads.extend((0..high).map(|slot| self.map.slot(slot).head.load(Acquire)));
        self.clock.measure(); // after the newest record, so every stamp lies between two pairs
        let now_ns = monotonic_ns();
        let room = out.len().saturating_add(self.memory.granted() as usize * CHUNK);
        for slot in 0..high {
            self.drain_slot(slot, self.heads[slot], now_ns, room, out);
        }
        self.free_abandoned(high);
        let gone = std::mem::take(&mut self.gone);
        for (pid, tid) in gone {
            self.thread_gone(pid, tid);
        }
        self.memory.top_up(free);
    }

    fn high_water(&self) -> usize {
        (self.map.header().high_water.load(Acquire) as usize).min(SLOTS)
    }

    fn drain_slot(&mut self, index: usize, head: u64, now_ns: u64, room: usize, out: &mut Vec<Event>) {
        let map = self.map;
        let slot = map.slot(index);
        let mut cursor = self.cursors[index];
        let owner = slot.owner.load(Acquire);
        if head == cursor.tail || owner == 0 || cursor.broken {
            return;
        }
        // More records than the pool holds: the program overwrote its channel, and no record of this slot can be
        // trusted.
        cursor.broken = head.wrapping_sub(cursor.tail) > u64::from(self.memory.granted()) * CHUNK as u64;
        while !cursor.broken && cursor.tail != head && out.len() < room {
            let Some(first) = self.chunk_of(index, &mut cursor) else {
                cursor.broken = true;
                break;
            };
            let count = (head - cursor.tail).min((CHUNK - cursor.at) as u64).min((room - out.len()) as u64) as usize;
            for n in cursor.at..cursor.at + count {
                // SAFETY: n < CHUNK, and the chunk is mapped; the writer does not write it again before it is put back.
                let record = unsafe { Record::load(first.as_ptr().add(n)) };
                match self.event(&record, owner, now_ns) {
                    Some(event) => out.push(event),
                    None => self.invalid += 1,
                }
            }
            cursor.tail += count as u64;
            cursor.at += count;
        }
        self.invalid += u64::from(cursor.broken);
        self.cursors[index] = cursor;
        // Release pairs with the writer's Acquire: so many records have been read.
        slot.tail.0.store(cursor.tail, Release);
    }

    /// First record of the chunk that holds the next one; puts the chunk before it back. `None` when there is none that
    /// a preload could have put there.
    fn chunk_of(&self, slot: usize, cursor: &mut Cursor) -> Option<NonNull<Record>> {
        if cursor.chunk == 0 {
            cursor.chunk = self.map.slot(slot).first.load(Relaxed);
        } else if cursor.at == CHUNK {
            let full = cursor.chunk - 1;
            cursor.chunk = self.map.link(full).load(Acquire);
            cursor.at = 0;
            self.map.put_chunk(full);
        }
        let chunk = cursor.chunk.checked_sub(1).filter(|chunk| *chunk < self.memory.granted());
        chunk.and_then(|chunk| self.pool.chunk(chunk))
    }

    fn event(&self, record: &Record, owner: u64, now_ns: u64) -> Option<Event> {
        let &Record { ticks, address: addr, size, stack, kind } = record;
        let left_out = kind >> KIND_BITS;
        let resized = kind & layout::RESIZED != 0;
        let kind = kind & ((1 << KIND_BITS) - 1) & !layout::RESIZED;
        if matches!(kind, layout::ALLOC_HEAP | layout::FREE_HEAP) && !addr.is_multiple_of(HEAP_ALIGN) {
            return None;
        }
        let alloc = |origin| EventKind::Alloc { addr, size, stack, origin, left_out, resized };
        let free = |origin| EventKind::Free { addr, size, origin, resized };
        let what = match kind {
            layout::ALLOC_HEAP => alloc(Origin::Heap),
            layout::ALLOC_MMAP => alloc(Origin::Mmap),
            layout::FREE_HEAP => free(Origin::Heap),
            layout::FREE_MMAP => free(Origin::Mmap),
            layout::SAMPLING => EventKind::Sampling { on: addr != 0 },
            layout::ACCESS => EventKind::Access { addr, tid: (size >> 1) as u32, write: size & 1 == 1, window: stack },
            layout::THREAD_START => EventKind::ThreadStart {
                start_routine: addr,
                stack_low: size,
                stack_high: size.saturating_add(u64::from(stack) * layout::STACK_UNIT),
                created_at: left_out,
            },
            layout::THREAD_TASK => EventKind::ThreadTask { first: stack, words: [addr, size] },
            _ => return None,
        };
        // A time in the future would keep the event waiting for ever.
        let time_ns = self.clock.ns(ticks).min(now_ns);
        Some(Event { time_ns, pid: (owner >> 32) as u32, tid: owner as u32, what })
    }

    /// Return addresses of a call stack, innermost first; empty for id 0 and unknown ids.
    pub fn stack(&self, id: u32) -> Frames {
        let mut found = Frames { frames: [0; MAX_FRAMES], len: 0 };
        if id == 0 || id >= self.map.header().next_stack.load(Acquire) || id >= self.memory.stacks() {
            return found;
        }
        for (frame, cell) in found.frames.iter_mut().zip(self.map.frames(id)) {
            *frame = cell.load(Relaxed);
        }
        found.len = found.frames.iter().position(|&f| f == 0).unwrap_or(MAX_FRAMES);
        found
    }

    /// Events that are missing: no chunk for them, threads without a slot, records with values out of range.
    pub fn lost(&self) -> u64 {
        let header = self.map.header();
        let living = (0..self.high_water()).map(|slot| self.map.slot(slot).lost.load(Relaxed));
        let others = header.lost.load(Relaxed).saturating_add(self.ended.lost).saturating_add(self.invalid);
        living.fold(others, u64::saturating_add)
    }

    /// Allocations that were left out at this side's request, nearly: a thread tells their number now and then.
    pub fn skipped(&self) -> u64 {
        let living = (0..self.high_water()).map(|slot| self.map.slot(slot).skipped.load(Relaxed));
        living.fold(self.ended.skipped, u64::saturating_add)
    }

    /// Frees the slot of a thread that has exited, once its records are read. The kernel reuses thread ids, so the
    /// oldest slot of that id is freed, and only when the kernel does not know the thread any more; otherwise the next
    /// drain tries again.
    pub fn thread_gone(&mut self, pid: u32, tid: u32) {
        let owner = u64::from(pid) << 32 | u64::from(tid);
        let owned = (0..self.high_water()).filter(|&s| self.map.slot(s).owner.load(Acquire) == owner);
        let Some(slot) = owned.min_by_key(|&s| self.map.slot(s).claim.load(Acquire)) else { return };
        if exists(pid, tid) || !self.free_if_empty(slot) {
            self.gone.push((pid, tid));
        }
    }

    /// Frees the slots of all threads that do not exist any more and whose records are read, where no kernel event
    /// tells of their end.
    pub fn free_ended(&mut self) {
        for slot in 0..self.high_water() {
            let owner = self.map.slot(slot).owner.load(Acquire);
            if owner != 0 && !exists((owner >> 32) as u32, owner as u32) {
                self.free_if_empty(slot);
            }
        }
    }

    /// Whether slots or chunks run short.
    pub fn is_short(&self) -> bool {
        let free = self.map.header().free.count.load(Relaxed);
        self.high_water() > SLOTS / 2 || free < self.memory.granted() / 4
    }

    fn free_abandoned(&mut self, high: usize) {
        for slot in 0..high {
            if self.map.slot(slot).abandoned.load(Acquire) != 0 {
                self.free_if_empty(slot);
            }
        }
    }

    /// Frees a slot whose writer is gone, if all its records have been read.
    fn free_if_empty(&mut self, index: usize) -> bool {
        let map = self.map;
        let (slot, cursor) = (map.slot(index), self.cursors[index]);
        if slot.head.load(Acquire) != cursor.tail && !cursor.broken {
            return false;
        }
        // The chunks of a broken list may belong to another thread: they are not used again.
        let last = if cursor.chunk == 0 { slot.first.load(Relaxed) } else { cursor.chunk };
        if let Some(chunk) = last.checked_sub(1).filter(|c| !cursor.broken && *c < self.memory.granted()) {
            map.put_chunk(chunk);
        }
        self.cursors[index] = Cursor::default();
        self.ended.lost = self.ended.lost.saturating_add(slot.lost.swap(0, Relaxed));
        self.ended.skipped = self.ended.skipped.saturating_add(slot.skipped.swap(0, Relaxed));
        for cell in [&slot.head, &slot.tail.0] {
            cell.store(0, Relaxed);
        }
        // In this order: the next owner finds the slot not abandoned, and until it has set its claim number,
        // `thread_gone` does not take the slot for the oldest one.
        slot.abandoned.store(0, Relaxed);
        slot.first.store(0, Relaxed);
        slot.claim.store(u64::MAX, Relaxed);
        slot.owner.swap(0, AcqRel);
        map.header().free_slot.fetch_min(index as u32, Relaxed);
        true
    }
}

/// A call stack, copied from the channel.
#[derive(Debug, Clone, Copy)]
pub struct Frames {
    frames: [u64; MAX_FRAMES],
    len: usize,
}

impl Deref for Frames {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.frames[..self.len]
    }
}

fn exists(pid: u32, tid: u32) -> bool {
    // SAFETY: signal 0 is not delivered; the call only checks that the thread exists.
    let rc = unsafe { libc::syscall(libc::SYS_tgkill, i64::from(pid), i64::from(tid), 0_i64) };
    rc == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

#[cfg(test)]
mod tests;
