//! The side of the traced program: name an instruction, take a table, find the counter of a page.
//!
//! No allocation, no locks, no panics; `errno` is the caller's to save. A signal handler may call [`Table::counter`]
//! and [`site`] while its thread is inside one of them.

use core::ffi::{c_int, c_long};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use numamma_kernel::clock::monotonic_ns;
use numamma_kernel::sys;

use super::layout::{
    END, ENDED, FIRST_SHIFT, FREE, LIVE, MOST_SHIFT, Map, OFFSET_BITS, PAGE_SHIFT, SITE_BITS, SITES, Slot, TABLES,
    TAKEN, offset, site_of_others,
};

/// Words compared for one instruction before it counts among the others.
const PROBES: usize = 64;
/// Bits of the number of slots in a cache line.
pub const TOGETHER_BITS: u32 = 2;
const _: () = assert!(size_of::<Slot>() << TOGETHER_BITS == 64);
/// Slots of a table in a page of memory.
const OF_PAGE: usize = sys::PAGE / size_of::<Slot>();
const _: () = assert!(OF_PAGE <= 1 << FIRST_SHIFT);
/// Bits that a hash is shifted by: as many are left as the largest tables have for offsets.
pub const HASH_SHIFT: u32 = 38;
const _: () = assert!(size_of::<Slot>() << MOST_SHIFT <= 1 << (u64::BITS - HASH_SHIFT));
/// Part of the memory for tables that is kept for the first ones of threads: those that have one count at least by
/// page.
const KEPT_PART: u64 = 4;
/// Sixteenths of the slots that are used at most, and by counters of single instructions.
const MOST_SIXTEENTHS: u32 = 15;
const MOST_SIXTEENTHS_OF_INSTRUCTIONS: u32 = 14;
/// Fibonacci hashing (Knuth, TAOCP 6.4).
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Site of an instruction, which is named by the return address of its hook.
pub fn site(map: Map, ip: u64, write: bool) -> u32 {
    let word = ip << 1 | u64::from(write);
    let first = (word.wrapping_mul(GOLDEN) >> (u64::BITS - SITE_BITS)) as usize;
    for index in (first..first + PROBES).map(|i| i % SITES).filter(|i| *i > site_of_others(true) as usize) {
        let found = match map.site(index).compare_exchange(0, word, Relaxed, Relaxed) {
            Ok(_) => word,
            Err(other) => other,
        };
        if found == word {
            return index as u32;
        }
    }
    site_of_others(write)
}

/// Key of an access; `None` for an address that no program has.
#[inline]
pub fn key(addr: u64, site: u32) -> Option<u64> {
    let page = addr >> PAGE_SHIFT;
    let offset = addr & ((1 << PAGE_SHIFT) - 1);
    (addr < END && page > 0).then_some(page << (SITE_BITS + OFFSET_BITS) | u64::from(site) << OFFSET_BITS | offset)
}

/// Where the search for a key begins, without its offset, in a table of 2^`shift` slots. Four pages in a row
/// ([`TOGETHER_BITS`]) have slots in one cache line for an instruction, as most go through memory in order; which of
/// the four is the page's depends on the pages above, too, so that steps of four pages do not always take the same.
#[inline]
fn first_slot(named: u64, shift: u32) -> usize {
    let page = named >> SITE_BITS;
    let four = (named & !(((1 << TOGETHER_BITS) - 1) << SITE_BITS)) << OFFSET_BITS;
    let hash = four.wrapping_mul(GOLDEN) >> HASH_SHIFT & u64::from(mask(shift));
    ((hash / size_of::<Slot>() as u64) ^ (page & ((1 << TOGETHER_BITS) - 1))) as usize
}

/// The slots of a table of 2^`shift` in which a key is looked for, from its first one on: in all cache lines of that
/// page of memory the slots at the same place before those next to them, as lines are mostly full or empty; then in
/// other pages.
#[inline]
fn places(first: usize, shift: u32) -> impl Iterator<Item = usize> {
    let mask = (1 << shift) - 1;
    (0..=mask).map(move |step| {
        let (page, step) = (step / OF_PAGE, step % OF_PAGE);
        let in_page = first + (step << TOGETHER_BITS) + step / (OF_PAGE >> TOGETHER_BITS);
        ((first - first % OF_PAGE + page * OF_PAGE) & mask) + in_page % OF_PAGE
    })
}

/// What is left of a hash as the offset of a slot in bytes, in a table of 2^`shift` slots.
pub fn mask(shift: u32) -> u32 {
    (size_of::<Slot>() as u32) * ((1 << shift) - 1)
}

/// A mapped table.
pub struct Table {
    index: usize,
    shift: u32,
    slots: *const Slot,
    used: AtomicU32,
}

/// The number of bytes of all tables with a new one of `bytes` bytes, where that fits into the memory for them.
fn with_table(map: Map, taken: u64, bytes: usize) -> Option<u64> {
    let limit = map.header().limit;
    let kept = if bytes > size_of::<Slot>() << FIRST_SHIFT { limit / KEPT_PART } else { 0 };
    taken.checked_add(bytes as u64).filter(|all| *all <= limit - kept)
}

impl Table {
    /// Whether there is memory now for a table of 2^`shift` slots.
    pub fn fits(map: Map, shift: u32) -> bool {
        with_table(map, map.header().bytes.load(Relaxed), size_of::<Slot>() << shift.min(MOST_SHIFT)).is_some()
    }

    /// Whether there will be memory for it once the recorder has given back the tables to which nothing more is
    /// written.
    pub fn will_fit(map: Map, shift: u32) -> bool {
        let (taken, ended) = (map.header().bytes.load(Relaxed), map.header().ended.load(Relaxed));
        with_table(map, taken.saturating_sub(ended), size_of::<Slot>() << shift.min(MOST_SHIFT)).is_some()
    }

    /// Takes a table of 2^`shift` slots of the open file for a thread; `None` when there is none, or no memory for it.
    pub fn take(map: Map, fd: c_int, owner: u64, shift: u32) -> Option<Table> {
        let shift = shift.min(MOST_SHIFT);
        let bytes = size_of::<Slot>() << shift;
        let header = map.header();
        // Not added and taken back: what does not fit must not keep a small table of another thread from its room.
        header.bytes.fetch_update(Relaxed, Relaxed, |taken| with_table(map, taken, bytes)).ok()?;
        let table = free_table(map);
        let slots = table.and_then(|index| map_slots(fd, index, bytes));
        let (Some(index), Some(slots)) = (table, slots) else {
            header.bytes.fetch_sub(bytes as u64, Relaxed);
            if let Some(index) = table {
                map.head(index).state.store(FREE, Release);
            }
            return None;
        };
        let head = map.head(index);
        head.owner.store(owner, Relaxed);
        head.born_ns.store(monotonic_ns(), Relaxed);
        head.left_ns.store(0, Relaxed);
        head.shift.store(shift, Relaxed);
        header.high_water.fetch_max(index as u32 + 1, AcqRel);
        // Release pairs with the recorder's Acquire: it sees the fields above.
        head.state.store(LIVE, Release);
        Some(Table { index, shift, slots, used: AtomicU32::new(0) })
    }

    /// Logarithm of the number of slots.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// Its first slot.
    pub fn slots(&self) -> *const Slot {
        self.slots
    }

    /// Whether so many slots are used that searches become long: half, at which three of four end at the first slot
    /// (Knuth, TAOCP 6.4, linear probing).
    #[inline]
    pub fn is_full(&self) -> bool {
        self.used.load(Relaxed) >= 1 << (self.shift - 1)
    }

    /// The counter of an access whose key has none in a full table: that of all instructions, in slots that are left
    /// for it. So each access has its page and thread for as long as these are not too many, too.
    #[cold]
    pub fn counter_of_page(&self, map: Map, addr: u64, write: bool) -> Option<&AtomicU64> {
        map.header().merged.store(1, Relaxed);
        self.counter(key(addr, site_of_others(write))?)
    }

    /// The counter of a key; `None` when no slot is left for it.
    #[inline]
    pub fn counter(&self, key: u64) -> Option<&AtomicU64> {
        let named = key >> OFFSET_BITS;
        for at in places(first_slot(named, self.shift), self.shift) {
            // SAFETY: the mapping has 2^shift slots.
            let slot = unsafe { &*self.slots.add(at) };
            let mut found = slot.key.load(Relaxed);
            if found == 0 {
                let is_of_page = named & ((1 << SITE_BITS) - 1) <= u64::from(site_of_others(true));
                let most = if is_of_page { MOST_SIXTEENTHS } else { MOST_SIXTEENTHS_OF_INSTRUCTIONS };
                if self.used.load(Relaxed) >= most << (self.shift - 4) {
                    return None;
                }
                match slot.key.compare_exchange(0, key, Relaxed, Relaxed) {
                    Ok(_) => {
                        self.used.fetch_add(1, Relaxed);
                        found = key;
                    }
                    // A signal handler of this thread was first.
                    Err(other) => found = other,
                }
            }
            if found >> OFFSET_BITS == named {
                return Some(&slot.count);
            }
        }
        None
    }

    /// Whether a key has a counter.
    pub fn has(&self, key: u64) -> bool {
        let named = key >> OFFSET_BITS;
        let places = places(first_slot(named, self.shift), self.shift);
        // SAFETY: the mapping has 2^shift slots.
        let keys = places.map(|at| unsafe { &*self.slots.add(at) }.key.load(Relaxed));
        keys.take_while(|found| *found != 0).any(|found| found >> OFFSET_BITS == named)
    }

    /// Says that its thread goes on with another table: what is counted here happened before.
    pub fn leave(&self, map: Map) {
        map.head(self.index).left_ns.store(monotonic_ns(), Relaxed);
    }

    /// Says that nothing more is written to the table, and unmaps it.
    ///
    /// # Safety
    /// No counter of it is used after the call.
    pub unsafe fn end(self, map: Map) {
        map.header().ended.fetch_add((size_of::<Slot>() << self.shift) as u64, Relaxed);
        // Release pairs with the recorder's Acquire: it sees all counts, and the bytes.
        map.head(self.index).state.store(ENDED, Release);
        // SAFETY: the mapping is this table's, and by the contract of this function nobody uses it any more.
        unsafe { sys::unmap(self.slots.cast_mut().cast(), size_of::<Slot>() << self.shift) };
    }
}

fn free_table(map: Map) -> Option<usize> {
    (0..TABLES).find(|&index| {
        let state = &map.head(index).state;
        state.load(Relaxed) == FREE && state.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok()
    })
}

/// Allocates the pages of a table and maps them, outside of core dumps and of forked children.
fn map_slots(fd: c_int, table: usize, bytes: usize) -> Option<*const Slot> {
    let at = offset(table);
    // Without it a store for which there is no memory is SIGBUS.
    // SAFETY: a system call on a descriptor.
    let rc =
        unsafe { libc::syscall(libc::SYS_fallocate, c_long::from(fd), 0 as c_long, at as c_long, bytes as c_long) };
    let base = if rc == 0 { sys::map_shared(fd, at, bytes)? } else { return None };
    // The slots that are used are anywhere: one call is faster than a fault for each page. An older kernel refuses.
    for advice in [libc::MADV_DONTDUMP, libc::MADV_DONTFORK, libc::MADV_POPULATE_WRITE] {
        // SAFETY: the mapping was made above; the advice keeps its contents.
        unsafe { sys::advise(base, bytes, advice) };
    }
    Some(base.cast_const().cast())
}
