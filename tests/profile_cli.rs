//! `numamma profile` on real programs, from the outside: what the program shows to the world must be what it would be
//! alone, and what the profile says must be what the program did.

#[path = "profile_cli/harness.rs"]
mod harness;

#[path = "profile_cli/content.rs"]
mod content;
#[path = "profile_cli/endings.rs"]
mod endings;
#[path = "profile_cli/family.rs"]
mod family;
#[path = "profile_cli/refusals.rs"]
mod refusals;
