//! Anonymous mappings that are aligned, reserved without memory, or zeroed in forked children.

use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

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
/// As mremap(2): EFAULT when the range is not one area, EAGAIN when it is locked and the process may not lock that much
/// (RLIMIT_MEMLOCK), ENOMEM when there is no room.
pub fn grow_in_place(start: usize, old: usize, new: usize) -> Result<(), c_int> {
    // SAFETY: a mapping that becomes larger at its address; what is mapped behind it stays.
    let at = unsafe { libc::syscall(libc::SYS_mremap, start, old, new, 0 as c_long) };
    if at == -1 { Err(crate::errno::get()) } else { Ok(()) }
}

/// Moves the memory area `[start, start + old)` to `target`, with `new` bytes. When the kernel refuses the area is as
/// it was, and the target is given back.
///
/// Up to Linux 6.16 the kernel unmaps the target before it looks at the limits of the process and for memory, later
/// ones unmap it afterwards (mremap_to of mm/mremap.c). In the first case another thread may have mapped something
/// there when the call returns. So the target is marked, and unmapped only if the mark is there.
///
/// # Safety
/// The caller owns both ranges; those of the target are a part of what [`reserve`] returned.
pub unsafe fn move_to(start: usize, old: usize, new: usize, target: usize) -> bool {
    let flags = c_long::from(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
    // SAFETY: the caller's promise.
    unsafe {
        let mark = mark(target);
        if mark.is_some() && libc::syscall(libc::SYS_mremap, start, old, new, flags, target) != -1 {
            return true;
        }
        if mark.is_none_or(|mark| is_marked(target, mark)) {
            unmap(target as *mut c_void, new);
        }
    }
    false
}

/// Writes a number that no other mapping has into the first page of a reservation; `None` when the kernel refuses to
/// make it writable.
///
/// # Safety
/// The caller owns the page, and nothing is in it.
unsafe fn mark(target: usize) -> Option<[u32; 2]> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    if !make_usable(target, PAGE) {
        return None;
    }
    // SAFETY: reads the counter of the processor's cycles.
    let cycles = unsafe { core::arch::x86_64::_rdtsc() };
    // Multiplying by 2^64 divided by the golden ratio spreads the bits (Knuth, The Art of Computer Programming, volume
    // 3, 6.4).
    let number = (cycles ^ COUNT.fetch_add(1, Ordering::Relaxed) << 48 ^ target as u64) | 1;
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mark = [number as u32, (number >> 32) as u32];
    // SAFETY: the caller's page, which is writable now.
    unsafe { (target as *mut [u32; 2]).write_volatile(mark) };
    Some(mark)
}

/// Whether `mark` is at `target`, where another thread may map and unmap something: futex(2) compares a word with a
/// value, and refuses where none can be read.
fn is_marked(target: usize, mark: [u32; 2]) -> bool {
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let holds = |(number, word): (usize, u32)| {
        let at = target + number * size_of::<u32>();
        // SAFETY: the kernel reads the word if it can, and the time.
        let rc = unsafe { libc::syscall(libc::SYS_futex, at, operation, word, &raw const at_once) };
        rc == 0 || matches!(crate::errno::get(), libc::ETIMEDOUT | libc::EINTR)
    };
    mark.into_iter().enumerate().all(holds)
}

/// Makes reserved address space readable and writable; false when the kernel refuses.
pub fn make_usable(start: usize, len: usize) -> bool {
    // SAFETY: only the access rights of reserved address space change; the range holds no data yet.
    unsafe { libc::syscall(libc::SYS_mprotect, start, len, libc::PROT_READ | libc::PROT_WRITE) == 0 }
}

/// Bytes that the process may map: the lower of its [`limits`].
pub fn limit() -> u64 {
    let [address_space, data] = limits();
    address_space.min(data)
}

/// The limits of the process of address space and of data, bytes, see setrlimit(2). [`u64::MAX`] for none. errno stays
/// as the system call leaves it.
pub fn limits() -> [u64; 2] {
    let of = |resource: u32| {
        let mut found = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the kernel fills the structure; no limit is set.
        unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, core::ptr::null::<libc::rlimit>(), &raw mut found) };
        found.rlim_cur
    };
    [libc::RLIMIT_AS, libc::RLIMIT_DATA].map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_known_wherever_another_mapping_may_be() {
        let target = reserve(2 * PAGE).unwrap();
        // SAFETY: the test's own mapping.
        unsafe {
            let found = mark(target).unwrap();
            assert!(is_marked(target, found) && !is_marked(target + PAGE, found));
            assert!(!is_marked(target, [found[0], !found[1]]) && !is_marked(target, [!found[0], found[1]]));
            assert_ne!(mark(target), Some(found));
            unmap(target as *mut c_void, 2 * PAGE);
            assert!(!is_marked(target, found));
        }
    }
}
