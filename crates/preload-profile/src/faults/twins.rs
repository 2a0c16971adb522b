//! What a forked child still misses of the pages that a window has moved away.

use core::ffi::c_void;

use numamma_hook::sys;

use super::apart;
use super::pages::Pages;

/// Free entries for parts that the child moves.
const SPARE: usize = 256;

/// A list of pages that a child has to get copies of, with marks of its own: what it has, discards and moves differs
/// from its parent.
pub struct Twins {
    list: *mut Pages,
    entries: usize,
    /// Bytes of the mapping with the list and the marks.
    len: usize,
}

impl Twins {
    /// Of the pages in `pages` that are away; `None` when there is no memory for it.
    pub fn of(pages: &[Pages]) -> Option<Twins> {
        let away = || pages.iter().filter(|pages| pages.next_away(pages.start).is_some());
        let entries = away().count() + SPARE;
        let list_bytes = entries * size_of::<Pages>();
        let len = list_bytes + away().map(Pages::twin_bytes).sum::<usize>();
        let base = apart::map(len)?;
        // SAFETY: the mapping is new, and a child has no use for it.
        unsafe { sys::advise(base, len, libc::MADV_DONTFORK) };
        let mut twins = Twins { list: base.cast(), entries, len };
        let mut marks = base as usize + list_bytes;
        for (twin, pages) in twins.pages().iter_mut().zip(away()) {
            // SAFETY: bytes of the mapping for the marks of this entry and of no other, zeros, at a multiple of eight.
            *twin = unsafe { pages.twin(marks) };
            marks += pages.twin_bytes();
        }
        Some(twins)
    }

    /// The list, with free entries behind.
    pub fn pages(&mut self) -> &mut [Pages] {
        // SAFETY: `of` has mapped that many entries, and all zero bytes are one without pages.
        unsafe { core::slice::from_raw_parts_mut(self.list, self.entries) }
    }
}

impl Drop for Twins {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`; the borrows of `pages` have ended.
        unsafe { sys::unmap(self.list.cast::<c_void>(), self.len) };
    }
}
