//! The atomics of the parts that `models/` runs under a model checker, which has its own in place of this file.

use core::cell::UnsafeCell;
pub use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Memory that no two threads access at once. The model checker sees where they do.
#[repr(transparent)]
pub struct Unshared<T>(UnsafeCell<T>);

impl<T: Copy> Unshared<T> {
    /// Stores a value.
    ///
    /// # Safety
    /// `this` can be written to, and no other thread accesses it.
    #[inline(always)]
    pub unsafe fn write(this: *const Unshared<T>, value: T) {
        // SAFETY: the caller's promise; the cell is transparent.
        unsafe { UnsafeCell::raw_get(this.cast::<UnsafeCell<T>>()).write(value) }
    }

    /// The value that was stored.
    ///
    /// # Safety
    /// A value was stored, and no other thread writes one.
    #[inline(always)]
    pub unsafe fn read(this: *const Unshared<T>) -> T {
        // SAFETY: the caller's promise; the cell is transparent.
        unsafe { UnsafeCell::raw_get(this.cast::<UnsafeCell<T>>()).read() }
    }
}
