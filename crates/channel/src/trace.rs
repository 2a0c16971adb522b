//! The shared memory of the `trace` sampler: exact counts of memory accesses, from the hooks of the compiler in the
//! program to the recorder.
//!
//! Each thread counts its accesses by page and instruction in a hash table that it alone writes to, in memory that the
//! recorder owns: a crash of the program loses nothing, and nobody has to be asked for what is counted so far. A table
//! that becomes full is replaced by a larger one; the recorder adds up what it reads. Where no memory is left, accesses
//! are lost and counted as such.
//!
//! Of pages that several threads use and one of them writes, [`lines`] counts word by word.
//!
//! [`layout`] is the memory as a table, [`writer`] the program's side, [`reader`] the recorder's.

pub mod layout;
pub mod lines;
pub mod reader;
#[cfg(test)]
mod tests;
pub mod writer;

/// Environment variable that names the memory, in the form of [`crate::CHANNEL_ENV`].
pub const TRACE_ENV: &str = "NUMAMMA_TRACE";
