//! The accepted policy at work: its rules, what each has placed, and the machine it runs on.

pub mod counters;
pub mod small_heap;
pub mod state;
