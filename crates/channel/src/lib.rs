//! Shared-memory channel from the profile preload (inside the program) to the recorder (`numamma profile`).
//!
//! The recorder creates a sealed memfd and names it in `NUMAMMA_CHANNEL` as `/proc/<pid>/fd/<n>`, with its inode and a
//! random number. The preload opens that path without touching what lies behind it, and maps it only when all of size,
//! inode, seals, magic, version and number are right: a program may inherit the variable long after the recorder is
//! gone, and then the path may lead anywhere ([`attach`]). Each thread of the program claims a slot, to which it alone
//! writes records and which the recorder alone drains, so threads share no lock, and a crash of the program loses
//! nothing that was written. When the memory of the channel is full the event is dropped and counted: the program never
//! waits for the recorder.
//!
//! Nothing here allocates, prints or exits on the writing side.
//!
//! [`layout`] is the shared memory as a table, [`writer`] the preload's side, [`reader`] the recorder's, and [`clock`]
//! turns the time stamps into CLOCK_MONOTONIC. [`trace`] is a second memory, for the hooks of traced programs.

pub mod attach;
pub mod clock;
mod event;
pub mod faults;
mod free_chunks;
pub mod layout;
mod memory;
pub mod reader;
pub mod trace;
pub mod writer;

pub use event::{Event, EventKind, Origin};

/// Environment variable that names the channel: `/proc/<recorder pid>/fd/<fd>:<inode>:<nonce>:<nonce>`, the inode in
/// decimal, the nonce in hexadecimal digits.
pub const CHANNEL_ENV: &str = "NUMAMMA_CHANNEL";
/// Environment variable set to `1` when children are followed.
pub const FOLLOW_ENV: &str = "NUMAMMA_FOLLOW";
/// Return addresses kept per call stack, innermost first.
pub const MAX_FRAMES: usize = 16;
