//! Programs that do what preload libraries fear, programs that have nothing to do with them, and random policy files.

#[path = "../common/mod.rs"]
mod common;

mod allocators;
mod beside;
mod by_kernel;
mod bystanders;
mod confined;
mod descriptors;
mod fibers;
mod fuzz;
mod jumps;
mod left;
mod memory;
mod readers;
mod resized;
mod shortage;
mod stress;
mod wrappers;
