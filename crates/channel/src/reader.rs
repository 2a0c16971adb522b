//! The recorder's side: create the channel, drain the rings, convert the times.
//!
//! Call [`Channel::drain`] often (every few milliseconds: a ring holds 32768 events), and [`Channel::thread_gone`] for
//! every thread that exited, or slots run out. Data written by the program is not trusted: positions, kinds and ids out
//! of range are skipped and counted as lost.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::clock::{self, Converter};
use crate::layout::{self, Map, RING, RINGS_AT, Record, Ring, SLOTS, SlotHead, TOTAL};
use crate::{CHANNEL_ENV, Event, EventKind, FOLLOW_ENV, MAX_FRAMES, Origin};

/// The reading side.
pub struct Channel {
    fd: OwnedFd,
    base: *mut libc::c_void,
    map: Map,
    follow: bool,
    clock: Converter,
    /// Threads reported as gone whose slot could not be freed yet.
    gone: Vec<(u32, u32)>,
    /// Records with values out of range.
    invalid: u64,
    /// Head of each slot at the start of a drain.
    heads: Vec<u64>,
}

// SAFETY: the mapping is this object's until it is dropped; no field belongs to a thread.
unsafe impl Send for Channel {}

impl Channel {
    /// Creates the channel. `follow`: children of the target are recorded too.
    ///
    /// # Errors
    /// When the kernel has no memfd or no address space for it (4 GiB, sparse); the message says which.
    pub fn create(follow: bool) -> io::Result<Channel> {
        let fd = create_memfd()?;
        let base = map_memfd(&fd)?;
        // SAFETY: the mapping has TOTAL bytes and lives until drop, as does `map`.
        let map = unsafe { Map::new(base.cast()) };
        let clock = clock::choose();
        let header = base.cast::<layout::Header>();
        // SAFETY: no other process has opened the channel yet; the first page is writable.
        unsafe {
            (*header).magic = layout::MAGIC;
            (*header).version = layout::VERSION;
            (*header).clock = clock;
            (*header).follow = u32::from(follow);
            (*header).recorder_pid = std::process::id();
        }
        map.header().next_stack.store(1, Release); // id 0 means "not recorded"
        for slot in 0..SLOTS {
            map.slot(slot).claim.store(u64::MAX, Relaxed);
        }
        let clock = Converter::new(clock);
        Ok(Channel { fd, base, map, follow, clock, gone: Vec::new(), invalid: 0, heads: Vec::new() })
    }

    /// Variables to set for the program, besides `LD_PRELOAD`.
    pub fn env(&self) -> Vec<(OsString, OsString)> {
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd());
        let follow = if self.follow { "1" } else { "0" };
        vec![(CHANNEL_ENV.into(), path.into()), (FOLLOW_ENV.into(), follow.into())]
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
        let high = (self.map.header().high_water.load(Acquire) as usize).min(SLOTS);
        self.heads.clear();
        // Acquire pairs with the writer's Release: records below the head are complete.
        self.heads.extend((0..high).map(|slot| self.map.slot(slot).head.load(Acquire)));
        self.clock.measure(); // after the newest record, so every stamp lies between two pairs
        for slot in 0..high {
            self.drain_slot(slot, self.heads[slot], out);
        }
        self.free_abandoned(high);
        let gone = std::mem::take(&mut self.gone);
        for (pid, tid) in gone {
            self.thread_gone(pid, tid);
        }
    }

    fn drain_slot(&mut self, index: usize, head: u64, out: &mut Vec<Event>) {
        let map = self.map;
        let slot = map.slot(index);
        let tail = slot.tail.0.load(Relaxed);
        let owner = slot.owner.load(Acquire);
        let waiting = head.wrapping_sub(tail);
        if waiting == 0 || owner == 0 {
            return;
        }
        if waiting > RING as u64 {
            // The program overwrote its channel: no record of this ring can be trusted.
            self.invalid += 1;
            slot.tail.0.store(head, Release);
            return;
        }
        let Some(ring) = self.ring(index) else { return };
        out.reserve(waiting as usize);
        for n in tail..head {
            // SAFETY: cells in [tail, head) are complete and not written again until tail passes them.
            let record = unsafe { ring.cell(n).read() };
            match self.event(&record, owner) {
                Some(event) => out.push(event),
                None => self.invalid += 1,
            }
        }
        // Release pairs with the writer's Acquire: these cells have been read.
        slot.tail.0.store(head, Release);
    }

    fn ring(&self, slot: usize) -> Option<Ring> {
        let base = NonNull::new(self.base.cast::<u8>())?;
        // SAFETY: this side maps the whole channel, rings included, and slot < SLOTS.
        Some(unsafe { Ring::new(base.add(RINGS_AT + slot % SLOTS * Ring::BYTES)) })
    }

    fn event(&self, record: &Record, owner: u64) -> Option<Event> {
        let &Record { ticks, address: addr, size, stack, kind } = record;
        let what = match kind {
            layout::ALLOC_HEAP => EventKind::Alloc { addr, size, stack, origin: Origin::Heap },
            layout::ALLOC_MMAP => EventKind::Alloc { addr, size, stack, origin: Origin::Mmap },
            layout::FREE_HEAP => EventKind::Free { addr, size, origin: Origin::Heap },
            layout::FREE_MMAP => EventKind::Free { addr, size, origin: Origin::Mmap },
            layout::THREAD_START => EventKind::ThreadStart {
                start_routine: addr,
                stack_low: size,
                stack_high: size.saturating_add(u64::from(stack) * layout::STACK_UNIT),
            },
            _ => return None,
        };
        Some(Event { time_ns: self.clock.ns(ticks), pid: (owner >> 32) as u32, tid: owner as u32, what })
    }

    /// Return addresses of a call stack, innermost first; empty for id 0 and unknown ids.
    pub fn stack(&self, id: u32) -> &[u64] {
        if id == 0 || id >= self.map.header().next_stack.load(Acquire) || id as usize >= layout::STACKS {
            return &[];
        }
        let frames = self.map.frames(id);
        // SAFETY: the id came with a record, so its frames were complete before and never change again; an
        // atomic word has the layout of a plain one.
        let words = unsafe { std::slice::from_raw_parts(frames.as_ptr().cast::<u64>(), MAX_FRAMES) };
        let len = words.iter().position(|&f| f == 0).unwrap_or(MAX_FRAMES);
        &words[..len]
    }

    /// Events that are missing: rings that were full, threads without a slot, records with values out of range.
    pub fn lost(&self) -> u64 {
        let header = self.map.header();
        let high = (header.high_water.load(Acquire) as usize).min(SLOTS);
        let full: u64 = (0..high).map(|slot| self.map.slot(slot).lost.load(Relaxed)).sum();
        header.lost.load(Relaxed) + full + self.invalid
    }

    /// Frees the slot of a thread that has exited, once its ring is empty. The kernel reuses thread ids, so the oldest
    /// slot of that id is freed, and only when the kernel does not know the thread any more; otherwise the next drain
    /// tries again.
    pub fn thread_gone(&mut self, pid: u32, tid: u32) {
        let owner = u64::from(pid) << 32 | u64::from(tid);
        let high = (self.map.header().high_water.load(Acquire) as usize).min(SLOTS);
        let owned = (0..high).map(|s| self.map.slot(s)).filter(|s| s.owner.load(Acquire) == owner);
        let Some(slot) = owned.min_by_key(|s| s.claim.load(Acquire)) else { return };
        if exists(pid, tid) || !free_if_empty(slot) {
            self.gone.push((pid, tid));
        }
    }

    fn free_abandoned(&self, high: usize) {
        for slot in (0..high).map(|s| self.map.slot(s)) {
            if slot.abandoned.load(Acquire) != 0 {
                free_if_empty(slot);
            }
        }
    }
}

/// Frees a slot whose writer is gone, if all its records have been read.
fn free_if_empty(slot: &SlotHead) -> bool {
    if slot.head.load(Acquire) != slot.tail.0.load(Relaxed) {
        return false;
    }
    // In this order: the next owner finds the slot not abandoned, and until it has set its claim number,
    // `thread_gone` does not take the slot for the oldest one.
    slot.abandoned.store(0, Relaxed);
    slot.claim.store(u64::MAX, Relaxed);
    slot.owner.swap(0, AcqRel);
    true
}

fn exists(pid: u32, tid: u32) -> bool {
    // SAFETY: signal 0 is not delivered; the call only checks that the thread exists.
    let rc = unsafe { libc::syscall(libc::SYS_tgkill, i64::from(pid), i64::from(tid), 0_i64) };
    rc == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: this object made the mapping, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base, TOTAL) };
    }
}

fn explain(what: &str) -> io::Error {
    let error = io::Error::last_os_error();
    io::Error::new(error.kind(), format!("cannot {what} for the channel to the program: {error}"))
}

fn create_memfd() -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string; the result is checked.
    let fd = unsafe { libc::memfd_create(c"numamma-channel".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(explain("create shared memory (memfd_create)"));
    }
    // SAFETY: the descriptor is new and has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: a system call on the descriptor just created.
    if unsafe { libc::ftruncate(fd.as_raw_fd(), TOTAL as libc::off_t) } != 0 {
        return Err(explain("size 4 GiB of sparse shared memory (is there a file size limit, ulimit -f?)"));
    }
    Ok(fd)
}

fn map_memfd(fd: &OwnedFd) -> io::Result<*mut libc::c_void> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), TOTAL, prot, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
    if base == libc::MAP_FAILED {
        return Err(explain("map 4 GiB of sparse shared memory (is the address space limited, ulimit -v?)"));
    }
    Ok(base)
}

#[cfg(test)]
mod tests;
