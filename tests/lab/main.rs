//! Tests on several nodes: each boots the NUMA lab (`tests/lab/lab`) and looks at the pages of programs in the guest.

#[path = "../common/mod.rs"]
mod common;

mod attached;
mod bars;
mod bound;
mod compare;
mod counted;
mod faulted;
mod full;
mod given;
mod mappings;
mod meter;
mod parts;
mod path;
mod phases;
mod placed;
mod policies;
mod reasons;
mod reused;
mod smoke;
mod teams;
mod tune;
mod ways;
