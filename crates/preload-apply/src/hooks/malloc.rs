//! The malloc family: matched allocations get a placed mapping of their own, all others go straight on.
//!
//! Rules of this file: an unmatched call costs one cache lookup and jumps to the real function; a placed
//! object starts on a page, so a pointer with low bits set is never looked up; whatever cannot be placed is
//! forwarded; `errno` changes only where C says so.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use numamma_hook::entry::Caller;
use numamma_hook::reentry::ReentryGuard;
use numamma_hook::{bootstrap_arena, errno, real};
use numamma_kernel::sys::PAGE;

use crate::matching::call_sites;
use crate::objects::object::Object;
use crate::objects::{heap, heap_table, small_objects};
use crate::rules::state;

type Ptr = *mut c_void;

/// A placed object of `size` bytes for the call site of `caller`, if a rule matches and the kernel agrees.
///
/// # Safety
/// `caller` comes from the entry stub of the running hook.
#[cold]
#[inline(never)]
unsafe fn place_matched(size: usize, align: usize, caller: &Caller) -> Option<Ptr> {
    if size > heap::MAX_SIZE {
        return None; // no object: the real allocator will say so
    }
    let _errno = errno::Saved::now();
    // What the C library allocates for us goes straight on: a rule for it would ask for it again and again.
    let _inside = ReentryGuard::enter()?;
    // SAFETY: the caller's promise.
    let rule = unsafe { call_sites::find(caller, size, None) }?;
    heap::place_new(state::get()?, rule, size, align).map(|address| address as Ptr)
}

/// A placed object in the stead of one under rule `owner` that is given another size. It keeps its rule and is no new
/// instance, unless a rule of another call site claims it. None when it is better left to the real allocator.
///
/// # Safety
/// As [`place_matched`].
unsafe fn place_again(owner: usize, size: usize, caller: &Caller) -> Option<Ptr> {
    let _errno = errno::Saved::now();
    // SAFETY: the caller's promise.
    let found = unsafe { call_sites::find(caller, size, Some(owner)) };
    let state = state::get()?;
    let placed = match found.filter(|&rule| rule != owner) {
        Some(rule) => heap::place_new(state, rule, size, 1),
        None => heap::place_under(state, owner, size, 1),
    };
    placed.map(|address| address as Ptr)
}

/// The real malloc and free for the fast paths, null until start-up is complete: one load and a jump, without
/// the look-up code that the general way needs a stack frame for.
static NEXT_MALLOC: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static NEXT_FREE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

type Malloc = unsafe extern "C" fn(usize) -> Ptr;
type Free = unsafe extern "C" fn(Ptr);

/// Opens the fast paths.
pub fn start() {
    let malloc = real::symbol::malloc().map_or(core::ptr::null_mut(), |f| f as *mut c_void);
    let free = real::symbol::free().map_or(core::ptr::null_mut(), |f| f as *mut c_void);
    NEXT_MALLOC.store(malloc, Ordering::Relaxed);
    NEXT_FREE.store(free, Ordering::Relaxed);
}

/// malloc(3).
///
/// # Safety
/// C's contract; `ra`, `cfa` and `rbp` come from the entry stub. The same holds for all hooks here.
pub unsafe extern "C" fn malloc(size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    // SAFETY: null becomes None; otherwise `start` stored a function of this prototype.
    let next: Option<Malloc> = unsafe { core::mem::transmute(NEXT_MALLOC.load(Ordering::Relaxed)) };
    match next {
        // SAFETY: forwarded unchanged.
        Some(next) if call_sites::is_unmatched(ra) => unsafe { next(size) },
        // SAFETY: the caller as the stub saw it.
        _ => unsafe { malloc_slow(size, ra, cfa, rbp) },
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn malloc_slow(size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    // SAFETY: the caller as the stub saw it, or forwarded unchanged.
    unsafe { place_matched(size, 1, &Caller { ra, cfa, rbp }).unwrap_or_else(|| real::malloc(size)) }
}

/// calloc(3). Fresh mappings are zero.
///
/// # Safety
/// See [`malloc`].
pub unsafe extern "C" fn calloc(count: usize, size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    // SAFETY: as in `malloc`.
    unsafe {
        if call_sites::is_unmatched(ra) {
            return real::calloc(count, size);
        }
        let bytes = count.checked_mul(size);
        match bytes.and_then(|bytes| place_matched(bytes, 1, &Caller { ra, cfa, rbp })) {
            Some(placed) => {
                if small_objects::owns(placed as usize) {
                    placed.cast::<u8>().write_bytes(0, bytes.unwrap_or(0));
                }
                placed
            }
            None => real::calloc(count, size),
        }
    }
}

/// memalign(3).
///
/// # Safety
/// See [`malloc`].
pub unsafe extern "C" fn memalign(align: usize, size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    // SAFETY: as in `malloc`.
    unsafe { aligned(align, size, ra, cfa, rbp).unwrap_or_else(|| real::memalign(align, size)) }
}

/// aligned_alloc(3).
///
/// # Safety
/// See [`malloc`].
pub unsafe extern "C" fn aligned_alloc(align: usize, size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    // SAFETY: as in `malloc`.
    unsafe { aligned(align, size, ra, cfa, rbp).unwrap_or_else(|| real::aligned_alloc(align, size)) }
}

/// valloc(3).
///
/// # Safety
/// See [`malloc`].
pub unsafe extern "C" fn valloc(size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    // SAFETY: as in `malloc`.
    unsafe { aligned(PAGE, size, ra, cfa, rbp).unwrap_or_else(|| real::valloc(size)) }
}

/// pvalloc(3).
///
/// # Safety
/// See [`malloc`].
pub unsafe extern "C" fn pvalloc(size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    // SAFETY: as in `malloc`.
    unsafe { aligned(PAGE, size, ra, cfa, rbp).unwrap_or_else(|| real::pvalloc(size)) }
}

/// posix_memalign(3).
///
/// # Safety
/// See [`malloc`].
pub unsafe extern "C" fn posix_memalign(
    out: *mut Ptr,
    align: usize,
    size: usize,
    ra: usize,
    cfa: usize,
    rbp: usize,
) -> c_int {
    // SAFETY: as in `malloc`; C's contract makes `out` writable.
    unsafe {
        let valid = align.is_multiple_of(size_of::<usize>());
        match valid.then(|| aligned(align, size, ra, cfa, rbp)).flatten() {
            Some(found) => {
                *out = found;
                0
            }
            None => real::posix_memalign(out, align, size),
        }
    }
}

/// A placed object with the alignment asked for; wrong alignments are the real function's to refuse.
#[inline(always)]
unsafe fn aligned(align: usize, size: usize, ra: usize, cfa: usize, rbp: usize) -> Option<Ptr> {
    if call_sites::is_unmatched(ra) || !align.is_power_of_two() {
        return None;
    }
    // SAFETY: the caller as the stub saw it.
    unsafe { place_matched(size, align, &Caller { ra, cfa, rbp }) }
}

/// realloc(3).
///
/// # Safety
/// See [`malloc`].
pub unsafe extern "C" fn realloc(ptr: Ptr, size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    // SAFETY: as in `malloc`.
    unsafe {
        if small_objects::owns(ptr as usize) {
            return realloc_small(ptr, size, &Caller { ra, cfa, rbp });
        }
        if heap_table::possible(ptr as usize)
            && let Some(old) = heap_table::find(ptr as usize)
        {
            return realloc_placed(&old, size, &Caller { ra, cfa, rbp });
        }
        if call_sites::is_unmatched(ra) || (size == 0 && !ptr.is_null()) {
            return real::realloc(ptr, size);
        }
        match place_matched(size, 1, &Caller { ra, cfa, rbp }) {
            None => real::realloc(ptr, size),
            Some(fresh) => {
                if !ptr.is_null() {
                    let known = real::malloc_usable_size(ptr);
                    core::ptr::copy_nonoverlapping(ptr.cast::<u8>(), fresh.cast(), known.min(size));
                    real::free(ptr);
                }
                fresh
            }
        }
    }
}

/// reallocarray(3).
///
/// # Safety
/// See [`malloc`].
pub unsafe extern "C" fn reallocarray(ptr: Ptr, count: usize, size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    match count.checked_mul(size) {
        // SAFETY: as in `malloc`.
        Some(bytes) => unsafe { realloc(ptr, bytes, ra, cfa, rbp) },
        None => {
            errno::set(libc::ENOMEM);
            core::ptr::null_mut()
        }
    }
}

/// Gives a placed object another size: in place within its last page, else by allocating, placing, copying.
/// mremap is no way: growing over several mappings is EFAULT.
#[cold]
#[inline(never)]
unsafe fn realloc_placed(old: &Object, size: usize, caller: &Caller) -> Ptr {
    if size == 0 {
        if let Some((object, moving)) = heap_table::take(old.base) {
            heap::release(&object, moving);
        }
        return core::ptr::null_mut();
    }
    if size >= PAGE && heap_table::pages_of(size) == old.pages {
        heap_table::resize(old.base, size);
        return old.base as Ptr;
    }
    // SAFETY: the caller as the stub saw it; plain allocation; the copy stays inside both blocks, which cannot overlap.
    unsafe {
        let fresh = place_again(old.rule, size, caller).unwrap_or_else(|| real::malloc(size));
        if fresh.is_null() {
            return fresh;
        }
        core::ptr::copy_nonoverlapping(old.base as *const u8, fresh.cast(), size.min(old.bytes()));
        if let Some((object, moving)) = heap_table::take(old.base) {
            heap::release(&object, moving);
        }
        fresh
    }
}

/// Gives a small placed object another size.
#[cold]
#[inline(never)]
unsafe fn realloc_small(old: Ptr, size: usize, caller: &Caller) -> Ptr {
    let known = small_objects::usable(old as usize);
    // SAFETY: C's contract: the program gives the old object up; the copy stays inside both, which cannot overlap.
    unsafe {
        if size == 0 {
            small_objects::release(old as usize);
            return core::ptr::null_mut();
        }
        // Not much larger than it must be: it may stay.
        if size <= known && size > known / 2 {
            return old;
        }
        let placed = small_objects::rule_of(old as usize).and_then(|rule| place_again(rule, size, caller));
        let fresh = placed.unwrap_or_else(|| real::malloc(size));
        if !fresh.is_null() {
            core::ptr::copy_nonoverlapping(old.cast::<u8>(), fresh.cast(), size.min(known));
            small_objects::release(old as usize);
        }
        fresh
    }
}

/// free(3), from any thread.
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(ptr: Ptr) {
    // SAFETY: null becomes None; otherwise `start` stored a function of this prototype.
    let next: Option<Free> = unsafe { core::mem::transmute(NEXT_FREE.load(Ordering::Relaxed)) };
    match next {
        Some(next)
            if !heap_table::possible(ptr as usize)
                && !small_objects::owns(ptr as usize)
                && !bootstrap_arena::owns(ptr) =>
        {
            // SAFETY: neither a placed object nor a bootstrap block, so forwarded unchanged.
            unsafe { next(ptr) }
        }
        // SAFETY: as C says.
        _ => unsafe { free_slow(ptr) },
    }
}

#[inline(never)]
unsafe extern "C" fn free_slow(ptr: Ptr) {
    if small_objects::owns(ptr as usize) {
        // SAFETY: as C says.
        return unsafe { small_objects::release(ptr as usize) };
    }
    if heap_table::possible(ptr as usize)
        && let Some((object, moving)) = heap_table::take(ptr as usize)
    {
        return heap::release(&object, moving);
    }
    // SAFETY: not ours, so forwarded unchanged.
    unsafe { real::free(ptr) }
}

/// malloc_usable_size(3).
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(ptr: Ptr) -> usize {
    if small_objects::owns(ptr as usize) {
        return small_objects::usable(ptr as usize);
    }
    if heap_table::possible(ptr as usize)
        && let Some(object) = heap_table::find(ptr as usize)
    {
        return object.bytes();
    }
    // SAFETY: not ours, so forwarded unchanged.
    unsafe { real::malloc_usable_size(ptr) }
}

/// The exported names; in a module of their own because the stubs carry C's names.
mod exported {
    use super::Ptr;
    use core::ffi::c_int;

    numamma_hook::entry! {
        /// malloc(3).
        fn malloc(size: usize) -> Ptr => super::malloc;
        /// calloc(3).
        fn calloc(count: usize, size: usize) -> Ptr => super::calloc;
        /// realloc(3).
        fn realloc(ptr: Ptr, size: usize) -> Ptr => super::realloc;
        /// reallocarray(3).
        fn reallocarray(ptr: Ptr, count: usize, size: usize) -> Ptr => super::reallocarray;
        /// memalign(3).
        fn memalign(align: usize, size: usize) -> Ptr => super::memalign;
        /// aligned_alloc(3).
        fn aligned_alloc(align: usize, size: usize) -> Ptr => super::aligned_alloc;
        /// valloc(3).
        fn valloc(size: usize) -> Ptr => super::valloc;
        /// pvalloc(3).
        fn pvalloc(size: usize) -> Ptr => super::pvalloc;
        /// posix_memalign(3).
        fn posix_memalign(out: *mut Ptr, align: usize, size: usize) -> c_int => super::posix_memalign;
    }
}
