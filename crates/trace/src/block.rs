//! What a thread keeps in this process: for each instruction the page that it accessed last and the counter of both,
//! and the table with the counters.
//!
//! A block lies in memory that is zeroed in a forked child, where no line matches then and a new table is taken: the
//! counters belong to the thread of the parent.
//!
//! A signal handler may run hooks while its thread is in [`count`]. It then finds the block busy, uses the table
//! without changing lines or the choice of the table, and so leaves nothing that the interrupted call could miss.

use core::cell::{Cell, UnsafeCell};
use core::mem::offset_of;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

use numamma_channel::trace::layout::{FIRST_SHIFT, MOST_SHIFT, OFFSET_BITS, PAGE_SHIFT, SITE_BITS, Slot};
use numamma_channel::trace::writer::{self, GOLDEN, HASH_SHIFT, TOGETHER_BITS, Table};
use numamma_hook::errno::Saved;
use numamma_hook::{sandbox, static_tls, sys};

use crate::eras;
use crate::lines::{Ends, Line, OfFile};
use crate::process::{self, Traced};
use crate::sharing::{Access, FILTER, Sharing, sharing};

/// Instructions that have a line of their own: those of a loop are closer to each other than 4 KiB, and a call takes
/// five bytes, so that no two calls have the same four.
const LINES: usize = 1024;
/// Bits of an instruction's address that say where its line is: eight times them is the offset.
pub const LINE_MASK: usize = (LINES - 1) << 2;
// What fast.s and thread.s say.
const _: () = assert!(size_of::<Line>() == 8 << 2 && PAGE_SHIFT == 12 && LINE_MASK == 0xffc);
const _: () = assert!(size_of::<[Line; LINES]>() == 32768);
/// A thread that is switched off has the lines of nobody so many bytes further on; no other address of lines has this
/// bit.
const OFF: usize = 64;
/// Files of a program with hooks of their own that are as fast as those of the program.
const FILES: usize = 30;
/// Steps from one size of a thread's tables to the next: a factor of four, and of two once all tables together take
/// more than [`ROOMY_PART`] of the memory for them. Many threads then do not take memory that they have no counts for.
const GROWTH: u32 = 2;
const ROOMY_PART: u64 = 16;
/// Calls that find the block busy after which the interrupted call is taken for one that a signal handler left by
/// longjmp.
const MOST_NESTED: u32 = 1 << 16;
/// Waits of [`WAIT_NS`] for the recorder to give memory back: one second. It does so 50 times a second.
const WAITS: u32 = 200;
const WAIT_NS: i64 = 5_000_000;
/// The same while it has enough to give back: 10 seconds, as it has that much to do or its CPU does other work.
const WAITS_FOR_ENDED: u32 = 2000;
/// Calls without room for one that asks for memory, when there was none after that wait.
const ASK_EVERY: u32 = 4096;

/// See the top of the file. All zero bytes are a block that nobody has, or that of the parent in a forked child.
#[repr(C)]
struct Block {
    lines: [Line; LINES],
    /// First slot of the table, for the hooks: they look there only after they found a line.
    slots: Cell<*const Slot>,
    /// What is left of a hash as an offset in the table.
    mask: Cell<u32>,
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
    /// The tables before, the last one first: what a signal handler interrupts may still have the address of a counter
    /// in one, and the handler may access so much that the table is replaced twice.
    previous: UnsafeCell<[Option<Table>; 2]>,
    /// What the hooks of other files than this library keep of the thread.
    files: [Cell<*const Thread>; FILES],
    /// The lines that it has for files of the program.
    of_files: [OfFile; FILES],
    /// The next one of the free blocks.
    next: Cell<*mut Block>,
    /// Number of the thread.
    number: Cell<u32>,
    /// The era in which the thread took its table.
    era: Cell<u32>,
    /// The block that was made before it.
    older: AtomicPtr<Block>,
}

// What fast.s says.
const _: () = {
    assert!(offset_of!(Block, slots) == 32768 && offset_of!(Block, mask) == 32776);
    assert!(
        offset_of!(Block, busy) == 32784
            && OFF == 64
            && offset_of!(Block, filter) == 32792
            && offset_of!(Block, nested) == 32800
            && FILTER == 1 << 14
            && SITE_BITS == 17
            && OFFSET_BITS == 12
            && size_of::<Slot>() == 16
    );
    assert!(TOGETHER_BITS == 2 && HASH_SHIFT == 38 && sys::PAGE == 4096);
    assert!(offset_of!(Slot, key) == 0 && offset_of!(Slot, count) == 8 && GOLDEN == 0x9e37_79b9_7f4a_7c15);
};

/// What the hooks of one file (this library, a program, a library of its) keep of a thread: see thread.s.
#[repr(C)]
pub struct Thread {
    block: Cell<*const Block>,
    /// The lines of nobody, of the same file: nothing is ever stored there.
    nobody: *const Block,
    /// Of a file with lines of its own ([`crate::lines`]), which alone has this: bytes from these to those of the
    /// thread, 0 without.
    pub lines_behind: Cell<usize>,
}

// The thread's part of this library: whether it is getting a block now.
static_tls!(fn claiming() -> Cell<bool>, "numamma_trace_claiming");

/// Destructor of the blocks of threads that end.
static KEY: AtomicI32 = AtomicI32::new(-1);
/// Blocks of threads that have ended, linked by `next`; taken as a whole, so that no other thread can have put a block
/// back in between.
static FREE: AtomicPtr<Block> = AtomicPtr::new(null_mut());
/// The block that was made last.
static NEWEST: AtomicPtr<Block> = AtomicPtr::new(null_mut());
/// The recorder does not give memory back: nobody waits for it any more.
static STARVED: AtomicBool = AtomicBool::new(false);

/// Makes the key whose destructor gets the block of a thread that ends; false when there is none.
pub fn prepare() -> bool {
    if KEY.load(Ordering::Relaxed) >= 0 {
        return true;
    }
    let mut key = 0;
    // SAFETY: the key is written to a live local; the destructor lives as long as the process (-z nodelete).
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } == 0;
    if made {
        KEY.store(key as i32, Ordering::Relaxed);
    }
    made
}

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

/// Counts one access for code of a file that has lines of its own, whose ends are given. `line` is the one that it
/// found, of the thread or of the file.
pub fn count_at(file: &Thread, address: u64, write: bool, ip: u64, line: *const Line, ends: &Ends) {
    let Some(traced) = process::traced() else { return };
    let own = (line as usize).wrapping_sub(file.lines_behind.get());
    let counted = block(file, traced).is_some_and(|block| {
        let lines = block.lines_of(file, ends).and_then(|of| Some((of, of.line(own)?)));
        block.count(traced, Accesses { lines, address, write, ip, count: 1 })
    });
    if !counted {
        traced.map.header().lost.fetch_add(1, Ordering::Relaxed);
    }
}

fn count_in(file: &Thread, address: u64, write: bool, ip: u64, count: u64) {
    let Some(traced) = process::traced() else { return };
    let accesses = Accesses { lines: None, address, write, ip, count };
    let counted = block(file, traced).is_some_and(|block| block.count(traced, accesses));
    if !counted {
        traced.map.header().lost.fetch_add(count, Ordering::Relaxed);
    }
}

fn thread() -> &'static Thread {
    let thread: *const Thread;
    // SAFETY: the symbol is in this thread's static TLS block; the two instructions compute its address. The reference
    // cannot leave the thread: cells are not Sync.
    unsafe {
        core::arch::asm!(
            "mov {p}, qword ptr fs:[0]",
            "add {p}, qword ptr [rip + numamma_trace_file@GOTTPOFF]",
            p = out(reg) thread,
            options(pure, nomem, nostack),
        );
        &*thread
    }
}

impl Thread {
    /// Lets the hooks of this file return at once.
    pub fn switch_off(&self) {
        self.block.set(self.nobody.wrapping_byte_add(OFF));
    }

    /// The block that the hooks of this file have.
    fn block(&self) -> Option<&'static Block> {
        let block = self.block.get();
        let is_none = core::ptr::eq(block, self.nobody) || block.addr() & OFF != 0;
        // SAFETY: the thread has it until its end, and blocks are never unmapped.
        if is_none { None } else { unsafe { block.as_ref() } }
    }
}

/// The block of this thread, also for the hooks of a file from now on.
#[inline]
fn block(file: &Thread, traced: Traced) -> Option<&'static Block> {
    match file.block() {
        Some(block) if block.pid.get() == traced.pid => Some(block),
        _ => claim(file, traced),
    }
}

#[cold]
fn claim(file: &Thread, traced: Traced) -> Option<&'static Block> {
    if claiming().replace(true) {
        return None; // a signal handler, or a hook in what is called here
    }
    let _errno = Saved::now();
    let own = thread();
    // Without the one a hook would have no filter to look at, without the other the block would stay a dead thread's.
    let found = sharing().filter(|_| prepare());
    let block = found.and_then(|_| own.block().map_or_else(free_block, |block| Some((&raw const *block).cast_mut())));
    let claimed = block.map(|block| {
        // SAFETY: a mapped block that only this thread has.
        let claimed = unsafe { &*block };
        if let Some(sharing) = found {
            claimed.filter.set(sharing.filter()); // a forked child has lost it
        }
        if claimed.pid.replace(traced.pid) != traced.pid {
            // SAFETY: the key exists; the value is only read by its destructor.
            unsafe { libc::pthread_setspecific(KEY.load(Ordering::Relaxed) as libc::pthread_key_t, block.cast()) };
            claimed.number.set(found.map_or(0, Sharing::new_thread));
            eras::thread_begins();
            claimed.era.set(eras::current());
        }
        own.block.set(block);
        if !core::ptr::eq(own, file) && claimed.remember(file) {
            file.block.set(block);
        }
        claimed
    });
    claiming().set(false);
    claimed
}

/// A block that a thread left, or a new one.
fn free_block() -> Option<*mut Block> {
    let first = FREE.swap(null_mut(), Ordering::Acquire);
    if first.is_null() {
        return new_block();
    }
    // SAFETY: the list is this thread's since the exchange, and blocks are never unmapped.
    let rest = unsafe { (*first).next.replace(null_mut()) };
    if !rest.is_null() {
        give_back(rest);
    }
    Some(first)
}

fn new_block() -> Option<*mut Block> {
    let new: *mut Block = process::map(size_of::<Block>().next_multiple_of(sys::PAGE))?.cast();
    // SAFETY: zeroed memory that this thread alone knows.
    let block = unsafe { &*new };
    let mut newest = NEWEST.load(Ordering::Relaxed);
    loop {
        block.older.store(newest, Ordering::Relaxed);
        match NEWEST.compare_exchange(newest, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return Some(new),
            Err(other) => newest = other,
        }
    }
}

/// Lets no instruction of any thread keep its counter of a page.
#[cold]
fn forget_page(page: u64) {
    let last = last_byte(page << PAGE_SHIFT);
    let mut block = NEWEST.load(Ordering::Acquire);
    // SAFETY: blocks are never unmapped, and of another thread's only atomic fields are used. In a forked child those
    // of the parent are zero, and end the list.
    while let Some(known) = unsafe { block.as_ref() } {
        known.lines().for_each(|line| line.forget_page(last));
        block = known.older.load(Ordering::Relaxed);
    }
}

/// Last byte of the page of an address.
fn last_byte(address: u64) -> u64 {
    address | ((1 << PAGE_SHIFT) - 1)
}

/// Puts a list of blocks back.
fn give_back(list: *mut Block) {
    let mut last = list;
    // SAFETY: the list is this thread's, and blocks are never unmapped.
    unsafe {
        while !(*last).next.get().is_null() {
            last = (*last).next.get();
        }
        let mut first = FREE.load(Ordering::Relaxed);
        loop {
            (*last).next.set(first);
            match FREE.compare_exchange(first, list, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }
}

/// Destructor: the thread ends; hooks of other destructors claim another block.
unsafe extern "C" fn thread_ends(block: *mut libc::c_void) {
    let _errno = Saved::now();
    let thread = thread();
    thread.block.set(thread.nobody);
    let list: *mut Block = block.cast();
    // SAFETY: the value of the key is the block of this thread.
    let block = unsafe { &*list };
    block.pid.set(0);
    block.forget_files();
    // The next thread may get no table, and the hooks still have the address of this one's.
    block.lines().for_each(Line::empty);
    block.busy.set(false);
    // SAFETY: no hook of this thread is in the block any more, and no line has a counter of its tables.
    let (table, previous) = unsafe { (&mut *block.table.get(), &mut *block.previous.get()) };
    let tables = previous.iter_mut().chain([table]).filter_map(Option::take);
    match process::traced() {
        // SAFETY: as above.
        Some(traced) if !sandbox::entered() => tables.for_each(|table| unsafe { table.end(traced.map) }),
        // The recorder sees that the thread is gone.
        _ => tables.for_each(core::mem::forget),
    }
    give_back(list);
    eras::thread_ends();
}

/// Accesses of one page by an instruction.
#[derive(Clone, Copy)]
struct Accesses<'l> {
    /// The line of the instruction, where it has one of its own, and those of its file.
    lines: Option<(&'l OfFile, &'l Line)>,
    address: u64,
    write: bool,
    ip: u64,
    count: u64,
}

impl Block {
    fn count(&self, traced: Traced, accesses: Accesses) -> bool {
        if self.busy.get() && self.nested.get() < MOST_NESTED {
            self.nested.set(self.nested.get() + 1);
            let Accesses { address, write, ip, count, .. } = accesses;
            let key = writer::key(address, writer::site(traced.map, ip, write));
            // SAFETY: the call that is interrupted replaces the table only by a complete one.
            let table = unsafe { (*self.table.get()).as_ref() };
            return add(key.zip(table).and_then(|(key, table)| counter(traced, table, key, address, write)), count);
        }
        self.busy.set(true);
        self.nested.set(0);
        let counted = self.count_alone(traced, accesses);
        self.busy.set(false);
        counted
    }

    fn count_alone(&self, traced: Traced, accesses: Accesses) -> bool {
        let Accesses { lines, address, write, ip, count } = accesses;
        let line = lines.map_or(&self.lines[(ip as usize & LINE_MASK) >> 2], |(_, line)| line);
        let site = line.site(ip, write).unwrap_or_else(|| writer::site(traced.map, ip, write));
        let Some(key) = writer::key(address, site) else { return false };
        // SAFETY: the block is busy, so that only this call changes the table.
        let full = unsafe { (*self.table.get()).as_ref() }.is_none_or(Table::is_full);
        if full && self.may_ask() {
            self.next_table(traced);
        } else if self.era.get() != eras::current() {
            self.next_era(traced);
        }
        // SAFETY: as above.
        let table = unsafe { (*self.table.get()).as_ref() };
        let counter = table.and_then(|table| counter(traced, table, key, address, write));
        if let Some(counter) = counter {
            let access = Access { address, write, count, site, thread: self.number.get() };
            // What was counted before is known, unless the page is watched: the hooks do the same.
            // SAFETY: as above.
            let is_known = || unsafe { (*self.previous.get())[0].as_ref() }.is_some_and(|table| table.has(key));
            let is_new = counter.load(Ordering::Relaxed) == 0 && !is_known();
            let keeps = sharing().is_none_or(|sharing| {
                !is_new && !sharing.may_watch(address) || sharing.access(traced, access, forget_page)
            });
            if lines.is_none_or(|(of_file, line)| !line.is_empty() || of_file.list(line)) {
                line.set(ip, (site, write), keeps.then(|| last_byte(address)), counter);
            }
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
        let table = unsafe { (*self.table.get()).as_ref() };
        let header = traced.map.header();
        let is_roomy = header.bytes.load(Ordering::Relaxed) <= header.limit / ROOMY_PART;
        let growth = if is_roomy { GROWTH } else { 1 };
        let shift = table.map_or(FIRST_SHIFT, |table| (table.shift() + growth).min(MOST_SHIFT));
        let Some(new) = wait_for_table(traced, shift) else { return };
        self.replace_table(traced, new);
    }

    /// Goes on with a table of the same size, if there is memory for it at once.
    #[cold]
    fn next_era(&self, traced: Traced) {
        let _errno = Saved::now();
        self.era.set(eras::current());
        // SAFETY: the block is busy, so that only this call changes the tables.
        let shift = unsafe { (*self.table.get()).as_ref() }.map(Table::shift);
        if let Some(new) = shift.and_then(|shift| traced.table(shift)) {
            self.replace_table(traced, new);
        }
    }

    fn replace_table(&self, traced: Traced, new: Table) {
        // SAFETY: the block is busy, so that only this call changes the tables.
        let (table, previous) = unsafe { (&mut *self.table.get(), &mut *self.previous.get()) };
        self.forget_lines();
        self.slots.set(new.slots());
        self.mask.set(writer::mask(new.shift()));
        let before = table.replace(new);
        before.iter().for_each(|before| before.leave(traced.map));
        let last = std::mem::replace(&mut previous[0], before);
        if let Some(old) = std::mem::replace(&mut previous[1], last) {
            // SAFETY: no line has a counter of it since the call before the last.
            unsafe { old.end(traced.map) };
        }
    }

    /// Notes that the hooks of a file have the address of this block; false when there is no room for it, and they do
    /// not get it.
    fn remember(&self, file: &Thread) -> bool {
        let is = |place: &&Cell<*const Thread>| core::ptr::eq(place.get(), file);
        let place = self.files.iter().find(is).or_else(|| self.files.iter().find(|place| place.get().is_null()));
        place.is_some_and(|place| {
            place.set(file);
            true
        })
    }

    /// The lines that the thread has for the file with these.
    fn lines_of(&self, file: &Thread, ends: &Ends) -> Option<&OfFile> {
        let known = self.of_files.iter().find(|of| of.is_for(ends) && !of.is_free());
        if let Some(known) = known.filter(|known| known.distance() == file.lines_behind.get()) {
            return Some(known);
        }
        if claiming().replace(true) {
            return None; // a signal handler, while lines are mapped
        }
        let _errno = Saved::now();
        let found = known.or_else(|| self.of_files.iter().find(|of| of.is_free()).filter(|free| free.map(ends)));
        if let Some(found) = found {
            found.lend(&file.lines_behind);
        }
        claiming().set(false);
        found
    }

    fn forget_files(&self) {
        self.of_files.iter().for_each(OfFile::take_back);
        for file in self.files.iter().map(|place| place.replace(null())) {
            // SAFETY: static TLS of the thread that ends, which stays mapped.
            if let Some(file) = unsafe { file.as_ref() } {
                // If the file was unloaded, another one's variables may be there.
                if core::ptr::eq(file.block.get(), self) {
                    file.block.set(file.nobody);
                }
            }
        }
    }

    fn forget_lines(&self) {
        self.lines().for_each(Line::forget);
    }

    /// The lines in use.
    fn lines(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().chain(self.of_files.iter().flat_map(OfFile::used))
    }
}

/// A table of 2^`shift` slots, or else a smaller one; waits for the recorder if it must. A smaller one would be full
/// soon: it is not taken while the memory for a large one comes back.
fn wait_for_table(traced: Traced, shift: u32) -> Option<Table> {
    let header = traced.map.header();
    for wait in 0..WAITS_FOR_ENDED {
        let comes_back = Table::will_fit(traced.map, shift);
        if wait >= WAITS && !comes_back {
            break;
        }
        let least = if comes_back && wait < WAITS { shift } else { FIRST_SHIFT };
        if let Some(table) = (least..=shift).rev().find_map(|shift| traced.table(shift)) {
            STARVED.store(false, Ordering::Relaxed);
            return Some(table);
        }
        if header.stop.load(Ordering::Relaxed) != 0 {
            process::OFF.store(1, Ordering::Relaxed);
            return None;
        }
        if STARVED.load(Ordering::Relaxed) || sandbox::entered() {
            return None;
        }
        let time = libc::timespec { tv_sec: 0, tv_nsec: WAIT_NS };
        // SAFETY: the time is a live local; the remainder is not asked for.
        unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, null::<libc::timespec>()) };
    }
    STARVED.store(true, Ordering::Relaxed);
    None
}

/// The counter of an access: of its instruction, or where the table has no room for that, of all together.
fn counter(traced: Traced, table: &Table, key: u64, address: u64, write: bool) -> Option<&AtomicU64> {
    table.counter(key).or_else(|| table.counter_of_page(traced.map, address, write))
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
