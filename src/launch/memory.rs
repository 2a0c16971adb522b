//! The command's allocator: where memory is exhausted it ends the command with a reason, not with an abort.
//!
//! What a recording has written until then stays readable: the profile file is only appended to.

use std::alloc::{GlobalAlloc, Layout, System};

use super::exit;

/// The system's allocator, which never returns null. For the command only: the preloads have one of their own, which
/// lets every caller go on without memory.
#[derive(Debug)]
pub struct OrExit;

/// `block`, if it is one.
#[inline]
fn given(block: *mut u8, bytes: usize) -> *mut u8 {
    if block.is_null() {
        exit::out_of_memory(bytes);
    }
    block
}

// SAFETY: every call is handed on to the system's allocator, which fulfils the contract.
unsafe impl GlobalAlloc for OrExit {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's contract.
        given(unsafe { System.realloc(block, layout, size) }, size)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }
}
