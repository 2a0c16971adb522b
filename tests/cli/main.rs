//! The `numamma` command as a user runs it, one module per subcommand or kind of input.

#[path = "../common/mod.rs"]
mod common;

mod advise_static;
mod arguments;
mod bombs;
mod by_others;
mod compare;
mod diff;
mod documents;
mod export;
mod first_hour;
mod fixes;
mod golden;
mod hostile_names;
mod html;
mod launch;
mod launchers;
mod many;
mod names;
mod odd_profiles;
mod pager;
mod plot;
mod predict;
mod profile;
mod progress;
mod report;
mod selection;
mod storm;
mod synthetic;
mod top;
mod topology;
mod tune;
mod waits;
