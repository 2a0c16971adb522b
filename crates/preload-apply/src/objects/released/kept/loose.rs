//! Kept memory that has no layout of its own any more and serves objects of any size, under policies whose blocks begin
//! with the object.
//!
//! Steps that take turns with arrays of two sizes would otherwise find a block of the wrong size each time, and there
//! is no room to keep one of each: the program's allocator, whose memory is the measure, has them in the same place. So
//! where a block of its own size cannot be kept beside what is kept already, an object takes the first pages of a
//! larger one. It is placed there as in new memory, but for pages that exist: those whose node differs are moved. The
//! other pages stay as a loose block, which joins the object again when that is freed.
//!
//! The pages of a loose block have the default policy, so that they are one mapping, which the budget counts. It is
//! known by its number of pages per block, [`LOOSE`].

use core::sync::atomic::Ordering;

use numamma_hook::{allocating, own_stack};
use numamma_kernel::policy::Mode;
use numamma_plan::policy::{Huge, PolicyKind};

use super::{AGAIN, Block, Set, Shape, TABLE, hash, insert, notes, range, word_of};
use crate::objects::object::Object;
use crate::objects::released::{Limits, offered, sum};
use crate::objects::{heap_table, released};
use crate::place::{counted_calls, relocate};
use crate::rules::state::{Rule, State};

/// In place of the pages per block: a terabyte, of which no block is kept.
const LOOSE: u64 = (1 << heap_table::BLOCK_BITS) - 1;
/// Blocks of which there is no room for so many are few.
const FEW: usize = 4;
/// Times the bytes of an object that a block has at most in which it is placed: a small object in a large block would
/// keep that from serving a large one.
const LARGEST_PART: usize = 4;

/// Whether a kept block is loose.
pub fn is_loose(object: &Object) -> bool {
    object.block == LOOSE
}

/// As [`mappings`], where that is known without a plan.
pub fn known_mappings(state: &'static State, object: &Object) -> Option<u64> {
    if is_loose(object) { Some(1) } else { object.known_mappings(state) }
}

/// Mappings of the budget that a kept block takes.
pub fn mappings(state: &'static State, object: &Object) -> u64 {
    if is_loose(object) { 1 } else { object.mappings(state, object.whole()) }
}

/// Whether an object may be placed where pages exist, and loose blocks come from it: most pages must be on the same
/// node in objects of different sizes. Of blocks on nodes in a random order half of the pages would be moved, which
/// costs more than to fault them.
fn can_be_placed(state: &'static State, object: &Object) -> bool {
    let is_steady = |rule: &Rule| {
        rule.placings.get(object.placing).is_some_and(|placing| {
            let place = &placing.place;
            matches!(place.policy, PolicyKind::Block | PolicyKind::BlockCyclic | PolicyKind::BindBlock)
                && place.huge.is_none_or(|huge| huge == Huge::Keep)
        })
    };
    !state.divides(object.rule)
        && !object.follows_allocator(state)
        && !offered::is_populated(state, object)
        && state.rules.get(object.rule).is_some_and(is_steady)
}

/// Moves the pages of an object that was placed where pages exist, if there are several nodes.
fn move_pages(state: &'static State, object: &Object) {
    if state.machine.memory_nodes.len() > 1 {
        let moved = || object.plan(state).map(|plan| relocate::move_resident(&plan, object.base, object.whole()));
        let _ = allocating::run(moved);
    }
}

/// All entries in which blocks of the rule, placing and node of `object` are, with the addresses and sizes of these.
fn like(object: &Object) -> impl Iterator<Item = (&'static Set, usize, u64, usize, usize)> {
    let key = heap_table::key_of(word_of(object));
    let used = TABLE.iter().flat_map(|set| set.used().map(move |(number, entry)| (set, number, entry)));
    used.filter_map(move |(set, number, entry)| {
        let (word, base, size) = entry.peek()?;
        (heap_table::key_of(word) == key).then_some((set, number, word, base, size))
    })
}

fn set_of_loose(object: &Object) -> &'static Set {
    &TABLE[(hash(object, 0) >> 32) as usize % TABLE.len()]
}

/// The first pages of a kept block for `wanted`, which no block of its size serves: of a loose one, or of the smallest
/// one of its rule that is large enough, if new memory would be more than may be kept and used, and [`FEW`] such
/// blocks, too. Among many blocks one of its size is free sooner or later, and to break them up would only delay that.
#[cold]
#[inline(never)]
pub fn take(state: &'static State, wanted: &Object, align: usize) -> Option<Object> {
    // The search, the plan and the system calls take more of the program's stack than there may be. What a library's
    // munmap takes is not known, so it is not called there.
    let mut cut = None;
    own_stack::run(|| cut = take_and_cut(state, wanted, align));
    match &cut {
        Some(Cut::Placed(object)) => {
            move_pages(state, object);
            released::charge_cut(state, object);
            return Some(*object);
        }
        Some(Cut::Unfit(block)) => released::unmap_uncounted(block),
        None => {}
    }
    None
}

/// What became of a block that was taken.
enum Cut {
    /// Its first pages are this object.
    Placed(Object),
    /// It is to be unmapped; its mappings have returned to the budget.
    Unfit(Object),
}

fn take_and_cut(state: &'static State, wanted: &Object, align: usize) -> Option<Cut> {
    let serves = |loose: bool| {
        let blocks = like(wanted).filter(move |(_, _, word, base, size)| {
            let is_loose = is_loose(&heap_table::object_of(*base, *size, *word));
            let is_large_enough = (wanted.bytes()..=LARGEST_PART * wanted.bytes()).contains(size);
            is_loose == loose && is_large_enough && base.is_multiple_of(align)
        });
        blocks.min_by_key(|(.., size)| *size)
    };
    let is_one_of_few = |size: usize| {
        let most = Limits::now().most;
        sum::bytes().saturating_add(wanted.bytes()) > most && FEW.saturating_mul(size) > most
    };
    let found = serves(true).or_else(|| serves(false).filter(|(.., size)| is_one_of_few(*size)));
    let (set, number, word, ..) = found.filter(|_| can_be_placed(state, wanted))?;
    let block = set.remove(number, word)?;
    if block.bytes() < wanted.bytes() || !block.base.is_multiple_of(align) || !can_be_loose(state, &block) {
        // Another thread was faster, and this is another block.
        released::give_mappings_of(state, &block);
        return Some(Cut::Unfit(block));
    }
    Some(cut(state, &block, wanted).map_or(Cut::Unfit(block), Cut::Placed))
}

fn can_be_loose(state: &'static State, block: &Object) -> bool {
    is_loose(block) || can_be_placed(state, block)
}

/// Places `wanted` in the first pages of `block`, and keeps the others. `None` when the budget or the kernel refuses
/// that; then the mappings of the block have returned to the budget.
fn cut(state: &'static State, block: &Object, wanted: &Object) -> Option<Object> {
    let (end, old) = (block.base + block.bytes(), mappings(state, block));
    let rest = loosened(block, block.base + wanted.bytes(), end);
    let has_rest = rest.pages > 0;
    if has_rest && !state.divide_mapping(1) {
        state.give_mappings(old);
        return None;
    }
    let mut object = Object { base: block.base, waiting: false, block: 0, ..*wanted };
    let plan = object.fit_replacing(state, old);
    let has_fit = plan.is_some();
    let is_reset = !has_rest || counted_calls::mbind(rest.base, rest.bytes(), Mode::Default, &[], false).is_ok();
    let placed = plan.filter(|plan| is_reset && object.place(state, plan, false).is_ok());
    if placed.is_none() {
        let of_object = if has_fit { object.mappings(state, object.whole()) } else { old };
        state.give_mappings(of_object + u64::from(has_rest));
        return None;
    }
    if has_rest {
        sum::count(rest.bytes());
        insert(state, set_of_loose(&rest), Block { object: rest, freed: 0, huge: false, whole: false });
    }
    let [_, (class, note)] = notes(Shape::Object, wanted);
    note.store(class | AGAIN, Ordering::Relaxed);
    Some(object)
}

/// The pages from `base` to `end` of a block as a loose one.
fn loosened(block: &Object, base: usize, end: usize) -> Object {
    range(&Object { waiting: false, block: LOOSE, ..*block }, base, end)
}

/// Keeps `object` as one loose block with those that it touches, if there are any; false if not. `now` is the number of
/// the current sweep. The caller has counted its bytes.
pub fn join(state: &'static State, object: &Object, now: u32) -> bool {
    let set = set_of_loose(object);
    let (mut base, mut end) = (object.base, object.base + object.bytes());
    let own = word_of(&loosened(object, base, end));
    for (number, entry) in set.used() {
        let Some((word, at, size)) = entry.peek() else { continue };
        if word != own || (at != end && at.wrapping_add(size) != base) {
            continue;
        }
        let Some(other) = set.remove(number, word) else { continue };
        let touches = other.base == end || other.base + other.bytes() == base;
        if !touches {
            released::unmap(state, &other);
            continue;
        }
        (base, end) = (base.min(other.base), end.max(other.base + other.bytes()));
        // Counted again with the object's.
        sum::count(other.bytes());
        state.give_mappings(1);
    }
    if end - base == object.bytes() {
        return false;
    }
    let block = loosened(object, base, end);
    let is_reset = counted_calls::mbind(object.base, object.bytes(), Mode::Default, &[], false).is_ok();
    released::give_mappings_of(state, object);
    if is_reset && state.divide_mapping(1) {
        insert(state, set, Block { object: block, freed: now, huge: false, whole: false });
    } else {
        sum::discount(block.bytes());
        released::unmap_uncounted(&block);
    }
    true
}
