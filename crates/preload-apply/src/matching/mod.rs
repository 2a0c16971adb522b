//! From the names of a policy to addresses in the loaded modules, and from the call stack of an allocation to its rule.
//!
//! `resolve.rs` reads the symbols ([`elf`], filtered by a [`name_table`]) and line tables ([`source_lines`],
//! [`line_table`]) of the loaded [`modules`] at start-up and whenever a library comes or goes, and publishes
//! [`call_sites`], in which every hooked allocation is looked up.

pub mod call_sites;
pub mod elf;
mod line_table;
pub mod modules;
pub mod name_table;
pub mod pending;
pub mod source_lines;
