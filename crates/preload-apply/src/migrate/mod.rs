//! Moves placed objects to their place in the current phase, in the background.

mod pass;
mod steps;
pub mod thread;
