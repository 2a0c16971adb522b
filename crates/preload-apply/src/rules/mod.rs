//! The accepted policy: its rules, their counters, and the budget of mappings.

pub mod churn;
pub mod counters;
pub mod small_heap;
pub mod state;
