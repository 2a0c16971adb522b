//! What the kernel tells in a window, and the answers: pages are moved back for threads that wait, and followed where the
//! program changes its address space.

use core::ffi::c_int;

use numamma_channel::layout::{self, KIND_BITS, Record};
use numamma_channel::writer::{Local, Writer};
use numamma_hook::sys::{self, PAGE};
use numamma_kernel::userfault::{Message, Userfault};

use super::pages::Pages;
use super::thread::monotonic_ns;
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
    fn access(&self, addr: usize, tid: u32, write: bool) {
        // The clock of libc may be the program's.
        let ticks = if self.tsc { self.writer.now() } else { monotonic_ns() };
        let size = u64::from(tid) << 1 | u64::from(write);
        let record = Record { ticks, address: addr as u64, size, stack: self.window, kind: layout::ACCESS };
        self.writer.push(self.local, record);
    }
}

/// A descriptor, and the pages that it serves.
pub struct Serving<'s> {
    pub fault: Userfault,
    pub pages: &'s mut [Pages],
    pub tell: Tell<'s>,
    /// Time that answers took, nanoseconds.
    pub busy_ns: u64,
}

impl Serving<'_> {
    /// Answers all that waits; false when nothing did.
    pub fn answer(&mut self) -> bool {
        let messages = self.fault.read();
        if messages.is_empty() {
            return false;
        }
        let begun = monotonic_ns();
        for message in messages.iter() {
            match message {
                Message::Fault { addr, tid, write, protected } => self.give(addr, tid, write, protected),
                Message::Fork(child) => self.copy_to(child),
                Message::Remap { from, to, len } => self.follow(from, to, len),
                Message::Gone { start, end } => self.forget(start, end),
                Message::Unknown => {}
            }
        }
        self.busy_ns += monotonic_ns() - begun;
        true
    }

    /// Lets a thread go on that waits for a page. Where that cannot be done yet, because an event waits to be read, the
    /// thread is woken and faults again.
    fn give(&mut self, addr: usize, tid: u32, write: bool, protected: bool) {
        let page = addr / PAGE * PAGE;
        let found = self.pages.iter_mut().find(|pages| pages.holds(addr));
        let (start, len) = found.as_ref().map_or((page, PAGE), |pages| pages.unit(addr));
        if protected {
            self.tell.access(addr, tid, true);
            if !self.fault.protect(start, len, false) {
                self.fault.wake(page, PAGE);
            }
            return;
        }
        let error = match found.filter(|pages| pages.is_away(addr)) {
            Some(pages) => bring(self.fault, pages, start, start, len, write).err(),
            None => self.fault.zero(page, write).1,
        };
        match error {
            None => {
                self.tell.access(addr, tid, write);
                // The first write is told, too.
                if !write {
                    self.fault.protect(start, len, true);
                    self.fault.wake(start, len);
                }
            }
            Some(libc::EAGAIN) => {
                sys::yield_now();
                self.fault.wake(page, PAGE);
            }
            // The page is there, or the mapping is gone, which the thread finds out.
            Some(_) => {
                self.fault.wake(page, PAGE);
            }
        }
    }

    /// The contents of a range are not wanted any more. New memory there may be of another kind.
    fn forget(&mut self, start: usize, end: usize) {
        for pages in self.pages.iter_mut().filter(|pages| pages.start < end && start < pages.end) {
            pages.set_away(start, end, false);
            pages.changed = true;
        }
    }

    /// mremap moved a range: its pages go to where it is now.
    fn follow(&mut self, from: usize, to: usize, len: usize) {
        let fault = self.fault;
        for pages in self.pages.iter_mut().filter(|pages| pages.start < from + len && from < pages.end) {
            pages.changed = true;
            let mut at = from;
            while let Some(page) = pages.next_away(at).filter(|page| *page < from + len) {
                let _ = bring(fault, pages, page, to + (page - from), PAGE, true);
                at = page + PAGE;
            }
        }
    }

    /// A forked child gets copies of the pages that are away, and is then on its own.
    fn copy_to(&mut self, child: Userfault) {
        for pages in self.pages.iter() {
            let mut at = pages.start;
            while let Some(page) = pages.next_away(at) {
                while let (_, Some(libc::EAGAIN | libc::ENOMEM)) = child.copy(page, pages.side(page)) {
                    sys::yield_now();
                }
                at = page + PAGE;
            }
        }
        child.close();
    }

    /// Moves back all pages that are away, while threads that touch them are served.
    pub fn bring_all(&mut self) {
        for index in 0..self.pages.len() {
            while let Some((page, end)) = self.pages.get(index).and_then(|pages| {
                let page = pages.next_away(pages.start)?;
                Some((page, pages.end_of_away(page)))
            }) {
                let (fault, Some(pages)) = (self.fault, self.pages.get_mut(index)) else { return };
                let failed = bring(fault, pages, page, page, end - page, true).err();
                while self.answer() {}
                if failed == Some(libc::EAGAIN) {
                    sys::yield_now();
                }
            }
        }
    }
}

/// Moves the pages of `page..page + len` to `to`, and remembers that they are not away. Where a page cannot be moved it is
/// copied. After an error pages from the first one that stayed on are still away: only if an event waits to be read or
/// memory is short, as one that has no place any more is given up.
fn bring(fault: Userfault, pages: &mut Pages, page: usize, to: usize, len: usize, wake: bool) -> Result<(), c_int> {
    let mut done = 0;
    while done < len {
        let (moved, error) = fault.move_pages(to + done, pages.side(page + done), len - done, wake);
        pages.set_away(page + done, page + done + moved, false);
        done += moved;
        match error {
            None => return Ok(()),
            Some(_) if moved > 0 => {}
            Some(libc::EAGAIN) => return Err(libc::EAGAIN),
            // Protection and locking of the mapping may have changed, and a huge page may not fit into it.
            Some(_) => match fault.copy(to + done, pages.side(page + done)).1 {
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
