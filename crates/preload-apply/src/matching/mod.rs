//! From the names of a policy to addresses in the loaded modules, and from the call stack of an allocation to its rule.
//!
//! `resolve.rs` reads the symbols ([`elf`], filtered by a [`name_table`]) and line tables ([`source_lines`],
//! [`line_table`]) of the loaded [`modules`] and finds the [`wrappers`] around the allocator, at start-up and whenever
//! a library comes or goes. It publishes [`call_sites`], in which a hooked allocation is looked up unless the cache
//! [`unmatched`] has the answer. What a name means and which rule takes an allocation is decided in
//! [`numamma_plan::callsite`].

pub mod call_sites;
pub mod elf;
mod line_table;
pub mod modules;
pub mod name_table;
pub mod pending;
pub mod source_lines;
pub mod unmatched;
pub mod wrappers;
