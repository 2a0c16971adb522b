//! Models of the channel: its real writer, reader and stack of free chunks, on a small memory of loom's atomics.

#![allow(dead_code, reason = "the models use a part of each file")]

#[path = "../atomics.rs"]
mod atomics;
mod chunk_models;
mod clock;
#[path = "../../../crates/channel/src/event.rs"]
mod event;
#[path = "../explore.rs"]
mod explore;
mod faults;
#[path = "../../../crates/channel/src/free_chunks.rs"]
mod free_chunks;
mod layout;
mod memory;
#[path = "../../../crates/channel/src/reader.rs"]
mod reader;
mod record_models;
mod trace;
#[path = "../../../crates/channel/src/writer.rs"]
mod writer;

use event::{Event, EventKind, Origin};

// The real files name `numamma_kernel::clock`.
extern crate self as numamma_kernel;

const CHANNEL_ENV: &str = "";
const FOLLOW_ENV: &str = "";
/// Return addresses kept of each call stack.
const MAX_FRAMES: usize = 2;

fn main() {
    chunk_models::run();
    record_models::run();
}
