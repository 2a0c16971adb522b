//! Accesses summed up by object, page, thread, instruction and stretch of time.

use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use super::objects::Moved;
use crate::profile::records::{Folded, Frame, ObjectId, ThreadId};

/// Stretches of time that the run so far is cut into at most. A summary has 64 (`summary::TIME_SLOTS`), so at first each
/// of these lies in one or two of those.
const MOST_SLOTS: u64 = 256;
/// So many are left before neighbouring instructions are taken together, and before pages are.
const SLOTS_OF_INSTRUCTIONS: u64 = 64;
const SLOTS_OF_PAGES: u64 = 16;
/// Instructions within 2^8 bytes of code are neighbours: the body of a loop has some tens of a few bytes each.
const NEIGHBOURS_BITS: u32 = 8;
/// The shortest stretch, ns: the samplers take at most some thousand samples a second of a thread.
const SHORTEST_NS: u64 = 1 << 20;

/// Page of what is known by its object only.
const NO_PAGE: u64 = u64::MAX;

/// 24 bytes, and [`Sums`] 48: there are millions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    object: ObjectId,
    thread: ThreadId,
    page: u64,
    slot: u32,
    /// Index into [`Cells::code`].
    ip: u32,
}

#[derive(Debug, Clone, Copy)]
struct Sums {
    /// Time and address of the first access. A page that two members of a variable share is told apart by the
    /// instruction, which rarely accesses both.
    time_ns: u64,
    addr: u64,
    cost_ns: u64,
    reads: u32,
    writes: u32,
    remote: u32,
    placed: u32,
}

impl Sums {
    fn add(&mut self, other: &Sums) {
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

/// Sums by key, at most a fixed number.
#[derive(Debug)]
pub(super) struct Cells {
    sums: FxHashMap<Key, Sums>,
    /// Instructions, and their indices.
    code: Vec<Frame>,
    index: FxHashMap<Frame, u32>,
    /// Instructions within 2^n bytes are counted as the first of them; 0: each is counted.
    code_bits: u32,
    neighbours: FxHashMap<(u32, Frame), u32>,
    page_shift: u32,
    /// Length of the run so far.
    run_ns: u64,
    slot_ns: u64,
    most: usize,
    /// Objects with too many cells: of 2^n pages one is kept, chosen by a hash; the rest counts for the object.
    thinned: FxHashMap<ObjectId, u32>,
}

impl Cells {
    /// At most `most` cells of a run that has taken `run_ns` so far.
    pub fn new(page_shift: u32, run_ns: u64, most: usize) -> Cells {
        let mut slot_ns = SHORTEST_NS;
        while run_ns / slot_ns >= MOST_SLOTS {
            slot_ns *= 2;
        }
        Cells {
            sums: FxHashMap::default(),
            code: Vec::new(),
            index: FxHashMap::default(),
            code_bits: 0,
            neighbours: FxHashMap::default(),
            page_shift,
            run_ns,
            slot_ns,
            most: most.max(1),
            thinned: FxHashMap::default(),
        }
    }

    /// Adds a sum.
    pub fn add(&mut self, f: &Folded) {
        let ip = *self.index.entry(f.ip).or_insert_with(|| {
            self.code.push(f.ip);
            self.code.len() as u32 - 1
        });
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

    /// Adds the sums of a key, in the cell that they belong to at present.
    fn put(&mut self, key: Key, sums: Sums) {
        let kept = self.thinned.get(&key.object).is_none_or(|bits| is_kept(key.page, *bits));
        let page = if kept { key.page } else { NO_PAGE };
        let slot = u32::try_from(sums.time_ns / self.slot_ns).unwrap_or(u32::MAX);
        let ip = if self.code_bits > 0 { self.neighbour(key.ip) } else { key.ip };
        self.sums.entry(Key { page, slot, ip, ..key }).and_modify(|sum| sum.add(&sums)).or_insert(sums);
    }

    /// The first instruction that was seen of those near this one.
    fn neighbour(&mut self, ip: u32) -> u32 {
        let Frame { module, offset } = self.code[ip as usize];
        *self.neighbours.entry((self.code_bits, Frame { module, offset: offset >> self.code_bits })).or_insert(ip)
    }

    /// Merges cells, what a summary needs least first: stretches of time, neighbouring instructions, pages of the objects
    /// that have most. False when there is nothing to merge.
    fn make_room(&mut self) -> bool {
        let slots = self.run_ns / self.slot_ns;
        if slots >= 2 * SLOTS_OF_INSTRUCTIONS {
            self.slot_ns *= 2;
        } else if self.code_bits == 0 {
            self.code_bits = NEIGHBOURS_BITS;
        } else if slots >= 2 * SLOTS_OF_PAGES {
            self.slot_ns *= 2;
        } else if !self.thin() {
            if slots > 0 {
                self.slot_ns *= 2;
            } else if self.code_bits < u64::BITS - 1 {
                self.code_bits += 1;
            } else {
                return false;
            }
        }
        for (key, sums) in std::mem::take(&mut self.sums) {
            self.put(key, sums);
        }
        true
    }

    /// Chooses how many pages are kept of the objects that have most cells, so that all cells take about half of the
    /// memory. False when cells without a page take more than that.
    fn thin(&mut self) -> bool {
        let mut cells: FxHashMap<ObjectId, usize> = FxHashMap::default();
        for key in self.sums.keys().filter(|key| key.page != NO_PAGE) {
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
    pub fn users(&self) -> FxHashMap<ObjectId, ThreadId> {
        let mut by_thread: FxHashMap<(ObjectId, ThreadId), u64> = FxHashMap::default();
        for (key, sums) in &self.sums {
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
        for (mut key, mut sums) in std::mem::take(&mut self.sums) {
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
        self.slot_ns
    }

    /// Objects whose pages are not all told apart any more.
    pub fn thinned(&self) -> usize {
        self.thinned.len()
    }

    /// All sums, by object, thread, page and time.
    pub fn into_sorted(self) -> Vec<Folded> {
        let Cells { sums, code, .. } = self;
        let mut all: Vec<(Key, Sums)> = sums.into_iter().collect();
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
