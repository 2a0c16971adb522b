//! Puts the pages of one object where its plan wants them, within the budgets of mappings and memory.

pub mod apply;
mod available_memory;
pub mod counted_calls;
pub mod interleaving;
pub mod mapping_budget;
pub mod populate;
pub mod refusals;
pub mod relocate;
pub mod resident_nodes;

pub use available_memory::may_take;

/// Pages of an object, counted from its first whole page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub first: u64,
    pub pages: u64,
}
