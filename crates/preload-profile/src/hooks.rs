//! The C functions that this library replaces: each hook enters the guard, records and forwards.
//!
//! Order: an allocation is recorded after the real function returned, a deallocation before it is called,
//! so that another thread that gets the same address always records it later. The guard is held during the real
//! call, because memory that an allocator maps for itself is not an object of the program.

use core::ffi::{c_int, c_void};

use numamma_channel::layout::{ALLOC_HEAP, ALLOC_MMAP, FREE_HEAP, FREE_MMAP, RESIZED, SMALL, kept};
use numamma_hook::entry::{Caller, MmapArguments};
use numamma_hook::held_signals::HeldSignals;
use numamma_hook::real::{StartRoutine, in_effect};
use numamma_hook::remap::{Call, by_areas};
use numamma_hook::sandbox::Reactions;
use numamma_hook::{real, sandbox, static_tls, sys, thread_start, unloaded};

use crate::{fast_path, faults, recording};

type Ptr = *mut c_void;

numamma_hook::malloc_family_entries!(imp);
numamma_hook::entry! {
    /// malloc(3).
    fn malloc(size: usize) -> *mut ::core::ffi::c_void => imp::malloc;
}
numamma_hook::mmap_entries!(imp::mmap);
numamma_hook::sized_release_entries!();
numamma_hook::prctl_entry!(Reactions { before: before_confinement, entered: || {}, refused: || {} });

/// What was recorded is in the recorder's memory already; pages that were moved away come back.
fn before_confinement(strict: bool) {
    faults::stop();
    if strict {
        recording::stop(); // each record has a time
    }
}

numamma_hook::entry! {
    /// pthread_create(3): the new thread records its start routine, what created it and the bounds of its stack. Four
    /// arguments.
    fn pthread_create(thread: *mut libc::pthread_t, attr: *const libc::pthread_attr_t, start: StartRoutine, arg: Ptr,
                      unused: usize, unused_too: usize) -> c_int => imp::pthread_create;
}

numamma_hook::deferred_entry! {
    /// mremap(2): four arguments, a fifth with some flags.
    fn mremap(addr: Ptr, old: usize, new: usize, flags: c_int, target: Ptr, unused: usize) -> Ptr => imp::mremap;
    /// munmap(2).
    fn munmap(addr: Ptr, len: usize) -> c_int => unmap;
}

/// free(3): needs no caller, so no stub.
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(ptr: Ptr) {
    if ptr.is_null() {
        return;
    }
    // SAFETY: C's contract of free: a live block.
    if unsafe { fast_path::unrecorded(ptr, fast_path::mask()) } {
        // SAFETY: forwarded unchanged.
        return unsafe { real::free(ptr) };
    }
    imp::free(ptr);
}

/// munmap(2).
///
/// # Safety
/// C's contract.
unsafe extern "C" fn unmap(addr: Ptr, len: usize) -> c_int {
    // The kernel refuses an unaligned address or an empty range, and nothing is unmapped.
    let refused = !(addr as usize).is_multiple_of(sys::PAGE) || len == 0;
    let recording = if refused || !static_tls::exists() { None } else { recording::enter() };
    if let Some(recording) = &recording {
        recording.free(FREE_MMAP, addr as usize, len.checked_next_multiple_of(sys::PAGE).unwrap_or(len));
    }
    // SAFETY: forwarded unchanged.
    unsafe { real::munmap(addr, len) }
}

/// dlclose(3): other code may be loaded at the same addresses, so the unwinder's rules for them are dropped.
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: Ptr) -> c_int {
    let Some(f) = real::symbol::dlclose() else { return -1 };
    if !recording::active() {
        // SAFETY: forwarded unchanged.
        return unsafe { f(handle) };
    }
    // SAFETY: C's contract of dlclose; forwarded unchanged.
    unsafe { unloaded::forget_after(handle, || f(handle)) }
}

/// The functions that the stubs jump to: the C arguments, then return address, CFA and rbp of the caller.
mod imp {
    use super::*;

    /// Not inlined, so that the fast path does not save the registers that this function uses.
    #[inline(never)]
    pub fn free(ptr: Ptr) {
        let recording = recording::enter();
        if let Some(recording) = &recording {
            recording.free(FREE_HEAP, ptr as usize, 0);
        }
        // SAFETY: C's contract of free, forwarded unchanged.
        unsafe { real::free(ptr) }
    }

    /// Calls the real function inside the guard and records what it returned.
    #[inline(always)]
    fn allocate(size: usize, caller: Caller, real: impl FnOnce() -> Ptr) -> Ptr {
        let Some(recording) = recording::enter() else { return real() };
        let found = real();
        if !found.is_null() {
            recording.alloc(ALLOC_HEAP, found as usize, size, &caller);
        }
        found
    }

    /// The end of the fast path for a new block: one in 2^k is recorded.
    #[inline(always)]
    fn record_if_kept(mask: u32, found: Ptr, size: usize, caller: Caller) -> Ptr {
        if !kept(found as u64, mask) {
            recording::skip();
        } else if !found.is_null() {
            record(found, size, caller);
        }
        found
    }

    #[cold]
    #[inline(never)]
    fn record(found: Ptr, size: usize, caller: Caller) {
        if let Some(recording) = recording::enter() {
            recording.alloc(ALLOC_HEAP, found as usize, size, &caller);
        }
    }

    #[allow(clippy::too_many_arguments)] // those of pthread_create and the caller
    pub unsafe extern "C" fn pthread_create(
        thread: *mut libc::pthread_t,
        attr: *const libc::pthread_attr_t,
        start: StartRoutine,
        arg: Ptr,
        _: usize,
        _: usize,
        ra: usize,
        cfa: usize,
        rbp: usize,
    ) -> c_int {
        if recording::active() && !sandbox::entered() {
            let created_at = {
                let _errno = numamma_hook::errno::Saved::now();
                recording::enter().map_or(0, |recording| recording.stack(&Caller { ra, cfa, rbp }))
            };
            // SAFETY: forwarded with a trampoline that jumps to `start`.
            return unsafe {
                thread_start::create(thread, attr, start, arg, created_at.into(), |started| {
                    recording::thread_started(started)
                })
            };
        }
        match real::symbol::pthread_create() {
            // SAFETY: forwarded unchanged.
            Some(f) => unsafe { f(thread, attr, start, arg) },
            None => libc::EAGAIN,
        }
    }

    pub unsafe extern "C" fn malloc(size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
        let mask = fast_path::mask();
        if mask != 0 && size < SMALL {
            // SAFETY: forwarded unchanged.
            return record_if_kept(mask, unsafe { real::malloc(size) }, size, Caller { ra, cfa, rbp });
        }
        recorded_malloc(size, ra, cfa, rbp)
    }

    /// Not inlined, as [`free`].
    #[inline(never)]
    fn recorded_malloc(size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
        // SAFETY: forwarded unchanged.
        allocate(size, Caller { ra, cfa, rbp }, || unsafe { real::malloc(size) })
    }

    pub unsafe extern "C" fn calloc(count: usize, size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
        let bytes = count.wrapping_mul(size); // an overflow makes the real calloc fail
        let mask = fast_path::mask();
        if mask != 0 && bytes < SMALL {
            // SAFETY: forwarded unchanged.
            return record_if_kept(mask, unsafe { real::calloc(count, size) }, bytes, Caller { ra, cfa, rbp });
        }
        // SAFETY: forwarded unchanged; pages that calloc knows to be zero stay untouched.
        allocate(bytes, Caller { ra, cfa, rbp }, || unsafe { real::calloc(count, size) })
    }

    pub unsafe extern "C" fn memalign(align: usize, size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
        // SAFETY: forwarded unchanged.
        allocate(size, Caller { ra, cfa, rbp }, || unsafe { real::memalign(align, size) })
    }

    pub unsafe extern "C" fn aligned_alloc(align: usize, size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
        // SAFETY: forwarded unchanged.
        allocate(size, Caller { ra, cfa, rbp }, || unsafe { real::aligned_alloc(align, size) })
    }

    pub unsafe extern "C" fn valloc(size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
        // SAFETY: forwarded unchanged.
        allocate(size, Caller { ra, cfa, rbp }, || unsafe { real::valloc(size) })
    }

    pub unsafe extern "C" fn pvalloc(size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
        let bytes = size.checked_next_multiple_of(sys::PAGE).unwrap_or(size);
        // SAFETY: forwarded unchanged.
        allocate(bytes, Caller { ra, cfa, rbp }, || unsafe { real::pvalloc(size) })
    }

    pub unsafe extern "C" fn posix_memalign(
        out: *mut Ptr,
        align: usize,
        size: usize,
        ra: usize,
        cfa: usize,
        rbp: usize,
    ) -> c_int {
        let recording = recording::enter();
        // SAFETY: forwarded unchanged.
        let rc = unsafe { real::posix_memalign(out, align, size) };
        if let (Some(recording), 0) = (recording, rc) {
            // SAFETY: on success `out` holds the block.
            let found = unsafe { *out };
            if !found.is_null() {
                recording.alloc(ALLOC_HEAP, found as usize, size, &Caller { ra, cfa, rbp });
            }
        }
        rc
    }

    pub unsafe extern "C" fn realloc(ptr: Ptr, size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
        // SAFETY: forwarded unchanged.
        reallocate(ptr, Some(size), Caller { ra, cfa, rbp }, || unsafe { real::realloc(ptr, size) })
    }

    pub unsafe extern "C" fn reallocarray(
        ptr: Ptr,
        count: usize,
        size: usize,
        ra: usize,
        cfa: usize,
        rbp: usize,
    ) -> Ptr {
        let bytes = count.checked_mul(size);
        // SAFETY: forwarded unchanged; an overflow makes it fail.
        reallocate(ptr, bytes, Caller { ra, cfa, rbp }, || unsafe { real::reallocarray(ptr, count, size) })
    }

    /// Records the end of the old object before the real call and the new one after it. `bytes` is `None` when the
    /// product overflows: then the call fails and the old object stays.
    #[inline(always)]
    fn reallocate(ptr: Ptr, bytes: Option<usize>, caller: Caller, real: impl FnOnce() -> Ptr) -> Ptr {
        let (false, Some(size)) = (ptr.is_null(), bytes) else {
            return allocate(bytes.unwrap_or(0), caller, real);
        };
        let mask = fast_path::mask();
        // SAFETY: C's contract of realloc: a live block.
        if size < SMALL && unsafe { fast_path::unrecorded(ptr, mask) } {
            return record_if_kept(mask, real(), size, caller);
        }
        let Some(recording) = recording::enter() else { return real() };
        recording.free(FREE_HEAP | RESIZED, ptr as usize, 0);
        let found = real();
        if !found.is_null() {
            recording.alloc(ALLOC_HEAP | RESIZED, found as usize, size, &caller);
        } else if size != 0 {
            // The call failed and the old block stays; its exact size is not known any more.
            let _errno = numamma_hook::errno::Saved::now();
            let known = in_effect::measures() && in_effect::releases();
            // SAFETY: a failed realloc leaves the block alive, and it belongs to the allocator that is asked.
            let old = if known { unsafe { real::malloc_usable_size(ptr) } } else { 0 };
            recording.alloc(ALLOC_HEAP | RESIZED, ptr as usize, old, &caller);
        }
        found
    }

    pub unsafe fn mmap(arguments: &MmapArguments, caller: &Caller) -> Ptr {
        let recording = recording::enter();
        // SAFETY: forwarded unchanged.
        let found = unsafe { arguments.forward() };
        if let Some(recording) = recording.filter(|_| found != libc::MAP_FAILED) {
            recording.alloc(ALLOC_MMAP, found as usize, pages(arguments.len), caller);
        }
        found
    }

    #[allow(clippy::too_many_arguments)] // five of mremap, one unused, and the caller
    pub unsafe extern "C" fn mremap(
        addr: Ptr,
        old: usize,
        new: usize,
        flags: c_int,
        target: Ptr,
        _unused: usize,
        ra: usize,
        cfa: usize,
        rbp: usize,
    ) -> Ptr {
        if !static_tls::exists() {
            // SAFETY: C's contract of mremap.
            return unsafe { real::mremap(addr, old, new, flags, target) };
        }
        let recording = recording::enter();
        // A shared mapping with old = 0 is duplicated, and DONTUNMAP leaves the old range mapped.
        let leaves = old != 0 && flags & libc::MREMAP_DONTUNMAP == 0;
        if let (Some(recording), true) = (&recording, leaves) {
            recording.free(FREE_MMAP, addr as usize, pages(old));
        }
        // SAFETY: C's contract of mremap.
        let found = faults::without_window(|| unsafe { remapped(addr, old, new, flags, target) });
        let caller = Caller { ra, cfa, rbp };
        match recording {
            Some(recording) if found != libc::MAP_FAILED => {
                recording.alloc(ALLOC_MMAP, found as usize, pages(new), &caller);
            }
            // The call failed and the old mapping stays.
            Some(recording) if leaves => recording.alloc(ALLOC_MMAP, addr as usize, pages(old), &caller),
            _ => {}
        }
        found
    }

    /// mremap(2), also of a range that is one mapping where nothing samples. What was mapped beside registered memory
    /// and touched stays an area of its own: the kernel gave it an anon_vma of its own.
    ///
    /// # Safety
    /// C's contract of mremap.
    unsafe fn remapped(addr: Ptr, old: usize, new: usize, flags: c_int, target: Ptr) -> Ptr {
        let before = numamma_hook::errno::get();
        // SAFETY: forwarded unchanged.
        let found = unsafe { real::mremap(addr, old, new, flags, target) };
        let call = Call::new(addr as usize, old, new, flags, target as usize);
        let refused = found == libc::MAP_FAILED && numamma_hook::errno::get() == libc::EFAULT;
        // The kernel has unmapped the end of a range that becomes smaller.
        let kept = call.old.min(call.new);
        if !refused || !faults::have_worked() || sandbox::entered() || !call.is_valid() || kept == 0 {
            return found;
        }
        // What the call changes is not left half done by a signal handler.
        let _held = HeldSignals::hold();
        // SAFETY: C's contract of mremap.
        match unsafe { by_areas(&Call { old: kept, ..call }) } {
            Ok(moved) => {
                numamma_hook::errno::set(before);
                moved as Ptr
            }
            Err(error) => {
                numamma_hook::errno::set(error);
                found
            }
        }
    }

    fn pages(len: usize) -> usize {
        len.checked_next_multiple_of(sys::PAGE).unwrap_or(len)
    }
}
