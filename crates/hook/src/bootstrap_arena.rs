//! Memory for allocations made before the real malloc is known.
//!
//! `dlsym` may allocate (its error text, for instance) while it looks up `malloc`. Such blocks come from a fixed
//! arena, are never freed, and are recognised by address in `free` and `realloc`.
//! Each block is preceded by its size.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the arena; dlsym's error texts need a few hundred.
const SIZE: usize = 64 << 10;
/// Bytes before each block, which hold its size and keep malloc's alignment.
const HEADER: usize = 16;

#[repr(C, align(64))]
struct Arena(UnsafeCell<[u8; SIZE]>);

// SAFETY: ranges are handed out once each by an atomic cursor, so no two threads get the same bytes.
unsafe impl Sync for Arena {}

static ARENA: Arena = Arena(UnsafeCell::new([0; SIZE]));
static USED: AtomicUsize = AtomicUsize::new(0);

/// Zeroed memory for `size` bytes aligned to `align` (a power of two), or null when the arena is full.
pub fn allocate(size: usize, align: usize) -> *mut c_void {
    let base = ARENA.0.get() as usize;
    let align = align.max(HEADER);
    let mut used = USED.load(Ordering::Relaxed);
    loop {
        let Some(unaligned) = (base + used + HEADER).checked_add(align - 1) else { return core::ptr::null_mut() };
        let start = unaligned & !(align - 1);
        let Some(end) = start.checked_add(size).filter(|&end| end <= base + SIZE) else {
            return core::ptr::null_mut();
        };
        // Relaxed: the cursor orders no other memory; the bytes were never used before.
        match USED.compare_exchange_weak(used, end - base, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                let block = (ARENA.0.get().cast::<u8>()).wrapping_add(start - base);
                // SAFETY: [start - HEADER, end) lies inside the arena and was just claimed by this thread.
                unsafe { block.sub(HEADER).cast::<usize>().write(size) };
                return block.cast();
            }
            Err(now) => used = now,
        }
    }
}

/// Whether `ptr` came from [`allocate`].
#[inline(always)]
pub fn owns(ptr: *const c_void) -> bool {
    (ptr as usize).wrapping_sub(ARENA.0.get() as usize) < SIZE
}

/// Size asked for when the block was allocated.
///
/// # Safety
/// `ptr` came from [`allocate`].
pub unsafe fn size(ptr: *const c_void) -> usize {
    // SAFETY: every block is preceded by its header.
    unsafe { ptr.cast::<u8>().sub(HEADER).cast::<usize>().read() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_remembered_and_bounded() {
        let a = allocate(10, 1);
        let b = allocate(100, 256);
        assert_eq!(a as usize % 16, 0);
        assert_eq!(b as usize % 256, 0);
        assert!(owns(a) && owns(b) && !owns(core::ptr::dangling()));
        // SAFETY: both came from the arena.
        unsafe {
            assert_eq!(size(a), 10);
            assert_eq!(size(b), 100);
        }
        assert!(allocate(SIZE, 16).is_null());
        assert!(allocate(usize::MAX - 40, 16).is_null());
    }
}
