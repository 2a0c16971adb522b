//! Lines of the code that counts in the place of its calls of hooks (inline.s): each access of a file of the program
//! has a line of its own, and so has each thread for it.
//!
//! A file has one line for each access in its zeroed data, where nothing is ever stored. A thread gets as many that
//! begin so far behind these as the file's part of the thread says; before that its accesses find the empty ones. Lines
//! in use are listed, so that a thread that lets a page be watched need not look at those of all code.

use core::cell::Cell;
use core::mem::offset_of;
use core::ptr::{self, null};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence};

use numamma_channel::trace::layout::OFFSET_BITS;
use numamma_hook::sys;

use crate::process;

/// No page.
const NOWHERE: u64 = u64::MAX;

/// Counter of a line without one: code that a signal handler interrupts behind its look at the page still counts.
static NOBODYS: AtomicU64 = AtomicU64::new(0);

/// Where an instruction was last. All zero: nowhere.
#[repr(C)]
pub struct Line {
    /// 0: nothing is known of it.
    ip: AtomicU64,
    /// Last byte of its page. [`NOWHERE`]: the counter is not kept. Other threads set that when the page becomes a
    /// watched one.
    page: AtomicU64,
    /// Of the instruction at the page.
    counter: Cell<*const AtomicU64>,
    /// Number of the instruction, as it is in keys, and the lowest bit; 0: not known.
    tag: Cell<u32>,
    /// Whether that site stores: a copy loads and stores by one instruction.
    write: Cell<bool>,
    /// The lowest bits of the page that the instruction was on last, for the hooks.
    last: Cell<u16>,
}

// What fast.s, again.s and inline.s say.
const _: () = {
    assert!(size_of::<Line>() == 32 && offset_of!(Line, ip) == 0 && offset_of!(Line, page) == 8);
    assert!(offset_of!(Line, counter) == 16 && offset_of!(Line, tag) == 24 && offset_of!(Line, last) == 30);
};

impl Line {
    /// Whether it was never used, or not since it was emptied.
    pub fn is_empty(&self) -> bool {
        self.ip.load(Ordering::Relaxed) == 0
    }

    /// The number of an instruction, if the line was used last by that one.
    pub fn site(&self, ip: u64, write: bool) -> Option<u32> {
        (self.ip.load(Ordering::Relaxed) == ip && self.write.get() == write).then(|| self.tag.get() >> OFFSET_BITS)
    }

    /// Is from now on that of an instruction, and keeps its counter of the page with this last byte, if there is one.
    pub fn set(&self, ip: u64, (site, write): (u32, bool), last_byte: Option<u64>, counter: &AtomicU64) {
        // A signal handler that compares the line meanwhile finds no instruction, or no page.
        self.ip.store(0, Ordering::Relaxed);
        self.page.store(NOWHERE, Ordering::Relaxed);
        self.counter.set(counter);
        self.tag.set(site << OFFSET_BITS | 1);
        self.write.set(write);
        compiler_fence(Ordering::Release);
        self.page.store(last_byte.unwrap_or(NOWHERE), Ordering::Relaxed);
        self.ip.store(ip, Ordering::Relaxed);
    }

    /// Lets the instruction keep no counter of the page with this last byte.
    pub fn forget_page(&self, last_byte: u64) {
        if self.page.load(Ordering::Relaxed) == last_byte {
            self.page.store(NOWHERE, Ordering::Relaxed);
        }
    }

    /// Is that of no instruction any more, so that no hook looks for a counter on its behalf.
    pub fn empty(&self) {
        self.forget();
        self.ip.store(0, Ordering::Relaxed);
        self.tag.set(0);
    }

    /// Lets the instruction keep no counter.
    pub fn forget(&self) {
        self.page.store(NOWHERE, Ordering::Relaxed);
        self.counter.set(&raw const NOBODYS);
    }
}

/// The lines that a file has of its own: see inline.s.
#[repr(C)]
pub struct Ends {
    start: *const Line,
    end: *const Line,
}

impl Ends {
    fn count(&self) -> usize {
        (self.end as usize).saturating_sub(self.start as usize) / size_of::<Line>()
    }
}

/// The lines that a thread has for a file, and behind them as many numbers: of the lines in use. All zero: none. What
/// is set once stays, for the threads that have the block later, too.
#[repr(C)]
#[derive(Default)]
pub struct OfFile {
    start: Cell<usize>,
    count: AtomicUsize,
    lines: AtomicPtr<Line>,
    /// Lines in use.
    used: AtomicU32,
    /// Where the file finds how far behind its lines these are, while the thread counts.
    found_by: Cell<*const Cell<usize>>,
}

impl OfFile {
    /// Whether nothing was mapped for it.
    pub fn is_free(&self) -> bool {
        self.lines.load(Ordering::Relaxed).is_null()
    }

    /// Whether it is for the lines of this file.
    pub fn is_for(&self, ends: &Ends) -> bool {
        self.start.get() == ends.start as usize && self.count.load(Ordering::Relaxed) == ends.count()
    }

    /// Maps the lines for a file; false without memory, or if the file has none.
    pub fn map(&self, ends: &Ends) -> bool {
        let count = ends.count();
        let bytes = count * (size_of::<Line>() + size_of::<AtomicU32>());
        if count == 0 || u32::try_from(count).is_err() {
            return false;
        }
        let Some(lines) = process::map(bytes.next_multiple_of(sys::PAGE)) else { return false };
        self.start.set(ends.start as usize);
        self.count.store(count, Ordering::Relaxed);
        self.lines.store(lines.cast(), Ordering::Release);
        true
    }

    /// Lets the code of the file find these lines in this thread, in whose static TLS `behind` is. They are empty then:
    /// the file may be another one, at the address of one that was unloaded.
    pub fn lend(&self, behind: &Cell<usize>) {
        self.used().for_each(Line::empty);
        self.used.store(0, Ordering::Relaxed);
        self.found_by.set(behind);
        behind.set(self.distance());
    }

    /// Bytes from the lines of the file to those of the thread.
    pub fn distance(&self) -> usize {
        (self.lines.load(Ordering::Relaxed) as usize).wrapping_sub(self.start.get())
    }

    /// The thread ends.
    pub fn take_back(&self) {
        // SAFETY: static TLS of the thread that ends, which stays mapped.
        let behind = unsafe { self.found_by.replace(null()).as_ref() };
        // If the file was unloaded, another one's variables may be there.
        if let Some(behind) = behind.filter(|behind| behind.get() == self.distance()) {
            behind.set(0);
        }
    }

    /// The line of this thread for the file's line at `own`; `None` for an address of no line.
    pub fn line(&self, own: usize) -> Option<&Line> {
        let offset = own.wrapping_sub(self.start.get());
        let index = offset / size_of::<Line>();
        let is_line = offset.is_multiple_of(size_of::<Line>()) && index < self.count.load(Ordering::Relaxed);
        // SAFETY: mapped for so many lines, and never unmapped.
        is_line.then(|| unsafe { &*self.lines.load(Ordering::Relaxed).add(index) })
    }

    /// Lists a line that is used for the first time; false without room, where it must keep no counter.
    pub fn list(&self, line: &Line) -> bool {
        let lines = self.lines.load(Ordering::Relaxed);
        let index = (ptr::from_ref(line) as usize - lines as usize) / size_of::<Line>();
        let used = self.used.load(Ordering::Relaxed);
        let place = self.numbers().get(used as usize);
        if let Some(place) = place {
            place.store(index as u32, Ordering::Relaxed);
            self.used.store(used + 1, Ordering::Release);
        }
        place.is_some()
    }

    /// Room for the number of each line.
    fn numbers(&self) -> &[AtomicU32] {
        // Acquire pairs with `map`.
        let lines = self.lines.load(Ordering::Acquire);
        if lines.is_null() {
            return &[];
        }
        let count = self.count.load(Ordering::Relaxed);
        // SAFETY: so many lie behind the lines, in memory that is never unmapped.
        unsafe { core::slice::from_raw_parts(lines.add(count).cast(), count) }
    }

    /// The lines in use. Also for other threads than the one that has them, which use what is atomic.
    pub fn used(&self) -> impl Iterator<Item = &Line> {
        let numbers = self.numbers();
        // Acquire pairs with `list`.
        let used = self.used.load(Ordering::Acquire) as usize;
        let lines = self.lines.load(Ordering::Relaxed);
        // SAFETY: only numbers of lines are listed, which are never unmapped.
        numbers.iter().take(used).map(move |number| unsafe { &*lines.add(number.load(Ordering::Relaxed) as usize) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_in_use_are_forgotten_and_no_others_are_looked_at() {
        let file = [const { [0_u64; size_of::<Line>() / 8] }; 100];
        let start: *const Line = file.as_ptr().cast();
        let ends = Ends { start, end: start.wrapping_add(100) };
        let (of_file, behind) = (OfFile::default(), Cell::new(0));
        assert!(of_file.is_free() && of_file.map(&ends) && of_file.is_for(&ends) && of_file.used().next().is_none());
        of_file.lend(&behind);
        let own = |index: usize| start as usize + index * size_of::<Line>();
        assert!(
            of_file.line(own(100)).is_none()
                && of_file.line(own(0) - 32).is_none()
                && of_file.line(own(3) + 8).is_none()
        );
        let line = |index: usize| of_file.line(own(index)).unwrap();
        assert_eq!(ptr::from_ref(line(7)) as usize, own(7).wrapping_add(behind.get()));
        for (index, page) in [(7, 0x5fff), (99, 0x6fff), (0, 0x5fff)] {
            assert!(of_file.list(line(index)));
            line(index).page.store(page, Ordering::Relaxed);
        }
        of_file.used().for_each(|line| line.forget_page(0x5fff));
        let pages = [7, 99, 0].map(|index| line(index).page.load(Ordering::Relaxed));
        assert_eq!((of_file.used().count(), pages), (3, [NOWHERE, 0x6fff, NOWHERE]));
        (3..100).for_each(|index| assert!(of_file.list(line(index))));
        assert!(!of_file.list(line(1)), "no room");
        of_file.take_back();
        let shorter = Ends { start, end: start.wrapping_add(99) };
        assert!(behind.get() == 0 && !of_file.is_for(&shorter));
        of_file.lend(&behind);
        assert!(of_file.used().next().is_none() && line(7).is_empty());
        behind.set(5);
        of_file.take_back();
        assert_eq!(behind.get(), 5, "a variable of another library");
    }
}
