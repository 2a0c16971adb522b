//! Lists placed mappings that the program made with mmap, which it may unmap in pieces, move and replace.
//!
//! A fixed array without a lock. A mapping is placed only once it has an entry, because the entry returns its share of
//! the budget of mappings when it is unmapped. A piece stores the object it was cut from, because the plan counts pages
//! from the start of the object.
//!
//! A range without a listed page is found out without a search ([`presence`]), and so is a free entry as a rule.

mod presence;

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use numamma_kernel::sys::PAGE;

use super::backing::Backing;
use super::object::Object;
use crate::place::Part;
use presence::Presence;

/// Most placed mappings that are tracked at once.
pub const CAPACITY: usize = 4096;

/// The version counts changes of the entry, so that a stale ticket is noticed. Its lowest bit selects the valid one of
/// the two words of node and block: the mover writes the other word and then changes the state, so that the entry stays
/// readable. Entering and removing an entry adds two, which keeps the bit.
const FREE: u64 = 0;
const BUSY: u64 = 1;
/// Belongs to a thread that is about to enter a mapping, which no other thread can unmap yet.
const RESERVED: u64 = 2;
const FIRST_RULE: u64 = 3;
const WHAT: u64 = (1 << 24) - 1;
const PLACING_SHIFT: u32 = 24;
const WAITING: u64 = 1 << 31;
const VERSION: u64 = 1 << 32;
const BLOCK_BITS: u32 = 48;
/// Passes over the list while another thread changes an entry, which takes a few instructions. More are needed only
/// when that thread is not running (or is this one, interrupted by a signal).
const MAX_PASSES: u32 = 2_000;

/// A piece of a placed mapping, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The object as it was mapped.
    pub object: Object,
    /// The pages of the object that the piece has.
    pub part: Part,
}

impl Piece {
    /// First address.
    pub fn start(&self) -> usize {
        self.object.base + self.part.first as usize * PAGE
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.part.pages as usize * PAGE
    }

    /// Address behind the last byte.
    pub fn end(&self) -> usize {
        self.start() + self.len()
    }

    /// The part of the piece in `[start, end)`, which the piece contains.
    fn within(&self, start: usize, end: usize) -> Piece {
        let page = |address: usize| ((address - self.object.base) / PAGE) as u64;
        Piece { part: Part { first: page(start), pages: page(end) - page(start) }, ..*self }
    }
}

/// Entry of a mapping, valid while the entry is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    index: usize,
    state: u64,
}

/// In a cache line of its own: a search reads one for each entry.
#[repr(align(64))]
struct Entry {
    state: AtomicU64,
    words: [AtomicUsize; 7],
}

static ENTRIES: [Entry; CAPACITY] =
    [const { Entry { state: AtomicU64::new(FREE), words: [const { AtomicUsize::new(0) }; 7] } }; CAPACITY];
/// Number of entries ever used, which bounds a search.
static HIGH: AtomicUsize = AtomicUsize::new(0);
/// Entries in use now.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// Where the search for a free entry begins: at the one that was freed last, or behind the one that was taken last.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Where the pieces in the list are.
static PRESENT: Presence = Presence::new();

/// Whether no placed mapping is alive: the fast path of munmap.
#[inline(always)]
pub fn is_empty() -> bool {
    LIVE.load(Ordering::Relaxed) == 0
}

/// Whether a listed piece may have a byte of the `len` bytes at `start`: the fast path of munmap where placed mappings
/// are alive.
#[inline]
pub fn may_have(start: usize, len: usize) -> bool {
    !is_empty() && PRESENT.may_have(start, start.saturating_add(len))
}

fn pack_state(m: &Object, version: u64) -> u64 {
    let waiting = if m.waiting { WAITING } else { 0 };
    (version & !(VERSION - 1)) | waiting | (m.placing as u64) << PLACING_SHIFT | (m.rule as u64 + FIRST_RULE)
}

fn node_and_block(m: &Object) -> usize {
    // A block that does not fit is not stored; it is computed again.
    let block = if m.block >> BLOCK_BITS == 0 { m.block as usize } else { 0 };
    (m.node as usize) << BLOCK_BITS | block
}

/// A free entry that belongs to the caller until a piece is entered; returned on drop.
pub struct Reserved {
    index: usize,
    /// State of the entry.
    state: u64,
}

/// Takes a free entry; `None` when the array is full.
pub fn reserve() -> Option<Reserved> {
    if LIVE.load(Ordering::Relaxed) >= CAPACITY {
        return None; // without a search
    }
    let first = NEXT.load(Ordering::Relaxed) % CAPACITY;
    let (before, behind) = (ENTRIES.iter().enumerate().take(first), ENTRIES.iter().enumerate().skip(first));
    behind.chain(before).find_map(|(index, entry)| {
        let before = entry.state.load(Ordering::Relaxed);
        let state = (before & !(VERSION - 1)).wrapping_add(VERSION) | RESERVED;
        let taken = before & WHAT == FREE
            && entry.state.compare_exchange(before, state, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // then_some would make a Reserved and drop it, which frees the entry of another thread.
        taken.then(|| {
            HIGH.fetch_max(index + 1, Ordering::AcqRel);
            NEXT.store(index + 1, Ordering::Relaxed);
            Reserved { index, state }
        })
    })
}

impl Reserved {
    /// Enters `piece`.
    pub fn enter(self, piece: &Piece) {
        let (m, Reserved { index, state }) = (&piece.object, &self);
        let Some(entry) = ENTRIES.get(*index) else { return };
        PRESENT.add(piece.start(), piece.end());
        let busy = state & !WHAT | BUSY;
        entry.state.store(busy, Ordering::Relaxed);
        let values =
            [m.base, m.size, piece.start(), piece.len(), node_and_block(m), node_and_block(m), m.backing.pack()];
        // Release: a thread that reads a new word sees that the version changed.
        entry.words.iter().zip(values).for_each(|(word, value)| word.store(value, Ordering::Release));
        LIVE.fetch_add(1, Ordering::Relaxed);
        // Release pairs with the Acquire of `read`: a thread that sees the rule sees the words.
        entry.state.store(pack_state(m, busy), Ordering::Release);
        core::mem::forget(self);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(entry) = ENTRIES.get(self.index) {
            free(entry, self.index, self.state);
        }
    }
}

/// Frees an entry that belongs to this thread.
fn free(entry: &Entry, index: usize, state: u64) {
    entry.state.store((state & !(VERSION - 1)).wrapping_add(VERSION) | FREE, Ordering::Release);
    NEXT.store(index, Ordering::Relaxed);
}

/// Enters a mapping; false when the array is full.
pub fn insert(piece: &Piece) -> bool {
    reserve().map(|entry| entry.enter(piece)).is_some()
}

fn read(entry: &Entry) -> Option<(u64, Piece)> {
    let state = entry.state.load(Ordering::Acquire);
    let rule = (state & WHAT).checked_sub(FIRST_RULE)? as usize;
    let [object, object_len, start, len, even, odd, backing] = &entry.words;
    let load = |word: &AtomicUsize| word.load(Ordering::Acquire);
    let node_and_block = load(if state & VERSION == 0 { even } else { odd });
    let (base, size) = (load(object), load(object_len));
    let (first, pages) = ((load(start).wrapping_sub(base) / PAGE) as u64, (load(len) / PAGE) as u64);
    let object = Object {
        rule,
        placing: (state >> PLACING_SHIFT & 0x7f) as usize,
        waiting: state & WAITING != 0,
        node: (node_and_block >> BLOCK_BITS) as u32,
        block: node_and_block as u64 & ((1 << BLOCK_BITS) - 1),
        base,
        colour: 0,
        size,
        pages: (size / PAGE) as u64,
        backing: Backing::unpack(load(backing)),
    };
    let mapped = Piece { object, part: Part { first, pages } };
    // The words belong together if the entry was not reused meanwhile.
    (entry.state.load(Ordering::Relaxed) == state).then_some((state, mapped))
}

/// Set when an unmapping met an entry whose change never ended: listed mappings may be gone.
static UNRELIABLE: AtomicBool = AtomicBool::new(false);

/// Whether every listed mapping certainly exists.
pub fn reliable() -> bool {
    !UNRELIABLE.load(Ordering::Relaxed)
}

/// Removes the pieces in `[start, end)` and calls `gone` with each; parts outside the range stay.
pub fn remove(start: usize, end: usize, mut gone: impl FnMut(Piece)) {
    if !may_have(start, end.saturating_sub(start)) {
        return;
    }
    // Repeated when another thread was changing an entry, which may have cut the mapping searched for. A child that was
    // forked during a change finds the change unfinished for ever, so only its first call waits.
    for _ in 0..if reliable() { MAX_PASSES } else { 1 } {
        if !remove_once(start, end, &mut gone) {
            return;
        }
        core::hint::spin_loop();
    }
    UNRELIABLE.store(true, Ordering::Relaxed);
}

/// One pass; true when an entry was being changed.
fn remove_once(start: usize, end: usize, gone: &mut impl FnMut(Piece)) -> bool {
    let mut disturbed = false;
    for (index, entry) in ENTRIES.iter().enumerate().take(HIGH.load(Ordering::Acquire)) {
        if is_apart(entry, start, end) {
            continue;
        }
        let Some((state, m)) = read(entry) else {
            disturbed |= !matches!(entry.state.load(Ordering::Acquire) & WHAT, FREE | RESERVED);
            continue;
        };
        let (from, to) = (m.start().max(start), m.end().min(end));
        if from >= to {
            continue;
        }
        let version = state & !(VERSION - 1);
        if entry.state.compare_exchange(state, version | BUSY, Ordering::Acquire, Ordering::Relaxed).is_err() {
            disturbed = true;
            continue;
        }
        let before = (m.start() < from).then(|| m.within(m.start(), from));
        let behind = (to < m.end()).then(|| m.within(to, m.end()));
        // Of two remaining parts one needs another entry, which a concurrent unmapping must find before this one is
        // published. Without a free entry that part is forgotten, and its share of the budget stays taken, as its
        // memory policy stays.
        if let (Some(_), Some(behind)) = (&before, &behind) {
            insert(behind);
        }
        match before.or(behind) {
            Some(rest) => publish_rest(entry, version, &rest),
            None => {
                LIVE.fetch_sub(1, Ordering::Relaxed);
                free(entry, index, version);
            }
        }
        PRESENT.remove(m.start(), m.end());
        gone(m.within(from, to));
    }
    disturbed
}

/// Whether the piece of the entry has no byte in `[start, end)`: reads less of an entry than [`read`].
fn is_apart(entry: &Entry, start: usize, end: usize) -> bool {
    let state = entry.state.load(Ordering::Acquire);
    let [_, _, first, len, ..] = &entry.words;
    let (first, len) = (first.load(Ordering::Acquire), len.load(Ordering::Acquire));
    let is_apart = first >= end || first.saturating_add(len) <= start;
    is_apart && state & WHAT >= FIRST_RULE && entry.state.load(Ordering::Relaxed) == state
}

/// Makes the entry, which this thread has marked busy, that of `rest`.
fn publish_rest(entry: &Entry, version: u64, rest: &Piece) {
    let [_, _, start, len, ..] = &entry.words;
    PRESENT.add(rest.start(), rest.end());
    // Release: as in `Reserved::enter`.
    start.store(rest.start(), Ordering::Release);
    len.store(rest.len(), Ordering::Release);
    // Two more keep the bit that selects the word of node and block.
    entry.state.store(pack_state(&rest.object, version.wrapping_add(2 * VERSION)), Ordering::Release);
}

/// Calls `visit` with every live piece and its entry.
pub fn for_each_entry(mut visit: impl FnMut(Ticket, Piece)) {
    for (index, entry) in ENTRIES.iter().enumerate().take(HIGH.load(Ordering::Relaxed)) {
        if let Some((state, m)) = read(entry) {
            visit(Ticket { index, state }, m);
        }
    }
}

/// Whether the entry of `ticket` is unchanged.
pub fn is_unchanged(ticket: Ticket) -> bool {
    ENTRIES.get(ticket.index).is_some_and(|e| e.state.load(Ordering::Acquire) == ticket.state)
}

/// Stores placing, waiting, node and block of `m` in the entry of `ticket`; `None` when the entry changed meanwhile.
/// Only the mover may call this.
pub fn change(ticket: Ticket, m: &Object) -> Option<Ticket> {
    let state = pack_state(m, ticket.state.wrapping_add(VERSION));
    let entry = ENTRIES.get(ticket.index)?;
    let [.., even, odd, _] = &entry.words;
    // No thread reads this word, not even if the entry was reused: the version of a reused entry has the lowest bit of
    // the ticket.
    let next = if state & VERSION == 0 { even } else { odd };
    next.store(node_and_block(m), Ordering::Release);
    entry.state.compare_exchange(ticket.state, state, Ordering::AcqRel, Ordering::Relaxed).ok()?;
    Some(Ticket { state, ..ticket })
}

/// The placed mapping that begins at `start`.
pub fn piece_at(start: usize) -> Option<Piece> {
    let live = ENTRIES.iter().take(HIGH.load(Ordering::Relaxed)).filter_map(read).map(|(_, m)| m);
    live.into_iter().find(|m| m.start() == start)
}

/// Calls `visit` with every live piece.
pub fn for_each(visit: impl FnMut(Piece)) {
    ENTRIES.iter().take(HIGH.load(Ordering::Relaxed)).filter_map(read).map(|(_, m)| m).for_each(visit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_leaves_two_pieces_of_one_object() {
        let object = 0x1000_0000;
        let (size, pages, backing) = (10 * PAGE, 10, Backing::PRIVATE);
        let (base, node, block, placing, waiting) = (object, 1, 2, 2, true);
        let placed = Object { rule: 3, placing, waiting, node, block, base, colour: 0, size, pages, backing };
        let m = Piece { object: placed, part: placed.whole() };
        assert!(is_empty() && insert(&m) && !is_empty());
        let mut gone = Vec::new();
        remove(object + 4 * PAGE, object + 6 * PAGE, |g| gone.push(g));
        assert_eq!(gone.iter().map(|g| g.part).collect::<Vec<_>>(), [Part { first: 4, pages: 2 }]);
        let mut left = Vec::new();
        for_each(|g| left.push(g.part));
        left.sort_by_key(|p| p.first);
        assert_eq!(left, [Part { first: 0, pages: 4 }, Part { first: 6, pages: 4 }]);
        assert_eq!(piece_at(object), Some(Piece { part: Part { first: 0, pages: 4 }, ..m }));
        let mut entered = Vec::new();
        for_each_entry(|ticket, m| entered.push((ticket, m)));
        let (ticket, m) = entered[0];
        assert!(is_unchanged(ticket) && m.object.placing == 2 && m.object.waiting);
        let (mut later, next) =
            (Vec::new(), Object { placing: 1, waiting: false, node: 7, block: 1 << 40, ..m.object });
        let moved = change(ticket, &next).unwrap();
        for_each(|m| later.push(m.object));
        assert!(later.contains(&next) && later.len() == 2, "{later:?}");
        assert!(
            is_unchanged(moved) && !is_unchanged(ticket) && change(ticket, &m.object).is_none(),
            "one change for each ticket"
        );
        remove(0, usize::MAX, |_| {});
        assert!(is_empty() && !is_unchanged(moved) && reliable());
        assert!(insert(&m) && !is_unchanged(moved), "whoever comes next is not taken for it");
        remove(0, usize::MAX, |_| {});
        a_full_list_loses_no_piece(m);
    }

    /// Not a test of its own: the tests of a program share the list.
    fn a_full_list_loses_no_piece(m: Piece) {
        let all: Vec<Reserved> = std::iter::from_fn(reserve).collect();
        assert!(all.len() == CAPACITY && !insert(&m) && is_empty() && reliable());
        drop(all);
        let away = |number: usize| {
            let object = Object { base: m.object.base + number * 16 * PAGE, ..m.object };
            Piece { object, part: object.whole() }
        };
        assert!((0..CAPACITY).all(|number| insert(&away(number))) && reserve().is_none());
        let (at, parts) = (away(7).start(), |list: &[Piece]| list.iter().map(|p| p.part).collect::<Vec<_>>());
        let mut gone = Vec::new();
        // The front, then the end: the rest needs no other entry.
        remove(at, at + PAGE, |g| gone.push(g));
        remove(at + 9 * PAGE, at + 12 * PAGE, |g| gone.push(g));
        let rest = Part { first: 1, pages: 8 };
        assert_eq!(parts(&gone), [Part { first: 0, pages: 1 }, Part { first: 9, pages: 1 }]);
        assert_eq!(piece_at(at + PAGE).map(|p| p.part), Some(rest));
        // A hole: there is no entry for the part behind it, and the part before it stays.
        remove(at + 3 * PAGE, at + 4 * PAGE, |_| {});
        assert_eq!(piece_at(at + PAGE).map(|p| p.part), Some(Part { first: 1, pages: 2 }));
        remove(0, usize::MAX, |_| {});
        assert!(is_empty() && reliable());
    }
}
