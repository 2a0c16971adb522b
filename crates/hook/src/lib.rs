//! What both preloads share: the real functions behind the hooks, a private allocator, the entry stubs, the
//! unwinder, stack bounds, modules and messages.
//!
//! This code runs inside programs that do not know of it. It never panics, aborts, prints to stdout, takes a lock that
//! threads share or allocates on the program's heap, and it must work before constructors have run, inside
//! signal handlers and after fork. The crate is an rlib and therefore exports no `malloc`: only the cdylibs
//! define the hooks, with [`entry!`].
//!
//! A hook takes at most 2 KiB of the program's stack, and no memory where the program's own call would take none. What
//! needs more is given to [`own_stack`], where it can fail: code that allocates runs only there ([`allocating`]).
//!
//! The caller of anything that may make a system call holds an [`errno::Saved`], so that a hook that
//! succeeds leaves the program's `errno` alone.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!(
    "the preloads support x86_64 Linux only: entry stubs, unwinding rules and thread-local access are written for it"
);

pub mod alloc;
pub mod allocating;
pub mod atomics;
pub mod beside_recorder;
pub mod blocked_signal;
pub mod bootstrap_arena;
pub mod cancellation;
pub mod entry;
pub mod environment;
pub mod forced_unwind;
pub mod fork_wiped;
pub mod glibc;
pub mod held_signals;
pub mod loaded_file;
pub mod message;
pub mod modules;
pub mod own_stack;
pub mod own_system_calls;
pub mod real;
pub mod reentry;
pub mod remap;
pub mod sandbox;
pub mod stackbounds;
pub mod static_tls;
pub mod thread_start;
pub mod unloaded;
pub mod unwind;
pub mod versions;

pub use numamma_kernel::{errno, sys};
