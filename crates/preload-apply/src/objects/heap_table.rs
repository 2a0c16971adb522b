//! Finds placed heap objects by their address, without a lock.
//!
//! No two placed objects start in one page, so the table is a radix tree over page numbers: two levels of nodes that
//! are mapped when first needed and never unmapped, and slots of two words. A slot is filled before its address is
//! returned to the program and emptied by the thread that frees the object; the swap makes one of two frees of an
//! address fail. Nothing is allocated per object.
//!
//! ```text
//! address bits   47..36        35..24        23..12       11..7  6..0
//!                ROOT index    middle index  leaf slot    colour   0
//! slot           size: grown 1 | cut 1 | changed 1 | colour 5 | touched 8 | bytes asked for 48 (low)
//!                meta: used 1 | moving 1 | waiting 1 | placing 7 | node 10 | rule 16 | block pages 28 (low)
//! ```
//!
//! The mover (`migrate/`) works on an object between [`begin_step`] and [`end_step`], which both compare and exchange
//! its word. A thread that frees the object in between finds `moving` in the result of [`take`] and leaves the
//! unmapping to the mover, whose `end_step` then fails. Neither waits. The address cannot be reused meanwhile, because
//! the mapping still exists.

mod slot;

use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use numamma_kernel::sys::{self, PAGE};

use super::backing::{Backing, Touched};
use super::heap::colour;
use super::object::Object;
use slot::{MOVING, Slot, USED};

const BITS: u32 = 12;
const WIDTH: usize = 1 << BITS;
/// Bits of a word.
const WORD: usize = u64::BITS as usize;
const WAITING: u64 = 1 << 61;
/// In the word for the size: realloc made the object larger, see [`note`].
pub const GROWN: u64 = 1 << 63;
/// In the word for the size: realloc made the object smaller, before it made it larger if it is [`GROWN`] as well.
pub const CUT: u64 = 1 << 62;
/// What realloc did to an object.
const HISTORY: u64 = GROWN | CUT;
/// In the word for the size: [`Backing::changed`].
const CHANGED: u64 = 1 << 61;
/// In the word for the size: [`Object::colour`] in units of [`colour::STEP`].
const COLOUR_SHIFT: u32 = 56;
const COLOUR: u64 = ((PAGE / colour::STEP - 1) as u64) << COLOUR_SHIFT;
/// In the word for the size: [`Backing::touched`].
const TOUCHED_SHIFT: u32 = 48;
const TOUCHED: u64 = 0xff << TOUCHED_SHIFT;
/// What is in the word besides the size.
const NOTES: u64 = HISTORY | CHANGED | COLOUR | TOUCHED;
const _: () = assert!(NOTES.count_ones() == 3 + 5 + 8, "no two of them have a bit in common");
/// Blocks of a TiB and more are not stored; no block is enlarged that far.
pub const BLOCK_BITS: u32 = 28;
const RULE_BITS: u32 = 16;
const NODE_BITS: u32 = 10;
const PLACING_BITS: u32 = 7;
const _: () = assert!(BLOCK_BITS + RULE_BITS + NODE_BITS + PLACING_BITS == 61);
const _: () = assert!(numamma_plan::check::MOST_PHASES < 1 << PLACING_BITS);

/// The number of no rule: that of an object which lost its place when it grew, see [`super::heap::growth`].
pub const NO_RULE: usize = (1 << RULE_BITS) - 1;
/// Most rules of a policy: as many as a slot can number.
pub const MAX_RULES: usize = NO_RULE;

struct Leaf {
    /// A bit for each slot that has ever been used.
    begun: [AtomicU64; WIDTH / WORD],
    slots: [Slot; WIDTH],
}

type Middle = [AtomicPtr<Leaf>; WIDTH];

/// Bytes of memory for whose pages a node has slots.
const BYTES_OF_LEAF: usize = WIDTH * sys::PAGE;
const BYTES_OF_MIDDLE: usize = WIDTH * BYTES_OF_LEAF;

/// The word of a slot for `object`, which is never 0 or 1.
pub fn word_of(object: &Object) -> u64 {
    let field = |value: u64, bits: u32| value & ((1 << bits) - 1);
    let block = if object.block >> BLOCK_BITS == 0 { object.block } else { 0 };
    USED | if object.waiting { WAITING } else { 0 }
        | (field(object.placing as u64, PLACING_BITS) << (NODE_BITS + RULE_BITS + BLOCK_BITS))
        | (field(u64::from(object.node), NODE_BITS) << (RULE_BITS + BLOCK_BITS))
        | (field(object.rule as u64, RULE_BITS) << BLOCK_BITS)
        | block
}

/// Rule, placing and node of a word, without what may differ between objects that are placed alike.
pub fn key_of(word: u64) -> u64 {
    word & !(MOVING | WAITING) & !((1 << BLOCK_BITS) - 1)
}

/// The rule of a word.
pub fn rule_of(word: u64) -> u64 {
    word >> BLOCK_BITS & ((1 << RULE_BITS) - 1)
}

/// A word with another rule.
pub fn with_rule(word: u64, rule: usize) -> u64 {
    let mask = (1 << RULE_BITS) - 1;
    word & !(mask << BLOCK_BITS) | (rule as u64 & mask) << BLOCK_BITS
}

/// Not inlined: it makes the object where the caller wants it, and holds copies of it, which would be in the stack
/// frame of every free and realloc.
#[inline(never)]
fn in_slot(address: usize, slot: &Slot, meta: u64) -> Object {
    let size = slot.size.load(Ordering::Relaxed);
    let touched = Touched::from_bits((size >> TOUCHED_SHIFT) as u8);
    let backing = Backing { changed: size & CHANGED != 0, touched, ..Backing::PRIVATE };
    let (colour, size) = (colour_of(size), (size & !NOTES) as usize);
    Object { backing, colour, pages: colour::pages_of(size, colour), ..object_of(address & !(PAGE - 1), size, meta) }
}

/// The colour in a word for the size, bytes.
fn colour_of(word: u64) -> u16 {
    ((word & COLOUR) >> COLOUR_SHIFT) as u16 * colour::STEP as u16
}

/// The object of `size` bytes at `address`, the first of a page, whose word is `meta`.
pub fn object_of(address: usize, size: usize, meta: u64) -> Object {
    let field = |shift: u32, bits: u32| (meta >> shift) & ((1 << bits) - 1);
    Object {
        rule: field(BLOCK_BITS, RULE_BITS) as usize,
        placing: field(NODE_BITS + RULE_BITS + BLOCK_BITS, PLACING_BITS) as usize,
        waiting: meta & WAITING != 0,
        node: field(RULE_BITS + BLOCK_BITS, NODE_BITS) as u32,
        block: field(0, BLOCK_BITS),
        base: address,
        size,
        colour: 0,
        pages: pages_of(size),
        backing: Backing::PRIVATE,
    }
}

/// Pages of the mapping of an object of `size` bytes.
pub fn pages_of(size: usize) -> u64 {
    size.max(1).div_ceil(sys::PAGE) as u64
}

static ROOT: [AtomicPtr<Middle>; WIDTH] = [const { AtomicPtr::new(core::ptr::null_mut()) }; WIDTH];
/// Address of the lowest page of an object that was ever entered.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Bytes of the largest object that was ever entered.
static LARGEST: AtomicUsize = AtomicUsize::new(0);

/// Whether `address` can be that of a placed object: a multiple of what they may be coloured by, not null, in the user
/// half.
#[inline(always)]
pub fn possible(address: usize) -> bool {
    address & (colour::STEP - 1) == 0 && address != 0 && address < 1 << (4 * BITS)
}

/// Whether `address`, which the program got from an allocator, can be that of a placed object: as [`possible`], and not
/// below all of them. glibc's heap is: one in eight of its addresses is a multiple of [`colour::STEP`].
#[inline(always)]
pub fn may_hold(address: usize) -> bool {
    // First, as it is the same for most addresses.
    address >= LOWEST.load(Ordering::Relaxed) && possible(address)
}

/// The slot of the page that has `address`.
fn existing(address: usize) -> Option<&'static Slot> {
    leaf_and_slot(address).map(|(_, slot)| slot)
}

fn leaf_and_slot(address: usize) -> Option<(&'static Leaf, &'static Slot)> {
    if !possible(address) {
        return None;
    }
    let leaf = leaf_of(middle_of(address)?, address)?;
    Some((leaf, leaf.slots.get(index(address, 1))?))
}

fn index(address: usize, level: u32) -> usize {
    (address >> (BITS * level)) & (WIDTH - 1)
}

fn middle_of(address: usize) -> Option<&'static Middle> {
    // SAFETY: nodes are zeroed mappings of their type, published with Release and never unmapped.
    unsafe { ROOT.get(index(address, 3))?.load(Ordering::Acquire).as_ref() }
}

fn leaf_of(middle: &'static Middle, address: usize) -> Option<&'static Leaf> {
    // SAFETY: as in `middle_of`.
    unsafe { middle.get(index(address, 2))?.load(Ordering::Acquire).as_ref() }
}

/// The node that `link` points to, mapped now if it is missing.
fn grow<T>(link: &AtomicPtr<T>) -> Option<&'static T> {
    let mut node = link.load(Ordering::Acquire);
    if node.is_null() {
        let fresh = sys::map_anonymous(size_of::<T>())?;
        // Release pairs with the Acquire loads: a thread that sees the node sees zeroes. The thread that loses the
        // exchange unmaps its node.
        match link.compare_exchange(node, fresh.cast(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => node = fresh.cast(),
            Err(other) => {
                // SAFETY: no other thread has this address.
                unsafe { sys::unmap(fresh, size_of::<T>()) };
                node = other;
            }
        }
    }
    // SAFETY: as in `middle_of`; an all-zero node is a valid array of atomics.
    unsafe { node.as_ref() }
}

/// Maps the nodes for `address`; false when memory for the table is short.
pub fn reserve(address: usize) -> bool {
    let middle = || ROOT.get(index(address, 3)).and_then(grow);
    possible(address) && middle().and_then(|middle| middle.get(index(address, 2))).and_then(grow).is_some()
}

/// Enters an object whose address was [`reserve`]d.
pub fn insert(object: &Object) -> bool {
    let Some((leaf, slot)) = leaf_and_slot(object.base) else { return false };
    leaf.note_begun(index(object.base, 1));
    if object.base < LOWEST.load(Ordering::Relaxed) {
        LOWEST.fetch_min(object.base, Ordering::Relaxed);
    }
    if object.bytes() > LARGEST.load(Ordering::Relaxed) {
        LARGEST.fetch_max(object.bytes(), Ordering::Relaxed);
    }
    let changed = if object.backing.changed { CHANGED } else { 0 };
    let colour = u64::from(object.colour / colour::STEP as u16) << COLOUR_SHIFT;
    let touched = u64::from(object.backing.touched.bits()) << TOUCHED_SHIFT;
    slot.fill(object.size as u64 | colour | changed | touched, word_of(object));
    true
}

/// Whether the object in a slot is the one whose first byte is at `address`.
fn starts_at(address: usize, slot: &Slot) -> bool {
    usize::from(colour_of(slot.size.load(Ordering::Relaxed))) == address & (PAGE - 1)
}

/// The placed object whose first byte is at `address`.
#[inline]
pub fn find(address: usize) -> Option<Object> {
    let slot = existing(address)?;
    let meta = slot.word()?;
    starts_at(address, slot).then(|| in_slot(address, slot, meta))
}

/// Removes and returns the placed object whose first byte is at `address`, and whether the mover is working on it. Only
/// one of two concurrent callers gets the object.
pub fn take(address: usize) -> Option<(Object, bool)> {
    let slot = existing(address)?;
    slot.word()?;
    if !starts_at(address, slot) {
        return None;
    }
    let meta = slot.take()?;
    Some((in_slot(address, slot, meta), meta & MOVING != 0))
}

/// As [`take`], for an object that stays alive: `None` also while the mover is working on it, as far as `may_move` says
/// that there is one.
pub fn take_unless_moving(address: usize, may_move: bool) -> Option<Object> {
    let slot = existing(address)?;
    let meta = slot.word()?;
    if !starts_at(address, slot) || (may_move && meta & MOVING != 0) {
        return None;
    }
    slot.take_if(meta).then(|| in_slot(address, slot, meta))
}

/// Begins a step of the mover on the object at `address`; `None` when it was released. For one mover at a time; see the
/// top of this file.
pub fn begin_step(address: usize) -> Option<Object> {
    let slot = existing(address)?;
    slot.begin_step().map(|meta| in_slot(address, slot, meta))
}

/// Ends the step on `before` (from [`begin_step`]) and stores `after`. False when the program freed the object
/// meanwhile: then the mover must unmap its memory.
#[must_use]
pub fn end_step(before: &Object, after: &Object) -> bool {
    existing(before.base).is_some_and(|slot| slot.end_step(word_of(before), word_of(after)))
}

/// Changes the size of a live object that keeps its address.
pub fn resize(address: usize, size: usize) {
    if let Some(slot) = existing(address) {
        let notes = slot.size.load(Ordering::Relaxed) & NOTES;
        slot.size.store(size as u64 | notes, Ordering::Relaxed);
    }
}

/// Notes what realloc did to the live object at `address`: [`GROWN`], [`CUT`] or both. Nothing is noted of an address
/// without an object.
pub fn note(address: usize, history: u64) {
    if let Some(slot) = existing(address).filter(|slot| slot.meta.load(Ordering::Relaxed) & USED != 0) {
        slot.size.fetch_or(history & HISTORY, Ordering::Relaxed);
    }
}

/// What [`note`] noted of the live object at `address`.
pub fn history(address: usize) -> u64 {
    existing(address).map_or(0, |slot| slot.size.load(Ordering::Relaxed) & HISTORY)
}

/// Whether realloc has made the live object at `address` larger.
pub fn has_grown(address: usize) -> bool {
    history(address) & GROWN != 0
}

/// Sets [`Backing::changed`] of the live objects that have a byte in `[start, end)`. Of an object that begins more than
/// `reach` bytes before `start` it may not be set.
pub fn mark_changed(start: usize, end: usize, reach: usize) {
    let reach = reach.min(LARGEST.load(Ordering::Relaxed));
    let (start, end) = (start & !(sys::PAGE - 1), end.min(1 << (4 * BITS)));
    if reach == 0 || start >= end {
        return;
    }
    if let Some((before, slot)) = last_before(start, start.saturating_sub(reach))
        && ends_after(slot, start - before)
    {
        slot.size.fetch_or(CHANGED, Ordering::Relaxed);
    }
    let mut at = start;
    while at < end {
        let Some(middle) = middle_of(at) else {
            at = (at | (BYTES_OF_MIDDLE - 1)) + 1;
            continue;
        };
        let next = (at | (BYTES_OF_LEAF - 1)) + 1;
        if let Some(leaf) = leaf_of(middle, at) {
            let within = leaf.used(index(at, 1), index(next.min(end) - 1, 1));
            within.for_each(|(_, slot)| _ = slot.size.fetch_or(CHANGED, Ordering::Relaxed));
        }
        at = next;
    }
}

/// Whether the object in a slot has a byte `distance` bytes or more behind the start of its first page.
fn ends_after(slot: &Slot, distance: usize) -> bool {
    let word = slot.size.load(Ordering::Relaxed);
    (word & !NOTES) as usize + usize::from(colour_of(word)) > distance
}

impl Leaf {
    /// Notes that slot `number` is about to be used.
    fn note_begun(&self, number: usize) {
        let Some(word) = self.begun.get(number / WORD) else { return };
        let bit = 1 << (number % WORD);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// The slots in use from number `first` to number `last`.
    fn used(&'static self, first: usize, last: usize) -> impl Iterator<Item = (usize, &'static Slot)> {
        let words = self.begun.iter().enumerate().take(last / WORD + 1).skip(first / WORD);
        let numbers = words.flat_map(|(number, word)| {
            let mut bits = word.load(Ordering::Relaxed);
            core::iter::from_fn(move || {
                let bit = bits.trailing_zeros() as usize;
                bits &= bits.wrapping_sub(1);
                (bit < WORD).then_some(number * WORD + bit)
            })
        });
        let within = numbers.filter(move |number| (first..=last).contains(number));
        let slots = within.filter_map(|number| Some((number, self.slots.get(number)?)));
        slots.filter(|(_, slot)| slot.meta.load(Ordering::Acquire) & USED != 0)
    }
}

/// The last live object that begins before `start`, at `lowest` or later. `start` is the address of a page.
fn last_before(start: usize, lowest: usize) -> Option<(usize, &'static Slot)> {
    let mut end = start;
    while end > lowest {
        let first = lowest.max((end - 1) & !(BYTES_OF_LEAF - 1));
        let leaf = middle_of(first).and_then(|middle| leaf_of(middle, first));
        if let Some((number, slot)) = leaf.and_then(|leaf| leaf.used(index(first, 1), index(end - 1, 1)).last()) {
            return Some(((first & !(BYTES_OF_LEAF - 1)) + number * sys::PAGE, slot));
        }
        end = first;
    }
    None
}

/// Calls `visit` with every live object and whether a mover is working on it.
pub fn for_each(mut visit: impl FnMut(Object, bool)) {
    for (i, root) in ROOT.iter().enumerate() {
        // SAFETY: as in `middle_of`.
        let Some(middle) = (unsafe { root.load(Ordering::Acquire).as_ref() }) else { continue };
        for (j, link) in middle.iter().enumerate() {
            // SAFETY: as in `middle_of`.
            let Some(leaf) = (unsafe { link.load(Ordering::Acquire).as_ref() }) else { continue };
            for (k, slot) in leaf.slots.iter().enumerate() {
                let meta = slot.meta.load(Ordering::Acquire);
                if meta & USED != 0 {
                    let page = ((i * WIDTH) + j) * WIDTH + k;
                    visit(in_slot(page << BITS, slot, meta), meta & MOVING != 0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_taker_gets_an_object() {
        let placed = Object {
            rule: 65_535,
            placing: 100,
            waiting: true,
            node: 1023,
            block: (1 << 28) - 1,
            base: 0x7f12_3456_7000,
            colour: 0,
            size: 12_345,
            pages: 4,
            backing: Backing::PRIVATE,
        };
        assert!(find(placed.base).is_none());
        assert!(reserve(placed.base) && insert(&placed));
        assert!(may_hold(placed.base) && may_hold(placed.base + colour::STEP) && !may_hold(placed.base + 16));
        assert!(!may_hold(4096), "it is below");
        assert_eq!(find(placed.base), Some(placed));
        assert!(find(placed.base + 4096).is_none() && find(placed.base + 8).is_none());
        let mut seen = Vec::new();
        for_each(|object, moving| seen.push((object, moving)));
        seen.retain(|(object, _)| object.base == placed.base); // other tests use the table, too
        assert_eq!(seen, [(placed, false)]);
        note(placed.base, GROWN);
        note(placed.base + 4096, GROWN);
        assert!(has_grown(placed.base) && !has_grown(placed.base + 4096) && find(placed.base) == Some(placed));
        resize(placed.base, placed.size);
        assert!(has_grown(placed.base));
        let takers: Vec<_> = (0..4).map(|_| std::thread::spawn(move || take(placed.base))).collect();
        let got = takers.into_iter().filter_map(|t| t.join().unwrap()).collect::<Vec<_>>();
        assert_eq!(got, [(placed, false)]);
        assert_eq!(placed.bytes(), 16_384);
        assert!(insert(&placed) && !has_grown(placed.base), "the next object at the address is another one");
        take(placed.base);
    }

    #[test]
    fn freeing_an_object_during_a_step_leaves_unmapping_to_the_mover() {
        let address = 0x7f12_0000_1000;
        let (base, backing, waiting) = (address, Backing::PRIVATE, false);
        let placed =
            Object { rule: 3, placing: 0, waiting, node: 1, block: 7, base, colour: 0, size: 5000, pages: 2, backing };
        assert!(reserve(address) && begin_step(address).is_none() && insert(&placed));
        let step = begin_step(address).unwrap();
        assert_eq!(step, placed);
        for_each(|object, moving| assert!(object.base != address || moving));
        assert!(end_step(&step, &Object { placing: 2, waiting: true, block: 1 << 40, ..step }));
        let step = begin_step(address).unwrap();
        assert_eq!(
            (step.placing, step.waiting, step.block),
            (2, true, 0),
            "a block of more than 28 bits is computed anew"
        );
        assert!(take(address).unwrap().1, "the freeing thread sees that the mover is at work");
        assert!(!end_step(&step, &step), "and the mover that it was freed");
        assert!(find(address).is_none());
    }

    #[test]
    fn a_change_is_noted_of_the_objects_it_touches() {
        let (first, second, third) = (0x7f13_00ff_f000, 0x7f13_0100_2000, 0x7f13_0100_3000);
        let object = |base: usize, pages: usize| object_of(base, pages * 4096 - 7, USED);
        let changed = |base| find(base).unwrap().backing.changed;
        let all = || [first, second, third].map(changed);
        // The first object crosses from one leaf to the next.
        let enter = || {
            for (base, pages) in [(first, 3), (second, 1), (third, 600)] {
                assert!(reserve(base) && insert(&object(base, pages)));
            }
        };
        enter();
        let far = 64 << 20;
        for (start, end) in [(first - 4096, first), (third + (600 << 12), usize::MAX), (second, second), (8, 4096)] {
            mark_changed(start, end, far);
            assert_eq!(all(), [false; 3], "{start:x}");
        }
        mark_changed(second - 4096, second - 4095, far);
        assert_eq!(all(), [true, false, false]);
        resize(first, 5000);
        assert!(changed(first) && find(first).unwrap().size == 5000);
        let taken = take(first).unwrap().0;
        assert!(taken.backing.changed && insert(&taken) && changed(first));
        assert!(insert(&object(first, 3)) && !changed(first), "the next object at the address is another one");
        mark_changed(third + (599 << 12), third + (600 << 12), far);
        assert_eq!(all(), [false, false, true]);
        enter();
        mark_changed(third + (300 << 12), usize::MAX, 299 << 12);
        assert_eq!(all(), [false; 3]);
        mark_changed(first + 4096, third + 1, far);
        assert_eq!(all(), [true; 3]);
        for base in [first, second, third] {
            take(base);
        }
    }

    #[test]
    fn foreign_addresses_are_nobodys() {
        for address in [0, 8, 4096, 1 << 48, usize::MAX & !4095] {
            assert!(take(address).is_none());
        }
        assert!(!reserve(1 << 48));
    }
}
