//! libnumamma-apply.so: places the globals and heap call sites of an unmodified program.
//!
//! ```text
//! LD_PRELOAD=libnumamma-apply.so NUMAMMA_POLICY=policy.toml ./app
//! NUMAMMA_STRICT=1    exit with status 78 before main when the policy cannot be applied
//! NUMAMMA_VERBOSE=1   say what is left alone, and why; at the end a line for every rule
//! NUMAMMA_REPORT=file compare every page with the plan at the end, and write the counts as JSON
//! ```
//!
//! A program that runs without this library also runs with it: memory that cannot be placed is left to the system, with
//! one line on stderr. The library does not print to stdout, take locks shared by threads, or change `errno` on
//! success. Without NUMAMMA_POLICY it does nothing.

//! A folder uses only folders that stand before it in this list:
//!
//! | Folder | What happens there |
//! | --- | --- |
//! | `rules/` | the accepted policy: rules, their counters, the budget of mappings |
//! | `threads/` | binding threads, nodes of threads |
//! | `given/` | the CPUs and memory that the process was given at exec |
//! | `place/` | memory policies, populating, moving resident pages of one range |
//! | `phases/` | which phase holds, requests to the mover and its exclusion |
//! | `verify/` | pages on plan and off plan, and why |
//! | `matching/` | symbols, line tables, the rule of an allocation |
//! | `objects/` | lists of placed variables, heap objects, mappings, small objects |
//! | `migrate/` | the mover: existing pages follow the current phase |
//! | `report/` | JSON and messages about the run |
//! | `resolve.rs`, `hooks/`, `start.rs` | names to addresses, the C functions taken over, start-up |

// Unit tests leave out the constructor, which reaches all other code.
#![cfg_attr(test, allow(dead_code))]

mod given;
mod held_files;
mod hooks;
mod inherited_names;
mod matching;
mod migrate;
mod objects;
mod phases;
mod place;
mod report;
mod resolve;
mod rules;
mod start;
mod threads;
mod verify;

/// Data of this library never lies on the heap of the program.
#[global_allocator]
static PRIVATE: numamma_hook::alloc::Private = numamma_hook::alloc::Private;

#[cfg(not(test))] // build.rs has only the library linked so
numamma_hook::pass_forced_unwinding!();

extern "C" fn construct() {
    start::start();
    hooks::exit::register();
}

extern "C" fn destruct() {
    report::json::finish();
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
