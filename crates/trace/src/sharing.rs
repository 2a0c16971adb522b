//! Which pages several threads share, so that their cache lines are counted (`numamma_channel::trace::lines`).
//!
//! Each page that was accessed has a word in a table of this process. It belongs to the thread that accessed it first.
//! When another thread uses it and one of both writes, the page is *watched*: no instruction keeps its counter, so that
//! every access comes here, until it was used by one thread alone for some time. A page that one thread hands to
//! another, as after a serial initialisation, stays with that one. A page that threads take from each other [`TAKES`]
//! times is *counted* for the rest of the run.
//!
//! While no page is watched, an access costs nothing more, but for one comparison where an instruction goes to another
//! page: `filter` has a byte for each page, modulo its size, that says how many of these pages are watched.
//!
//! The table lies in memory that is zeroed in a forked child. It has a fixed size; pages for which there is no room are
//! not watched.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use numamma_channel::trace::layout::PAGE_SHIFT;
use numamma_channel::trace::lines::{self, LINE};
use numamma_kernel::clock::coarse_ns;

use crate::process::{self, Traced};

/// Bytes of the filter.
pub const FILTER: usize = 1 << 14;
/// Pages that have a word: 4 GiB.
const PAGES: usize = 1 << 20;
/// Words compared for one page before it has none.
const PROBES: usize = 16;
/// Times that a page must be taken by another thread: an initialisation, its use by another thread and a look at the
/// result are fewer.
const TAKES: u64 = 4;
/// Accesses by one thread in a row after which a watched page is left to it, if [`MANY`] are watched.
const ALONE: u64 = 64;
/// The same of a page that is only read, however few are watched; its next write is noticed where its instruction was
/// not at this page before. From then on a page that is written is watched for one to two times [`PERIOD_NS`].
const READ_ONLY: u64 = 1000;
/// Periods that a watched page tells apart. With [`READ_ONLY`] less than 2^10, which is the room for both.
const PERIODS: u64 = 4;
/// Length of a period: threads that share a page and a CPU take it from each other several times in it, as a thread
/// runs for 3 to 24 ms before others do (sched(7), EEVDF and CFS), on a busy machine among some others.
const PERIOD_NS: u64 = 200_000_000;
/// Accesses between two looks at the clock.
const LOOK: u32 = 256;
/// Watched pages up to which each is left to a thread after some time only: they take the time of a trace.
const MANY: u32 = 64;
/// Bytes for which a range counts one access.
const RANGE_WORD: u64 = 8;

/// Lives in zeroed memory.
pub struct Sharing {
    filter: [AtomicU8; FILTER],
    /// Number of the next thread.
    threads: AtomicU32,
    /// Pages that are watched.
    watched: AtomicU32,
    /// Number of the period, when it began, and accesses that asked for it.
    period: AtomicU32,
    began_ns: AtomicU64,
    asked: AtomicU32,
    pages: [AtomicU64; PAGES],
}

static SHARING: AtomicPtr<Sharing> = AtomicPtr::new(null_mut());

/// What is known of a page, as a word: page 35 bits, thread 12, written 1, state 2, takes or block 14.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Known {
    page: u64,
    /// Owner; of a watched page the thread that used it last. Number modulo 4096.
    thread: u32,
    /// Whether it was written; of a watched page, since it was taken.
    written: bool,
    state: State,
    /// Of a watched page [`Known::takes`] and accesses since then, of a counted one the index of its lines, of an owned
    /// one whether others read it.
    detail: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Owned = 0,
    Watched = 1,
    Counted = 2,
}

const DETAIL_BITS: u32 = 14;
const TAKES_SHIFT: u32 = 10;

impl Known {
    fn word(self) -> u64 {
        let Known { page, thread, written, state, detail } = self;
        let small = (u64::from(thread % 4096) << 1 | u64::from(written)) << 2 | state as u64;
        page << 29 | small << DETAIL_BITS | detail & ((1 << DETAIL_BITS) - 1)
    }

    fn of(word: u64) -> Known {
        let state = match word >> DETAIL_BITS & 3 {
            0 => State::Owned,
            1 => State::Watched,
            _ => State::Counted,
        };
        Known {
            page: word >> 29,
            thread: (word >> 17) as u32 % 4096,
            written: word >> 16 & 1 == 1,
            state,
            detail: word & ((1 << DETAIL_BITS) - 1),
        }
    }

    /// Times that the page was taken, and accesses since the last.
    fn takes(self) -> (u64, u64) {
        (self.detail >> TAKES_SHIFT, self.detail & ((1 << TAKES_SHIFT) - 1))
    }

    /// After an access by a thread to a page that is not counted; [`State::Counted`] when it is to be counted.
    /// `period`: the number of the present one.
    fn after(self, thread: u32, write: bool, many: bool, period: u64) -> Known {
        let thread = thread % 4096;
        let other = thread != self.thread;
        match self.state {
            State::Owned => {
                let by_several = other || self.detail > 0;
                if by_several && (self.written || write) {
                    return Known { thread, written: write, state: State::Watched, detail: 1 << TAKES_SHIFT, ..self };
                }
                Known { written: self.written || write, detail: self.detail | u64::from(other), ..self }
            }
            State::Watched => {
                let (takes, accesses) = self.takes();
                if other && (write || self.written) {
                    let state = if takes + 1 >= TAKES { State::Counted } else { State::Watched };
                    return Known { thread, written: write, state, detail: (takes + 1) << TAKES_SHIFT, ..self };
                }
                // Reads only, by whomever: nobody takes the page from anybody.
                let read_only = !(write || self.written);
                let is_old = || (period.wrapping_sub(accesses - READ_ONLY)) % PERIODS > 1;
                let is_over = accesses >= if many { ALONE } else { READ_ONLY };
                if is_over && (many || read_only || is_old()) {
                    return Known { state: State::Owned, detail: read_only.into(), ..self };
                }
                let accesses = match accesses + 1 {
                    READ_ONLY => READ_ONLY + period % PERIODS,
                    more => more.min(accesses.max(READ_ONLY)),
                };
                Known { written: self.written || write, detail: takes << TAKES_SHIFT | accesses, ..self }
            }
            State::Counted => self,
        }
    }
}

/// An access, as a hook says it.
#[derive(Clone, Copy)]
pub struct Access {
    /// Address.
    pub address: u64,
    /// Whether it stores.
    pub write: bool,
    /// Accesses of a range.
    pub count: u64,
    /// Its instruction.
    pub site: u32,
    /// Number of the thread.
    pub thread: u32,
}

/// What this process knows of its pages; maps the memory for it at first.
pub fn sharing() -> Option<&'static Sharing> {
    let mut at = SHARING.load(Relaxed);
    if at.is_null() {
        at = process::map(size_of::<Sharing>())?.cast();
        if let Err(other) = SHARING.compare_exchange(null_mut(), at, SeqCst, SeqCst) {
            // SAFETY: the mapping was made above, and nobody else knows it.
            unsafe { numamma_kernel::sys::unmap(at.cast(), size_of::<Sharing>()) };
            at = other;
        }
    }
    // SAFETY: zeroed memory that is never unmapped; all of it is atomic.
    unsafe { at.as_ref() }
}

impl Sharing {
    /// First byte of the filter.
    pub fn filter(&self) -> *const u8 {
        self.filter.as_ptr().cast()
    }

    /// Whether the page of an address may be watched or counted.
    pub fn may_watch(&self, address: u64) -> bool {
        self.filter[(address >> PAGE_SHIFT) as usize % FILTER].load(Relaxed) != 0
    }

    /// Number of a new thread.
    pub fn new_thread(&self) -> u32 {
        self.threads.fetch_add(1, Relaxed)
    }

    /// Notes an access, and counts it if its page is counted. Whether its instruction may keep the counter of the page;
    /// when that has changed for others, `forget` is called with the page.
    pub fn access(&self, traced: Traced, access: Access, forget: impl Fn(u64)) -> bool {
        let page = access.address >> PAGE_SHIFT;
        let Some(word) = self.word(page, access) else { return true };
        let before = word.load(Relaxed);
        let known = Known::of(before);
        if known.state == State::Counted {
            count(traced, known, access);
            return false;
        }
        let many = self.watched.load(Relaxed) > MANY;
        let mut after = known.after(access.thread, access.write, many, self.period(known));
        if after.state == State::Counted {
            let Some(block) = lines::take(traced.map, traced.pid, page) else { return false };
            after.detail = block as u64;
        }
        if after == known {
            return after.state == State::Owned;
        }
        if after.state == State::Watched && known.state == State::Owned && !self.watch(page) {
            return true;
        }
        let changed = word.compare_exchange(before, after.word(), SeqCst, Relaxed).is_ok();
        match (known.state, after.state) {
            (State::Owned, State::Watched) if changed => forget(page),
            (State::Owned, State::Watched) => self.leave(page),
            (State::Watched, State::Owned) if changed => self.leave(page),
            (State::Watched, State::Counted) if changed => {
                self.watched.fetch_sub(1, Relaxed);
                // An instruction may have got its counter while the page began to be watched.
                forget(page);
                count(traced, after, access);
            }
            _ => {}
        }
        changed && after.state == State::Owned
    }

    /// The number of the present period, where it decides on a page.
    fn period(&self, known: Known) -> u64 {
        let is_asked = known.state == State::Watched && known.takes().1 >= READ_ONLY;
        if is_asked && self.asked.fetch_add(1, Relaxed).is_multiple_of(LOOK) {
            let (now, began) = (coarse_ns(), self.began_ns.load(Relaxed));
            if now - began.min(now) >= PERIOD_NS && self.began_ns.compare_exchange(began, now, Relaxed, Relaxed).is_ok()
            {
                self.period.fetch_add(1, Relaxed);
            }
        }
        self.period.load(Relaxed).into()
    }

    /// The word of a page; a new one belongs to the thread of the access.
    fn word(&self, page: u64, access: Access) -> Option<&AtomicU64> {
        let first = (page.wrapping_mul(numamma_channel::trace::writer::GOLDEN) >> 44) as usize;
        for at in first..first + PROBES {
            let word = &self.pages[at % PAGES];
            let mut found = word.load(Relaxed);
            if found == 0 {
                let Access { thread, write: written, .. } = access;
                let new = Known { page, thread, written, state: State::Owned, detail: 0 };
                found =
                    word.compare_exchange(0, new.word(), SeqCst, Relaxed).map_or_else(|other| other, |_| new.word());
            }
            if found >> 29 == page {
                return Some(word);
            }
        }
        None
    }

    /// Whether the page has a place in the filter.
    fn watch(&self, page: u64) -> bool {
        let place = &self.filter[page as usize % FILTER];
        let more = place.fetch_update(SeqCst, Relaxed, |n| n.checked_add(1)).is_ok();
        self.watched.fetch_add(u32::from(more), Relaxed);
        more
    }

    fn leave(&self, page: u64) {
        self.filter[page as usize % FILTER].fetch_sub(1, Relaxed);
        self.watched.fetch_sub(1, Relaxed);
    }
}

/// A range uses each line once.
fn count(traced: Traced, known: Known, access: Access) {
    let lines = traced.map.lines(known.detail as usize);
    if !lines.is_of(traced.pid, known.page) {
        return; // another thread writes its head
    }
    let Access { address, write, count, site, thread } = access;
    let (mut at, end) = (address, address + count * RANGE_WORD);
    if count == 1 {
        return lines.access(address, thread, site, write, 1);
    }
    while at < end && at >> PAGE_SHIFT == known.page {
        let next = (at / LINE as u64 + 1) * LINE as u64;
        lines.access(at, thread, site, write, (next.min(end) - at).div_ceil(RANGE_WORD));
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: Known = Known { page: 5, thread: 1, written: true, state: State::Watched, detail: 1 << TAKES_SHIFT };

    fn alone(known: Known, accesses: u64, period: u64) -> Known {
        (0..accesses).fold(known, |known, _| known.after(1, true, false, period))
    }

    #[test]
    fn a_written_page_is_watched_for_a_time_and_then_left_to_its_thread() {
        for first in 0..2 * PERIODS {
            let watched = alone(WRITTEN, 5 * READ_ONLY, first);
            assert_eq!((watched.state, Known::of(watched.word()) == watched), (State::Watched, true));
            assert_eq!(watched.takes().0, 1);
            assert!(alone(watched, 5, first + 1).state == State::Watched);
            assert!(alone(watched, 1, first + 2).state == State::Owned);
            assert!(alone(WRITTEN, READ_ONLY - 1, first + 2).state == State::Watched, "used too little");
        }
    }

    #[test]
    fn a_page_that_is_taken_is_counted_however_long_it_was_used_between() {
        let taken = (1..TAKES).fold(WRITTEN, |known, time| {
            let (thread, other) = (1 + time as u32 % 2, 2 - time as u32 % 2);
            let used = (0..2 * READ_ONLY).fold(Known { thread: other, ..known }, |k, _| k.after(other, true, false, 7));
            used.after(thread, true, false, 8)
        });
        assert!(taken.state == State::Counted);
    }
}
