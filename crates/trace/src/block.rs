//! What a thread keeps in this process: for each instruction the page that it accessed last and the counter of both, and
//! the table with the counters.
//!
//! A block lies in memory that is zeroed in a forked child, where no line matches then and a new table is taken: the
//! counters belong to the thread of the parent.
//!
//! [`owner`] says which block a thread has, [`list`] which blocks there are.
//!
//! A signal handler may run hooks while its thread is in [`count`]. It then finds the block busy, uses the table without
//! changing lines or the choice of the table, and so leaves nothing that the interrupted call could miss.

mod list;
mod owner;

use core::cell::{Cell, UnsafeCell};
use core::mem::offset_of;
use core::ptr::null;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use numamma_channel::trace::layout::{FIRST_SHIFT, MOST_SHIFT, OFFSET_BITS, SITE_BITS, Slot};
use numamma_channel::trace::writer::{self, GOLDEN, Table};
use numamma_hook::errno::Saved;

use crate::process::{self, Traced};
use crate::sharing::{Access, FILTER, sharing};
use list::forget_page;
use owner::{OFF, block, thread};
pub use owner::{Thread, prepare};

/// Bits of an address below its page.
pub const PAGE_SHIFT: u32 = numamma_channel::trace::layout::PAGE_SHIFT;
/// Instructions that have a line of their own: those of a loop are closer to each other than 4 KiB, and a call takes five
/// bytes, so that no two calls have the same four.
const LINES: usize = 1024;
/// Bits of an instruction's address that say where its line is: eight times them is the offset.
pub const LINE_MASK: usize = (LINES - 1) << 2;
// What fast.s and thread.s say.
const _: () = assert!(size_of::<Line>() == 8 << 2 && PAGE_SHIFT == 12 && LINE_MASK == 0xffc);
const _: () = assert!(size_of::<[Line; LINES]>() == 32768);
/// No page.
const NOWHERE: u64 = u64::MAX;
/// Files of a program with hooks of their own that are as fast as those of the program.
const FILES: usize = 30;
/// Steps from one size of a thread's tables to the next: a factor of four.
const GROWTH: u32 = 2;
/// Calls that find the block busy after which the interrupted call is taken for one that a signal handler left by
/// longjmp.
const MOST_NESTED: u32 = 1 << 16;
/// Waits of [`WAIT_NS`] for the recorder to give memory back: one second. It does so 50 times a second.
const WAITS: u32 = 200;
const WAIT_NS: i64 = 5_000_000;
/// Calls without room for one that asks for memory, when there was none after that wait.
const ASK_EVERY: u32 = 4096;

/// Where an instruction was last. All zero: nowhere.
#[repr(C)]
struct Line {
    /// Other threads set it to 0, when the page becomes a watched one.
    ip: AtomicU64,
    /// [`NOWHERE`]: the counter is not kept.
    page: AtomicU64,
    counter: Cell<*const AtomicU64>,
    site: Cell<u32>,
    /// Whether that site stores: a copy loads and stores by one instruction.
    write: Cell<bool>,
}

/// See the top of the file. All zero bytes are a block that nobody has, or that of the parent in a forked child.
#[repr(C)]
struct Block {
    lines: [Line; LINES],
    /// First slot of the table, for the hooks: they look there only after they found a line.
    slots: Cell<*const Slot>,
    /// Bits that a hash of the table is shifted by.
    hash_shift: Cell<u32>,
    /// The process that it is for.
    pid: Cell<u32>,
    /// A call is in it.
    busy: Cell<bool>,
    /// The filter of [`crate::sharing::Sharing`], for the hooks.
    filter: Cell<*const u8>,
    /// Calls that found it busy since then.
    nested: Cell<u32>,
    /// Calls that found no room in the table.
    asked: Cell<u32>,
    table: UnsafeCell<Option<Table>>,
    /// The table before: an interrupted hook may still have the address of a counter in it.
    previous: UnsafeCell<Option<Table>>,
    /// What the hooks of other files than this library keep of the thread.
    files: [Cell<*const Thread>; FILES],
    /// The next one of the free blocks.
    next: Cell<*mut Block>,
    /// Number of the thread.
    number: Cell<u32>,
    /// The block that was made before it.
    older: AtomicPtr<Block>,
}

// What fast.s says.
const _: () = {
    assert!(offset_of!(Line, page) == 8 && offset_of!(Line, counter) == 16 && offset_of!(Line, site) == 24);
    assert!(offset_of!(Block, slots) == 32768 && offset_of!(Block, hash_shift) == 32776);
    assert!(
        offset_of!(Block, busy) == 32784
            && OFF == 64
            && offset_of!(Block, filter) == 32792
            && FILTER == 1 << 14
            && SITE_BITS == 17
            && OFFSET_BITS == 12
            && size_of::<Slot>() == 16
    );
    assert!(offset_of!(Slot, key) == 0 && offset_of!(Slot, count) == 8 && GOLDEN == 0x9e37_79b9_7f4a_7c15);
};

/// The recorder does not give memory back: nobody waits for it any more.
static STARVED: AtomicBool = AtomicBool::new(false);

/// Counts `count` accesses of one page by an instruction.
pub fn count(address: u64, write: bool, ip: u64, count: u64) {
    if process::OFF.load(Ordering::Relaxed) == 0 {
        count_in(thread(), address, write, ip, count);
    }
}

/// Counts one access for the hooks of a file.
pub fn count_for(file: &Thread, address: u64, write: bool, ip: u64) {
    count_in(file, address, write, ip, 1);
}

fn count_in(file: &Thread, address: u64, write: bool, ip: u64, count: u64) {
    let Some(traced) = process::traced() else { return };
    let counted = block(file, traced).is_some_and(|block| block.count(traced, address, write, ip, count));
    if !counted {
        traced.map.header().lost.fetch_add(count, Ordering::Relaxed);
    }
}

impl Block {
    fn count(&self, traced: Traced, address: u64, write: bool, ip: u64, count: u64) -> bool {
        if self.busy.get() && self.nested.get() < MOST_NESTED {
            self.nested.set(self.nested.get() + 1);
            let key = writer::key(address, writer::site(traced.map, ip, write));
            // SAFETY: the call that is interrupted replaces the table only by a complete one.
            let table = unsafe { (*self.table.get()).as_ref() };
            return add(key.zip(table).and_then(|(key, table)| table.counter(key)), count);
        }
        self.busy.set(true);
        self.nested.set(0);
        let counted = self.count_alone(traced, address, write, ip, count);
        self.busy.set(false);
        counted
    }

    fn count_alone(&self, traced: Traced, address: u64, write: bool, ip: u64, count: u64) -> bool {
        let line = &self.lines[(ip as usize & LINE_MASK) >> 2];
        let is_known = line.ip.load(Ordering::Relaxed) == ip && line.write.get() == write;
        let site = if is_known { line.site.get() } else { writer::site(traced.map, ip, write) };
        let Some(key) = writer::key(address, site) else { return false };
        // SAFETY: the block is busy, so that only this call changes the table.
        let full = unsafe { (*self.table.get()).as_ref() }.is_none_or(Table::is_full);
        if full && self.may_ask() {
            self.next_table(traced);
        }
        // SAFETY: as above.
        let counter = unsafe { (*self.table.get()).as_ref() }.and_then(|table| table.counter(key));
        if let Some(counter) = counter {
            let access = Access { address, write, count, site, thread: self.number.get() };
            // What was counted before is known, unless the page is watched: the hooks do the same.
            let is_new = counter.load(Ordering::Relaxed) == 0;
            let keeps = sharing().is_none_or(|sharing| {
                !is_new && !sharing.may_watch(address) || sharing.access(traced, access, forget_page)
            });
            // A signal handler that compares the line meanwhile finds no instruction.
            line.ip.store(0, Ordering::Relaxed);
            line.page.store(if keeps { address >> PAGE_SHIFT } else { NOWHERE }, Ordering::Relaxed);
            line.counter.set(counter);
            line.site.set(site);
            line.write.set(write);
            core::sync::atomic::compiler_fence(Ordering::Release);
            line.ip.store(ip, Ordering::Relaxed);
        }
        add(counter, count)
    }

    /// Whether the kernel is to be asked for memory: once in a while, when there was none the last time.
    fn may_ask(&self) -> bool {
        let asked = self.asked.get().wrapping_add(1);
        self.asked.set(asked);
        !STARVED.load(Ordering::Relaxed) || asked.is_multiple_of(ASK_EVERY)
    }

    /// Replaces a full table by a larger one.
    #[cold]
    fn next_table(&self, traced: Traced) {
        let _errno = Saved::now();
        // SAFETY: the block is busy, so that only this call changes the tables.
        let (table, previous) = unsafe { (&mut *self.table.get(), &mut *self.previous.get()) };
        let shift = table.as_ref().map_or(FIRST_SHIFT, |table| (table.shift() + GROWTH).min(MOST_SHIFT));
        let Some(new) = wait_for_table(traced, shift) else { return };
        self.forget_lines();
        self.slots.set(new.slots());
        self.hash_shift.set(u64::BITS - new.shift());
        let before = table.replace(new);
        if let Some(old) = std::mem::replace(previous, before) {
            // SAFETY: no line has a counter of it since the last call.
            unsafe { old.end(traced.map) };
        }
    }

    fn forget_lines(&self) {
        for line in &self.lines {
            line.ip.store(0, Ordering::Relaxed);
            line.counter.set(null());
        }
    }
}

/// A table of 2^`shift` slots, or else a smaller one; waits for the recorder if it must.
fn wait_for_table(traced: Traced, shift: u32) -> Option<Table> {
    let any = || (FIRST_SHIFT..=shift).rev().step_by(GROWTH as usize).find_map(|shift| traced.table(shift));
    for _ in 0..WAITS {
        if let Some(table) = any() {
            STARVED.store(false, Ordering::Relaxed);
            return Some(table);
        }
        if traced.map.header().stop.load(Ordering::Relaxed) != 0 {
            process::OFF.store(1, Ordering::Relaxed);
            return None;
        }
        if STARVED.load(Ordering::Relaxed) {
            return None;
        }
        let time = libc::timespec { tv_sec: 0, tv_nsec: WAIT_NS };
        // SAFETY: the time is a live local; the remainder is not asked for.
        unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, null::<libc::timespec>()) };
    }
    STARVED.store(true, Ordering::Relaxed);
    None
}

/// Only this thread writes to its counters, and its signal handlers between two instructions.
#[inline]
fn add(counter: Option<&AtomicU64>, count: u64) -> bool {
    let Some(counter) = counter else { return false };
    // SAFETY: one instruction without a lock: no handler of this thread can come between load and store.
    unsafe {
        core::arch::asm!(
            "add qword ptr [{counter}], {count}",
            counter = in(reg) counter,
            count = in(reg) count,
            options(nostack),
        );
    }
    true
}
