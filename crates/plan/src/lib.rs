//! The policy file and what it means page by page.
//!
//! One crate for the command line (`advise`, `run`, `verify`) and the apply preload, so that they cannot
//! disagree: [`policy`] is the TOML schema, [`check`] reads and validates a file, [`plan`] turns one placement
//! of one object into page runs in an [`order`], [`home`] answers on which node a page belongs, [`threads`] maps threads
//! to nodes, [`callsite`] decides which allocations a rule names, [`nodes`] reads node lists, [`size`] sizes,
//! [`reason`] says why a page is off its plan, [`machine`] is what of this machine all of them need, [`ranks`] and
//! [`output`] tell the processes of an MPI job apart, [`environment`] names the variables the preload reads, [`placement_report`] is what it counted.

pub mod callsite;
pub mod check;
pub mod cpus;
pub mod environment;
pub mod home;
pub mod machine;
pub mod map;
pub mod nodes;
pub mod order;
pub mod output;
pub mod placement_report;
pub mod places;
mod plain;
pub mod plan;
pub mod policy;
pub mod ranks;
pub mod reason;
pub mod size;
pub mod threads;
pub mod unreadable;

#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod schema_tests;
