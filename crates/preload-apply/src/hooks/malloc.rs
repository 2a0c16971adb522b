//! The malloc family: matched allocations get a placed mapping of their own, all others are forwarded. realloc is in
//! malloc/realloc.rs.
//!
//! An unmatched call costs one cache lookup and a jump to the real function. A placed object of a page or more starts
//! on a page boundary or a multiple of two cache lines behind one, so a pointer with other low bits is never looked up
//! in the table. An allocation that cannot be placed is forwarded. `errno` changes only where C says so.

pub mod bounds;
pub mod realloc;

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use numamma_hook::entry::Caller;
use numamma_hook::real::in_effect::{self, Member};
use numamma_hook::reentry::ReentryGuard;
use numamma_hook::{bootstrap_arena, errno, real, say_once};
use numamma_kernel::sys::PAGE;

use super::contained;
use crate::matching::cached::groups::Taker;
use crate::matching::cached::{decided, unmatched};
use crate::matching::call_sites;
use crate::objects::heap::Wanted;
use crate::objects::released::elsewhere;
use crate::objects::released::glibc::ReleasedBy;
use crate::objects::{heap, heap_table, released, small_objects};
use crate::rules::state;

pub use realloc::{realloc, reallocarray};

pub type Ptr = *mut c_void;

/// A placed object for the call site of `caller` in the hook of `member`, if a rule matches and the
/// kernel agrees.
///
/// # Safety
/// `caller` comes from the entry stub of the running hook.
#[cold]
#[inline(never)]
pub unsafe fn place_matched(member: Member, wanted: Wanted, caller: &Caller) -> Option<Ptr> {
    if wanted.size > heap::MAX_SIZE {
        return None; // the real allocator reports the error
    }
    // SAFETY: the caller's promise.
    let known = unsafe { decided::look_up(caller) };
    let taker = call_sites::taker(known, wanted.size);
    match taker {
        Taker::Nobody => return None,
        Taker::Rule(rule) if heap::leaves(rule, wanted.size) => return None,
        _ => {}
    }
    let _errno = errno::Saved::now();
    // Allocations that the C library makes inside this call are forwarded: matching them would recurse.
    let _inside = ReentryGuard::enter()?;
    contained(|| {
        let rule = match taker {
            Taker::Rule(rule) => rule,
            // SAFETY: the caller's promise.
            _ => unsafe { call_sites::find_beyond(known, caller, wanted.size, None) }?,
        };
        if !in_effect::returns(member) {
            let name = member.name();
            say_once!(
                "the program has a free of its own: what it allocates with {name}, which it has not, is not placed"
            );
            return None;
        }
        heap::place_new(state::get()?, rule, wanted).map(|address| address as Ptr)
    })
}

/// What malloc asks for.
pub fn plain(size: usize) -> Wanted {
    Wanted { size, align: 1, zero: false, grows: false, resized: false, swings: false }
}

type Malloc = unsafe extern "C" fn(usize) -> Ptr;
type Free = unsafe extern "C" fn(Ptr);

/// The real malloc and free for the fast paths, each one load and a jump: the code of [`real`] that looks functions up
/// would add a stack frame. Until start-up is complete they are functions that do look up.
static NEXT_MALLOC: AtomicPtr<c_void> = AtomicPtr::new(malloc_before_start as *mut c_void);
static NEXT_FREE: AtomicPtr<c_void> = AtomicPtr::new(free_before_start as *mut c_void);

unsafe extern "C" fn malloc_before_start(size: usize) -> Ptr {
    // SAFETY: forwarded unchanged.
    unsafe { real::malloc(size) }
}

unsafe extern "C" fn free_before_start(ptr: Ptr) {
    // SAFETY: forwarded unchanged.
    unsafe { real::free(ptr) }
}

#[inline(always)]
fn next_malloc() -> Malloc {
    // SAFETY: only functions of this prototype are stored.
    unsafe { core::mem::transmute(NEXT_MALLOC.load(Ordering::Relaxed)) }
}

#[inline(always)]
fn next_free() -> Free {
    // SAFETY: only functions of this prototype are stored.
    unsafe { core::mem::transmute(NEXT_FREE.load(Ordering::Relaxed)) }
}

/// Stores the real functions for the fast paths.
pub fn start() {
    if let Some(malloc) = real::symbol::malloc() {
        NEXT_MALLOC.store(malloc as *mut c_void, Ordering::Relaxed);
    }
    if let Some(free) = real::symbol::free() {
        let (before, real) = (free_before_start as *mut c_void, free as *mut c_void);
        let _ = NEXT_FREE.compare_exchange(before, real, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Lets the fast path of malloc give kept memory back when the real one has none. Before memory is kept it need not
/// ask.
pub fn expect_shortage() {
    if let Some(malloc) = real::symbol::malloc() {
        let (real, asking) = (malloc as *mut c_void, malloc_or_give_way as *mut c_void);
        let _ = NEXT_MALLOC.compare_exchange(real, asking, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Lets the fast path of free look for small objects. Before the first one there is no need.
pub fn expect_small_objects() {
    NEXT_FREE.store(free_small as *mut c_void, Ordering::Relaxed);
}

/// malloc of the allocator in effect, see [`or_give_way`].
///
/// # Safety
/// C's contract.
pub unsafe extern "C" fn malloc_or_give_way(size: usize) -> Ptr {
    // SAFETY: forwarded unchanged.
    or_give_way(size, || unsafe { real::malloc(size) })
}

/// What `allocate` returns for `size` bytes; if that is null while freed memory is kept, what it returns once that has
/// been given back, unless nobody can have so much.
#[inline(always)]
pub fn or_give_way(size: usize, allocate: impl Fn() -> Ptr) -> Ptr {
    elsewhere::allocating(size);
    match allocate() {
        found if found.is_null() && released::give_way_for(size) => allocate(),
        found => found,
    }
}

/// malloc(3) of a caller that the cache does not know: the fast path of `operator new` and other wrappers.
///
/// # Safety
/// C's contract; `ra`, `cfa` and `rbp` come from the entry stub. The same holds for all hooks here.
unsafe extern "C" fn malloc_in_wrapper(size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    // SAFETY: the caller as the stub saw it.
    match unsafe { unmatched::caller_of_wrapper(ra, cfa) } {
        // SAFETY: forwarded unchanged.
        Some((outer, _)) if unmatched::begins_no_rule(outer) => unsafe { next_malloc()(size) },
        // SAFETY: the caller as the stub saw it.
        _ => unsafe { malloc_slow(size, ra, cfa, rbp) },
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn malloc_slow(size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    // SAFETY: the caller as the stub saw it, or forwarded unchanged.
    unsafe {
        if unmatched::is_unmatched(ra, cfa) {
            return malloc_or_give_way(size);
        }
        place_matched(Member::Malloc, plain(size), &Caller { ra, cfa, rbp }).unwrap_or_else(|| malloc_or_give_way(size))
    }
}

/// calloc(3).
///
/// # Safety
/// See [`malloc_in_wrapper`].
pub unsafe extern "C" fn calloc(count: usize, size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    // SAFETY: as in `malloc_in_wrapper`.
    unsafe {
        if unmatched::is_unmatched(ra, cfa) {
            return or_give_way(count.saturating_mul(size), || real::calloc(count, size));
        }
        let wanted = count.checked_mul(size).map(|size| Wanted { zero: true, ..plain(size) });
        let placed = wanted.and_then(|wanted| place_matched(Member::Calloc, wanted, &Caller { ra, cfa, rbp }));
        placed.unwrap_or_else(|| or_give_way(count.saturating_mul(size), || real::calloc(count, size)))
    }
}

/// memalign(3).
///
/// # Safety
/// See [`malloc_in_wrapper`].
pub unsafe extern "C" fn memalign(align: usize, size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    // SAFETY: as in `malloc_in_wrapper`.
    unsafe {
        let real = || or_give_way(size, || real::memalign(align, size));
        aligned(Member::Memalign, align, size, ra, cfa, rbp).unwrap_or_else(real)
    }
}

/// aligned_alloc(3).
///
/// # Safety
/// See [`malloc_in_wrapper`].
pub unsafe extern "C" fn aligned_alloc(align: usize, size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    // SAFETY: as in `malloc_in_wrapper`.
    unsafe {
        let real = || or_give_way(size, || real::aligned_alloc(align, size));
        aligned(Member::AlignedAlloc, align, size, ra, cfa, rbp).unwrap_or_else(real)
    }
}

/// valloc(3).
///
/// # Safety
/// See [`malloc_in_wrapper`].
pub unsafe extern "C" fn valloc(size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    // SAFETY: as in `malloc_in_wrapper`.
    unsafe {
        let real = || or_give_way(size, || real::valloc(size));
        aligned(Member::Valloc, PAGE, size, ra, cfa, rbp).unwrap_or_else(real)
    }
}

/// pvalloc(3).
///
/// # Safety
/// See [`malloc_in_wrapper`].
pub unsafe extern "C" fn pvalloc(size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    // SAFETY: as in `malloc_in_wrapper`.
    unsafe {
        let real = || or_give_way(size, || real::pvalloc(size));
        aligned(Member::Pvalloc, PAGE, size, ra, cfa, rbp).unwrap_or_else(real)
    }
}

/// posix_memalign(3).
///
/// # Safety
/// See [`malloc_in_wrapper`].
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
        match valid.then(|| aligned(Member::PosixMemalign, align, size, ra, cfa, rbp)).flatten() {
            Some(found) => {
                *out = found;
                0
            }
            None => {
                elsewhere::allocating(size);
                match real::posix_memalign(out, align, size) {
                    libc::ENOMEM if released::give_way_for(size) => real::posix_memalign(out, align, size),
                    found => found,
                }
            }
        }
    }
}

/// A placed object with the alignment asked for. An invalid alignment is forwarded: the real function reports the
/// error.
#[inline(always)]
unsafe fn aligned(member: Member, align: usize, size: usize, ra: usize, cfa: usize, rbp: usize) -> Option<Ptr> {
    // SAFETY: the caller as the stub saw it.
    if unsafe { unmatched::is_unmatched(ra, cfa) } || !align.is_power_of_two() {
        return None;
    }
    // SAFETY: the caller as the stub saw it.
    unsafe { place_matched(member, Wanted { align, ..plain(size) }, &Caller { ra, cfa, rbp }) }
}

/// free(3), from any thread.
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(ptr: Ptr) {
    if heap_table::may_hold(ptr as usize) || bootstrap_arena::owns(ptr) {
        // SAFETY: C's contract of free.
        unsafe { free_slow(ptr) }
    } else {
        // SAFETY: neither a placed object of a page or more nor a bootstrap block; the function that is stored knows
        // the small ones, if there are any.
        unsafe { next_free()(ptr) }
    }
}

/// free(3) of what may be a small object.
unsafe extern "C" fn free_small(ptr: Ptr) {
    if small_objects::owns(ptr as usize) {
        // SAFETY: C's contract of free.
        unsafe { free_slow(ptr) }
    } else {
        // SAFETY: no placed object, so forwarded unchanged.
        unsafe { real::free(ptr) }
    }
}

#[inline(never)]
unsafe extern "C" fn free_slow(ptr: Ptr) {
    // SAFETY: C's contract of free; a block that is no placed object is forwarded unchanged.
    unsafe {
        if !release(ptr) {
            real::free(ptr);
        }
    }
}

/// Releases a placed object; false when `ptr` is none.
///
/// # Safety
/// C's contract of free.
pub unsafe fn release(ptr: Ptr) -> bool {
    if let Some(small) = small_objects::find(ptr as usize) {
        // SAFETY: C's contract of free.
        unsafe { small.release() };
        return true;
    }
    heap_table::possible(ptr as usize) && heap::release(ptr as usize, ReleasedBy::Free)
}

/// malloc_usable_size(3).
///
/// # Safety
/// C's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(ptr: Ptr) -> usize {
    // SAFETY: no placed object, so forwarded unchanged.
    placed_size(ptr).unwrap_or_else(|| unsafe { real::malloc_usable_size(ptr) })
}

/// Bytes usable in a placed object; `None` when `ptr` is none.
pub fn placed_size(ptr: Ptr) -> Option<usize> {
    if let Some(small) = small_objects::find(ptr as usize) {
        return Some(small.usable());
    }
    heap_table::possible(ptr as usize).then(|| heap_table::find(ptr as usize)).flatten().map(|object| object.usable())
}

/// The exported names, in a module of their own because the stubs have the names of the C functions.
mod exported {
    use super::{NEXT_MALLOC, Ptr, malloc_in_wrapper};
    use crate::matching::cached::unmatched::{CALLERS, MIXED, UNMATCHED};

    numamma_hook::malloc_family_entries!(super);

    /// malloc(3). The stub itself does what [`begins_no_rule`] does: most allocations match no rule and go on to the
    /// real malloc from here, after one load and one compare.
    ///
    /// [`begins_no_rule`]: crate::matching::cached::unmatched::begins_no_rule
    ///
    /// # Safety
    /// C's contract of the function of this name.
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub unsafe extern "C" fn malloc(size: usize) -> Ptr {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "endbr64",
            "mov rsi, qword ptr [rsp]",
            "mov eax, esi",
            "shr eax, {mixed}",
            "xor eax, esi",
            "and eax, {last}",
            "lea rdx, [rip + {unmatched}]",
            "cmp rsi, qword ptr [rdx + 8 * rax]",
            "jne 2f",
            "jmp qword ptr [rip + {next}]",
            "2:",
            "lea rdx, [rsp + 8]",
            "mov rcx, rbp",
            "jmp {in_wrapper}",
            ".cfi_endproc",
            mixed = const MIXED,
            last = const CALLERS - 1,
            unmatched = sym UNMATCHED,
            next = sym NEXT_MALLOC,
            in_wrapper = sym malloc_in_wrapper,
        )
    }
}
