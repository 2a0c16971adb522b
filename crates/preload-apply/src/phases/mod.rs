//! Phases of the policy: which one holds, and how the thread that moves pages is told and kept away from memory in use.

pub mod begin;
pub mod exclusion;
pub mod mover_thread;
