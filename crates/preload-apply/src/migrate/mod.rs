//! Moving what is placed to the place of the current phase, in the background.

mod pass;
mod steps;
pub mod thread;
