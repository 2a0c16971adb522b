//! Names of the environment variables by which the command line (or a user, with LD_PRELOAD) talks to the apply preload.

/// The policy file that the preload reads.
pub const POLICY_ENV: &str = "NUMAMMA_POLICY";
/// The file that the preload writes its report to, as a pattern for [`crate::output_name::expand`].
pub const REPORT_ENV: &str = "NUMAMMA_REPORT";
/// Set and neither empty nor 0: the preload says what it does with each rule.
pub const VERBOSE_ENV: &str = "NUMAMMA_VERBOSE";
/// Set and neither empty nor 0: a program that cannot be placed as the policy says is not started.
pub const STRICT_ENV: &str = "NUMAMMA_STRICT";
