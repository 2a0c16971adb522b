//! Results against known truth: patterns of profiled programs, replayed accesses, verdicts of the detectors.

#[path = "../common/mod.rs"]
mod common;

mod addresses;
mod brief;
mod code;
mod detector;
mod judge;
mod loops;
mod parts;
mod programs;
mod replay;
mod seeds;
mod spinning;
