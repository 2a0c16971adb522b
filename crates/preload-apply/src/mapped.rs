//! Placed mappings that the program made with mmap: they can be unmapped in pieces, moved and replaced.
//!
//! A fixed array without a lock; what does not fit is placed but not checked. A piece remembers the object
//! it was cut from, because the plan counts pages from the object's start.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use numamma_hook::sys::PAGE;

use crate::backing::Backing;
use crate::place::Part;

/// Placed mappings alive at once that are tracked.
const CAPACITY: usize = 4096;

const FREE: u64 = 0;
const BUSY: u64 = 1;
/// Rule index + this is what `state` of a used entry holds.
const FIRST_RULE: u64 = 2;

/// (A piece of) one placed mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Index of the rule.
    pub rule: usize,
    /// Start of the object as it was mapped.
    pub object: usize,
    /// Bytes of the object as it was mapped.
    pub object_len: usize,
    /// Start of the piece that is still there.
    pub start: usize,
    /// Bytes of the piece.
    pub len: usize,
    /// Node of a `local` object.
    pub node: u32,
    /// Pages per block as placed (see [`crate::table::Placed::block`]).
    pub block: u64,
    /// What is behind it.
    pub backing: Backing,
}

impl Mapped {
    /// The piece as pages of its object.
    pub fn part(&self) -> Part {
        Part { first: ((self.start - self.object) / PAGE) as u64, pages: (self.len / PAGE) as u64 }
    }
}

struct Entry {
    state: AtomicU64,
    words: [AtomicUsize; 7],
}

static ENTRIES: [Entry; CAPACITY] =
    [const { Entry { state: AtomicU64::new(FREE), words: [const { AtomicUsize::new(0) }; 7] } }; CAPACITY];
/// Entries ever used: how far a search looks.
static HIGH: AtomicUsize = AtomicUsize::new(0);
/// Entries in use now.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// No placed mapping is alive: the fast path of munmap.
#[inline(always)]
pub fn none() -> bool {
    LIVE.load(Ordering::Relaxed) == 0
}

/// Enters a mapping; false when the array is full.
pub fn insert(m: &Mapped) -> bool {
    for (index, entry) in ENTRIES.iter().enumerate() {
        if entry.state.compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed).is_err() {
            continue;
        }
        let values = [m.object, m.object_len, m.start, m.len, m.node as usize, m.block as usize, m.backing.pack()];
        entry.words.iter().zip(values).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        LIVE.fetch_add(1, Ordering::Relaxed);
        HIGH.fetch_max(index + 1, Ordering::Relaxed);
        // Release pairs with the Acquire of `read`: who sees the rule sees the words.
        entry.state.store(m.rule as u64 + FIRST_RULE, Ordering::Release);
        return true;
    }
    false
}

fn read(entry: &Entry) -> Option<(u64, Mapped)> {
    let state = entry.state.load(Ordering::Acquire);
    let rule = state.checked_sub(FIRST_RULE)? as usize;
    let [object, object_len, start, len, node, block, backing] = &entry.words;
    let load = |word: &AtomicUsize| word.load(Ordering::Relaxed);
    let mapped = Mapped {
        rule,
        object: load(object),
        object_len: load(object_len),
        start: load(start),
        len: load(len),
        node: load(node) as u32,
        block: load(block) as u64,
        backing: Backing::unpack(load(backing)),
    };
    Some((state, mapped))
}

/// Removes everything in `[start, end)` and calls `gone` with each piece that was there; what sticks out stays.
pub fn remove(start: usize, end: usize, mut gone: impl FnMut(Mapped)) {
    if none() {
        return;
    }
    for entry in ENTRIES.iter().take(HIGH.load(Ordering::Relaxed)) {
        let Some((state, m)) = read(entry) else { continue };
        let (from, to) = (m.start.max(start), (m.start + m.len).min(end));
        if from >= to || entry.state.compare_exchange(state, BUSY, Ordering::Acquire, Ordering::Relaxed).is_err() {
            continue;
        }
        LIVE.fetch_sub(1, Ordering::Relaxed);
        entry.state.store(FREE, Ordering::Release);
        if m.start < from {
            insert(&Mapped { len: from - m.start, ..m });
        }
        if to < m.start + m.len {
            insert(&Mapped { start: to, len: m.start + m.len - to, ..m });
        }
        gone(Mapped { start: from, len: to - from, ..m });
    }
}

/// The placed mapping that begins at `start`.
pub fn at(start: usize) -> Option<Mapped> {
    let live = ENTRIES.iter().take(HIGH.load(Ordering::Relaxed)).filter_map(read).map(|(_, m)| m);
    live.into_iter().find(|m| m.start == start)
}

/// Calls `visit` with every live piece.
pub fn for_each(visit: impl FnMut(Mapped)) {
    ENTRIES.iter().take(HIGH.load(Ordering::Relaxed)).filter_map(read).map(|(_, m)| m).for_each(visit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_leaves_two_pieces_of_one_object() {
        let object = 0x1000_0000;
        let (len, backing) = (10 * PAGE, Backing::PRIVATE);
        let m = Mapped { rule: 3, object, object_len: len, start: object, len, node: 1, block: 2, backing };
        assert!(none() && insert(&m) && !none());
        let mut gone = Vec::new();
        remove(object + 4 * PAGE, object + 6 * PAGE, |g| gone.push(g));
        assert_eq!(gone.iter().map(Mapped::part).collect::<Vec<_>>(), [Part { first: 4, pages: 2 }]);
        let mut left = Vec::new();
        for_each(|g| left.push(g.part()));
        left.sort_by_key(|p| p.first);
        assert_eq!(left, [Part { first: 0, pages: 4 }, Part { first: 6, pages: 4 }]);
        assert_eq!(at(object), Some(Mapped { len: 4 * PAGE, ..m }));
        remove(0, usize::MAX, |_| {});
        assert!(none());
    }
}
