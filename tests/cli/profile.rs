//! `numamma profile` on real programs, from the outside: what the program shows to the world must be what it would be
//! alone, and what the profile says must be what the program did.

mod harness;

mod attach;
mod content;
mod endings;
mod family;
mod limits;
mod long_runs;
mod refusals;
mod window;
