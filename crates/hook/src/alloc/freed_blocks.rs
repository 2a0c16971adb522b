//! A list of freed blocks of one size, without a lock.
//!
//! A thread takes the whole list and puts the rest back, so that no thread reads a block that another one takes at the
//! same time. `models/` runs this file with all interleavings of a few threads.

use core::ptr;

use crate::atomics::{AtomicPtr, Ordering, Unshared};

/// A freed block.
pub struct Free {
    pub next: Unshared<*mut Free>,
}

/// The list.
pub struct FreedBlocks(AtomicPtr<Free>);

impl FreedBlocks {
    /// Without blocks.
    #[cfg(not(loom))]
    pub const fn new() -> FreedBlocks {
        FreedBlocks(AtomicPtr::new(ptr::null_mut()))
    }

    /// Without blocks; loom's atomics are made at run time.
    #[cfg(loom)]
    pub fn new() -> FreedBlocks {
        FreedBlocks(AtomicPtr::new(ptr::null_mut()))
    }

    /// A block that is the caller's from here on. `None` also while another thread has the list.
    pub fn take(&self) -> Option<*mut u8> {
        if self.0.load(Ordering::Relaxed).is_null() {
            return None;
        }
        // Acquire pairs with the Release of `give_back`: the whole list belongs to this thread from here on.
        let first = self.0.swap(ptr::null_mut(), Ordering::Acquire);
        if first.is_null() {
            return None;
        }
        // SAFETY: the blocks of a taken list are live, linked, and used by no other thread.
        unsafe {
            let rest = next(first);
            if !rest.is_null()
                && self.0.compare_exchange(ptr::null_mut(), rest, Ordering::Release, Ordering::Relaxed).is_err()
            {
                let mut last = rest;
                while !next(last).is_null() {
                    last = next(last);
                }
                self.give_back(rest, last);
            }
        }
        Some(first.cast())
    }

    /// Takes a block that is freed.
    ///
    /// # Safety
    /// It belongs to the caller, and has the size of the list.
    pub unsafe fn put(&self, block: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { self.give_back(block.cast(), block.cast()) }
    }

    /// Puts the linked blocks from `first` to `last` on the list.
    ///
    /// # Safety
    /// The blocks belong to the caller.
    unsafe fn give_back(&self, first: *mut Free, last: *mut Free) {
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller's promise.
            unsafe { Unshared::write(&raw const (*last).next, head) };
            // Release: a thread that takes the list sees the links.
            match self.0.compare_exchange_weak(head, first, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

/// What follows a block of a list.
///
/// # Safety
/// The list belongs to the caller.
unsafe fn next(block: *mut Free) -> *mut Free {
    // SAFETY: the caller's promise.
    unsafe { Unshared::read(&raw const (*block).next) }
}
