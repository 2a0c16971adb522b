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

/// A thread, and the time in which it counted in one of its tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Process.
    pub pid: u32,
    /// Kernel thread id.
    pub tid: u32,
    /// See [`Tally::since_ns`].
    pub since_ns: u64,
    /// See [`Tally::until_ns`].
    pub until_ns: u64,
}

/// What a counter is for: see [`super::layout`]. [`Trace::tally`] tells the instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(u64);

impl Place {
    /// Of the key of a slot.
    pub fn new(key: u64) -> Place {
        Place(key)
    }

    /// See [`Tally::addr`].
    pub fn addr(self) -> u64 {
        self.0 >> (SITE_BITS + OFFSET_BITS) << PAGE_SHIFT | self.0 & ((1 << OFFSET_BITS) - 1)
    }

    /// Number of its instruction, below [`SITES`]: one that stores has another number than one that loads.
    pub fn site(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize % SITES
    }
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
    len: usize,
    /// Whether a slot was used, a bit for each.
    used: Vec<u64>,
    /// The counts of used slots in their order: most slots never are.
    counts: Vec<u64>,
}

impl Seen {
    /// Calls `add` for each count that has grown. The counts are kept unless this was the last time.
    fn read(&mut self, is_last: bool, mut add: impl FnMut(Place, u64)) {
        // SAFETY: the range is the mapping. One call is faster than a fault for some pages at a time; an older kernel
        // refuses.
        unsafe { libc::madvise(self.slots.as_ptr().cast(), self.bytes(), libc::MADV_POPULATE_READ) };
        let mut before = self.counts.iter();
        let mut counts = Vec::new();
        for n in 0..self.len {
            // SAFETY: the mapping has `len` slots.
            let slot = unsafe { &*self.slots.as_ptr().add(n) };
            let key = slot.key.load(Relaxed);
            if key == 0 {
                continue;
            }
            let count = slot.count.load(Relaxed);
            let (word, bit) = (&mut self.used[n / 64], 1 << (n % 64));
            let known = if *word & bit == 0 { 0 } else { before.next().copied().unwrap_or(0) };
            *word |= bit;
            if count != known {
                add(Place(key), count.wrapping_sub(known));
            }
            if !is_last {
                counts.push(count);
            }
        }
        counts.shrink_to_fit();
        self.counts = counts;
        // SAFETY: the range is the mapping; its pages stay in the file, and come back when they are read again. Those
        // that nobody looks at until then are not counted as memory of this process.
        unsafe { libc::madvise(self.slots.as_ptr().cast(), self.bytes(), libc::MADV_DONTNEED) };
    }

    fn bytes(&self) -> usize {
        size_of::<Slot>() * self.len
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        // SAFETY: this object made the mapping, and no reference into it outlives it.
        unsafe { libc::munmap(self.slots.as_ptr().cast(), self.bytes()) };
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

    /// Whether memory is short, and would be given back by [`Trace::collect_of`].
    pub fn is_short(&self) -> bool {
        let map = self.map();
        let header = map.header();
        header.ended.load(Relaxed) > 0 && header.bytes.load(Relaxed) > header.limit / 2
    }

    /// Whether accesses of different instructions were counted together, for lack of memory.
    pub fn merged(&self) -> bool {
        self.map().header().merged.load(Relaxed) != 0
    }

    /// Bytes of memory that the tables and what is known of them take.
    pub fn memory(&self) -> u64 {
        let words = |seen: &Seen| (seen.counts.len() + seen.used.len()) * size_of::<u64>();
        let seen: usize = self.tables.iter().flatten().map(words).sum();
        self.map().header().bytes.load(Relaxed).saturating_add(blocks_end(self.blocks_ready()) as u64 + seen as u64)
    }

    /// A thread has ended, or with `tid` 0 the image of a process: its tables that were taken before that time are read
    /// once more.
    pub fn gone(&mut self, pid: u32, tid: u32, at_ns: u64) {
        self.gone.push((pid, tid, at_ns));
    }

    /// Calls `add` for what was counted since the last call, table by table: in the tables of `wanted` threads, and in
    /// those to which nothing more is written.
    pub fn collect_of(&mut self, wanted: impl Fn(&Owner) -> bool, mut add: impl FnMut(&Owner, Place, u64)) {
        let gone = std::mem::take(&mut self.gone);
        let high = (self.map().header().high_water.load(Acquire) as usize).min(TABLES);
        for index in 0..high {
            let head = self.head(index);
            if head.state == FREE || head.state == TAKEN {
                continue;
            }
            let Owner { pid, tid, since_ns, .. } = head.owner;
            let is_gone = |&(of, thread, at_ns): &(u32, u32, u64)| {
                pid == of && (thread == 0 || tid == thread) && since_ns < at_ns
            };
            let is_last = head.state == ENDED || gone.iter().any(is_gone);
            if !is_last && !wanted(&head.owner) {
                continue;
            }
            if let Some(seen) = seen(&mut self.tables[index], &self.fd, index, head.shift) {
                seen.read(is_last, |place, count| add(&head.owner, place, count));
            }
            if is_last {
                self.free(index, head);
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
        let owner = Owner { pid: (owner >> 32) as u32, tid: owner as u32, since_ns: born_ns, until_ns: left_ns };
        Head { state, shift, owner }
    }

    /// What was counted at a place.
    pub fn tally(&self, owner: &Owner, place: Place, count: u64) -> Tally {
        let &Owner { pid, tid, since_ns, until_ns } = owner;
        let word = self.map().site(place.site()).load(Relaxed);
        let write = if word == 0 { place.site() as u32 == site_of_others(true) } else { word & 1 == 1 };
        Tally { pid, tid, addr: place.addr(), ip: word >> 1, write, since_ns, until_ns, count }
    }

    fn free(&mut self, index: usize, head: Head) {
        self.tables[index] = None;
        let bytes = size_of::<Slot>() << head.shift;
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a system call on this object's descriptor.
        let rc =
            unsafe { libc::fallocate(self.fd.as_raw_fd(), mode, offset(index) as libc::off_t, bytes as libc::off_t) };
        if rc != 0 {
            return; // what is in it would count again: the table is not used any more
        }
        let map = self.map();
        map.header().bytes.fetch_sub(bytes as u64, Relaxed);
        if head.state == ENDED {
            map.header().ended.fetch_sub(bytes as u64, Relaxed);
        }
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
    owner: Owner,
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
        let slots = NonNull::new(base.cast())?;
        *place =
            Some(Seen { slots, len: 1 << shift, used: vec![0; (1_usize << shift).div_ceil(64)], counts: Vec::new() });
    }
    place.as_mut()
}

impl Drop for Trace {
    fn drop(&mut self) {
        // SAFETY: this object made the mapping, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), DATA_AT) };
    }
}
