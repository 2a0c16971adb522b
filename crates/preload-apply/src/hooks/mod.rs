//! The C functions that this library takes over.

pub mod exit;
pub mod libraries;
pub mod malloc;
pub mod mmap;
pub mod processes;
pub mod pthread;
pub mod redirect;
pub mod releases;
pub mod shm;

/// Runs `place`; `None` if it panics, which must not unwind into the program.
fn contained<T>(place: impl FnOnce() -> Option<T>) -> Option<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(place)).unwrap_or(None)
}
