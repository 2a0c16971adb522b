//! Recording one run: samples, page faults and allocations, their objects, and the profile file.
//!
//! Data flow: [`perf`] (kernel events) and the channel (allocation events) meet in [`record`], time-ordered;
//! [`replay`] turns register samples into accesses, [`space`] gives every address its object, and
//! [`mod@file`] keeps the result as the records of [`records`]. [`summary`] folds a profile for detection and reports.
//!
//! [`compact`] sums up the older part of a long recording.
//!
//! A folder imports only those to its left:
//! `perf`, `ranges`, `records` < `file`, `folded`, `replay` < `compact`, `space`, `summary` < `record`.

pub mod compact;
pub mod file;
pub(crate) mod folded;
pub mod perf;
#[cfg(test)]
pub(crate) mod random;
pub(crate) mod ranges;
pub mod record;
pub mod records;
pub mod replay;
pub mod space;
pub mod summary;

/// Base page size of x86-64, bytes.
pub const PAGE: u64 = numamma_kernel::sys::PAGE as u64;
