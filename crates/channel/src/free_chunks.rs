//! The stack of free chunks: threads take chunks, and the recorder puts them back.
//!
//! A number of changes beside the top makes an exchange fail when the chunk on top was taken and put back meanwhile.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::layout::Map;

impl Map {
    /// Takes a free chunk; `None` when there is none.
    pub fn take_chunk(&self) -> Option<u32> {
        let free = &self.header().free;
        // Acquire pairs with the Release of `put_chunk`: the link of the chunk on top is set.
        let mut top = free.top.load(Acquire);
        loop {
            let chunk = (top as u32).checked_sub(1)?;
            let next = self.link(chunk).load(Relaxed);
            match free.top.compare_exchange_weak(top, changed(top, next), AcqRel, Acquire) {
                Ok(_) => {
                    free.count.fetch_sub(1, Relaxed);
                    return Some(chunk);
                }
                Err(now) => top = now,
            }
        }
    }

    /// Puts a chunk on the stack of free chunks. Gives up when other threads change the stack all the time, which only
    /// a program does that scribbles over the channel.
    pub fn put_chunk(&self, chunk: u32) {
        let free = &self.header().free;
        // Before another thread can take it: counted afterwards, the number of chunks would be below 0 meanwhile.
        free.count.fetch_add(1, Relaxed);
        let mut top = free.top.load(Relaxed);
        for _ in 0..PUT_TRIES {
            self.link(chunk).store(top as u32, Relaxed);
            match free.top.compare_exchange_weak(top, changed(top, chunk + 1), AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
        free.count.fetch_sub(1, Relaxed);
    }
}

/// Tries to put a chunk back: threads that take chunks collide with the recorder once in a while.
const PUT_TRIES: usize = 10_000;

/// The word of [`crate::layout::Free::top`] after another change.
fn changed(top: u64, chunk_plus_1: u32) -> u64 {
    ((top >> 32).wrapping_add(1) << 32) | u64::from(chunk_plus_1)
}
