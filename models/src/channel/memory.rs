//! The memory on the recorder's side: so many chunks as the model wants, all granted at the beginning.

use std::io::{self, Stdin};
use std::ptr::NonNull;

use crate::atomics::Ordering;
use crate::layout::{Map, Pool, Record, STACKS, Shared};

pub struct Memory {
    map: Map,
    chunks: u32,
    granted: u32,
    stdin: Stdin,
}

#[derive(Clone, Copy)]
pub struct Mapped(pub &'static Shared);

impl Pool for Mapped {
    fn chunk(self, index: u32) -> Option<NonNull<Record>> {
        self.0.pool.get(index as usize).map(|chunk| NonNull::from(&chunk[0]))
    }
}

impl Memory {
    /// `pool`: chunks.
    pub fn create(pool: usize, _clock: u32, _follow: bool) -> io::Result<Memory> {
        Ok(Memory { map: Map(Shared::fresh()), chunks: pool as u32, granted: 0, stdin: io::stdin() })
    }

    pub fn map(&self) -> Map {
        self.map
    }

    pub fn pool(&self) -> Mapped {
        Mapped(self.map.0)
    }

    pub fn fd(&self) -> &Stdin {
        &self.stdin
    }

    pub fn inode(&self) -> u64 {
        0
    }

    pub fn granted(&self) -> u32 {
        self.granted
    }

    pub fn stacks(&self) -> u32 {
        STACKS as u32
    }

    pub fn bytes(&self) -> u64 {
        0
    }

    pub fn top_up(&mut self, _free: u32) {
        if self.granted == 0 {
            self.granted = self.chunks;
            self.map.header().granted.store(self.chunks, Ordering::Relaxed);
            (0..self.chunks).rev().for_each(|chunk| self.map.put_chunk(chunk));
        }
    }
}
