//! Copies the contents of a large block that realloc replaces, so that the two blocks together never take much more
//! memory than one, and pages that the program has not touched take none.

use core::ffi::c_void;

use numamma_hook::real::of_libc;
use numamma_hook::{errno, sandbox};
use numamma_kernel::sys::PAGE;
use numamma_plan::plan::HUGE_PAGE;

use crate::objects::released::sparse::{self, is_zero};

/// Bytes that are copied before the pages that held them are given up.
const STEP: usize = HUGE_PAGE as usize;

/// Copies `len` bytes of the block at `from` to the block at `to`. Of a large one the whole pages at `from` lose what
/// they hold, if the kernel agrees; the block itself stays allocated. `owned`: the bytes of whole pages at `to` that
/// are a mapping of this library and have no contents yet that count; 0 when the block is of another allocator, or
/// shares its pages. Calls the madvise that the program would, see [`crate::objects::released::unmap`].
///
/// # Safety
/// Both blocks are that large, do not overlap and belong to the caller, which gives up the contents of `from`.
pub unsafe fn take_over(from: usize, to: usize, len: usize, owned: usize) {
    // Each system call may end a process that has confined itself.
    let step = if len < 2 * STEP || sandbox::entered() { len.max(1) } else { STEP };
    let _errno = errno::Saved::now();
    // In a program that has confined itself (seccomp) mincore may be forbidden, so all is copied.
    let filled = if sandbox::entered() { len } else { first_missing(from, len) };
    // SAFETY: the caller's promise.
    let is_empty = filled < len && unsafe { empty(to, filled, len, owned) };
    let mut given_up = from.next_multiple_of(PAGE);
    for at in (0..len).step_by(step) {
        let part = step.min(len - at);
        let run = Run { from: from + at, to: to + at, len: part, is_empty };
        let all_there = filled.saturating_sub(at).min(part);
        // SAFETY: the caller's promise.
        unsafe {
            Run { is_empty: false, ..run.part(0, all_there) }.copy();
            copy_what_is_there(&run.part(all_there, part - all_there));
        }
        let end = (from + at + part) & !(PAGE - 1);
        if step < len && end > given_up {
            // SAFETY: pages of the block whose contents have been copied and are not needed any more.
            unsafe { lose_pages(given_up, end - given_up) };
            given_up = end;
        }
    }
}

/// Makes the block at `to` zeros from `first` to `len`, without more memory than it has; false when it is none of this
/// library.
///
/// # Safety
/// As [`take_over`].
unsafe fn empty(to: usize, first: usize, len: usize, owned: usize) -> bool {
    if owned < len {
        return false;
    }
    let begin = to + first;
    let (low, end) = (begin.next_multiple_of(PAGE), to + len);
    // SAFETY: the caller's promise: contents that do not count yet. What is before `low` is on a page that is copied
    // to.
    unsafe { (begin as *mut u8).write_bytes(0, low.min(end) - begin) };
    if low < end {
        sparse::clear_pages(low, end - low, true);
    }
    true
}

/// Pages of which the kernel is asked at a time whether they are there; as many bytes of the stack.
const ASKED: usize = 128;

/// Calls `then` with each run of pages of a range that are all there, or all not, until it returns false. Pages that
/// were only read are not. False when the kernel does not tell, or `then` has ended it.
fn runs_of_pages(from: usize, len: usize, mut then: impl FnMut(bool, usize, usize) -> bool) -> bool {
    let (mut at, end, mut there) = (from, from + len, [0_u8; ASKED]);
    while at < end {
        let first = at & !(PAGE - 1);
        let stop = (first + ASKED * PAGE).min(end);
        // SAFETY: the array has a byte for each page of the range; mincore(2) accesses no other memory of the process.
        if unsafe { libc::syscall(libc::SYS_mincore, first, stop - first, there.as_mut_ptr()) } != 0 {
            return false;
        }
        let pages = &there[..(stop - first).div_ceil(PAGE)];
        for alike in pages.chunk_by(|a, b| (a ^ b) & 1 == 0) {
            let (first, next) = (at & !(PAGE - 1), (at & !(PAGE - 1)) + alike.len() * PAGE);
            let (mut goes_on, from) = (true, at);
            let mut each = |start: usize, end: usize, is_there: bool| {
                let (start, end) = (start.max(from), end.min(stop));
                goes_on = goes_on && then(is_there, start, end - start);
            };
            match alike[0] & 1 {
                0 => each(first, next, false),
                _ => sparse::for_own_runs(first, next, each),
            }
            if !goes_on {
                return false;
            }
            at = next.min(stop);
        }
    }
    true
}

/// Bytes of a range before the first page that is not there.
fn first_missing(from: usize, len: usize) -> usize {
    let mut filled = len;
    runs_of_pages(from, len, |is_there, at, _| {
        filled = if is_there { len } else { at - from };
        is_there
    });
    filled
}

/// Copies a run, but not from pages that are not there: these read as zeros and take no memory, and to write them would
/// take some.
///
/// # Safety
/// As [`take_over`].
unsafe fn copy_what_is_there(whole: &Run) {
    let (mut done, mut left_out) = (0, LeftOut { from: whole.to, is_mapped: !whole.is_empty });
    runs_of_pages(whole.from, whole.len, |is_there, at, len| {
        let run = whole.part(at - whole.from, len);
        // SAFETY: the caller's promise.
        unsafe {
            match is_there {
                true => run.copy_without_ends(&mut left_out),
                false => run.leave_out(&mut left_out),
            }
        }
        done = run.from + run.len - whole.from;
        true
    });
    // SAFETY: the caller's promise. What the kernel told nothing of is copied.
    unsafe {
        left_out.end(whole.to + done);
        whole.part(done, whole.len - done).copy();
    }
}

/// The part of the target that was left as it is since something was copied to it last.
struct LeftOut {
    from: usize,
    /// Whether it was read, which maps pages of zeros.
    is_mapped: bool,
}

impl LeftOut {
    /// What reading has mapped is given up again, or it would seem to be there the next time; it is zeros then as
    /// before.
    ///
    /// # Safety
    /// As [`take_over`].
    unsafe fn end(&self, at: usize) {
        if self.is_mapped {
            // SAFETY: the caller's promise.
            unsafe { lose_pages(self.from, at - self.from) };
        }
    }
}

/// Bytes to copy.
struct Run {
    from: usize,
    to: usize,
    len: usize,
    /// Whether the target reads as zeros where nothing was copied to; otherwise it may have contents.
    is_empty: bool,
}

impl Run {
    fn part(&self, at: usize, len: usize) -> Run {
        Run { from: self.from + at, to: self.to + at, len, is_empty: self.is_empty }
    }

    /// Copies it; of what is zero as the target is, nothing.
    ///
    /// # Safety
    /// As [`take_over`].
    unsafe fn copy(&self) {
        let step = if self.is_empty { PAGE } else { self.len.max(1) };
        for at in (0..self.len).step_by(step) {
            let Run { from, to, len, is_empty } = self.part(at, step.min(self.len - at));
            // SAFETY: the caller's promise.
            unsafe {
                if !is_empty || !is_zero(from, len) {
                    core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len);
                }
            }
        }
    }

    /// Copies pages that are there. Where the two blocks begin at different places of their pages, a page of the source
    /// lies in two of the target: that which gets less of it is left alone if that is zeros, or an array would take
    /// more pages each time that it is copied.
    ///
    /// # Safety
    /// As [`take_over`].
    unsafe fn copy_without_ends(&self, left_out: &mut LeftOut) {
        let head = (self.to.next_multiple_of(PAGE) - self.to).min(self.len);
        let tail = ((self.to + self.len) % PAGE).min(self.len - head);
        let middle = self.len - head - tail;
        for part in [self.part(0, head), self.part(head, middle), self.part(head + middle, tail)] {
            // SAFETY: the caller's promise.
            unsafe {
                if part.len >= PAGE / 2 || !part.leaves_zeros() {
                    part.copy_after(left_out);
                }
            }
        }
    }

    /// Leaves the target as it is where pages are not there. A page that is in swap is not there either, and is copied.
    ///
    /// # Safety
    /// As [`take_over`].
    unsafe fn leave_out(&self, left_out: &mut LeftOut) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.leaves_zeros() {
                true => _ = lose_pages(self.from, self.len),
                false => self.copy_after(left_out),
            }
        }
    }

    /// Copies it, after a part that was left out.
    ///
    /// # Safety
    /// As [`take_over`].
    unsafe fn copy_after(&self, left_out: &mut LeftOut) {
        // SAFETY: the caller's promise.
        unsafe {
            left_out.end(self.to);
            self.copy();
        }
        left_out.from = self.to + self.len;
    }

    /// Whether source and target are zeros.
    ///
    /// # Safety
    /// As [`take_over`].
    unsafe fn leaves_zeros(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { is_zero(self.from, self.len) && (self.is_empty || is_zero(self.to, self.len)) }
    }
}

/// Gives up what the whole pages of a range hold. False when the kernel refuses.
///
/// # Safety
/// The range belongs to the caller, and what it holds is not needed.
unsafe fn lose_pages(start: usize, len: usize) -> bool {
    let (low, high) = (start.next_multiple_of(PAGE), (start + len) & !(PAGE - 1));
    // SAFETY: the caller's promise.
    low >= high || unsafe { of_libc::madvise(low as *mut c_void, high - low, libc::MADV_DONTNEED) } == 0
}
