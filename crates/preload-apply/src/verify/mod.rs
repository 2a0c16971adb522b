//! Where pages are, against where the plan wants them.

pub mod pages;
mod reasons;
