//! libnumamma-apply.so: places the globals and heap call sites of an unmodified program.
//!
//! ```text
//! LD_PRELOAD=libnumamma-apply.so NUMAMMA_POLICY=policy.toml ./app
//! NUMAMMA_STRICT=1    exit with status 78 before main when the policy cannot be applied
//! NUMAMMA_VERBOSE=1   say what is left alone, and why; at the end a line for every rule
//! NUMAMMA_REPORT=file compare every page with the plan at the end, and write the counts as JSON
//! ```
//!
//! It never makes a program that runs fail: whatever cannot be placed is left to the system, with one line on
//! stderr. It does not print to stdout, take locks shared by threads, or change `errno` on success. Without
//! NUMAMMA_POLICY it does nothing.

// Unit tests leave out the constructor, from which everything is reached.
#![cfg_attr(test, allow(dead_code))]

mod arena;
mod backing;
mod binding;
mod check;
mod cost;
mod exits;
mod gate;
mod globals;
mod heap;
mod hidden;
mod mapped;
mod maps;
mod matching;
mod memory;
mod migrate;
mod mover;
mod observed;
mod phases;
mod place;
mod populate;
mod reasons;
mod report;
mod shared;
mod start;
mod state;
mod steps;
mod table;
mod tell;

/// Our data never lies on the program's heap.
#[global_allocator]
static PRIVATE: numamma_hook::alloc::Private = numamma_hook::alloc::Private;

extern "C" fn construct() {
    start::start();
    exits::register();
}

extern "C" fn destruct() {
    report::finish();
}

// Unit tests link this crate into a program of their own, which must not be placed.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCT: extern "C" fn() = construct;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCT: extern "C" fn() = destruct;
