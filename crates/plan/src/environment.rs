//! Names of the environment variables that configure the apply preload. The command line sets them; a user that
//! starts a program with LD_PRELOAD sets them directly.

/// The policy file that the preload reads.
pub const POLICY_ENV: &str = "NUMAMMA_POLICY";
/// The file that the preload writes its report to; a pattern for [`crate::output_name::expand`].
pub const REPORT_ENV: &str = "NUMAMMA_REPORT";
/// If set and neither empty nor 0, the preload prints to stderr what it does for each rule.
pub const VERBOSE_ENV: &str = "NUMAMMA_VERBOSE";
/// If set and neither empty nor 0, the preload prints to stderr how many objects it has placed.
pub const SUMMARY_ENV: &str = "NUMAMMA_SUMMARY";
/// If set and neither empty nor 0, a program that cannot be placed as the policy says does not start.
pub const STRICT_ENV: &str = "NUMAMMA_STRICT";
/// What the process that started this one was given: written and read by the preload only.
pub const GIVEN_ENV: &str = "NUMAMMA_GIVEN";
