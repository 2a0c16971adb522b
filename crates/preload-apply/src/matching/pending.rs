//! Libraries that were loaded or unloaded and not yet resolved.
//!
//! Resolving places variables, which is above this folder: start-up stores the function to call.

use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// A library was loaded and its objects are not placed yet.
static PENDING: AtomicBool = AtomicBool::new(false);
/// One thread resolves at a time; another one that comes meanwhile goes on without waiting.
static BUSY: AtomicBool = AtomicBool::new(false);

/// Notes that a library was loaded where its objects could not be placed at once.
pub fn later() {
    PENDING.store(true, Ordering::Relaxed);
}

/// Whether a library was loaded or unloaded that has not been looked at yet.
pub fn pending() -> bool {
    PENDING.load(Ordering::Acquire) || BUSY.load(Ordering::Acquire)
}

/// Resolves now if a library was loaded and `runs` says that its code is executed (so the loader has finished with it).
pub fn catch_up(runs: impl FnOnce() -> bool) {
    if PENDING.load(Ordering::Relaxed) && runs() {
        resolve_now();
    }
}

/// Resolves now if a library was loaded; for places where the loader cannot be at work on this thread.
pub fn catch_up_now() {
    if PENDING.load(Ordering::Relaxed) {
        resolve_now();
    }
}

/// Resolves the loaded modules; null before start-up.
static RESOLVE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Stores the function that resolves the loaded modules.
pub fn start(resolve: fn()) {
    RESOLVE.store(resolve as *mut (), Ordering::Release);
}

fn resolve_now() {
    // SAFETY: null becomes None; otherwise `start` stored a function of this type.
    let resolve: Option<fn()> = unsafe { core::mem::transmute(RESOLVE.load(Ordering::Acquire)) };
    if let Some(resolve) = resolve {
        resolve();
    }
}

/// Begins to resolve; false when another thread is at it, which leaves a library pending.
pub fn begin() -> bool {
    if BUSY.swap(true, Ordering::Acquire) {
        PENDING.store(true, Ordering::Relaxed);
        return false;
    }
    PENDING.store(false, Ordering::Relaxed);
    true
}

/// Ends what [`begin`] began.
pub fn end() {
    BUSY.store(false, Ordering::Release);
}
