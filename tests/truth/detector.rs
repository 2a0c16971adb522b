//! The detectors against generated page x thread traces with known truth: every class, 2 to 256 threads, 64 to a
//! million pages, 300 to 100,000 samples, up to 40 % noise, permuted thread orders, missing threads, unequal
//! slices, initialisation by thread 0 or by all, rows allocated one by one. Seeded: a failure names the trace.
//!
//! For the long tests `NUMAMMA_TRUTH_TRACES` sets the number of traces, `NUMAMMA_TRUTH_SEED` the first seed.

mod bad_input;
mod cases;
mod end_to_end;
mod generated;
mod plan;
mod pool_plan;
mod pools;
pub mod random;
pub mod trace;
