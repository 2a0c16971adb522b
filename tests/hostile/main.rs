//! Programs that do what preload libraries fear, programs that have nothing to do with them, and random policy files.

mod bystanders;
mod fuzz;
mod stress;
