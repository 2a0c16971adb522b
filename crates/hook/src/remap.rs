//! mremap(2) of a range that is several memory areas, where the program knows of one mapping.
//!
//! The kernel resizes and moves one area at a time and refuses a range of several with EFAULT. After that the areas are
//! moved one by one, if memory policies are all that distinguishes them.

use core::ffi::{c_int, c_void};

use numamma_kernel::sys::PAGE;
use numamma_kernel::{errno, mappings as areas, smaps, sys};

use crate::alloc::elsewhere;
use crate::real;

type Ptr = *mut c_void;

/// The flags with which the old range stays, or which name the new one.
const ELSEWHERE: c_int = libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;

/// The arguments of mremap(2), with lengths in whole pages.
#[derive(Clone, Copy)]
pub struct Call {
    /// First byte of the range.
    pub from: usize,
    /// Bytes of it.
    pub old: usize,
    /// Bytes that it is to have.
    pub new: usize,
    /// MREMAP_MAYMOVE and others.
    pub flags: c_int,
    /// Where it goes with MREMAP_FIXED.
    pub to: usize,
}

impl Call {
    /// The arguments as the program gives them.
    pub fn new(from: usize, old: usize, new: usize, flags: c_int, to: usize) -> Call {
        let whole = |len: usize| len.checked_next_multiple_of(PAGE).unwrap_or(0);
        Call { from, old: whole(old), new: whole(new), flags, to }
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: c_int) -> bool {
        self.flags & flag != 0
    }

    /// Whether the kernel accepts the arguments, as far as they alone decide (mremap of mm/mremap.c). A refused call
    /// changes nothing.
    pub fn is_valid(&self) -> bool {
        let known = libc::MREMAP_MAYMOVE | ELSEWHERE;
        let moves = self.has(libc::MREMAP_MAYMOVE) || !self.has(ELSEWHERE);
        let apart = self.to >= self.from.saturating_add(self.old) || self.from >= self.to.saturating_add(self.new);
        let target = !self.has(libc::MREMAP_FIXED) || (self.to.is_multiple_of(PAGE) && apart);
        let same = !self.has(libc::MREMAP_DONTUNMAP) || self.old == self.new;
        let range = self.from.is_multiple_of(PAGE) && self.new > 0 && self.from.checked_add(self.old).is_some();
        self.flags & !known == 0 && moves && target && same && range
    }
}

/// Does what the kernel would do with the range if its areas were one. It does not become smaller.
///
/// # Errors
/// EFAULT where more than memory policies distinguishes the areas, which the program would see without this library; what
/// mremap(2) of an area or the reservation of a place fails with.
///
/// # Safety
/// C's contract of mremap.
pub unsafe fn by_areas(call: &Call) -> Result<usize, c_int> {
    let alike = elsewhere::fallibly(|| smaps::alike(call.from, call.from + call.old));
    let Some(found) = alike else { return Err(libc::EFAULT) };
    let Some((&last, others)) = found.split_last() else { return Err(libc::EFAULT) };
    let more = call.new - call.old;
    if !call.has(ELSEWHERE) {
        // SAFETY: grows the last area of the range in place.
        let grown = unsafe { remap(last.0, last.1 - last.0, last.1 - last.0 + more, 0, 0) };
        if grown.is_ok() || !call.has(libc::MREMAP_MAYMOVE) {
            return grown.map(|_| call.from);
        }
    }
    let target = match call.has(libc::MREMAP_FIXED) {
        true => call.to,
        // Reserves the range; the areas replace it one by one.
        false => areas::reserve(call.new).ok_or_else(errno::get)?,
    };
    let keep = call.flags & libc::MREMAP_DONTUNMAP;
    let at = |area: (usize, usize)| target + (area.0 - call.from);
    // The last one first, since only it needs memory.
    // SAFETY: the range is the program's to move, and the target is reserved or named by the program.
    if let Err(error) = unsafe { move_area(last, at(last), more, keep) } {
        if !call.has(libc::MREMAP_FIXED) {
            // SAFETY: the reservation was made above and holds nothing.
            unsafe { sys::unmap(target as Ptr, call.new) };
        }
        return Err(error);
    }
    for (done, &area) in others.iter().enumerate() {
        // SAFETY: as above.
        if let Err(error) = unsafe { move_area(area, at(area), 0, keep) } {
            // SAFETY: puts back what was moved; the old addresses were the program's a moment ago.
            unsafe { put_back(call, others.get(..done).unwrap_or_default(), last, target) };
            return Err(error);
        }
    }
    Ok(target)
}

/// Moves one area, and lets it grow by `more` bytes.
unsafe fn move_area(area: (usize, usize), to: usize, more: usize, keep: c_int) -> Result<(), c_int> {
    let len = area.1 - area.0;
    // SAFETY: the caller owns both ranges.
    unsafe { remap(area.0, len, len + more, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | keep, to) }.map(|_| ())
}

/// Undoes the moves of `others` and of the last area, and unmaps the rest of the target.
unsafe fn put_back(call: &Call, others: &[(usize, usize)], last: (usize, usize), target: usize) {
    let to = |area: (usize, usize)| target + (area.0 - call.from);
    for &area in others.iter().chain([&last]) {
        let moved = (to(area), to(area) + (area.1 - area.0));
        // SAFETY: the area was moved from there; nothing else is known to be mapped there since.
        let _ = unsafe { move_area(moved, area.0, 0, 0) };
    }
    // SAFETY: the rest of the target holds the reservation and the part that the last area grew by.
    unsafe { sys::unmap(target as Ptr, call.new) };
}

unsafe fn remap(from: usize, old: usize, new: usize, flags: c_int, to: usize) -> Result<usize, c_int> {
    // SAFETY: the caller's promise.
    let found = unsafe { real::mremap(from as Ptr, old, new, flags, to as Ptr) };
    if found == libc::MAP_FAILED { Err(errno::get()) } else { Ok(found as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_the_kernel_refuses_change_nothing() {
        let (fixed, stays) = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP);
        let call = Call { from: 16 * PAGE, old: 4 * PAGE, new: 8 * PAGE, flags: 0, to: 0 };
        assert!(call.is_valid() && Call { flags: libc::MREMAP_MAYMOVE, ..call }.is_valid());
        assert!(Call { flags: fixed, to: 20 * PAGE, ..call }.is_valid());
        assert!(Call { flags: fixed, to: 8 * PAGE, ..call }.is_valid());
        for to in [9 * PAGE, 19 * PAGE, 40 * PAGE + 1] {
            assert!(!Call { flags: fixed, to, ..call }.is_valid(), "{to}");
        }
        assert!(!Call { flags: libc::MREMAP_FIXED, to: 90 * PAGE, ..call }.is_valid());
        assert!(!Call { flags: stays, ..call }.is_valid() && Call { flags: stays, old: call.new, ..call }.is_valid());
        assert!(!Call { flags: 8, ..call }.is_valid() && !Call { new: 0, ..call }.is_valid());
        assert!(!Call { from: 1, ..call }.is_valid());
    }
}
