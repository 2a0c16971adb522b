//! Accesses summed up by object, page, thread, instruction and stretch of time.

use std::collections::BinaryHeap;
use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashMap};

use super::objects::Moved;
use super::table::Table;
use crate::profile::records::{Folded, Frame, ObjectId, ThreadId};

/// Stretches of time that the run so far is cut into at most. A summary has 64 (`summary::TIME_SLOTS`), so at first
/// each of these lies in one or two of those.
const MOST_SLOTS: u64 = 256;
/// So many are left before neighbouring instructions are taken together, and before pages are.
const SLOTS_OF_INSTRUCTIONS: u64 = 64;
const SLOTS_OF_PAGES: u64 = 16;
/// Instructions within 2^8 bytes of code are neighbours: the body of a loop has some tens of a few bytes each.
const NEIGHBOURS_BITS: u32 = 8;
/// The shortest stretch, 2^20 ns: the samplers take at most some thousand samples a second of a thread.
const SHORTEST_BITS: u32 = 20;
/// Cells in front of the table, and instructions with their indices: these stay in the nearest caches. The accesses of
/// one sample mostly share a cell, and every use of the table misses the caches.
const RECENT_BITS: u32 = 10;

/// Page of what is known by its object only.
const NO_PAGE: u64 = u64::MAX;

/// 24 bytes, and [`Sums`] 48: there are millions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub object: ObjectId,
    pub thread: ThreadId,
    pub page: u64,
    pub slot: u32,
    /// Index into [`Cells::code`].
    pub ip: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Sums {
    /// Time and address of the first access. A page that two members of a variable share is told apart by the
    /// instruction, which rarely accesses both.
    pub time_ns: u64,
    pub addr: u64,
    pub cost_ns: u64,
    pub reads: u32,
    pub writes: u32,
    pub remote: u32,
    pub placed: u32,
}

impl Sums {
    #[inline]
    pub fn add(&mut self, other: &Sums) {
        if other.time_ns < self.time_ns {
            (self.time_ns, self.addr) = (other.time_ns, other.addr);
        }
        self.cost_ns = self.cost_ns.saturating_add(other.cost_ns);
        self.reads = self.reads.saturating_add(other.reads);
        self.writes = self.writes.saturating_add(other.writes);
        self.remote = self.remote.saturating_add(other.remote);
        self.placed = self.placed.saturating_add(other.placed);
    }
}

/// How coarse the sums of a file had to become: the next compaction of the file begins there. It reads these sums
/// again, and more, and would only merge them step by step to the same.
#[derive(Debug)]
pub(super) struct Coarseness {
    slot_bits: u32,
    code_bits: u32,
    thinned: FxHashMap<ObjectId, u32>,
    /// Cells that there were.
    cells: usize,
}

/// Sums by key, at most a fixed number.
#[derive(Debug)]
pub(super) struct Cells {
    sums: Table,
    /// Cells that were used lately, at most one of each hash; they are in `sums` after [`Cells::settle`].
    recent: Vec<Option<(Key, Sums)>>,
    /// Where the last one is: the next access is mostly of the same sample.
    last: usize,
    /// Instructions, and their indices.
    code: Vec<Frame>,
    index: FxHashMap<Frame, u32>,
    /// Indices that were looked up lately, at most one of each hash.
    recent_code: Vec<Option<(Frame, u32)>>,
    /// Of each instruction the one that followed it last, which mostly follows it again.
    next_code: Vec<u32>,
    last_code: u32,
    /// Instructions within 2^n bytes are counted as the first of them; 0: each is counted.
    code_bits: u32,
    neighbours: FxHashMap<(u32, Frame), u32>,
    /// The first of the neighbours of each instruction, as far as looked up since `code_bits` changed.
    nearest: Vec<Option<u32>>,
    page_shift: u32,
    /// Length of the run so far.
    run_ns: u64,
    /// A stretch of time has 2^n ns.
    slot_bits: u32,
    most: usize,
    /// Objects with too many cells: of 2^n pages one is kept, chosen by a hash; the rest counts for the object.
    thinned: FxHashMap<ObjectId, u32>,
}

impl Cells {
    /// At most `most` cells of a run that has taken `run_ns` so far, whose sums were `before` when it was summed up
    /// last.
    pub fn new(page_shift: u32, run_ns: u64, most: usize, before: Option<Coarseness>) -> Cells {
        let mut slot_bits = SHORTEST_BITS;
        while run_ns >> slot_bits >= MOST_SLOTS {
            slot_bits += 1;
        }
        let begun = Coarseness { slot_bits, code_bits: 0, thinned: FxHashMap::default(), cells: 0 };
        let Coarseness { slot_bits: known, code_bits, thinned, cells } = before.unwrap_or(begun);
        Cells {
            sums: Table::with_capacity(cells),
            recent: vec![None; 1 << RECENT_BITS],
            last: 0,
            code: Vec::new(),
            index: FxHashMap::default(),
            recent_code: vec![None; 1 << RECENT_BITS],
            next_code: Vec::new(),
            last_code: 0,
            code_bits,
            neighbours: FxHashMap::default(),
            nearest: Vec::new(),
            page_shift,
            run_ns,
            slot_bits: slot_bits.max(known),
            most: most.max(1),
            thinned,
        }
    }

    /// Adds a sum.
    pub fn add(&mut self, f: &Folded) {
        let ip = self.index_of(f.ip);
        let page = if f.object_only { NO_PAGE } else { f.addr >> self.page_shift };
        let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let sums = Sums {
            time_ns: f.time_ns,
            addr: f.addr,
            cost_ns: f.cost_ns,
            reads: count(f.reads),
            writes: count(f.writes),
            remote: count(f.remote),
            placed: count(f.placed),
        };
        self.put(Key { object: f.object, thread: f.thread, page, slot: 0, ip }, sums);
        while self.sums.len() > self.most && self.make_room() {}
    }

    #[inline]
    fn index_of(&mut self, ip: Frame) -> u32 {
        let next = self.next_code.get(self.last_code as usize).copied().unwrap_or_default();
        let found = if self.code.get(next as usize) == Some(&ip) { next } else { self.look_up(ip) };
        self.last_code = found;
        found
    }

    /// The index of an instruction, which follows the last one from now on.
    fn look_up(&mut self, ip: Frame) -> u32 {
        let slot = recent_slot(ip);
        let found = match self.recent_code[slot] {
            Some((frame, index)) if frame == ip => index,
            _ => *self.index.entry(ip).or_insert_with(|| {
                self.code.push(ip);
                self.next_code.push(0);
                self.code.len() as u32 - 1
            }),
        };
        self.recent_code[slot] = Some((ip, found));
        if let Some(next) = self.next_code.get_mut(self.last_code as usize) {
            *next = found;
        }
        found
    }

    /// Adds the sums of a key, in the cell that they belong to at present.
    fn put(&mut self, key: Key, sums: Sums) {
        let is_kept = |bits: &u32| is_kept(key.page, *bits);
        let kept = self.thinned.is_empty() || self.thinned.get(&key.object).is_none_or(is_kept);
        let page = if kept { key.page } else { NO_PAGE };
        let slot = u32::try_from(sums.time_ns >> self.slot_bits).unwrap_or(u32::MAX);
        let ip = if self.code_bits > 0 { self.neighbour(key.ip) } else { key.ip };
        let key = Key { page, slot, ip, ..key };
        if let Some((known, sum)) = &mut self.recent[self.last]
            && *known == key
        {
            return sum.add(&sums);
        }
        self.last = recent_slot(key);
        match &mut self.recent[self.last] {
            Some((known, sum)) if *known == key => sum.add(&sums),
            other => {
                if let Some((key, sums)) = other.replace((key, sums)) {
                    self.sums.add(key, sums);
                }
            }
        }
    }

    /// Brings what was used lately into the table.
    fn settle(&mut self) {
        for slot in 0..self.recent.len() {
            if let Some((key, sums)) = self.recent[slot].take() {
                self.sums.add(key, sums);
            }
        }
        self.sums.settle();
    }

    /// Brings what was used lately into the table, which then has no more cells than it may.
    pub fn fit(&mut self) {
        self.settle();
        while self.sums.len() > self.most && self.make_room() {}
    }

    /// The first instruction that was seen of those near this one.
    fn neighbour(&mut self, ip: u32) -> u32 {
        if let Some(Some(known)) = self.nearest.get(ip as usize) {
            return *known;
        }
        let Frame { module, offset } = self.code[ip as usize];
        let near = Frame { module, offset: offset >> self.code_bits };
        let found = *self.neighbours.entry((self.code_bits, near)).or_insert(ip);
        self.nearest.resize(self.code.len(), None);
        self.nearest[ip as usize] = Some(found);
        found
    }

    /// Merges cells, what a summary needs least first: stretches of time, neighbouring instructions, pages of the
    /// objects that have most. False when there is nothing to merge.
    fn make_room(&mut self) -> bool {
        self.settle();
        let slots = self.run_ns >> self.slot_bits;
        if slots >= 2 * SLOTS_OF_INSTRUCTIONS {
            self.slot_bits += 1;
        } else if self.code_bits == 0 {
            self.code_bits = NEIGHBOURS_BITS;
            self.nearest.clear();
        } else if slots >= 2 * SLOTS_OF_PAGES {
            self.slot_bits += 1;
        } else if !self.thin() {
            if slots > 0 {
                self.slot_bits += 1;
            } else if self.code_bits < u64::BITS - 1 {
                self.code_bits += 1;
                self.nearest.clear();
            } else {
                return false;
            }
        }
        for (key, sums) in self.sums.take() {
            self.put(key, sums);
        }
        self.settle();
        true
    }

    /// Chooses how many pages are kept of the objects that have most cells, so that all cells take about half of the
    /// memory. False when cells without a page take more than that.
    fn thin(&mut self) -> bool {
        let mut cells: FxHashMap<ObjectId, usize> = FxHashMap::default();
        for (key, _) in self.sums.all().iter().filter(|(key, _)| key.page != NO_PAGE) {
            *cells.entry(key.object).or_default() += 1;
        }
        let mut paged: usize = cells.values().sum();
        let Some(wanted) = (self.most / 2).checked_sub(self.sums.len() - paged) else { return false };
        let mut largest: BinaryHeap<(usize, ObjectId)> = cells.into_iter().map(|(object, n)| (n, object)).collect();
        let before = paged;
        while paged > wanted
            && let Some((n, object)) = largest.pop().filter(|(n, _)| *n > 1)
        {
            *self.thinned.entry(object).or_default() += 1;
            paged -= n - n / 2;
            largest.push((n / 2, object));
        }
        paged < before
    }

    /// Of each object the thread that accessed it most.
    pub fn users(&mut self) -> FxHashMap<ObjectId, ThreadId> {
        self.fit();
        let mut by_thread: FxHashMap<(ObjectId, ThreadId), u64> = FxHashMap::default();
        for (key, sums) in self.sums.all() {
            *by_thread.entry((key.object, key.thread)).or_default() += u64::from(sums.reads) + u64::from(sums.writes);
        }
        let mut most: FxHashMap<ObjectId, (u64, ThreadId)> = FxHashMap::default();
        for ((object, thread), accesses) in by_thread {
            let known = most.entry(object).or_insert((accesses, thread));
            // Of equals the first thread, whatever the order of the table.
            if (accesses, std::cmp::Reverse(thread)) > (known.0, std::cmp::Reverse(known.1)) {
                *known = (accesses, thread);
            }
        }
        most.into_iter().map(|(object, (_, thread))| (object, thread)).collect()
    }

    /// Counts the accesses to some objects for others.
    pub fn relocate(&mut self, moved: &FxHashMap<ObjectId, Moved>) {
        if moved.is_empty() {
            return;
        }
        self.settle();
        for (mut key, mut sums) in self.sums.take() {
            if let Some(place) = moved.get(&key.object) {
                key.object = place.to;
                sums.addr = place.address(sums.addr);
                key.page = if key.page == NO_PAGE { NO_PAGE } else { sums.addr >> self.page_shift };
            }
            self.put(key, sums);
        }
    }

    /// Length of a stretch of time, ns.
    pub fn slot_ns(&self) -> u64 {
        1 << self.slot_bits
    }

    /// How coarse the sums are; none where what was seen so far leaves room for finer ones.
    pub fn coarseness(&self) -> Option<Coarseness> {
        let Cells { slot_bits, code_bits, .. } = *self;
        let cells = self.sums.len();
        (cells > self.most / 2).then(|| Coarseness { slot_bits, code_bits, thinned: self.thinned.clone(), cells })
    }

    /// Objects whose pages are not all told apart any more.
    pub fn thinned(&self) -> usize {
        self.thinned.len()
    }

    /// All sums, by object, thread, page and time.
    pub fn into_sorted(mut self) -> Vec<Folded> {
        self.settle();
        let Cells { mut sums, code, .. } = self;
        let mut all = sums.take();
        all.sort_unstable_by_key(|(key, _)| *key);
        let folded = |(key, sums): (Key, Sums)| Folded {
            time_ns: sums.time_ns,
            thread: key.thread,
            object: key.object,
            addr: sums.addr,
            object_only: key.page == NO_PAGE,
            ip: code[key.ip as usize],
            reads: sums.reads.into(),
            writes: sums.writes.into(),
            remote: sums.remote.into(),
            placed: sums.placed.into(),
            cost_ns: sums.cost_ns,
        };
        all.into_iter().map(folded).collect()
    }
}

/// Whether a page is one of those kept of 2^`bits`.
fn is_kept(page: u64, bits: u32) -> bool {
    // The mixer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014): all its bits depend on all of the number's.
    let mut mixed = page.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)).trailing_zeros() >= bits
}

/// The place of a key in a small table. The multiplicative hash is best in its high bits.
fn recent_slot(key: impl std::hash::Hash) -> usize {
    (FxBuildHasher.hash_one(key) >> (u64::BITS - RECENT_BITS)) as usize
}
