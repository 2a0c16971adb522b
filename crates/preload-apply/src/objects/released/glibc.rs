//! The bounds of the program's own allocator: what it keeps and what it maps follows from what was released
//! (M_MMAP_THRESHOLD in mallopt(3)), and placed arrays are not released there.
//!
//! - `free` of a block that glibc had mapped raises the size from which it maps blocks, and with it the size from which
//!   it gives the end of its heap back. Without that, blocks that no rule places would be mapped and faulted anew in
//!   every step of the program.
//! - `realloc` lets the kernel resize or move a mapped block, or unmaps it after a copy, and raises nothing (`free` and
//!   `realloc` in malloc.c). If it did, the columns of a table that grow beside a placed one would be in the heap of
//!   glibc, where each step copies them and leaves a hole. To no bytes, `realloc` is `free`.
//! - A freed block of the heap lets it join small blocks, see [`consolidate`], whoever freed it.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use numamma_hook::held_signals::HeldSignals;
use numamma_hook::{errno, real};
use numamma_kernel::clock;
use numamma_kernel::sys::PAGE;

use crate::objects::object::Object;
use crate::rules::churn::allocator::{self, ALWAYS_MAPPED};

/// M_MMAP_THRESHOLD, before it rises.
pub const MMAP_THRESHOLD: usize = 128 << 10;
/// FASTBIN_CONSOLIDATION_THRESHOLD.
const CONSOLIDATES: usize = 64 << 10;
/// Bytes that are left of a block before it is freed where that must raise nothing: a block of the heap of that size is
/// joined with what is free beside it, smaller ones may be set aside (glibc.malloc.tcache_max).
const REMAINDER: usize = PAGE / 2;

/// Bytes of the largest object that `free` released so far, as far as the threshold rises.
static LARGEST: AtomicUsize = AtomicUsize::new(0);
/// Bytes left mapped because the process has confined itself.
static LEFT: AtomicUsize = AtomicUsize::new(0);
/// When [`consolidate`] last did so, ns.
static CONSOLIDATED: AtomicU64 = AtomicU64::new(0);

/// What the program called that released an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ReleasedBy {
    /// free, what is free under another name, and realloc to no bytes.
    Free,
    /// realloc, whose result takes the place of the object.
    Realloc,
}

/// Lets glibc set up its heap, in the thread that loads this library. With every allocation placed, the first one of
/// glibc would be made here, by any thread of the program: several set the heap up at once then, and in one that is to
/// be cancelled glibc 2.36 leaves it half done (`ptmalloc_init` calls getrandom(2), a point of cancellation).
pub fn set_up() {
    if !allocator::is_foreign() {
        let _errno = errno::Saved::now();
        // SAFETY: a block that is freed at once.
        unsafe { real::free(core::hint::black_box(real::malloc(1))) };
    }
}

/// Lets the program's allocator know that `object` was released.
pub fn released(object: &Object, by: ReleasedBy) {
    let raises = by == ReleasedBy::Free && object.bytes() <= ALWAYS_MAPPED;
    if raises && object.bytes() > LARGEST.load(Ordering::Relaxed) {
        LARGEST.fetch_max(object.bytes(), Ordering::Relaxed);
        raise_thresholds(object.size);
    } else if object.size >= CONSOLIDATES {
        consolidate();
    }
}

/// Lets the program's allocator free a block of `size` bytes, as it would have without this library.
#[cold]
fn raise_thresholds(size: usize) {
    if size >= MMAP_THRESHOLD {
        let _errno = errno::Saved::now();
        // A handler that left by siglongjmp, or ended the thread, would leave a lock of glibc's taken that the program
        // does not take here.
        let _held = HeldSignals::hold();
        // SAFETY: a block of its own, which is not used. Nothing is written but the allocator's header.
        unsafe { real::free(real::malloc(size)) };
    }
}

/// Lets the program's allocator free a block of [`CONSOLIDATES`] bytes, once in each tick of the coarse clock: glibc
/// joins what it keeps of small freed blocks, and gives the end of its heap back, only when a block of that size is
/// freed. Where a rule places all of these, its heap would only grow.
#[inline]
fn consolidate() {
    let now = clock::coarse_ns();
    if CONSOLIDATED.swap(now, Ordering::Relaxed) != now {
        let _errno = errno::Saved::now();
        // As in `raise_thresholds`.
        let _held = HeldSignals::hold();
        // SAFETY: as there.
        unsafe { real::free(real::malloc(CONSOLIDATES)) };
    }
}

/// Frees a block of the program's allocator with `usable` bytes that realloc replaced by a placed object. Cut first, a
/// mapped block is one of a page when it is freed, which raises nothing.
///
/// # Safety
/// The program gives up the block, and its contents are not needed.
pub unsafe fn free_replaced(block: *mut c_void, usable: usize) {
    let _errno = errno::Saved::now();
    // SAFETY: the caller's promise; a block that could not be cut is as it was.
    unsafe {
        let may_raise = (MMAP_THRESHOLD..=ALWAYS_MAPPED).contains(&usable);
        let cut = if may_raise { real::realloc(block, REMAINDER) } else { block };
        real::free(if cut.is_null() { block } else { cut });
    }
}

/// Whether, in a process that has confined itself, the program's own free would unmap an object of `bytes`: a filter
/// may kill for any other call. glibc unmaps blocks from M_MMAP_THRESHOLD on, which rises to the largest block that it
/// has unmapped; and of the others it keeps up to twice that, or what it was told. Smaller ones stay mapped: later
/// allocations are not placed. All do where glibc was told to map nothing.
pub fn would_unmap(bytes: usize) -> bool {
    let left =
        if bytes > threshold() { usize::MAX } else { LEFT.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) };
    bytes >= MMAP_THRESHOLD && left > kept() && !allocator::never_maps()
}

/// Size from which glibc maps each block, as far as the blocks tell that this library placed.
fn threshold() -> usize {
    let (in_heap, _) = allocator::told_sizes();
    LARGEST.load(Ordering::Relaxed).max(MMAP_THRESHOLD).max(in_heap)
}

/// Bytes that glibc keeps at the end of its heap: twice that, or what it was told.
pub fn kept() -> usize {
    let (_, trimmed) = allocator::told_sizes();
    trimmed.max(threshold().saturating_mul(2))
}
