//! Copies the contents of a large block that realloc replaces, so that the two blocks together never take much more
//! memory than one.

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
        unsafe { core::ptr::copy_nonoverlapping((from + at) as *const u8, (to + at) as *mut u8, part) };
        let end = (from + at + part) & !(PAGE - 1);
        if step < len && end > given_up {
            // SAFETY: pages of the block whose contents have been copied and are not needed any more.
            unsafe { of_libc::madvise(given_up as *mut c_void, end - given_up, libc::MADV_DONTNEED) };
            given_up = end;
        }
    }
}
