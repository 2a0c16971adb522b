//! Recording one run: launch, samplers, allocation events, objects, and the file they end in.
//!
//! Data flow: [`perf`] (kernel events) and the channel (allocation events) meet in [`record`], time-ordered;
//! [`replay`] turns register samples into accesses, [`space`] gives every address its object, and
//! [`mod@file`] keeps the result in the terms of [`model`]. [`summary`] is what everything downstream reads.

pub mod file;
pub mod model;
pub mod perf;
pub mod record;
pub mod replay;
pub mod space;
pub mod summary;
