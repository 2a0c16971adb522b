//! Memory that realloc made of other memory: one object of the program that goes on at another address.

use super::Space;
use super::heap::{Block, NO_OBJECT};
use super::processes::process_in;
use crate::profile::records::{ObjectId, SiteId};

/// A block that realloc ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before {
    /// The object, or the last one before it that was attributed.
    object: ObjectId,
    /// Calls of realloc since that.
    calls: u32,
    site: SiteId,
    size: u64,
}

impl Space {
    /// The block at `addr`, which realloc is going to end. None for small blocks, which have no object of their own.
    pub fn before_realloc(&mut self, pid: u32, addr: u64) -> Option<Before> {
        let slot = self.find(pid)?;
        let heap = &mut process_in(&mut self.slots, slot).heap;
        let found = heap.at_or_before(addr).filter(|found| found.low == addr)?;
        let Block::Large(index) = found.value else { return None };
        let block = heap.large(index);
        let known = block.object != NO_OBJECT;
        let (object, calls) = if known { (block.object, 0) } else { (block.before, block.calls) };
        Some(Before { object, calls, site: block.site, size: block.size })
    }

    /// The block at `addr`, which was added last, was made of `before`. From one call site it is no further allocation.
    pub fn reallocated(&mut self, pid: u32, addr: u64, before: Before) {
        let Some(slot) = self.find(pid) else { return };
        let heap = &mut process_in(&mut self.slots, slot).heap;
        let Some(found) = heap.at_or_before(addr).filter(|found| found.low == addr) else { return };
        let Block::Large(index) = found.value else { return };
        let block = heap.large(index);
        (block.before, block.calls) = (before.object, before.calls.saturating_add(1));
        if block.site == before.site {
            self.sites.resized(block.site, before.size.min(block.size));
        }
    }
}
