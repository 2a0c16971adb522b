//! From the names of a policy to addresses in the loaded modules, and from the call stack of an allocation to its rule.
//!
//! `resolve.rs` follows the loaded [`modules`]: at start-up and whenever a library comes or goes. Of each file it gets
//! the [`facts`], read from its symbols ([`elf`], filtered by a [`name_table`]) and line table ([`source_lines`],
//! [`line_table`]), and publishes a [`matcher`] with its [`site_index`] in [`call_sites`], where a hooked allocation is looked up unless one
//! of the caches in [`cached`] has the answer. What a name means and which rule takes an allocation is decided in
//! [`numamma_plan::callsite`].

pub mod cached;
pub mod call_sites;
pub mod elf;
pub mod facts;
mod line_table;
pub mod matcher;
pub mod modules;
pub mod name_table;
pub mod pending;
mod site_index;
pub mod source_lines;
