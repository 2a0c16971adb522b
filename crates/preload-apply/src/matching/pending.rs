//! The mark that a library was loaded or unloaded and its names are not resolved yet.
//!
//! Resolving places globals (`objects/`), which this folder must not use, so start-up stores the function to call.

use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// A library was loaded and its objects are not placed yet.
static PENDING: AtomicBool = AtomicBool::new(false);
/// One thread resolves at a time; a second one sets the mark and does not wait.
static BUSY: AtomicBool = AtomicBool::new(false);

/// Marks that a library was loaded whose globals could not be placed at once.
pub fn mark() {
    PENDING.store(true, Ordering::Relaxed);
}

/// Whether a library was loaded or unloaded that is not resolved yet.
pub fn is_pending() -> bool {
    PENDING.load(Ordering::Acquire) || BUSY.load(Ordering::Acquire)
}

/// Resolves if a library was loaded and `runs` says that code of a new library is being executed, so that the loader
/// has finished with it.
pub fn resolve_pending_if(runs: impl FnOnce() -> bool) {
    if PENDING.load(Ordering::Relaxed) && runs() {
        resolve_now();
    }
}

/// Resolves if a library was loaded. To be called only where the loader cannot be running on this thread.
pub fn resolve_pending() {
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

/// Begins to resolve; false when another thread is resolving, which leaves the mark set.
pub fn begin_resolving() -> bool {
    if BUSY.swap(true, Ordering::Acquire) {
        PENDING.store(true, Ordering::Relaxed);
        return false;
    }
    PENDING.store(false, Ordering::Relaxed);
    true
}

/// Ends what [`begin_resolving`] began.
pub fn end_resolving() {
    BUSY.store(false, Ordering::Release);
}
