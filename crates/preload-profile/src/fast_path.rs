//! The fast path of malloc and free for programs that allocate millions of times a second.
//!
//! When the recorder asks for thinning (see [`kept`]), most calls have nothing to record. With glibc's own
//! allocator the hook recognises them with one load before anything else. No guard is needed, because that allocator
//! calls no hooked function, and the size of a block to free is read from glibc's chunk header, which free reads anyway
//! (`malloc_usable_size` also reads the next chunk's). With any other allocator every call takes the slow path, which
//! makes the same decision inside the guard.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

use numamma_channel::layout::{SMALL, STOP, kept};
use numamma_hook::real::in_effect;
use numamma_hook::{modules, real};

use crate::recording;

/// The mask that the channel had last; 0 without thinning.
static CHANNEL_MASK: AtomicU32 = AtomicU32::new(0);
/// The same where the fast path may be taken, else 0.
static FAST_MASK: AtomicU32 = AtomicU32::new(0);

/// The thinning mask of the fast path; 0 when it must not be taken.
#[inline(always)]
pub fn mask() -> u32 {
    FAST_MASK.load(Ordering::Relaxed)
}

/// Stores the channel's mask, which nearly always is the one stored already.
#[inline(always)]
pub fn set_mask(mask: u32) {
    if mask != CHANNEL_MASK.load(Ordering::Relaxed) {
        change(mask);
    }
}

#[cold]
#[inline(never)]
fn change(mask: u32) {
    CHANNEL_MASK.store(mask, Ordering::Relaxed);
    if mask == STOP {
        FAST_MASK.store(0, Ordering::Relaxed);
        return recording::stop();
    }
    FAST_MASK.store(if glibc_allocates() { mask } else { 0 }, Ordering::Relaxed);
}

/// Whether malloc and free are those of glibc's libc.so: then a block has glibc's chunk header.
fn glibc_allocates() -> bool {
    unsafe extern "C" {
        fn gnu_get_libc_version() -> *const libc::c_char;
    }
    // An allocator of the program's own hands its blocks to the hooks of the functions that it lacks.
    if !in_effect::releases() {
        return false;
    }
    // Before glibc 2.35 a module can only be found under the loader's lock, for which a hook must not wait.
    if real::symbol::_dl_find_object().is_none() {
        return false;
    }
    let module = |address: usize| modules::find(address).map(|m| m.start);
    let libc = module(gnu_get_libc_version as *const () as usize);
    let functions = [
        real::symbol::malloc().map(|f| f as usize),
        real::symbol::free().map(|f| f as usize),
        real::symbol::realloc().map(|f| f as usize),
    ];
    libc.is_some() && functions.iter().all(|f| f.and_then(module) == libc)
}

/// glibc keeps sizes in multiples of this, the header included (malloc.c, MALLOC_ALIGNMENT on x86_64).
const GRANULE: usize = 16;
/// Flags in the low bits of a chunk's size (malloc.c, SIZE_BITS).
const FLAGS: usize = 7;

/// Whether the allocation of the block was not recorded, so that its free is not recorded either. `mask` is the result
/// of [`mask`].
///
/// # Safety
/// `ptr` is a live block of the heap.
#[inline(always)]
pub unsafe fn unrecorded(ptr: *mut c_void, mask: u32) -> bool {
    // A block asked for with fewer than SMALL bytes may have a chunk one granule larger; its free is then recorded
    // without an allocation.
    // SAFETY: the mask is only set with glibc's malloc, whose chunks have their size in the word before the block;
    // blocks of the bootstrap arena have their header there, and real::free leaves them alone.
    mask != 0 && !kept(ptr as u64, mask) && unsafe { *ptr.cast::<usize>().sub(1) } & !FLAGS < SMALL + GRANULE
}
