//! Running a program placed: check the target, find the library, launch, verify, compare.

pub mod compare;
pub mod counts;
pub mod verify;
