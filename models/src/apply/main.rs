//! Models of the apply library: its real files, with loom's atomics and stand-ins for what else they use.

#![allow(dead_code, reason = "the models use a part of each file")]

mod alloc;
#[path = "../atomics.rs"]
mod atomics;
#[path = "../explore.rs"]
mod explore;
mod hook;
mod objects;
mod rules;

use hook::{allocating, errno, sandbox};

// The real files name `numamma_hook`.
extern crate self as numamma_hook;

fn main() {
    rules::small_heap::run();
    objects::heap_table::run();
    alloc::run();
}
