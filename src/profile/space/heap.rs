//! Live heap blocks of one process: which block holds an address, fast enough for the program's rate of malloc.
//!
//! A trie of 2 MiB chunks, 4 KiB pages and 8-byte granules holds one bit per block start, so that "the last
//! start at or below this address" (all that lookup, insertion and eviction need, because live blocks do not overlap)
//! is a few bit scans. A page keeps its blocks packed in address order, 8 bytes each; blocks of at least
//! [`SMALL_OBJECT`] bytes point to a [`LargeBlock`], the others hold size, call site and thread in those 8 bytes.
//!
//! The caller removes overlapping blocks before it inserts one. Starts are multiples of the granule: every allocator
//! aligns to at least 8 bytes.

mod page;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use self::page::{Bits, Page, SLOTS};
use super::table::Table;
use crate::profile::ranges::Span;
use crate::profile::records::{ObjectId, SMALL_OBJECT, SiteId, ThreadId};

const GRANULE_SHIFT: u32 = 3;
const PAGE_SHIFT: u32 = 12;
const CHUNK_SHIFT: u32 = 21;
const _: () = assert!(1 << (PAGE_SHIFT - GRANULE_SHIFT) == SLOTS && 1 << (CHUNK_SHIFT - PAGE_SHIFT) == SLOTS);

/// "No object yet": the block was never attributed.
pub const NO_OBJECT: ObjectId = ObjectId::MAX;
const NONE: u32 = u32::MAX;

/// Marks a packed entry that holds an index of a [`LargeBlock`].
const LARGE: u64 = 1 << 63;
/// Below that of a small block: its thread, its size, its call site.
const THREAD_SHIFT: u32 = 44;
const SIZE_SHIFT: u32 = 32;
/// In place of the number of a thread that does not fit.
const NO_THREAD: u64 = LARGE.wrapping_shr(THREAD_SHIFT) - 1;
const _: () = assert!(SMALL_OBJECT <= 1 << (THREAD_SHIFT - SIZE_SHIFT) && NO_THREAD << THREAD_SHIFT < LARGE);

/// One block of at least [`SMALL_OBJECT`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargeBlock {
    /// Bytes.
    pub size: u64,
    /// Allocation time.
    pub born_ns: u64,
    /// Call site.
    pub site: SiteId,
    /// Thread that allocated it.
    pub thread: ThreadId,
    /// Its object once it was attributed, else [`NO_OBJECT`].
    pub object: ObjectId,
    /// The object that realloc made it of, the last that was attributed; else [`NO_OBJECT`].
    pub before: ObjectId,
    /// Calls of realloc since then.
    pub calls: u32,
}

/// The two kinds of block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    /// Under [`SMALL_OBJECT`] bytes: only its call site and thread are kept.
    Small {
        /// Call site.
        site: SiteId,
        /// Bytes.
        size: u32,
        /// Thread that allocated it; none where its number needs more bits than there are.
        thread: Option<ThreadId>,
    },
    /// Index for [`Heap::large`].
    Large(u32),
}

#[derive(Debug, Clone)]
struct Chunk {
    number: u64,
    used: Bits,
    pages: [u32; SLOTS],
    count: u32,
}

/// The live blocks of one process.
#[derive(Debug, Clone, Default)]
pub struct Heap {
    index: FxHashMap<u64, u32>,
    order: BTreeMap<u64, u32>,
    chunks: Table<Chunk>,
    pages: Table<Page>,
    large: Table<LargeBlock>,
    /// Chunk used last (number, index): consecutive events are mostly neighbours.
    last: Option<(u64, u32)>,
}

fn page_slot(addr: u64) -> usize {
    (addr >> PAGE_SHIFT) as usize % SLOTS
}

fn granule(addr: u64) -> usize {
    (addr >> GRANULE_SHIFT) as usize % SLOTS
}

impl Heap {
    fn chunk(&mut self, addr: u64) -> Option<u32> {
        let number = addr >> CHUNK_SHIFT;
        if let Some((last, index)) = self.last
            && last == number
        {
            return Some(index);
        }
        let index = *self.index.get(&number)?;
        self.last = Some((number, index));
        Some(index)
    }

    /// The block that starts at `low`; one of size 0 occupies one byte.
    fn found(&self, page: &Page, low: u64) -> Span<Block> {
        let entry = page.blocks[page.rank(granule(low))];
        let block = unpack(entry);
        let size = match block {
            Block::Small { size, .. } => u64::from(size),
            Block::Large(i) => self.large[i].size,
        };
        Span { low, high: low.saturating_add(size.max(1)), value: block }
    }

    /// The block with the highest start at or below `addr`, whether or not it reaches `addr`.
    pub fn at_or_before(&mut self, addr: u64) -> Option<Span<Block>> {
        if let Some(c) = self.chunk(addr) {
            let chunk = &self.chunks[c];
            let slot = page_slot(addr);
            if chunk.used.has(slot) {
                let page = &self.pages[chunk.pages[slot]];
                if let Some(g) = page.starts.at_or_below(granule(addr)) {
                    return Some(self.found(page, start_of(chunk.number, slot, g)));
                }
            }
            if let Some(lower) = slot.checked_sub(1).and_then(|s| chunk.used.at_or_below(s)) {
                return self.last_of_page(chunk, lower);
            }
        }
        let (_, &c) = self.order.range(..addr >> CHUNK_SHIFT).next_back()?;
        let chunk = &self.chunks[c];
        self.last_of_page(chunk, chunk.used.last()?)
    }

    fn last_of_page(&self, chunk: &Chunk, slot: usize) -> Option<Span<Block>> {
        let page = &self.pages[chunk.pages[slot]];
        Some(self.found(page, start_of(chunk.number, slot, page.starts.last()?)))
    }

    /// The block that holds `addr`, or bounds around `addr` without any block (not necessarily the widest).
    pub fn lookup(&mut self, addr: u64) -> Result<Span<Block>, (u64, u64)> {
        let before = self.at_or_before(addr);
        if let Some(found) = before
            && addr < found.high
        {
            return Ok(found);
        }
        let floor = before.map_or(0, |found| found.high);
        let Some(c) = self.chunk(addr) else {
            let low = addr >> CHUNK_SHIFT << CHUNK_SHIFT;
            return Err((floor.max(low), low.saturating_add(1 << CHUNK_SHIFT)));
        };
        let low = addr >> PAGE_SHIFT << PAGE_SHIFT;
        let chunk = &self.chunks[c];
        let slot = page_slot(addr);
        let next =
            if chunk.used.has(slot) { self.pages[chunk.pages[slot]].starts.at_or_above(granule(addr)) } else { None };
        let high = next.map_or(low.saturating_add(1 << PAGE_SHIFT), |g| low + ((g as u64) << GRANULE_SHIFT));
        Err((floor.max(low), high.max(addr.saturating_add(1))))
    }

    /// Adds a block under [`SMALL_OBJECT`] bytes at a free place.
    pub fn insert_small(&mut self, addr: u64, size: u64, site: SiteId, thread: ThreadId) {
        debug_assert!(size < SMALL_OBJECT);
        let thread = u64::from(thread).min(NO_THREAD);
        self.insert(addr, thread << THREAD_SHIFT | size << SIZE_SHIFT | u64::from(site));
    }

    /// Adds a block of at least [`SMALL_OBJECT`] bytes at a free place.
    pub fn insert_large(&mut self, addr: u64, block: LargeBlock) {
        let index = self.large.add(block);
        self.insert(addr, LARGE | u64::from(index));
    }

    fn insert(&mut self, addr: u64, entry: u64) {
        let c = self.chunk(addr).unwrap_or_else(|| self.new_chunk(addr >> CHUNK_SHIFT));
        let slot = page_slot(addr);
        let chunk = &mut self.chunks[c];
        if !chunk.used.has(slot) {
            chunk.used.flip(slot);
            chunk.count += 1;
            chunk.pages[slot] = self.pages.reuse(Page::default);
        }
        self.pages[chunk.pages[slot]].insert(granule(addr), entry);
    }

    fn new_chunk(&mut self, number: u64) -> u32 {
        let c = self.chunks.reuse(|| Chunk { number, used: Bits::default(), pages: [NONE; SLOTS], count: 0 });
        self.chunks[c].number = number;
        self.index.insert(number, c);
        self.order.insert(number, c);
        self.last = Some((number, c));
        c
    }

    /// Removes the block that starts at `addr`. Returns it, with the details of a large block.
    pub fn remove(&mut self, addr: u64) -> Option<(Span<Block>, Option<LargeBlock>)> {
        let c = self.chunk(addr)?;
        let slot = page_slot(addr);
        let chunk = &self.chunks[c];
        if !chunk.used.has(slot) {
            return None;
        }
        let p = chunk.pages[slot];
        let page = &self.pages[p];
        if !page.starts.has(granule(addr)) {
            return None;
        }
        let found = self.found(page, addr);
        let page = &mut self.pages[p];
        page.remove(granule(addr));
        if page.blocks.is_empty() {
            self.release_page(c, slot);
        }
        let large = match found.value {
            Block::Large(i) => {
                self.large.release(i);
                Some(self.large[i])
            }
            Block::Small { .. } => None,
        };
        Some((found, large))
    }

    fn release_page(&mut self, c: u32, slot: usize) {
        let chunk = &mut self.chunks[c];
        self.pages.release(chunk.pages[slot]);
        chunk.used.flip(slot);
        chunk.count -= 1;
        if chunk.count == 0 {
            self.index.remove(&chunk.number);
            self.order.remove(&chunk.number);
            self.chunks.release(c);
            self.last = None;
        }
    }

    /// Details of a large block.
    pub fn large(&mut self, index: u32) -> &mut LargeBlock {
        &mut self.large[index]
    }

    /// Every page with blocks, in address order: number of its chunk, its place in the chunk, its blocks.
    fn pages(&self) -> impl Iterator<Item = (u64, usize, &Page)> + '_ {
        let chunks = self.order.values().map(|&c| &self.chunks[c]);
        chunks.flat_map(|chunk| chunk.used.iter().map(|slot| (chunk.number, slot, &self.pages[chunk.pages[slot]])))
    }

    /// Starts of the live small blocks, in address order.
    pub fn small_starts(&self) -> Vec<u64> {
        let starts = self.pages().flat_map(|(chunk, slot, page)| {
            let blocks = page.starts.iter().zip(&page.blocks);
            let small = blocks.filter(|&(_, &entry)| matches!(unpack(entry), Block::Small { .. }));
            small.map(move |(granule, _)| start_of(chunk, slot, granule))
        });
        starts.collect()
    }

    /// Starts of all live blocks, in address order.
    pub fn starts(&self) -> Vec<u64> {
        let starts =
            self.pages().flat_map(|(chunk, slot, page)| page.starts.iter().map(move |g| start_of(chunk, slot, g)));
        starts.collect()
    }

    /// Calls `f` with call site and bytes of every live block, in address order.
    pub fn for_each(&self, mut f: impl FnMut(SiteId, u64)) {
        for &entry in self.pages().flat_map(|(_, _, page)| &page.blocks) {
            match unpack(entry) {
                Block::Small { site, size, .. } => f(site, u64::from(size)),
                Block::Large(i) => f(self.large[i].site, self.large[i].size),
            }
        }
    }
}

fn start_of(chunk: u64, page: usize, granule: usize) -> u64 {
    chunk << CHUNK_SHIFT | (page as u64) << PAGE_SHIFT | (granule as u64) << GRANULE_SHIFT
}

fn unpack(entry: u64) -> Block {
    if entry & LARGE != 0 {
        Block::Large(entry as u32)
    } else {
        let thread = entry >> THREAD_SHIFT;
        let size = (entry & ((1 << THREAD_SHIFT) - 1)) >> SIZE_SHIFT;
        let thread = (thread < NO_THREAD).then_some(thread as ThreadId);
        Block::Small { site: entry as u32, size: size as u32, thread }
    }
}
