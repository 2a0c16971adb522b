//! The policy file, and the plan that assigns the pages of an object to nodes.
//!
//! The command line (`advise`, `run`, `verify`, `predict`) and the apply preload share this crate, so that both read a
//! policy in the same way and expect the same node for each page.
//!
//! | Module | Subject |
//! | --- | --- |
//! | [`policy`], [`size`], [`range`] | schema of the policy file (TOML), sizes with units, parts of an object |
//! | [`check`], [`unusable`] | parsing and validation of a policy file; errors |
//! | [`callsite`] | names of a call site, and which of its allocations a rule selects |
//! | [`nodes`], [`cpus`], [`ranks`] | lists of nodes, CPUs and MPI ranks |
//! | [`machine`] | nodes, CPUs, huge page setting and mapping limit of this machine |
//! | [`plan`], [`block_order`], [`page_map`] | page plan of one object: blocks, their order over nodes, page maps |
//! | [`home_node`] | node on which a page of a planned object belongs |
//! | [`reason`], [`placement_report`] | reasons of pages off plan; report of a placed run |
//! | [`threads`], [`teams`], [`slots`], [`openmp_places`] | slots of living threads; node of each, by the policy or by
//! OpenMP variables |
//! | [`environment`], [`output_name`] | environment variables of the preload; names of output files |

pub mod block_order;
pub mod callsite;
pub mod check;
pub mod cpus;
pub mod environment;
pub mod home_node;
pub mod machine;
pub mod nodes;
pub mod openmp_places;
pub mod output_name;
pub mod page_map;
pub mod placement_report;
pub mod plan;
pub mod policy;
pub mod policy_file;
pub mod range;
pub mod ranks;
pub mod reason;
pub mod size;
pub mod slots;
pub mod teams;
pub mod threads;
mod toml_subset;
pub mod unusable;

#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod schema_tests;
