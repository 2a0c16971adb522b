//! The C functions that this library takes over.

pub mod exit;
pub mod libraries;
pub mod malloc;
pub mod mmap;
pub mod pthread;
pub mod shm;
