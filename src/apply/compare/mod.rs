//! Comparing policies by running the unmodified program under each of them.

pub mod child;
pub mod order;
pub mod residency;
pub mod stats;
