//! The malloc family: matched allocations get a placed mapping of their own, all others go straight on.
//!
//! Rules of this file: an unmatched call costs one cache lookup and jumps to the real function; a placed
//! object starts on a page, so a pointer with low bits set is never looked up; whatever cannot be placed is
//! forwarded; `errno` changes only where C says so.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use numamma_kernel::mappings;

use numamma_hook::entry::Caller;
use numamma_hook::reentry::ReentryGuard;
use numamma_hook::{bootstrap_arena, errno, real};
use numamma_kernel::sys::{self, PAGE};
use numamma_plan::plan::{HUGE_PAGE, PagePlan};

use crate::matching::call_sites;
use crate::place::{self, Part};
use crate::state::{self, State, add};
use crate::table::{self, Placed};
use crate::{arena, check, cost, gate, mover, observed};

type Ptr = *mut c_void;

/// Larger objects do not exist (PTRDIFF_MAX), less what alignment may add.
const MAX_SIZE: usize = isize::MAX as usize - HUGE_PAGE as usize;

/// A placed object of `size` bytes for the call site of `caller`, if a rule matches and the kernel agrees.
///
/// # Safety
/// `caller` comes from the entry stub of the running hook.
#[cold]
#[inline(never)]
unsafe fn place_matched(size: usize, align: usize, caller: &Caller) -> Option<Ptr> {
    if size > MAX_SIZE {
        return None; // no object: the real allocator will say so
    }
    let _errno = errno::Saved::now();
    // What the C library allocates for us goes straight on: a rule for it would ask for it again and again.
    let _inside = ReentryGuard::enter()?;
    // SAFETY: the caller's promise.
    let rule = unsafe { call_sites::find(caller, size, None) }?;
    place_new(state::get()?, rule, size, align)
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
    match found.filter(|&rule| rule != owner) {
        Some(rule) => place_new(state, rule, size, 1),
        None => place_under(state, owner, size, 1),
    }
}

/// A placed object under rule `index`; counted in the rule whatever becomes of it.
fn place_new(state: &'static State, index: usize, size: usize, align: usize) -> Option<Ptr> {
    let rule = state.rules.get(index)?;
    add(&rule.counters.instances, 1);
    add(&rule.counters.bytes, size as u64);
    place_under(state, index, size, align)
}

/// Memory for an object under rule `index`.
fn place_under(state: &'static State, index: usize, size: usize, align: usize) -> Option<Ptr> {
    let rule = state.rules.get(index)?;
    if size < PAGE {
        if align <= arena::ALIGN
            && let Some(address) = arena::allocate(state, index, size)
        {
            return Some(address as Ptr);
        }
        if rule.counters.too_small.fetch_add(1, Ordering::Relaxed) == 0 && state.verbose {
            numamma_hook::say!("{}: allocations of less than a page are left where they are", rule.rule.name());
        }
        return None;
    }
    let placed = map_placed(state, index, size, align);
    if placed.is_none() {
        add(&rule.counters.unplaced, 1);
    }
    placed.map(|p| p.address as Ptr)
}

fn map_placed(state: &'static State, index: usize, size: usize, align: usize) -> Option<Placed> {
    let rule = state.rules.get(index)?;
    if size > MAX_SIZE {
        return None;
    }
    let len = table::mapped_len(size);
    let placing = rule.now();
    let mut plan = state.plan(index, placing, size as u64, (len / PAGE) as u64)?;
    let node = observed::instance_node(state, rule, placing);
    observed::apply(&mut plan, rule, placing, node);
    if !place::fit(state, index, &mut plan) {
        add(&rule.counters.over_budget, 1);
        return None;
    }
    let huge = if size >= HUGE_PAGE as usize { HUGE_PAGE as usize } else { PAGE };
    let block = plan.block_pages().unwrap_or(0);
    rule.counters.block.store(block * PAGE as u64, Ordering::Relaxed);
    let Some(address) = mappings::map_aligned(len, align.max(huge)) else {
        state.give_mappings(plan.run_count());
        return None;
    };
    let placed = Placed { address, size, rule: index, node, block, placing, waiting: false, moving: false };
    let part = Part { first: 0, pages: plan.pages };
    let done = cost::measure(&rule.counters, || place::apply(&plan, address, part, node, false));
    if done.is_ok() && table::reserve(address) && table::insert(&placed) {
        // A phase that began in between may have been over the table already.
        if rule.now() != placing {
            mover::request();
        }
        return Some(placed);
    }
    if let Err(error) = done {
        place::refused(rule.rule.name(), error);
    }
    state.give_mappings(plan.run_count());
    // SAFETY: the mapping was made above and nobody has seen it.
    unsafe { sys::unmap(address as Ptr, len) };
    None
}

/// The plan that an object's memory policy follows.
pub fn plan_of(state: &'static State, placed: &Placed) -> Option<PagePlan<'static>> {
    let mut plan = state.plan(placed.rule, placed.placing, placed.size as u64, (placed.mapped() / PAGE) as u64)?;
    observed::apply(&mut plan, state.rules.get(placed.rule)?, placed.placing, placed.node);
    plan.set_block_pages(placed.block);
    Some(plan)
}

/// Adds what is known of an object to its rule. A live one is held against the place that holds now, one that dies
/// against the place it has come to.
pub fn examine(state: &'static State, placed: &Placed, live: bool) {
    let Some(rule) = state.rules.get(placed.rule) else { return };
    let late = live && placed.placing != rule.now();
    let judged = if late { Placed { placing: rule.now(), block: 0, ..*placed } } else { *placed };
    if let Some(plan) = plan_of(state, &judged) {
        let whole = Part { first: 0, pages: plan.pages };
        check::examine(&plan, placed.address, whole, placed.node, late || placed.waiting, &rule.counters);
    }
}

/// Ends a placed object that was taken out of the table; if the mover is at work on it, that ends it.
fn release(placed: &Placed) {
    // The mover belongs to this process or to the one a vforked child shares memory with: a forked child finds no mover.
    if !(placed.moving && gate::has_mover()) {
        discard(placed);
    }
}

/// Checks and unmaps an object that nobody else knows any more.
pub fn discard(placed: &Placed) {
    let _errno = errno::Saved::now();
    if let Some(state) = state::get() {
        if state.reports() {
            examine(state, placed, false);
        }
        if let Some(plan) = plan_of(state, placed) {
            state.give_mappings(plan.run_count());
        }
    }
    // SAFETY: the program gave the object up, and taking it from the table made this the only release.
    unsafe { sys::unmap(placed.address as Ptr, placed.mapped()) };
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
                if arena::owns(placed as usize) {
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
        if arena::owns(ptr as usize) {
            return realloc_small(ptr, size, &Caller { ra, cfa, rbp });
        }
        if table::possible(ptr as usize)
            && let Some(old) = table::find(ptr as usize)
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
unsafe fn realloc_placed(old: &Placed, size: usize, caller: &Caller) -> Ptr {
    if size == 0 {
        if let Some(placed) = table::take(old.address) {
            release(&placed);
        }
        return core::ptr::null_mut();
    }
    if size >= PAGE && table::mapped_len(size) == old.mapped() {
        table::resize(old.address, size);
        return old.address as Ptr;
    }
    // SAFETY: the caller as the stub saw it; plain allocation; the copy stays inside both blocks, which cannot overlap.
    unsafe {
        let fresh = place_again(old.rule, size, caller).unwrap_or_else(|| real::malloc(size));
        if fresh.is_null() {
            return fresh;
        }
        core::ptr::copy_nonoverlapping(old.address as *const u8, fresh.cast(), size.min(old.mapped()));
        if let Some(placed) = table::take(old.address) {
            release(&placed);
        }
        fresh
    }
}

/// Gives a small placed object another size.
#[cold]
#[inline(never)]
unsafe fn realloc_small(old: Ptr, size: usize, caller: &Caller) -> Ptr {
    let known = arena::usable(old as usize);
    // SAFETY: C's contract: the program gives the old object up; the copy stays inside both, which cannot overlap.
    unsafe {
        if size == 0 {
            arena::release(old as usize);
            return core::ptr::null_mut();
        }
        // Not much larger than it must be: it may stay.
        if size <= known && size > known / 2 {
            return old;
        }
        let placed = arena::rule_of(old as usize).and_then(|rule| place_again(rule, size, caller));
        let fresh = placed.unwrap_or_else(|| real::malloc(size));
        if !fresh.is_null() {
            core::ptr::copy_nonoverlapping(old.cast::<u8>(), fresh.cast(), size.min(known));
            arena::release(old as usize);
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
        // SAFETY: not ours and not a bootstrap block, so forwarded unchanged.
        Some(next) if !table::possible(ptr as usize) && !arena::owns(ptr as usize) && !bootstrap_arena::owns(ptr) => unsafe {
            next(ptr)
        },
        // SAFETY: as C says.
        _ => unsafe { free_slow(ptr) },
    }
}

#[inline(never)]
unsafe extern "C" fn free_slow(ptr: Ptr) {
    if arena::owns(ptr as usize) {
        // SAFETY: as C says.
        return unsafe { arena::release(ptr as usize) };
    }
    if table::possible(ptr as usize)
        && let Some(placed) = table::take(ptr as usize)
    {
        return release(&placed);
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
    if arena::owns(ptr as usize) {
        return arena::usable(ptr as usize);
    }
    if table::possible(ptr as usize)
        && let Some(placed) = table::find(ptr as usize)
    {
        return placed.mapped();
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
