//! The accepted policy: its rules, their counters, and the budget of mappings.

pub mod churn;
pub mod coming_again;
pub mod counters;
pub mod extent;
pub mod heap_account;
pub mod in_use;
pub mod patience;
pub mod small_heap;
pub mod state;
