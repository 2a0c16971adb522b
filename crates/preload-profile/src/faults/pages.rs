//! The pages of one range that a window has moved away.

use core::ffi::c_void;

use numamma_hook::sys::{self, PAGE};

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
    /// Something happened to the mapping: nothing more is moved away.
    pub changed: bool,
}

impl Pages {
    /// The range without room for its pages.
    pub fn new(start: usize, end: usize) -> Pages {
        Pages { start, end, side: 0, mapping: (0, 0), bits: (0, 0), changed: false }
    }

    /// Maps room for the pages; false when the kernel refuses.
    pub fn make_room(&mut self) -> bool {
        let len = self.end - self.start;
        let bits = (len / PAGE).div_ceil(WORD) * size_of::<u64>() + len / HUGE + 2;
        let Some(words) = sys::map_anonymous(bits) else { return false };
        self.bits = (words as usize, bits);
        let Some(side) = sys::map_anonymous(len + HUGE) else { return false };
        self.mapping = (side as usize, len + HUGE);
        self.side = side as usize + (self.start.wrapping_sub(side as usize)) % HUGE;
        // SAFETY: the mapping is new; a child has no use for it.
        unsafe { sys::advise(side, len + HUGE, libc::MADV_DONTFORK) }
    }

    /// Address and length of the room.
    pub fn room(&self) -> (usize, usize) {
        (self.side, self.end - self.start)
    }

    /// Unmaps the room.
    ///
    /// # Safety
    /// No page of the program is in it.
    pub unsafe fn release(&mut self) {
        for (base, len) in [self.mapping, self.bits].into_iter().filter(|(base, _)| *base != 0) {
            // SAFETY: made by `make_room`, and by the contract nothing in it is needed.
            unsafe { sys::unmap(base as *mut c_void, len) };
        }
        (self.mapping, self.bits) = ((0, 0), (0, 0));
    }

    /// Whether the range holds an address.
    pub fn holds(&self, addr: usize) -> bool {
        (self.start..self.end).contains(&addr)
    }

    /// Where the page at `addr`, which the range holds, goes.
    pub fn side(&self, addr: usize) -> usize {
        self.side + (addr - self.start)
    }

    fn word(&self, page: usize) -> Option<*mut u64> {
        (self.bits.0 != 0 && page < (self.end - self.start) / PAGE)
            .then(|| (self.bits.0 as *mut u64).wrapping_add(page / WORD))
    }

    /// Whether the page at `addr` was moved away.
    pub fn is_away(&self, addr: usize) -> bool {
        let page = (addr.wrapping_sub(self.start)) / PAGE;
        // SAFETY: a word of the mapping of `make_room`, which only this thread uses.
        self.word(page).is_some_and(|word| unsafe { word.read() } >> (page % WORD) & 1 == 1)
    }

    /// Remembers of the part of `start..end` within the range whether its pages are away.
    pub fn set_away(&mut self, start: usize, end: usize, away: bool) {
        let pages = |addr: usize| (addr.clamp(self.start, self.end) - self.start) / PAGE;
        for page in pages(start)..pages(end) {
            let Some(word) = self.word(page) else { return };
            let bit = 1_u64 << (page % WORD);
            // SAFETY: as in `is_away`.
            unsafe { word.write(if away { word.read() | bit } else { word.read() & !bit }) };
        }
    }

    /// First page from `addr` on that is away.
    pub fn next_away(&self, addr: usize) -> Option<usize> {
        let mut page = addr.clamp(self.start, self.end) - self.start;
        page /= PAGE;
        while let Some(word) = self.word(page) {
            // SAFETY: as in `is_away`.
            let rest = unsafe { word.read() } >> (page % WORD);
            if rest != 0 {
                let found = self.start + (page + rest.trailing_zeros() as usize) * PAGE;
                return (found < self.end).then_some(found);
            }
            page = (page / WORD + 1) * WORD;
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
        let words = ((self.end - self.start) / PAGE).div_ceil(WORD) * size_of::<u64>();
        let block = addr / HUGE - self.start / HUGE;
        (self.bits.0 != 0).then(|| (self.bits.0 as *mut u8).wrapping_add(words + block))
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
        assert_eq!(pages.unit(5 * HUGE + PAGE), (5 * HUGE + PAGE, PAGE));
        // SAFETY: no page is in it.
        unsafe { pages.release() };
    }
}
