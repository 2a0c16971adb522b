//! Starting a program: what it is, the library preloaded into it, the process, its signals and its exit status.
//!
//! `profile` and `apply` use it alike, and it knows neither.

pub mod elsewhere;
pub mod executable;
pub mod exit;
pub mod held;
pub mod invocation;
pub mod library;
pub mod memory;
pub mod placed;
pub mod running;
pub mod signals;
pub mod wrapper;
