//! Results against known truth: patterns of profiled programs, replayed accesses, verdicts of the detectors.

mod detector;
mod programs;
mod replay;
