//! Caches of what the matcher said: that [no rule begins](unmatched) at a return address, and what was [decided] for a
//! call stack, of which [groups] of rules, and which one takes objects of a [size](by_size). Their entries are words
//! that any thread may overwrite, so a signal handler and a forked child may look there, too.

mod by_size;
pub mod decided;
pub mod groups;
pub mod unmatched;

use core::sync::atomic::{AtomicUsize, Ordering};

/// Something about return addresses, and the entry of a cache that can hold it.
pub struct Fact {
    /// The entry.
    pub entry: &'static AtomicUsize,
    /// What it then holds.
    pub word: usize,
}

impl Fact {
    /// Writes the fact into its entry.
    pub fn store(&self) {
        self.entry.store(self.word, Ordering::Relaxed);
    }

    /// Clears the entry of the fact.
    pub fn remove(&self) {
        self.entry.store(0, Ordering::Relaxed);
    }
}
