//! Parts of an object without debug information: arrays that a program carves out of one block (pools, arenas, one
//! large malloc), found by change points over the pages.
//!
//! A stretch of pages is described by the code and the kind of its accesses ([`signature`]) and by their threads under
//! the best of a few models ([`judge`]): shared, slices in thread order, any slices, slices of a period, or two of
//! these at once ([`overlay`]). An object of one array is described as a whole, however its threads change along the
//! pages, and also where two loops use it differently, so that a cut saves nothing. A cut is made where both sides
//! together, the cut included, are described shorter than the whole, by enough of the smaller side's accesses to matter
//! ([`search`]). [`candidates`] says where one cut is tried, [`runs`] where several are tried that pay only together,
//! [`boundary`] finds the page of each, and [`changing`] where threads change in time, which no model here describes.
//! The parts are searched again until no cut pays.
//!
//! Instances of one call site are told apart by the same descriptions ([`by_number`]).

mod alike;
mod boundary;
mod by_number;
mod candidates;
mod changing;
mod divide;
mod judge;
mod line;
mod overlay;
mod runs;
mod search;
mod signature;

pub use by_number::tell_apart;
pub use divide::divide;
pub use search::part_boundaries;
