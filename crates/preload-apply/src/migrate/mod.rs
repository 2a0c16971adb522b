//! Moves placed objects to their place in the current phase, in the background.

mod pass;
mod program_end;
mod steps;
pub mod thread;
