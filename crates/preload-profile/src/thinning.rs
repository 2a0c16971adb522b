//! The short way for programs that allocate millions of times a second.
//!
//! When the recorder asks for thinning (see [`kept`]), most calls have nothing to report. With glibc's own
//! allocator they are told apart with one load before the hook does anything else: no guard is needed, since that
//! allocator calls no function we take over, and the size of a block to be freed is read from glibc's chunk header,
//! which free reads anyway (`malloc_usable_size` also reads the next chunk's). With any other allocator every call
//! goes the long way, where the same question is asked inside the guard.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

use numamma_channel::layout::{SMALL, kept};
use numamma_hook::{modules, real};

/// The thinning last heard of; 0 until there is any.
static HEARD: AtomicU32 = AtomicU32::new(0);
/// The same while the short way is open, else 0.
static SHORT: AtomicU32 = AtomicU32::new(0);

/// The mask of the short way; 0: closed.
#[inline(always)]
pub fn short_way() -> u32 {
    SHORT.load(Ordering::Relaxed)
}

/// Takes note of what the channel says; nearly always nothing new.
#[inline(always)]
pub fn hear(mask: u32) {
    if mask != HEARD.load(Ordering::Relaxed) {
        change(mask);
    }
}

#[cold]
#[inline(never)]
fn change(mask: u32) {
    HEARD.store(mask, Ordering::Relaxed);
    SHORT.store(if glibc_allocates() { mask } else { 0 }, Ordering::Relaxed);
}

/// Whether malloc and free are those of glibc's libc.so: then a block has glibc's chunk header.
fn glibc_allocates() -> bool {
    unsafe extern "C" {
        fn gnu_get_libc_version() -> *const libc::c_char;
    }
    // Without it (before 2.35) a module can only be found under the loader's lock, which a hook must not wait for.
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

/// Whether the block was thinned out, so that its end is of no interest either. `mask` is [`short_way`]'s.
///
/// # Safety
/// `ptr` is a live block of the heap.
#[inline(always)]
pub unsafe fn unrecorded(ptr: *mut c_void, mask: u32) -> bool {
    // A block asked for with fewer than SMALL bytes may have a chunk one granule larger; its end is then told in vain.
    // SAFETY: the way is only open with glibc's malloc, whose chunks have their size in the word before the block; blocks
    // of the bootstrap arena have their header there, and real::free leaves them alone.
    mask != 0 && !kept(ptr as u64, mask) && unsafe { *ptr.cast::<usize>().sub(1) } & !FLAGS < SMALL + GRANULE
}
