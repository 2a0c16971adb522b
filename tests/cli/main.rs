//! The `numamma` command as a user runs it, one module per subcommand or kind of input.

mod advise_static;
mod compare;
mod odd_profiles;
mod predict;
mod profile;
mod report;
mod synthetic;
mod topology;
