//! The recorder's side of a trace: creates the memory, reads what the tables have counted, gives them back.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::TRACE_ENV;
use super::layout::{
    DATA_AT, ENDED, FILE_BYTES, FREE, Header, LINES_AT, MAGIC, MOST_SHIFT, Map, OFFSET_BITS, PAGE_SHIFT, SITE_BITS,
    SITES, Slot, TABLES, TAKEN, VERSION, offset, site_of_others,
};
use super::lines::{BLOCKS, FIRST_BLOCKS, LinesReader, PageLines, SharedLine};
use crate::memory;

/// Accesses of a thread by one instruction to one page since they were read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Process.
    pub pid: u32,
    /// Kernel thread id.
    pub tid: u32,
    /// Address that the instruction accessed first in the page.
    pub addr: u64,
    /// The instruction: the one behind the call of its hook; 0 when not known.
    pub ip: u64,
    /// Whether it stores.
    pub write: bool,
    /// When the thread began to count in this table, CLOCK_MONOTONIC: no access is older.
    pub since_ns: u64,
    /// When the thread went on with another table, CLOCK_MONOTONIC: no access is younger; `u64::MAX` when it has not.
    pub until_ns: u64,
    /// How many.
    pub count: u64,
}

/// The memory of a trace.
#[derive(Debug)]
pub struct Trace {
    fd: OwnedFd,
    inode: u64,
    base: NonNull<u8>,
    tables: Vec<Option<Seen>>,
    /// Threads and (tid 0) processes that ended, and when.
    gone: Vec<(u32, u32, u64)>,
    lines: LinesReader,
}

// SAFETY: the mappings are this object's until it is dropped; no field belongs to a thread.
unsafe impl Send for Trace {}

/// A table that is mapped here, and what was counted when it was read last.
#[derive(Debug)]
struct Seen {
    slots: NonNull<Slot>,
    counts: Vec<u64>,
}

impl Drop for Seen {
    fn drop(&mut self) {
        // SAFETY: this object made the mapping, and no reference into it outlives it.
        unsafe { libc::munmap(self.slots.as_ptr().cast(), size_of::<Slot>() * self.counts.len()) };
    }
}

impl Trace {
    /// Memory for a trace whose tables take at most `limit` bytes. `follow`: children of the target are traced too.
    ///
    /// # Errors
    /// The message says what the kernel refused.
    pub fn create(follow: bool, limit: u64) -> io::Result<Trace> {
        let fd = memory::create_memfd(FILE_BYTES)?;
        // SAFETY: a system call on the descriptor just created.
        if unsafe { libc::fallocate(fd.as_raw_fd(), 0, 0, blocks_end(FIRST_BLOCKS)) } != 0 {
            return Err(memory::explain_last("allocate shared memory"));
        }
        let base = memory::map_memfd(&fd, DATA_AT)?;
        let inode = memory::inode(&fd)?;
        let header = base.cast::<Header>().as_ptr();
        // SAFETY: no other process has opened the memory yet; the first page is writable.
        unsafe {
            (*header).magic = MAGIC;
            (*header).version = VERSION;
            (*header).follow = u32::from(follow);
            (*header).recorder_pid = std::process::id();
            (*header).nonce = memory::nonce();
            (*header).limit = limit;
            (*header).blocks_ready = (FIRST_BLOCKS as u32).into();
        }
        Ok(Trace {
            fd,
            inode,
            base,
            tables: (0..TABLES).map(|_| None).collect(),
            gone: Vec::new(),
            lines: LinesReader::default(),
        })
    }

    fn map(&self) -> Map {
        // SAFETY: the mapping has DATA_AT bytes and lives as long as `self`, which outlives the copies made here.
        unsafe { Map::new(self.base.as_ptr()) }
    }

    /// What the writing side needs.
    #[cfg(test)]
    pub(super) fn parts(&self) -> (Map, i32) {
        (self.map(), self.fd.as_raw_fd())
    }

    /// Variables to set for the program.
    pub fn env(&self) -> Vec<(OsString, OsString)> {
        let [low, high] = self.map().header().nonce;
        let name = format!("/proc/{}/fd/{}:{}:{low:x}:{high:x}", std::process::id(), self.fd.as_raw_fd(), self.inode);
        vec![(TRACE_ENV.into(), name.into())]
    }

    /// Sets the process to trace.
    pub fn set_target(&self, pid: u32) {
        self.map().header().target_pid.store(pid, Release);
    }

    /// Asks the program to count nothing any more.
    pub fn stop(&self) {
        self.map().header().stop.store(1, Relaxed);
    }

    /// Whether the hooks of a process have attached.
    pub fn attached(&self) -> bool {
        self.map().header().attached.load(Acquire) > 0
    }

    /// Accesses that were not counted.
    pub fn lost(&self) -> u64 {
        self.map().header().lost.load(Relaxed)
    }

    /// Bytes of memory that the tables and what is known of them take.
    pub fn memory(&self) -> u64 {
        let seen: usize = self.tables.iter().flatten().map(|seen| seen.counts.len() * size_of::<u64>()).sum();
        self.map().header().bytes.load(Relaxed).saturating_add(blocks_end(self.blocks_ready()) as u64 + seen as u64)
    }

    /// A thread has ended, or with `tid` 0 the image of a process: its tables that were taken before that time are read
    /// once more.
    pub fn gone(&mut self, pid: u32, tid: u32, at_ns: u64) {
        self.gone.push((pid, tid, at_ns));
    }

    /// Appends what was counted since the last call.
    pub fn collect(&mut self, out: &mut Vec<Tally>) {
        let gone = std::mem::take(&mut self.gone);
        let high = (self.map().header().high_water.load(Acquire) as usize).min(TABLES);
        for index in 0..high {
            let head = self.head(index);
            if head.state == FREE || head.state == TAKEN {
                continue;
            }
            self.read(index, &head, out);
            let is_gone = |&(pid, tid, at_ns): &(u32, u32, u64)| {
                head.pid == pid && (tid == 0 || head.tid == tid) && head.born_ns < at_ns
            };
            if head.state == ENDED || gone.iter().any(is_gone) {
                self.free(index, head.shift);
            }
        }
    }

    /// Appends what was counted in lines of shared pages since the last call, and allocates memory for more of them.
    pub fn collect_lines(&mut self, out: &mut Vec<SharedLine>) {
        let (map, ready) = (self.map(), self.blocks_ready());
        let taken = map.header().blocks_taken.load(Acquire) as usize;
        self.lines.collect(map, taken.min(ready), out);
        let more = (2 * ready).min(BLOCKS);
        let end = blocks_end(more);
        if 2 * taken < ready || more == ready || end as u64 > map.header().limit {
            return;
        }
        // SAFETY: a system call on this object's descriptor.
        if unsafe { libc::fallocate(self.fd.as_raw_fd(), 0, 0, end) } == 0 {
            // Release pairs with the Acquire of the program, which writes there from now on.
            map.header().blocks_ready.store(more as u32, Release);
        }
    }

    fn blocks_ready(&self) -> usize {
        (self.map().header().blocks_ready.load(Relaxed) as usize).min(BLOCKS)
    }

    fn head(&self, index: usize) -> Head {
        let map = self.map();
        let head = map.head(index);
        // Acquire pairs with the Release of the writer: the fields of a live table are set, and all counts of one that
        // ended.
        let state = head.state.load(Acquire);
        let owner = head.owner.load(Relaxed);
        let shift = head.shift.load(Relaxed).min(MOST_SHIFT);
        let (born_ns, left_ns) = (head.born_ns.load(Relaxed), head.left_ns.load(Relaxed));
        let left_ns = if left_ns == 0 { u64::MAX } else { left_ns };
        Head { state, shift, pid: (owner >> 32) as u32, tid: owner as u32, born_ns, left_ns }
    }

    fn read(&mut self, index: usize, head: &Head, out: &mut Vec<Tally>) {
        let map = self.map();
        let Some(seen) = seen(&mut self.tables[index], &self.fd, index, head.shift) else { return };
        for (n, before) in seen.counts.iter_mut().enumerate() {
            // SAFETY: the mapping has as many slots as `counts`.
            let slot = unsafe { &*seen.slots.as_ptr().add(n) };
            let count = slot.count.load(Relaxed);
            let new = count.wrapping_sub(*before);
            let key = slot.key.load(Relaxed);
            if new == 0 || key == 0 {
                continue;
            }
            *before = count;
            let site = (key >> OFFSET_BITS) as usize % SITES;
            let word = map.site(site).load(Relaxed);
            let write = if word == 0 { site as u32 == site_of_others(true) } else { word & 1 == 1 };
            let page = key >> (SITE_BITS + OFFSET_BITS) << PAGE_SHIFT;
            let addr = page | key & ((1 << OFFSET_BITS) - 1);
            let (pid, tid, since_ns, until_ns) = (head.pid, head.tid, head.born_ns, head.left_ns);
            out.push(Tally { pid, tid, addr, ip: word >> 1, write, since_ns, until_ns, count: new });
        }
    }

    fn free(&mut self, index: usize, shift: u32) {
        self.tables[index] = None;
        let bytes = size_of::<Slot>() << shift;
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a system call on this object's descriptor.
        let rc =
            unsafe { libc::fallocate(self.fd.as_raw_fd(), mode, offset(index) as libc::off_t, bytes as libc::off_t) };
        if rc != 0 {
            return; // what is in it would count again: the table is not used any more
        }
        let map = self.map();
        map.header().bytes.fetch_sub(bytes as u64, Relaxed);
        map.head(index).state.store(FREE, Release);
    }
}

/// Where so many blocks of lines end in the file.
fn blocks_end(blocks: usize) -> libc::off_t {
    (LINES_AT + blocks * size_of::<PageLines>()) as libc::off_t
}

/// What a head says.
#[derive(Clone, Copy)]
struct Head {
    state: u32,
    shift: u32,
    pid: u32,
    tid: u32,
    born_ns: u64,
    left_ns: u64,
}

/// The mapping of a table, made when it is read first.
fn seen<'t>(place: &'t mut Option<Seen>, fd: &OwnedFd, index: usize, shift: u32) -> Option<&'t mut Seen> {
    if place.is_none() {
        let bytes = size_of::<Slot>() << shift;
        let at = offset(index) as libc::off_t;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, fd.as_raw_fd(), at) };
        if base == libc::MAP_FAILED {
            return None;
        }
        *place = Some(Seen { slots: NonNull::new(base.cast())?, counts: vec![0; 1 << shift] });
    }
    place.as_mut()
}

impl Drop for Trace {
    fn drop(&mut self) {
        // SAFETY: this object made the mapping, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), DATA_AT) };
    }
}
