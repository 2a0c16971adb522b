//! Compares where pages are with where the plan wants them.

pub mod pages;
pub mod reasons;
