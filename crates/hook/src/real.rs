//! The real functions behind the hooks: the next definitions in the chain of libraries.
//!
//! All of them are looked up at once on first use, so they are known before any constructor has run, and they chain
//! over the allocator that the program links or that another preload brings. While `dlsym` runs on a thread, that
//! thread's allocations come from [`crate::bootstrap_arena`]. Before glibc 2.34 calls that only map memory do not look
//! them up: until the library has started they are made directly.
//!
//! [`symbol`] holds the raw pointers. The functions here call them, treat bootstrap blocks apart, and fall back to
//! another function when one is missing.

use core::ffi::{c_int, c_long, c_void};

use crate::{bootstrap_arena, errno};

pub mod behind;
pub mod in_effect;
pub mod of_libc;
pub mod own_interface;
pub mod range_calls;
pub mod sanitizer;
pub mod symbol;
pub use symbol::resolve;

/// A pthread start routine.
pub type StartRoutine = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

fn out_of_memory() -> *mut c_void {
    errno::set(libc::ENOMEM);
    core::ptr::null_mut()
}

/// From the bootstrap arena while resolving; otherwise there is no allocator at all.
#[cold]
fn early(size: usize, align: usize) -> *mut c_void {
    let found =
        if symbol::block().resolving.get() { bootstrap_arena::allocate(size, align) } else { core::ptr::null_mut() };
    if found.is_null() { out_of_memory() } else { found }
}

/// malloc(3).
///
/// # Safety
/// C's contract of malloc; the same holds for every function here.
#[inline(always)]
pub unsafe fn malloc(size: usize) -> *mut c_void {
    match symbol::malloc() {
        // SAFETY: forwarded unchanged.
        Some(f) => unsafe { f(size) },
        None => early(size, 16),
    }
}

/// calloc(3). Bootstrap memory is zeroed, too.
///
/// # Safety
/// C's contract.
#[inline(always)]
pub unsafe fn calloc(count: usize, size: usize) -> *mut c_void {
    match symbol::calloc() {
        // SAFETY: forwarded unchanged.
        Some(f) => unsafe { f(count, size) },
        None => count.checked_mul(size).map_or_else(out_of_memory, |n| early(n, 16)),
    }
}

/// free(3). Bootstrap blocks are left alone.
///
/// # Safety
/// C's contract.
#[inline(always)]
pub unsafe fn free(ptr: *mut c_void) {
    if bootstrap_arena::owns(ptr) {
        return;
    }
    if let Some(f) = symbol::free() {
        // SAFETY: not a bootstrap block, so the real allocator's.
        unsafe { f(ptr) }
    }
}

/// realloc(3). A bootstrap block moves to the real heap.
///
/// # Safety
/// C's contract.
#[inline(always)]
pub unsafe fn realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    if bootstrap_arena::owns(ptr) {
        // SAFETY: the block is a bootstrap one.
        return unsafe { leave_bootstrap(ptr, size) };
    }
    match symbol::realloc() {
        // SAFETY: forwarded unchanged.
        Some(f) => unsafe { f(ptr, size) },
        None if ptr.is_null() => early(size, 16),
        None => out_of_memory(),
    }
}

#[cold]
unsafe fn leave_bootstrap(ptr: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: `malloc` forwards; the copy stays inside both blocks, which cannot overlap.
    unsafe {
        let fresh = malloc(size);
        if !fresh.is_null() {
            core::ptr::copy_nonoverlapping(ptr.cast::<u8>(), fresh.cast(), size.min(bootstrap_arena::size(ptr)));
        }
        fresh
    }
}

/// reallocarray(3).
///
/// # Safety
/// C's contract.
#[inline]
pub unsafe fn reallocarray(ptr: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let next = if bootstrap_arena::owns(ptr) { None } else { symbol::reallocarray() };
    match (next, count.checked_mul(size)) {
        // Not through the next realloc: an allocator before this library in the chain may lack reallocarray, and libc's
        // finds its way back to that allocator's realloc.
        // SAFETY: forwarded unchanged.
        (Some(f), _) => unsafe { f(ptr, count, size) },
        // SAFETY: as realloc.
        (None, Some(bytes)) => unsafe { realloc(ptr, bytes) },
        (None, None) => out_of_memory(),
    }
}

/// memalign(3).
///
/// # Safety
/// C's contract.
#[inline]
pub unsafe fn memalign(align: usize, size: usize) -> *mut c_void {
    match symbol::memalign() {
        // SAFETY: forwarded unchanged.
        Some(f) => unsafe { f(align, size) },
        None => aligned_fallback(align, size),
    }
}

/// aligned_alloc(3).
///
/// # Safety
/// C's contract.
#[inline]
pub unsafe fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    match symbol::aligned_alloc() {
        // SAFETY: forwarded unchanged.
        Some(f) => unsafe { f(align, size) },
        None => aligned_fallback(align, size),
    }
}

#[cold]
fn aligned_fallback(align: usize, size: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        errno::set(libc::EINVAL);
        return core::ptr::null_mut();
    }
    let Some(f) = symbol::posix_memalign() else { return early(size, align) };
    let mut found = core::ptr::null_mut();
    // SAFETY: `found` is writable, the alignment is a power of two and at least a pointer's.
    match unsafe { f(&raw mut found, align.max(size_of::<usize>()), size) } {
        0 => found,
        _ => out_of_memory(),
    }
}

/// posix_memalign(3).
///
/// # Safety
/// C's contract.
#[inline]
pub unsafe fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if let Some(f) = symbol::posix_memalign() {
        // SAFETY: forwarded unchanged.
        return unsafe { f(out, align, size) };
    }
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    let found = match symbol::memalign() {
        // SAFETY: a valid alignment.
        Some(f) => unsafe { f(align, size) },
        None => early(size, align),
    };
    if found.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: C's contract: `out` is writable.
    unsafe { *out = found };
    0
}

/// valloc(3).
///
/// # Safety
/// C's contract.
pub unsafe fn valloc(size: usize) -> *mut c_void {
    match symbol::valloc() {
        // SAFETY: forwarded unchanged.
        Some(f) => unsafe { f(size) },
        None => aligned_fallback(crate::sys::PAGE, size),
    }
}

/// pvalloc(3).
///
/// # Safety
/// C's contract.
pub unsafe fn pvalloc(size: usize) -> *mut c_void {
    match symbol::pvalloc() {
        // SAFETY: forwarded unchanged.
        Some(f) => unsafe { f(size) },
        None => size
            .checked_next_multiple_of(crate::sys::PAGE)
            .map_or_else(out_of_memory, |n| aligned_fallback(crate::sys::PAGE, n)),
    }
}

/// Bytes usable in a block; 0 when the allocator cannot say.
///
/// # Safety
/// `ptr` is null or a live block.
pub unsafe fn malloc_usable_size(ptr: *mut c_void) -> usize {
    if bootstrap_arena::owns(ptr) {
        // SAFETY: the block is a bootstrap one.
        return unsafe { bootstrap_arena::size(ptr) };
    }
    // SAFETY: forwarded unchanged.
    symbol::malloc_usable_size().map_or(0, |f| unsafe { f(ptr) })
}

/// mmap(2), also for `mmap64`: on x86_64 they are one function.
///
/// # Safety
/// C's contract.
pub unsafe fn mmap(addr: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void {
    match symbol::mmap() {
        // SAFETY: forwarded unchanged.
        Some(f) => unsafe { f(addr, len, prot, flags, fd, offset) },
        // SAFETY: the same call, made directly.
        None => unsafe {
            libc::syscall(libc::SYS_mmap, addr, len, c_long::from(prot), c_long::from(flags), c_long::from(fd), offset)
                as *mut c_void
        },
    }
}

/// munmap(2).
///
/// # Safety
/// C's contract.
pub unsafe fn munmap(addr: *mut c_void, len: usize) -> c_int {
    match symbol::munmap() {
        // SAFETY: forwarded unchanged.
        Some(f) => unsafe { f(addr, len) },
        // SAFETY: the same call, made directly.
        None => unsafe { libc::syscall(libc::SYS_munmap, addr, len) as c_int },
    }
}

/// mremap(2); `new_addr` only counts with MREMAP_FIXED or MREMAP_DONTUNMAP.
///
/// # Safety
/// C's contract.
pub unsafe fn mremap(addr: *mut c_void, old: usize, new: usize, flags: c_int, new_addr: *mut c_void) -> *mut c_void {
    match symbol::mremap() {
        // SAFETY: forwarded unchanged.
        Some(f) => unsafe { f(addr, old, new, flags, new_addr) },
        // SAFETY: the same call, made directly.
        None => unsafe {
            libc::syscall(libc::SYS_mremap, addr, old, new, c_long::from(flags), new_addr) as *mut c_void
        },
    }
}

/// shmat(2).
///
/// # Safety
/// C's contract.
pub unsafe fn shmat(id: c_int, addr: *const c_void, flags: c_int) -> *mut c_void {
    match symbol::shmat() {
        // SAFETY: forwarded unchanged.
        Some(f) => unsafe { f(id, addr, flags) },
        // SAFETY: the same call, made directly.
        None => unsafe { libc::syscall(libc::SYS_shmat, id, addr, flags) as *mut c_void },
    }
}

/// shmdt(2).
///
/// # Safety
/// C's contract.
pub unsafe fn shmdt(addr: *const c_void) -> c_int {
    match symbol::shmdt() {
        // SAFETY: forwarded unchanged.
        Some(f) => unsafe { f(addr) },
        // SAFETY: the same call, made directly.
        None => unsafe { libc::syscall(libc::SYS_shmdt, addr) as c_int },
    }
}

#[cfg(test)]
mod tests;
