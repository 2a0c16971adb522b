//! The guard that proves "this thread is not already inside a hook".
//!
//! Allocations by the real functions, the loader or a signal handler while a hook runs are forwarded unrecorded:
//! recording is not re-entrant, and memory that another allocator maps for its own heap is not an object of the
//! program.

use core::cell::Cell;
use core::sync::atomic::{Ordering, compiler_fence};

#[repr(C)]
struct Block {
    inside: Cell<bool>,
}

crate::static_tls!(fn block() -> Block, "numamma_hook_guard");

/// Proof that this thread is inside a hook; the thread leaves the hook when it is dropped.
pub struct ReentryGuard(());

impl ReentryGuard {
    /// Enters a hook; `None` when this thread is inside one already (then the call must only be forwarded).
    #[inline(always)]
    pub fn enter() -> Option<ReentryGuard> {
        let inside = &block().inside;
        if inside.get() {
            return None;
        }
        inside.set(true);
        // A signal handler on this thread must see the flag before anything it protects.
        compiler_fence(Ordering::SeqCst);
        Some(ReentryGuard(()))
    }
}

impl Drop for ReentryGuard {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        block().inside.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::ReentryGuard;

    #[test]
    fn second_entry_is_refused_until_the_first_leaves() {
        let first = ReentryGuard::enter();
        assert!(first.is_some());
        assert!(ReentryGuard::enter().is_none());
        assert!(std::thread::spawn(|| ReentryGuard::enter().is_some()).join().unwrap());
        drop(first);
        assert!(ReentryGuard::enter().is_some());
    }
}
