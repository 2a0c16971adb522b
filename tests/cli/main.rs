//! The `numamma` command as a user runs it, one module per subcommand or kind of input.

#[path = "../common/mod.rs"]
mod common;

mod advise_static;
mod bombs;
mod by_others;
mod compare;
mod hostile_names;
mod launch;
mod names;
mod odd_profiles;
mod predict;
mod profile;
mod report;
mod storm;
mod synthetic;
mod topology;
mod tune;
