//! Anonymous mappings that are aligned, reserved without memory, or zeroed in forked children.

use core::ffi::c_void;

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

/// Makes reserved address space readable and writable; false when the kernel refuses.
pub fn make_usable(start: usize, len: usize) -> bool {
    // SAFETY: only the access rights of reserved address space change; the range holds no data yet.
    unsafe { libc::syscall(libc::SYS_mprotect, start, len, libc::PROT_READ | libc::PROT_WRITE) == 0 }
}
