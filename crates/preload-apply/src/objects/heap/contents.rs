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
/// they hold, if the kernel agrees; the block itself stays allocated. Calls the madvise that the program would, see
/// [`crate::objects::released::unmap`].
///
/// # Safety
/// Both blocks are that large, do not overlap and belong to the caller, which gives up the contents of `from`.
pub unsafe fn take_over(from: usize, to: usize, len: usize) {
    // Each system call may end a process that has confined itself.
    let step = if len < 2 * STEP || sandbox::entered() { len.max(1) } else { STEP };
    let _errno = errno::Saved::now();
    let mut given_up = from.next_multiple_of(PAGE);
    for at in (0..len).step_by(step) {
        let part = step.min(len - at);
        // SAFETY: the caller's promise.
        unsafe { copy_what_is_there(from + at, to + at, part) };
        let end = (from + at + part) & !(PAGE - 1);
        if step < len && end > given_up {
            // SAFETY: pages of the block whose contents have been copied and are not needed any more.
            unsafe { of_libc::madvise(given_up as *mut c_void, end - given_up, libc::MADV_DONTNEED) };
            given_up = end;
        }
    }
}

/// Copies `len` bytes, but writes to no page that holds the same zeros already: a page that was never touched reads as
/// zeros and takes no memory, and it would once it is written.
///
/// # Safety
/// Both blocks are that large, do not overlap and belong to the caller.
unsafe fn copy_what_is_there(from: usize, to: usize, len: usize) {
    let mut at = 0;
    while at < len {
        let part = (PAGE - (to + at) % PAGE).min(len - at);
        // SAFETY: the caller's promise; nobody else uses what is replaced, or what is not handed out yet.
        unsafe {
            if !is_zero((from + at) as *const u8, part) || !is_zero((to + at) as *const u8, part) {
                core::ptr::copy_nonoverlapping((from + at) as *const u8, (to + at) as *mut u8, part);
            }
        }
        at += part;
    }
}

/// Whether `len` bytes are zero; returns at the first few that are not.
///
/// # Safety
/// They can be read, and nobody writes them.
unsafe fn is_zero(at: *const u8, len: usize) -> bool {
    /// Bytes that are looked at together.
    const TOGETHER: usize = 64;
    // SAFETY: the caller's promise.
    let bytes = unsafe { core::slice::from_raw_parts(at, len) };
    bytes.chunks(TOGETHER).all(|some| some.iter().fold(0, |all, byte| all | byte) == 0)
}
