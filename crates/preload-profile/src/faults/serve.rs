//! What the kernel tells in a window, and the answers: pages are moved back for threads that wait, and followed where
//! the program changes its address space.

use core::ffi::c_int;

use numamma_channel::layout::{self, KIND_BITS, Record};
use numamma_channel::writer::{Local, Writer};
use numamma_hook::sys::{self, PAGE};
use numamma_kernel::userfault::{Message, Userfault, has_page};

use super::pages::Pages;
use super::twins::Twins;
use super::waiting::monotonic_ns;
use crate::channel_map::Mapped;

const _: () = assert!(layout::ACCESS < 1 << KIND_BITS);

/// Where accesses are recorded.
pub struct Tell<'t> {
    pub writer: Writer<Mapped>,
    pub local: &'t Local,
    /// Whether time stamps are the processor's.
    pub tsc: bool,
    /// Number of the window.
    pub window: u32,
}

impl Tell<'_> {
    /// The time of an access; it is taken before the thread goes on, which may end next.
    fn now(&self) -> u64 {
        // The clock of libc may be the program's.
        if self.tsc { self.writer.now() } else { monotonic_ns() }
    }

    fn access(&self, ticks: u64, addr: usize, tid: u32, write: bool) {
        let size = u64::from(tid) << 1 | u64::from(write);
        let record = Record { ticks, address: addr as u64, size, stack: self.window, kind: layout::ACCESS };
        self.writer.push(self.local, record);
    }
}

/// A descriptor, and the pages that it serves.
pub struct Serving<'s> {
    pub fault: Userfault,
    /// The open /proc/self/pagemap.
    pub pagemap: c_int,
    pub pages: &'s mut [Pages],
    /// None for a forked child, whose accesses are not recorded.
    pub tell: Option<Tell<'s>>,
    /// Time that answers took, nanoseconds.
    pub busy_ns: u64,
    /// First touches of pages that were not there before.
    pub fresh: usize,
}

impl Serving<'_> {
    /// Answers all that waits; false when nothing did.
    ///
    /// The kernel hands out the faults before the events. Threads whose page must wait for an event to be read go on
    /// only when all faults were: woken one by one, many of them would fault again before that, and the event never
    /// came.
    pub fn answer(&mut self) -> bool {
        let begun = monotonic_ns();
        // First and last page that threads wait for which must go on later.
        let (mut first, mut last, mut any, mut more) = (usize::MAX, 0, false, true);
        while more {
            let messages = self.fault.read();
            any |= !messages.is_empty();
            for message in messages.iter() {
                match message {
                    Message::Fault { addr, tid, write, protected } => {
                        let page = addr / PAGE * PAGE;
                        if !self.give(addr, tid, write, protected) {
                            (first, last) = (first.min(page), last.max(page));
                        }
                    }
                    Message::Fork(child) => self.copy_to(child),
                    Message::Remap { from, to, len } => self.follow(from, to, len),
                    Message::Discard { start, end } => self.forget(start, end, |_| true),
                    Message::Unmapped { start, end } => self.forget(start, end, |pages| !pages.is_part),
                    Message::Unknown => {}
                }
            }
            more = messages.is_full() && first <= last;
        }
        if first <= last {
            sys::yield_now();
            self.fault.wake(first, last + PAGE - first);
        }
        if any {
            self.busy_ns += monotonic_ns() - begun;
        }
        any
    }

    fn record(&self, ticks: u64, addr: usize, tid: u32, write: bool) {
        if let Some(tell) = &self.tell {
            tell.access(ticks, addr, tid, write);
        }
    }

    fn way(&self) -> Way {
        Way { fault: self.fault, pagemap: self.pagemap, moves: self.tell.is_some() }
    }

    /// Lets a thread go on that waits for a page. False where that cannot be done, as while an event waits to be read:
    /// the caller wakes it then, and it faults again if the page is still away.
    fn give(&mut self, addr: usize, tid: u32, write: bool, protected: bool) -> bool {
        let (page, now) = (addr / PAGE * PAGE, self.tell.as_ref().map_or(0, Tell::now));
        let way = self.way();
        // Other ranges may have been where one that was moved (mremap) is now.
        let found = self.pages.iter_mut().find(|pages| pages.is_away(addr));
        let (start, len) = found.as_ref().map_or((page, PAGE), |pages| pages.unit_away(addr));
        if protected {
            let huge = self.pages.iter().filter(|pages| pages.holds(addr)).map(|pages| pages.unit(addr));
            let (start, len) = huge.max_by_key(|(_, len)| *len).unwrap_or((page, PAGE));
            let goes_on = self.fault.protect(start, len, false);
            if goes_on {
                self.record(now, addr, tid, true);
            }
            return goes_on;
        }
        let is_fresh = found.is_none();
        let error = match found {
            Some(pages) => way.bring(pages, start, start, len, write).err(),
            None => self.fault.zero(page, write).1,
        };
        match error {
            None => {
                self.fresh += usize::from(is_fresh);
                self.record(now, addr, tid, write);
                // The first write is told, too.
                if !write {
                    self.fault.protect(start, len, true);
                    self.fault.wake(start, len);
                }
            }
            Some(libc::EAGAIN) => return false,
            // The page is there, or the mapping is gone, which the thread finds out.
            Some(_) => {
                self.fault.wake(page, PAGE);
            }
        }
        true
    }

    /// The contents of a range are not wanted any more. New memory there may be of another kind.
    ///
    /// The end of a mapping is told after it, and what came to its place then may have been told before. So the pages
    /// of a part that moved there stay: if it was the part that ended, the kernel refuses to bring them.
    fn forget(&mut self, start: usize, end: usize, which: impl Fn(&Pages) -> bool) {
        for pages in self.pages.iter_mut().filter(|pages| pages.start < end && start < pages.end && which(pages)) {
            pages.set_away(start, end, false);
            pages.changed = true;
        }
    }

    /// mremap moved a range: its pages go to where it is now, at once or, where an event that waits forbids it, like
    /// others.
    fn follow(&mut self, from: usize, to: usize, len: usize) {
        // What was there before has ended.
        self.forget(to, to.saturating_add(len), |_| true);
        let way = self.way();
        for index in 0..self.pages.len() {
            let Some(mut pages) = self.pages.get_mut(index) else { return };
            if pages.start >= from + len || pages.end <= from {
                continue;
            }
            pages.changed = true;
            let end = pages.end.min(from + len);
            while let Some(page) = pages.next_away(from).filter(|page| *page < end) {
                let there = to + (page - from);
                let waits = way.bring(pages, page, there, PAGE, true) == Err(libc::EAGAIN);
                if waits && self.hand_over(index, page, end - page, there) {
                    break;
                }
                if waits {
                    // Hundreds of such parts have pages; the event that waits may make place.
                    self.answer();
                }
                let Some(same) = self.pages.get_mut(index) else { return };
                pages = same;
            }
        }
    }

    /// Makes ranges of their own of the part that is at `to` now, and of what is behind it; false when there is no
    /// place for that.
    fn hand_over(&mut self, index: usize, page: usize, len: usize, to: usize) -> bool {
        let mut free = self.pages.iter().enumerate().filter(|(_, pages)| pages.is_free()).map(|(place, _)| place);
        let (Some(first), Some(second)) = (free.next(), free.next()) else { return false };
        let Some([moved, rest]) = self.pages.get_mut(index).map(|pages| pages.split(page, len, to)) else {
            return false;
        };
        for (place, part) in [(first, moved), (second, rest)] {
            if let Some(place) = self.pages.get_mut(place) {
                *place = part;
            }
        }
        true
    }

    /// A forked child gets copies of the pages that are away, and is then on its own. Until then it is served as its
    /// parent is: a change of its address space waits to be read, and as long as it does nothing can be copied.
    fn copy_to(&mut self, child: Userfault) {
        match Twins::of(self.pages) {
            Some(mut twins) => {
                let pages = twins.pages();
                let (fault, pagemap) = (child, self.pagemap);
                Serving { fault, pagemap, pages, tell: None, busy_ns: 0, fresh: 0 }.bring_all();
            }
            None => self.copy_unserved(child),
        }
        child.close();
    }

    /// The same without memory to remember what the child does: what it discards meanwhile it may get back.
    fn copy_unserved(&self, child: Userfault) {
        for pages in self.pages.iter() {
            let mut at = pages.start;
            while let Some(page) = pages.next_away(at) {
                // A copy of a page that is not there would wait: for this thread, for ever.
                while has_page(self.pagemap, pages.side(page))
                    && let (_, Some(libc::EAGAIN | libc::ENOMEM)) = child.copy(page, pages.side(page))
                {
                    for message in child.read().iter() {
                        if let Message::Fork(grandchild) = message {
                            self.copy_unserved(grandchild);
                            grandchild.close();
                        }
                    }
                    sys::yield_now();
                }
                at = page + PAGE;
            }
        }
    }

    /// Moves back all pages that are away, while threads that touch them are served.
    pub fn bring_all(&mut self) {
        while self.pages.iter().any(|pages| pages.next_away(pages.start).is_some()) {
            self.bring_each();
        }
    }

    fn bring_each(&mut self) {
        for index in 0..self.pages.len() {
            while let Some((page, end)) = self.pages.get(index).and_then(|pages| {
                let page = pages.next_away(pages.start)?;
                Some((page, pages.end_of_away(page)))
            }) {
                let (way, Some(pages)) = (self.way(), self.pages.get_mut(index)) else { return };
                let failed = way.bring(pages, page, page, end - page, true).err();
                while self.answer() {}
                if failed == Some(libc::EAGAIN) {
                    sys::yield_now();
                }
            }
        }
    }
}

/// How pages come back.
#[derive(Clone, Copy)]
struct Way {
    fault: Userfault,
    pagemap: c_int,
    /// They are moved; for a forked child they are copied.
    moves: bool,
}

impl Way {
    /// Moves the pages of `page..page + len` to `to`, and remembers that they are not away. Where a page cannot be
    /// moved it is copied. After an error pages from the first one that stayed on are still away: only if an event
    /// waits to be read or memory is short, as one that has no place any more is given up.
    fn bring(self, pages: &mut Pages, page: usize, to: usize, len: usize, wake: bool) -> Result<(), c_int> {
        let mut done = 0;
        while done < len {
            let (moved, error) = match self.moves {
                true => self.fault.move_pages(to + done, pages.side(page + done), len - done, wake),
                false => (0, Some(libc::ENOTSUP)),
            };
            pages.set_away(page + done, page + done + moved, false);
            done += moved;
            match error {
                None => return Ok(()),
                Some(_) if moved > 0 => {}
                Some(libc::EAGAIN) => return Err(libc::EAGAIN),
                // Protection and locking of the mapping may have changed, and a huge page may not fit into it.
                Some(_) => match copy_page(self.fault, self.pagemap, to + done, pages.side(page + done)) {
                    Some(libc::EAGAIN | libc::ENOMEM) => return Err(libc::EAGAIN),
                    other => {
                        pages.set_away(page + done, page + done + PAGE, false);
                        done += PAGE;
                        if other.is_some() && len == PAGE {
                            return Err(libc::EEXIST);
                        }
                    }
                },
            }
        }
        Ok(())
    }
}

/// Copies a page from its room; the error code where that fails. There may be none, as the kernel has dropped it: a
/// copy would wait for that, for ever, as it is this thread that would have to answer.
fn copy_page(fault: Userfault, pagemap: c_int, to: usize, side: usize) -> Option<c_int> {
    if !has_page(pagemap, side) {
        return Some(libc::EEXIST);
    }
    match fault.copy(to, side).1 {
        // The mapping may have been moved after the kernel looked whether one changes, and before it looked for it
        // (mfill_atomic in mm/userfaultfd.c). The event of that waits now, which the next try is told.
        Some(libc::ENOENT) => fault.copy(to, side).1,
        other => other,
    }
}
