//! The table of kept blocks: memory of freed heap objects that serves again, see [`super`].
//!
//! Where the place of a page does not depend on the object it is part of (see [`Shape::Pages`]), a kept block is a
//! range of pages: an object takes as many of it as it needs, the rest stays, and blocks that touch become one again,
//! as in glibc's heap. So arrays of varying size serve each other. Under the other policies the blocks of an object
//! begin with the object, and a kept block serves an object of its own size, or another one in the way of [`loose`].
//!
//! An array of which the program touches a part (see [`super::sparse::touched`]) is kept as it is while that matters:
//! it serves as a whole another such array of about its size, so that the pages which are touched again may be those
//! that are in memory.
//!
//! The blocks are in a table of sets. A thread takes an entry by a compare-and-exchange of its first word, which no
//! other thread waits for. Of a child that was forked meanwhile, that entry is lost. Two threads that free neighbours
//! at the same time leave two blocks.

pub mod loose;

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use numamma_hook::own_stack;
use numamma_kernel::sys::PAGE;
use numamma_plan::policy::PolicyKind;

use super::sparse::touched;
use super::sum::discount;
use crate::objects::object::Object;
use crate::objects::{heap_table, released};
use crate::rules::state::{Rule, State, memory_of};

/// Sets of the table, and the blocks of a set: those of a rule, or of a rule and size, are in one set. Half as many
/// blocks are free as are in use, where one of another size is allocated for each that is freed (the fifty-percent
/// rule, Knuth, The Art of Computer Programming, volume 1, 2.5): enough for a cache of a thousand arrays;
/// of more, the smallest blocks are given back. All of the table is locked by a program that locks its memory.
const SETS: usize = 4;
const WAYS: usize = 512;
/// Bits of a word of [`Set::used`].
const BITS: usize = u64::BITS as usize;
/// Searches for a block that another thread does not take first.
const TRIES: usize = 4;
/// Rules and sizes that are remembered, and as many rules and classes of sizes, by a hash; a newer one replaces an
/// older one.
const SIZES: usize = 1024;

/// Part (1/4) of its size by which an array that takes a block as a whole may be smaller.
const WASTE_DIVISOR: usize = 4;

const EMPTY: u64 = 0;
const BUSY: u64 = 1;

/// An entry of the table.
struct Entry {
    /// [`EMPTY`], [`BUSY`] while a thread changes the entry, else the object's word of the heap table.
    word: AtomicU64,
    base: AtomicUsize,
    /// Bytes of the object that was freed, or of the range of pages.
    size: AtomicUsize,
    /// Number of the sweep before which the block was freed.
    freed: AtomicU32,
    /// [`HUGE`], [`WHOLE`] or both.
    kind: AtomicU32,
}

/// The block may have huge pages, see [`Object::may_be_huge`].
const HUGE: u32 = 1;
/// The block serves as a whole: its first pages are in memory.
const WHOLE: u32 = 2;

/// The blocks of some rules and sizes.
struct Set {
    /// A bit for each entry that is not empty, changed by the thread that has taken the entry.
    used: [AtomicU64; WAYS / BITS],
    /// Bytes of the largest object that no block served, see [`replace`].
    largest: AtomicUsize,
    entries: [Entry; WAYS],
}

static TABLE: [Set; SETS] = [const { Set::new() }; SETS];
/// Hashes of rules and sizes that were freed. The lowest bit: they were allocated again.
static FREED: [[AtomicU64; SIZES]; 2] = [const { [const { AtomicU64::new(0) }; SIZES] }; 2];
const AGAIN: u64 = 1;

/// What a kept block of a rule serves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// An object of the same size.
    Object,
    /// Objects of its size and less: each page has its place by its address, or all pages have the same.
    Pages {
        /// The pages may be huge, so that all of one are on the same node.
        huge: bool,
        /// Mappings of the budget that a range of pages takes.
        mappings: u64,
    },
}

impl Shape {
    fn of(state: &State, object: &Object) -> Option<Shape> {
        let rule = state.rules.get(object.rule)?;
        if !is_by_pages(rule) {
            return Some(Shape::Object);
        }
        let placed = rule.placings.get(object.placing)?.place.policy != PolicyKind::Default;
        Some(Shape::Pages { huge: object.may_be_huge(state), mappings: u64::from(placed) })
    }
}

/// Whether the place of a page of a rule's objects never depends on where in which object it is. What lies in another
/// range of an object in parts has another policy.
pub fn is_by_pages(rule: &Rule) -> bool {
    rule.parts().is_empty() && rule.placings.iter().all(|placing| is_of_pages(placing.place.policy))
}

/// Whether a page's place does not depend on where in which object the page is.
fn is_of_pages(policy: PolicyKind) -> bool {
    match policy {
        PolicyKind::Default
        | PolicyKind::Bind
        | PolicyKind::Preferred
        | PolicyKind::PreferredMany
        | PolicyKind::Interleave
        | PolicyKind::WeightedInterleave
        | PolicyKind::Local => true,
        PolicyKind::Block
        | PolicyKind::BlockCyclic
        | PolicyKind::BindBlock
        | PolicyKind::Skew
        | PolicyKind::Prime
        | PolicyKind::RandomBlock
        | PolicyKind::Random
        | PolicyKind::Map => false,
    }
}

/// A block that a thread has taken out of the table or is about to store there.
struct Block {
    object: Object,
    freed: u32,
    huge: bool,
    /// See [`WHOLE`].
    whole: bool,
}

impl Block {
    fn end(&self) -> usize {
        self.object.base + self.object.bytes()
    }

    /// The block as the range of pages from `base` to `end`.
    fn range(&self, base: usize, end: usize) -> Block {
        Block { object: range(&self.object, base, end), whole: false, ..*self }
    }
}

fn range(object: &Object, base: usize, end: usize) -> Object {
    Object { base, size: end - base, pages: ((end - base) / PAGE) as u64, ..*object }
}

impl Entry {
    const fn new() -> Entry {
        Entry {
            word: AtomicU64::new(EMPTY),
            base: AtomicUsize::new(0),
            size: AtomicUsize::new(0),
            freed: AtomicU32::new(0),
            kind: AtomicU32::new(0),
        }
    }

    /// Takes the entry if its word is `word`, and returns the block in it. Only [`Entry::set`] ends that.
    fn claim(&self, word: u64) -> Option<Block> {
        // Acquire pairs with the Release of `set`: the other fields belong to the word.
        self.word.compare_exchange(word, BUSY, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let (base, size) = (self.base.load(Ordering::Relaxed), self.size.load(Ordering::Relaxed));
        let (freed, kind) = (self.freed.load(Ordering::Relaxed), self.kind.load(Ordering::Relaxed));
        let (huge, whole) = (kind & HUGE != 0, kind & WHOLE != 0);
        Some(Block { object: heap_table::object_of(base, size, word), freed, huge, whole })
    }

    fn set(&self, word: u64) {
        self.word.store(word, Ordering::Release);
    }

    /// Stores `block` in the entry, which the caller has taken.
    fn set_block(&self, block: &Block) {
        self.base.store(block.object.base, Ordering::Relaxed);
        self.size.store(block.object.size, Ordering::Relaxed);
        self.freed.store(block.freed, Ordering::Relaxed);
        let kind = if block.huge { HUGE } else { 0 } | if block.whole { WHOLE } else { 0 };
        self.kind.store(kind, Ordering::Relaxed);
        self.set(word_of(&block.object));
    }

    /// Word, first address and size as they are now. Another thread may be changing them.
    fn peek(&self) -> Option<(u64, usize, usize)> {
        let word = self.word.load(Ordering::Relaxed);
        (word > BUSY).then(|| (word, self.base.load(Ordering::Relaxed), self.size.load(Ordering::Relaxed)))
    }
}

impl Set {
    const fn new() -> Set {
        Set {
            used: [const { AtomicU64::new(0) }; WAYS / BITS],
            largest: AtomicUsize::new(0),
            entries: [const { Entry::new() }; WAYS],
        }
    }

    /// The entries that are not empty, with their numbers.
    fn used(&self) -> impl Iterator<Item = (usize, &Entry)> {
        self.used.iter().enumerate().flat_map(move |(word, bits)| {
            let mut bits = bits.load(Ordering::Relaxed);
            core::iter::from_fn(move || {
                let number = bits.trailing_zeros() as usize;
                bits &= bits.wrapping_sub(1);
                (number < BITS).then(|| (word * BITS + number, &self.entries[word * BITS + number]))
            })
        })
    }

    /// Empties entry `number`, which the caller has taken.
    fn empty(&self, number: usize) {
        self.used[number / BITS].fetch_and(!(1 << (number % BITS)), Ordering::Relaxed);
        self.entries[number].set(EMPTY);
    }

    /// Stores `block` in an empty entry, if there is one.
    fn fill(&self, block: &Block) -> bool {
        for (word, used) in self.used.iter().enumerate() {
            let mut free = !used.load(Ordering::Relaxed);
            while free > 0 {
                let entry = &self.entries[word * BITS + free.trailing_zeros() as usize];
                if entry.word.compare_exchange(EMPTY, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    used.fetch_or(1 << free.trailing_zeros(), Ordering::Relaxed);
                    entry.set_block(block);
                    return true;
                }
                free &= free.wrapping_sub(1);
            }
        }
        false
    }

    /// Removes the block of entry `number` if its word is `word`.
    fn remove(&self, number: usize, word: u64) -> Option<Object> {
        let block = self.entries[number].claim(word)?;
        self.empty(number);
        discount(block.object.bytes());
        Some(block.object)
    }
}

/// Removes the blocks that are `wanted`, which is called with the number of the sweep before which a block was freed.
pub fn remove_all(mut wanted: impl FnMut(u32) -> bool) -> impl Iterator<Item = Object> {
    let used = TABLE.iter().flat_map(|set| set.used().map(move |(number, entry)| (set, number, entry)));
    used.filter_map(move |(set, number, entry)| {
        let (word, ..) = entry.peek()?;
        wanted(entry.freed.load(Ordering::Relaxed)).then(|| set.remove(number, word)).flatten()
    })
}

/// Removes a block; consecutive values of `hand` are for different sets, then for different blocks of a set.
pub fn remove_any(hand: usize) -> Option<Object> {
    (0..SETS).find_map(|more| {
        let (set, from) = (&TABLE[(hand + more) % SETS], hand / SETS % WAYS);
        let (number, entry) = set.used().find(|(number, _)| *number >= from).or_else(|| set.used().next())?;
        set.remove(number, entry.peek()?.0)
    })
}

/// Number of the places.
pub const PLACES: usize = SETS * WAYS;

/// A number for rule and `size`. Multiplying by 2^64 divided by the golden ratio spreads the bits (Knuth, The Art of
/// Computer Programming, volume 3, 6.4).
fn hash(object: &Object, size: u64) -> u64 {
    (size ^ (memory_of(object.rule) as u64) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn set_of(shape: Shape, block: &Object) -> &'static Set {
    let size = if shape == Shape::Object { block.size as u64 } else { 0 };
    &TABLE[(hash(block, size) >> 32) as usize % SETS]
}

/// Number of the sizes that count as one where they serve each other: four for each power of two.
fn class(pages: u64) -> u64 {
    match pages {
        0..8 => pages,
        _ => u64::from(pages.ilog2()) << 2 | pages >> (pages.ilog2() - 2) & 3,
    }
}

fn class_of(shape: Shape, object: &Object) -> u64 {
    match shape {
        Shape::Object => object.size as u64,
        Shape::Pages { .. } => class(object.pages),
    }
}

/// A number for the rule and the class of sizes of an object.
pub fn hash_of_class(state: &State, object: &Object) -> Option<u64> {
    Some(hash(object, class_of(Shape::of(state, object)?, object)))
}

/// The notes of an object, of its size and of its class of sizes: the hash, and where it is noted.
fn notes(shape: Shape, object: &Object) -> [(u64, &'static AtomicU64); 2] {
    let class = class_of(shape, object);
    let note = |table: usize, number: u64| {
        let hash = hash(object, number) & !AGAIN;
        (hash, &FREED[table][(hash >> 40) as usize % SIZES])
    };
    [note(0, object.size as u64), note(1, class)]
}

/// Notes that memory for an object was mapped, see [`comes_again`].
pub fn mapped(state: &State, object: &Object) {
    let Some(shape) = Shape::of(state, object) else { return };
    for (hash, note) in notes(shape, object) {
        if note.load(Ordering::Relaxed) == hash {
            note.store(hash | AGAIN, Ordering::Relaxed);
        }
    }
}

/// Whether objects of the rule and about the size are allocated after one of them was freed. Notes that one was freed.
/// `grown`: realloc made it larger. Then only its very size counts, because an array that grows passes all sizes.
pub fn comes_again(state: &State, object: &Object, grown: bool) -> bool {
    let Some(shape) = Shape::of(state, object) else { return false };
    let found = notes(shape, object).map(|(hash, note)| {
        let found = note.load(Ordering::Relaxed);
        if found & !AGAIN != hash {
            note.store(hash, Ordering::Relaxed);
        }
        found == hash | AGAIN
    });
    found[usize::from(!grown)]
}

/// Whether there is room for `count` arrays like `object` if all of them are freed: ranges of pages become one.
pub fn has_room(state: &State, object: &Object, count: usize) -> bool {
    count <= WAYS || matches!(Shape::of(state, object), Some(Shape::Pages { .. }))
}

/// Whether the set of `object` has a block that could serve it.
pub fn has_like(state: &State, object: &Object) -> bool {
    let Some(shape) = Shape::of(state, object) else { return false };
    set_of(shape, object).used().filter_map(|(_, entry)| entry.peek()).any(|(word, base, size)| match shape {
        Shape::Object => {
            let is_loose = loose::is_loose(&heap_table::object_of(base, size, word));
            size == object.size && heap_table::rule_of(word) == memory_of(object.rule) as u64 && !is_loose
        }
        Shape::Pages { .. } => size >= object.bytes() && word == word_of_pages(object),
    })
}

/// The word of a kept block: that of the object in the heap table, with the rule whose memory it has.
fn word_of(object: &Object) -> u64 {
    heap_table::with_rule(heap_table::word_of(object), memory_of(object.rule))
}

/// The word of all ranges of pages that are placed as `object` is.
fn word_of_pages(object: &Object) -> u64 {
    word_of(&Object { waiting: false, block: 0, ..*object })
}

/// A kept block for the object `wanted`, at a multiple of `align`; its pages hold what the object before left there. It
/// is as large as `wanted` or larger, and has what is expected to be touched of that if the object before was touched
/// so.
pub fn take(state: &'static State, wanted: &Object, align: usize) -> Option<Object> {
    let shape = Shape::of(state, wanted)?;
    let found = take_of(state, wanted, align, shape);
    if found.is_none() && shape == Shape::Object { loose::take(state, wanted, align) } else { found }
}

/// As [`take`], of the blocks of this shape. Not inlined: what it holds would be in the stack frame of [`take`], too.
#[inline(never)]
fn take_of(state: &'static State, wanted: &Object, align: usize, shape: Shape) -> Option<Object> {
    let search = Search {
        state,
        wanted,
        align,
        shape,
        whole: is_whole(shape, wanted, wanted.bytes()),
        set: set_of(shape, wanted),
    };
    for _ in 0..TRIES {
        let (number, word) = search.best()?;
        if let Some(block) = search.take(number, word) {
            return Some(block);
        }
    }
    None
}

/// What a block is looked for.
struct Search<'a> {
    state: &'static State,
    wanted: &'a Object,
    align: usize,
    shape: Shape,
    /// It is one of those that take a block as a whole.
    whole: bool,
    set: &'static Set,
}

impl Search<'_> {
    /// Where the object may begin in `size` bytes at `base`.
    fn start(&self, base: usize, size: usize) -> Option<usize> {
        match self.shape {
            Shape::Object => (size == self.wanted.size && base.is_multiple_of(self.align)).then_some(base),
            Shape::Pages { .. } => {
                let start = base.checked_next_multiple_of(self.align)?;
                let end = start.checked_add(self.wanted.bytes())?;
                (end <= base.saturating_add(size)).then_some(start)
            }
        }
    }

    /// The smallest block that can serve. Unmaps those of an earlier place of the rule. Not inlined, see
    /// [`Search::take`].
    #[inline(never)]
    fn best(&self) -> Option<(usize, u64)> {
        let key = heap_table::key_of(word_of(self.wanted));
        let rule = heap_table::rule_of(key);
        let mut best = None;
        let mut least = (u8::MAX, usize::MAX);
        for (number, entry) in self.set.used() {
            let Some((word, base, size)) = entry.peek() else { continue };
            if heap_table::key_of(word) != key {
                if heap_table::rule_of(word) == rule {
                    self.remove_outdated(number, word);
                }
                continue;
            }
            let kind = entry.kind.load(Ordering::Relaxed);
            let (huge, whole) = (kind & HUGE != 0, kind & WHOLE != 0);
            let serves = match self.shape {
                Shape::Pages { huge: wanted, .. } => wanted == huge,
                Shape::Object => !loose::is_loose(&heap_table::object_of(base, size, word)),
            };
            let rank = (self.rank(whole, size), size);
            if serves && rank < least && self.start(base, size).is_some() {
                (best, least) = (Some((number, word)), rank);
                if self.shape == Shape::Object || rank == (0, self.wanted.bytes()) {
                    break;
                }
            }
        }
        best
    }

    /// Which blocks are better than others whatever their size is, from 0 on.
    fn rank(&self, whole: bool, size: usize) -> u8 {
        match (self.whole, whole) {
            (true, true) if self.takes_whole(size) => 0,
            (false, false) => 0,
            (true, false) => 1,
            (_, true) => 2,
        }
    }

    /// Whether a block of `size` bytes that serves as a whole is not too large.
    fn takes_whole(&self, size: usize) -> bool {
        size - size / WASTE_DIVISOR <= self.wanted.bytes()
    }

    /// On a stack of this library: an allocation has taken much of the caller's by then.
    #[cold]
    fn remove_outdated(&self, number: usize, word: u64) {
        if heap_table::object_of(0, 0, word).placing != self.wanted.placing {
            own_stack::run_or_directly(|| {
                if let Some(old) = self.set.remove(number, word) {
                    released::unmap(self.state, &old);
                }
            });
        }
    }

    /// Notes that a kept block serves an object of this size.
    fn note_served(&self) {
        let [_, (class, note)] = notes(self.shape, self.wanted);
        note.store(class | AGAIN, Ordering::Relaxed);
    }

    /// Takes what is wanted out of entry `number`, unless another thread was faster. Not inlined: what [`Search::best`]
    /// holds would be in the stack frame, too.
    #[inline(never)]
    fn take(&self, number: usize, word: u64) -> Option<Object> {
        let entry = &self.set.entries[number];
        let block = entry.claim(word)?;
        let is_huge = matches!(self.shape, Shape::Pages { huge: true, .. });
        let as_whole = self.whole && block.whole && self.takes_whole(block.object.size);
        let fits = self.shape == Shape::Object || block.huge == is_huge;
        let Some(start) = self.start(block.object.base, block.object.size).filter(|_| fits) else {
            entry.set(word);
            return None;
        };
        if as_whole && start == block.object.base {
            self.set.empty(number);
            discount(block.object.bytes());
            self.note_served();
            let backing = self.wanted.backing;
            return Some(Object { rule: self.wanted.rule, backing, ..block.object });
        }
        let (base, end, stop) = (block.object.base, start + self.wanted.bytes(), block.end());
        let rests = usize::from(base < start) + usize::from(end < stop);
        if let Shape::Pages { mappings, .. } = self.shape
            && rests > 0
            && !self.state.divide_mapping(mappings * rests as u64)
        {
            entry.set(word);
            return None;
        }
        discount(self.wanted.bytes());
        match (base < start, end < stop) {
            (false, false) => self.set.empty(number),
            (true, false) => entry.set_block(&block.range(base, start)),
            (front, true) => {
                entry.set_block(&block.range(end, stop));
                if front {
                    insert(self.state, self.set, block.range(base, start));
                }
            }
        }
        self.note_served();
        let Object { rule, size, pages, .. } = *self.wanted;
        let backing = if self.shape == Shape::Object { self.wanted.backing } else { block.object.backing };
        Some(Object { rule, base: start, size, pages, backing, ..block.object })
    }
}

/// Whether `object` is kept as it is, or takes what was kept so. `more` bytes are neither kept nor in use.
fn is_whole(shape: Shape, object: &Object, more: usize) -> bool {
    matches!(shape, Shape::Pages { .. }) && !object.backing.touched.is_all() && touched::matters(more)
}

/// Keeps `object`, whose bytes the caller has counted ([`super::sum`]), as one block with the blocks that it touches.
/// `now` is the number of the current sweep. A block for which there is no room is unmapped.
pub fn store(state: &'static State, object: &Object, now: u32) {
    let Some(shape) = Shape::of(state, object) else {
        discount(object.bytes());
        return released::unmap(state, object);
    };
    let set = set_of(shape, object);
    let Shape::Pages { huge, mappings } = shape else {
        if loose::join(state, object, now) {
            return;
        }
        return insert(state, set, Block { object: *object, freed: now, huge: false, whole: false });
    };
    let whole = range(&Object { block: 0, ..*object }, object.base, object.base + object.bytes());
    let mut block = Block { object: whole, freed: now, huge, whole: is_whole(shape, object, 0) };
    if block.whole {
        return insert(state, set, block);
    }
    let own = word_of(&block.object);
    for (number, entry) in set.used() {
        let Some((word, base, size)) = entry.peek() else { continue };
        if word != own || (base != block.end() && base.wrapping_add(size) != block.object.base) {
            continue;
        }
        let Some(other) = entry.claim(word) else { continue };
        if other.huge != huge || other.whole || (other.object.base != block.end() && other.end() != block.object.base) {
            entry.set(word);
            continue;
        }
        set.empty(number);
        state.give_mappings(mappings);
        // Of what serves in parts only, the larger part counts as unused.
        let freed = if other.object.size > block.object.size { other.freed } else { block.freed };
        let (first, end) = (block.object.base.min(other.object.base), block.end().max(other.end()));
        block = Block { freed, ..block.range(first, end) };
    }
    insert(state, set, block);
}

/// Enters `block`; if the set is full, the smallest of all is unmapped.
fn insert(state: &'static State, set: &Set, block: Block) {
    if !set.fill(&block) {
        insert_into_full(state, set, &block);
    }
}

/// Not inlined: what it holds would be in the stack frame of [`insert`], too.
#[cold]
#[inline(never)]
fn insert_into_full(state: &'static State, set: &Set, block: &Block) {
    let found = set.used().filter_map(|(number, entry)| entry.peek().map(|(word, _, size)| (size, number, word)));
    if let Some((size, number, word)) = found.min()
        && size < block.object.size
        && let Some(old) = set.remove(number, word)
    {
        released::unmap(state, &old);
        if set.fill(block) {
            return;
        }
    }
    discount(block.object.bytes());
    released::unmap(state, &block.object);
}

/// Called before memory for `wanted` is mapped, because no block of its rule serves. If none served before that was
/// that large, as much of the blocks is unmapped: arrays of which each is larger than the one before would otherwise
/// leave memory behind that is of no use to the next.
pub fn replace(state: &'static State, wanted: &Object) {
    let Some(shape @ Shape::Pages { .. }) = Shape::of(state, wanted) else { return };
    let (set, own, mut left) = (set_of(shape, wanted), word_of_pages(wanted), wanted.bytes());
    if set.largest.load(Ordering::Relaxed) >= left {
        return;
    }
    set.largest.store(left, Ordering::Relaxed);
    for (number, entry) in set.used() {
        if entry.word.load(Ordering::Relaxed) != own {
            continue;
        }
        if let Some(old) = set.remove(number, own) {
            released::unmap(state, &old);
            left = left.saturating_sub(old.bytes());
        }
        if left == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_a_class_differ_by_a_quarter_at_most() {
        let mut before = 0;
        for pages in 1..10_000_u64 {
            let now = class(pages);
            assert!(now >= before, "{pages}");
            let last = (pages..2 * pages + 1).take_while(|&p| class(p) == now).last().unwrap();
            assert!(4 * last < 5 * pages || last == pages, "{pages} to {last}");
            before = now;
        }
        assert!(class(1 << 13) < 1 << 47);
    }

    #[test]
    fn a_set_has_as_many_blocks_as_it_was_given() {
        static SET: Set = Set::new();
        let block = |number: usize| {
            let object = heap_table::object_of(number * PAGE, PAGE, 1 << 63 | 5 << 28);
            Block { object, freed: number as u32, huge: number % 2 == 1, whole: number % 3 == 1 }
        };
        assert!((1..=WAYS).all(|number| SET.fill(&block(number))) && !SET.fill(&block(99)));
        assert_eq!(SET.used().count(), WAYS);
        let (word, base, size) = SET.entries[7].peek().unwrap();
        assert_eq!((word, base, size), (1 << 63 | 5 << 28, 8 * PAGE, PAGE));
        let taken = SET.entries[7].claim(word).unwrap();
        assert!(taken.object.rule == 5 && taken.freed == 8 && !taken.huge && !taken.whole && taken.end() == 9 * PAGE);
        assert!(SET.entries[7].claim(word).is_none() && SET.entries[7].peek().is_none());
        SET.empty(7);
        assert!(SET.used().all(|(number, _)| number != 7) && SET.fill(&block(8)) && !SET.fill(&block(8)));
    }
}
