//! Phases of the policy: which one holds, how the mover is requested, and how it is kept away from released memory.

pub mod begin;
pub mod end_of_thread;
pub mod exclusion;
pub mod mover_request;
