//! Anonymous mappings that are aligned, reserved without memory, or zeroed in forked children.

use core::ffi::{c_int, c_long, c_void};

use crate::sys::{PAGE, map_anonymous, unmap};

/// linux/mman.h; since Linux 4.14.
const MADV_WIPEONFORK: i32 = 18;

/// An anonymous mapping of `len` bytes that is zeroed in a forked child. A vforked child shares the mapping with its
/// parent. `None` before Linux 4.14 or without memory.
pub fn map_wiped_on_fork(len: usize) -> Option<*mut c_void> {
    let start = map_anonymous(len)?;
    // SAFETY: the mapping is fresh and belongs to this function.
    let wiped = unsafe { libc::syscall(libc::SYS_madvise, start, len, MADV_WIPEONFORK) } == 0;
    if !wiped {
        // SAFETY: as above; no pointer to the mapping has left this function.
        unsafe { unmap(start, len) };
    }
    wiped.then_some(start)
}

/// Maps `len` bytes of anonymous private memory at a multiple of `align`, a power of two; `None` without memory.
pub fn map_aligned(len: usize, align: usize) -> Option<usize> {
    if align <= PAGE {
        return map_anonymous(len).map(|p| p as usize);
    }
    let whole = len.checked_add(align)?;
    let raw = map_anonymous(whole)? as usize;
    let start = raw.checked_next_multiple_of(align)?;
    // SAFETY: the trimmed ends belong to the fresh mapping, and no pointer into them exists.
    unsafe {
        if start > raw {
            unmap(raw as *mut c_void, start - raw);
        }
        if raw + whole > start + len {
            unmap((start + len) as *mut c_void, raw + whole - start - len);
        }
    }
    Some(start)
}

/// Reserves `len` bytes of address space that cannot be read or written and take no memory; `None` when the kernel
/// refuses.
pub fn reserve(len: usize) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let at = unsafe { libc::syscall(libc::SYS_mmap, 0_usize, len, libc::PROT_NONE, flags, -1, 0_usize) };
    (at != -1).then_some(at as usize)
}

/// Lets the memory area that ends at `start + old` grow there to `new` bytes from `start` on.
///
/// # Errors
/// As mremap(2): EFAULT when the range is not one area, ENOMEM when there is no room.
pub fn grow_in_place(start: usize, old: usize, new: usize) -> Result<(), c_int> {
    // SAFETY: a mapping that becomes larger at its address; what is mapped behind it stays.
    let at = unsafe { libc::syscall(libc::SYS_mremap, start, old, new, 0 as c_long) };
    if at == -1 { Err(crate::errno::get()) } else { Ok(()) }
}

/// Moves the memory area `[start, start + old)` to `target`, with `new` bytes; false when the kernel refuses. It may
/// have unmapped the target then.
///
/// # Safety
/// The caller owns both ranges and gives up what is mapped at the target.
pub unsafe fn move_to(start: usize, old: usize, new: usize, target: usize) -> bool {
    let flags = c_long::from(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_mremap, start, old, new, flags, target) != -1 }
}

/// Makes reserved address space readable and writable; false when the kernel refuses.
pub fn make_usable(start: usize, len: usize) -> bool {
    // SAFETY: only the access rights of reserved address space change; the range holds no data yet.
    unsafe { libc::syscall(libc::SYS_mprotect, start, len, libc::PROT_READ | libc::PROT_WRITE) == 0 }
}
