//! The harness of the integration tests: scratch directories, compiled programs, policy files, runs of `numamma` and of
//! programs under the preload libraries, reports, and the NUMA lab.
//!
//! A helper panics when its step fails. The message names the command, its status and what it wrote to stderr.
//!
//! Tests of one binary run side by side. A test that measures time or takes samples holds [`alone`]; a test that
//! keeps all CPUs busy for seconds holds [`alone`] or [`beside_others`]. A test that takes minutes has a short form
//! of the same body, and is itself marked `#[ignore = "long: make test-long"]`.

#![allow(dead_code, unused_imports)] // each test binary uses a part

mod build;
pub mod judge;
pub mod lab;
pub mod meter;
mod order;
mod policy;
mod report;
mod run;
mod scratch;
mod terminal;
mod traced;

pub use build::{compile, compile_in, libomp, program, root, source};
pub use order::{alone, beside_others};
pub use policy::Policy;
pub use report::{json_file, number, object, objects};
pub use run::{
    NUMAMMA, Ran, exists, heeding, needs, numamma, placed, plain, preload, run, run_within, skipped, text, wait,
};
pub use scratch::Scratch;
pub use terminal::{leads_session, soon, terminal};
pub use traced::Tracing;
