//! Starting a program: what it is, the library preloaded into it, the process, its signals and its exit status.
//!
//! A leaf room, used by `profile` and by `apply` alike; it knows neither.

pub mod exit;
pub mod held;
pub mod library;
pub mod placed;
pub mod target;
