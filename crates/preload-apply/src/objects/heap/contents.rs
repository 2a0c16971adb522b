//! Copies the contents of a large block that realloc replaces, so that the two blocks together never take much more
//! memory than one, and pages that the program has not touched take none.

use core::ffi::c_void;

use numamma_hook::real::of_libc;
use numamma_hook::{errno, sandbox};
use numamma_kernel::sys::PAGE;
use numamma_plan::plan::HUGE_PAGE;

/// Bytes that are copied before the pages that held them are given up.
const STEP: usize = HUGE_PAGE as usize;

/// Copies `len` bytes of the block at `from` to the block at `to`. Of a large one the whole pages at `from` lose what
/// they hold, if the kernel agrees; the block itself stays allocated. `is_placed`: the block at `to` is a mapping of this
/// library. Calls the madvise that the program would, see
/// [`crate::objects::released::unmap`].
///
/// # Safety
/// Both blocks are that large, do not overlap and belong to the caller, which gives up the contents of `from`.
pub unsafe fn take_over(from: usize, to: usize, len: usize, is_placed: bool) {
    // Each system call may end a process that has confined itself.
    let step = if len < 2 * STEP || sandbox::entered() { len.max(1) } else { STEP };
    let _errno = errno::Saved::now();
    let mut given_up = from.next_multiple_of(PAGE);
    for at in (0..len).step_by(step) {
        let part = step.min(len - at);
        // SAFETY: the caller's promise.
        unsafe { copy_what_is_there(from + at, to + at, part, is_placed) };
        let end = (from + at + part) & !(PAGE - 1);
        if step < len && end > given_up {
            // SAFETY: pages of the block whose contents have been copied and are not needed any more.
            unsafe { lose_pages(given_up, end - given_up) };
            given_up = end;
        }
    }
}

/// Pages of which the kernel is asked at a time whether they are there; as many bytes of the stack.
const ASKED: usize = 256;

/// Copies `len` bytes, but not from pages that are not there: these read as zeros and take no memory, and to write them
/// would take some. `is_placed`: the block at `to` is a mapping of this library.
///
/// # Safety
/// As [`take_over`].
unsafe fn copy_what_is_there(from: usize, to: usize, len: usize, is_placed: bool) {
    let (mut at, end, mut there) = (from, from + len, [0_u8; ASKED]);
    while at < end {
        let first = at & !(PAGE - 1);
        let stop = (first + ASKED * PAGE).min(end);
        // SAFETY: the array has a byte for each page of the range; mincore(2) accesses no other memory of the process.
        let is_known = !sandbox::entered()
            && unsafe { libc::syscall(libc::SYS_mincore, first, stop - first, there.as_mut_ptr()) } == 0;
        let pages = &there[..(stop - first).div_ceil(PAGE)];
        for alike in pages.chunk_by(|a, b| (a ^ b) & 1 == 0) {
            let next = ((at & !(PAGE - 1)) + alike.len() * PAGE).min(stop);
            let run = Run { from: at, to: to + (at - from), len: next - at };
            // SAFETY: the caller's promise.
            unsafe {
                let is_empty = is_known && alike[0] & 1 == 0 && run.is_left_empty(is_placed);
                if !is_empty {
                    core::ptr::copy_nonoverlapping(run.from as *const u8, run.to as *mut u8, run.len);
                }
            }
            at = next;
        }
    }
}

/// Bytes to copy of pages that are not there.
struct Run {
    from: usize,
    to: usize,
    len: usize,
}

impl Run {
    /// Makes the target zero without memory; false when it must be copied: a page that is in swap is not there either, and
    /// a block that is kept for the next one has contents. What reading maps is unmapped again, or it would seem to be
    /// there the next time.
    ///
    /// # Safety
    /// As [`take_over`].
    unsafe fn is_left_empty(&self, is_placed: bool) -> bool {
        let Run { from, to, len } = *self;
        // SAFETY: the caller's promise. Pages of the source are given up, and those of the target have no contents yet; its
        // private anonymous memory reads as zeros afterwards (madvise(2)).
        unsafe {
            if !is_zero(from, len) {
                return false;
            }
            lose_pages(from, len);
            if !is_placed {
                return is_zero(to, len);
            }
            let (low, high) = (to.next_multiple_of(PAGE).min(to + len), ((to + len) & !(PAGE - 1)).max(to));
            if low < high && !lose_pages(low, high - low) {
                return false;
            }
            for (start, end) in [(to, low), (high.max(low), to + len)] {
                (start as *mut u8).write_bytes(0, end - start);
            }
            true
        }
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

/// Whether `len` bytes are zero; returns at the first few that are not.
///
/// # Safety
/// They can be read, and nobody writes them.
unsafe fn is_zero(at: usize, len: usize) -> bool {
    /// Bytes that are looked at together.
    const TOGETHER: usize = 64;
    // SAFETY: the caller's promise.
    let bytes = unsafe { core::slice::from_raw_parts(at as *const u8, len) };
    bytes.chunks(TOGETHER).all(|some| some.iter().fold(0, |all, byte| all | byte) == 0)
}
