//! NumaMMA: profile, advise, place and verify the memory of an unmodified parallel program.
//!
//! Data flows one way: [`topology`] and [`profile`] to [`detect`] to [`advise`] to [`apply`]. [`launch`] starts the
//! programs, [`report`] prints results, [`cli`] is the command line. `tests/architecture/house.rs` lists which room may
//! import which.

pub mod advise;
pub mod apply;
pub mod cli;
pub mod detect;
pub mod launch;
pub mod merge;
pub mod profile;
pub mod report;
pub mod topology;
