//! The two preload libraries in real programs compiled here, on this machine. Placement on several nodes: tests/lab.

#[path = "../common/mod.rs"]
mod common;

mod apply;
mod apply_phases;
mod bound;
mod call_sites;
mod faulted;
mod matching;
mod mpi;
mod policies;
mod preload_profile;
mod relative_names;
mod shared;
mod traced;
