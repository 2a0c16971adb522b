//! The pages of one range that a window has moved away.

use core::ffi::c_void;

use numamma_hook::sys::{self, PAGE};

use super::apart;

/// Bytes of a transparent huge page.
pub const HUGE: usize = 2 << 20;
const WORD: usize = u64::BITS as usize;

/// A part of a mapping, with room for its pages elsewhere. All zero bytes are one without pages.
#[derive(Clone, Copy)]
pub struct Pages {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
    /// Where the byte at `start` goes; at the same place in a huge page.
    side: usize,
    mapping: (usize, usize),
    bits: (usize, usize),
    /// Bytes of `bits` before the marks of huge pages.
    words: usize,
    /// Bit of the page at `start`.
    first: usize,
    /// The mappings are of another range, of which this was a part; all pages are small.
    pub is_part: bool,
    /// Something happened to the mapping: nothing more is moved away.
    pub changed: bool,
}

impl Pages {
    /// The range without room for its pages.
    pub fn new(start: usize, end: usize) -> Pages {
        Pages { start, end, side: 0, mapping: (0, 0), bits: (0, 0), words: 0, first: 0, is_part: false, changed: false }
    }

    /// Maps room for the pages; false when the kernel refuses.
    pub fn make_room(&mut self) -> bool {
        let len = self.end - self.start;
        self.words = (len / PAGE).div_ceil(WORD) * size_of::<u64>();
        let bits = self.words + len / HUGE + 2;
        let Some(words) = apart::map(bits) else { return false };
        self.bits = (words as usize, bits);
        let Some(side) = apart::map(len + HUGE) else { return false };
        self.mapping = (side as usize, len + HUGE);
        self.side = side as usize + (self.start.wrapping_sub(side as usize)) % HUGE;
        // SAFETY: the mappings are new; a child has no use for them.
        unsafe { sys::advise(words, bits, libc::MADV_DONTFORK) && sys::advise(side, len + HUGE, libc::MADV_DONTFORK) }
    }

    /// Address and length of the room.
    pub fn room(&self) -> (usize, usize) {
        (self.side, self.end - self.start)
    }

    /// Unmaps the room.
    ///
    /// # Safety
    /// No page of the program is in it, and its parts are not used any more.
    pub unsafe fn release(&mut self) {
        if self.is_part {
            return;
        }
        for (base, len) in [self.mapping, self.bits].into_iter().filter(|(base, _)| *base != 0) {
            // SAFETY: made by `make_room`, and by the contract nothing in it is needed.
            unsafe { sys::unmap(base as *mut c_void, len) };
        }
        (self.mapping, self.bits) = ((0, 0), (0, 0));
    }

    /// Whether nothing uses this entry of the list.
    pub fn is_free(&self) -> bool {
        self.end == 0 || (self.is_part && self.next_away(self.start).is_none())
    }

    /// Whether the range holds an address.
    pub fn holds(&self, addr: usize) -> bool {
        (self.start..self.end).contains(&addr)
    }

    /// Where the page at `addr`, which the range holds, goes.
    pub fn side(&self, addr: usize) -> usize {
        self.side + (addr - self.start)
    }

    /// Bytes that the marks of a [`Pages::twin`] take.
    pub fn twin_bytes(&self) -> usize {
        ((self.end - self.start) / PAGE).div_ceil(WORD) * size_of::<u64>()
    }

    /// The same pages with marks of its own, of which those that are away are set. It is a part, and all its pages are
    /// small.
    ///
    /// # Safety
    /// At `marks`, a multiple of eight, are [`Pages::twin_bytes`] zero bytes that live as long as the result is used, and
    /// that nothing else uses.
    pub unsafe fn twin(&self, marks: usize) -> Pages {
        let bits = (marks, self.twin_bytes());
        let mut twin = Pages { mapping: (0, 0), bits, words: bits.1, first: 0, is_part: true, ..*self };
        let mut at = self.start;
        while let Some(page) = self.next_away(at) {
            at = self.end_of_away(page);
            twin.set_away(page, at, true);
        }
        twin
    }

    /// Cuts off what lies from `from` on, of which `len` bytes are at `to` now: returns that, and what lies behind it.
    pub fn split(&mut self, from: usize, len: usize, to: usize) -> [Pages; 2] {
        let part = |low: usize, high: usize| Pages {
            start: low,
            end: high,
            side: self.side(low),
            first: self.bit(low),
            is_part: true,
            changed: true,
            ..*self
        };
        let behind = (from + len).min(self.end);
        let (moved, rest) = (part(from, behind), part(behind, self.end));
        self.end = from;
        [Pages { start: to, end: to + (behind - from), ..moved }, rest]
    }

    /// The bit of the page at `addr`, or the nearest in the range.
    fn bit(&self, addr: usize) -> usize {
        self.first + (addr.clamp(self.start, self.end) - self.start) / PAGE
    }

    /// The word of a bit before that of `end`.
    fn word(&self, bit: usize) -> Option<*mut u64> {
        (self.bits.0 != 0 && bit < self.bit(self.end)).then(|| (self.bits.0 as *mut u64).wrapping_add(bit / WORD))
    }

    /// Whether the page at `addr` was moved away.
    pub fn is_away(&self, addr: usize) -> bool {
        let bit = self.bit(addr);
        // SAFETY: a word of the mapping of `make_room`, which only this thread uses.
        self.holds(addr) && self.word(bit).is_some_and(|word| unsafe { word.read() } >> (bit % WORD) & 1 == 1)
    }

    /// Remembers of the part of `start..end` within the range whether its pages are away.
    pub fn set_away(&mut self, start: usize, end: usize, away: bool) {
        for bit in self.bit(start)..self.bit(end) {
            let Some(word) = self.word(bit) else { return };
            let mask = 1_u64 << (bit % WORD);
            // SAFETY: as in `is_away`.
            unsafe { word.write(if away { word.read() | mask } else { word.read() & !mask }) };
        }
    }

    /// First page from `addr` on that is away.
    pub fn next_away(&self, addr: usize) -> Option<usize> {
        let mut bit = self.bit(addr);
        while let Some(word) = self.word(bit) {
            // SAFETY: as in `is_away`.
            let rest = unsafe { word.read() } >> (bit % WORD);
            if rest != 0 {
                let found = self.start + (bit - self.first + rest.trailing_zeros() as usize) * PAGE;
                return (found < self.end).then_some(found);
            }
            bit = (bit / WORD + 1) * WORD;
        }
        None
    }

    /// End of the pages that are away from `addr` on without a gap.
    pub fn end_of_away(&self, addr: usize) -> usize {
        let mut at = addr;
        while at < self.end && self.is_away(at) {
            at += PAGE;
        }
        at
    }

    fn huge_mark(&self, addr: usize) -> Option<*mut u8> {
        let block = addr / HUGE - self.start / HUGE;
        (self.bits.0 != 0 && !self.is_part).then(|| (self.bits.0 as *mut u8).wrapping_add(self.words + block))
    }

    /// Marks the whole huge pages in `start..end`, a part of the range.
    pub fn set_huge(&mut self, start: usize, end: usize) {
        for block in (start.next_multiple_of(HUGE)..end).step_by(HUGE).filter(|block| block + HUGE <= end) {
            if let Some(mark) = self.huge_mark(block) {
                // SAFETY: one of the bytes behind the words, of which there is one for each block of the range.
                unsafe { mark.write(1) };
            }
        }
    }

    /// The pages that come back together with that at `addr`, which is away: of a huge page that is not away as a
    /// whole, because a part was discarded, one.
    pub fn unit_away(&self, addr: usize) -> (usize, usize) {
        let (start, len) = self.unit(addr);
        if self.end_of_away(start) >= start + len { (start, len) } else { (addr / PAGE * PAGE, PAGE) }
    }

    /// The pages that go together with that at `addr`, which the range holds: one, or a huge one.
    pub fn unit(&self, addr: usize) -> (usize, usize) {
        let block = addr / HUGE * HUGE;
        // SAFETY: as in `set_huge`.
        let huge = self.huge_mark(addr).is_some_and(|mark| unsafe { mark.read() } == 1);
        if huge { (block, HUGE) } else { (addr / PAGE * PAGE, PAGE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_that_are_away() {
        let start = (3 * HUGE) + 5 * PAGE;
        let mut pages = Pages::new(start, start + 2 * HUGE);
        assert!(pages.make_room());
        assert_eq!(pages.side(start) % HUGE, 5 * PAGE);
        assert_eq!(pages.next_away(start), None);
        pages.set_away(start + 70 * PAGE, start + 72 * PAGE, true);
        assert_eq!(pages.next_away(0), Some(start + 70 * PAGE));
        assert_eq!(pages.end_of_away(start + 70 * PAGE), start + 72 * PAGE);
        assert!(pages.is_away(start + 71 * PAGE) && !pages.is_away(start + 72 * PAGE) && !pages.is_away(start - 1));
        pages.set_away(0, usize::MAX, false);
        assert_eq!(pages.next_away(start), None);
        pages.set_huge(start, pages.end);
        assert_eq!(pages.unit(4 * HUGE + PAGE), (4 * HUGE, HUGE));
        assert_eq!(pages.unit(start + PAGE + 1), (start + PAGE, PAGE));
        pages.set_away(4 * HUGE, 5 * HUGE, true);
        assert_eq!(pages.unit_away(4 * HUGE + PAGE), (4 * HUGE, HUGE));
        pages.set_away(4 * HUGE + 7 * PAGE, 4 * HUGE + 8 * PAGE, false);
        assert_eq!(pages.unit_away(4 * HUGE + PAGE), (4 * HUGE + PAGE, PAGE));
        assert_eq!(pages.unit(5 * HUGE + PAGE), (5 * HUGE + PAGE, PAGE));
        // SAFETY: no page is in it.
        unsafe { pages.release() };
    }

    #[test]
    fn a_twin_has_marks_of_its_own() {
        let start = 40 * HUGE;
        let mut pages = Pages::new(start, start + 200 * PAGE);
        assert!(pages.make_room());
        pages.set_away(start + 3 * PAGE, start + 190 * PAGE, true);
        pages.set_away(start + 70 * PAGE, start + 71 * PAGE, false);
        let [part, _] = pages.split(start + 60 * PAGE, 140 * PAGE, 90 * HUGE);
        let mut marks = [0_u64; 3];
        assert_eq!(part.twin_bytes(), size_of_val(&marks));
        // SAFETY: the array lives longer than the twin.
        let mut twin = unsafe { part.twin(marks.as_mut_ptr() as usize) };
        let runs = |pages: &Pages| {
            let first = pages.next_away(0).expect("away");
            let end = pages.end_of_away(first);
            let second = pages.next_away(end).expect("away");
            [first, end, second, pages.end_of_away(second)].map(|at| (at - 90 * HUGE) / PAGE)
        };
        assert_eq!((runs(&part), runs(&twin)), ([0, 10, 11, 130], [0, 10, 11, 130]));
        assert_eq!(twin.side(90 * HUGE + PAGE), part.side(90 * HUGE + PAGE));
        twin.set_away(0, usize::MAX, false);
        assert!(twin.next_away(0).is_none() && part.next_away(0).is_some());
        // SAFETY: no page is in it.
        unsafe { pages.release() };
    }

    #[test]
    fn a_part_that_moves_keeps_its_pages() {
        let (start, to) = (40 * HUGE, 90 * HUGE);
        let mut pages = Pages::new(start, start + 100 * PAGE);
        assert!(pages.make_room());
        let side = pages.side(start);
        pages.set_away(start + 10 * PAGE, start + 90 * PAGE, true);
        let [mut moved, mut rest] = pages.split(start + 20 * PAGE, 50 * PAGE, to);
        assert_eq!(
            (pages.next_away(start), pages.end_of_away(start + 10 * PAGE)),
            (Some(start + 10 * PAGE), start + 20 * PAGE)
        );
        assert_eq!((moved.next_away(0), moved.end_of_away(to)), (Some(to), to + 50 * PAGE));
        assert_eq!(moved.side(to + PAGE), side + 21 * PAGE);
        let behind = start + 70 * PAGE;
        assert_eq!((rest.next_away(0), rest.end_of_away(behind)), (Some(behind), start + 90 * PAGE));
        moved.set_away(to + PAGE, to + 2 * PAGE, false);
        assert!(!moved.is_away(to + PAGE) && moved.is_away(to) && moved.is_away(to + 2 * PAGE));
        assert_eq!(moved.unit(to + PAGE + 8), (to + PAGE, PAGE));
        rest.set_away(0, usize::MAX, false);
        assert!(rest.next_away(0).is_none() && pages.is_away(start + 19 * PAGE) && moved.is_away(to + 49 * PAGE));
        // SAFETY: no page is in it.
        unsafe { pages.release() };
    }
}
