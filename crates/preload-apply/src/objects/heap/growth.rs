//! Makes a heap object larger without a copy: mremap takes its pages to where there is room, and they stay on their
//! nodes. An array that grows by realloc never needs the memory of two arrays then, as with glibc.
//!
//! mremap serves one memory area. Blocks are areas of their own, so they get one policy first, which makes one area of
//! them if they had a page in common when they were made (the kernel's `anon_vma`): see [`prepare`]. So does an object
//! of which a phase has changed a part. Where there are still several areas, because the program locked or protected a
//! part, or the process was forked, the kernel refuses (EFAULT) and the object is copied.
//!
//! Where an interleaved page belongs follows from its address, and a moved page keeps its number. So the new address
//! differs by whole rounds of the largest pages that the object may hold. If the address space is too short to choose
//! an address, the object grows where the kernel puts it, and has no rule from then on: it counts as not placed, and
//! only the kernel moves it.

use core::ptr;

use numamma_hook::{allocating, sandbox, say_once};
use numamma_kernel::mappings::{self, grow_in_place, move_to};
use numamma_kernel::pages;
use numamma_kernel::policy::Mode;
use numamma_kernel::sys::{self, PAGE};
use numamma_plan::plan::{HUGE_PAGE, Layout, PagePlan};
use numamma_plan::policy::Huge;

use super::{MAX_SIZE, colour};
use crate::objects::heap_table::{self, NO_RULE};
use crate::objects::object::Object;
use crate::objects::released::{self, elsewhere};
use crate::phases::{exclusion, mover_request};
use crate::place::{Part, counted_calls, interleaving, populate, refusals, relocate};
use crate::rules::counters::add;
use crate::rules::in_use;
use crate::rules::state::{Rule, State};
use crate::threads::number;

const HUGE: usize = HUGE_PAGE as usize;
/// Least bytes of an object that grows without a copy: the size from which glibc maps objects on their own, which it
/// enlarges so, too (mallopt(3), M_MMAP_THRESHOLD). The system calls take longer than a copy of less.
const LEAST: usize = 128 << 10;
/// Bytes that the heap table may map for one address.
const TABLE_BYTES: usize = 128 << 10;

/// Steps of the mover on an object, one after the other, for which a thread waits that makes the object larger or
/// smaller. Each takes milliseconds, and the mover rests between them.
const MOST_STEPS: u32 = 64;

/// Why an object did not grow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// It cannot be moved as a whole.
    Divided,
    /// Memory, address space or the budget of mappings is short.
    Short,
}

/// Makes `old` larger, under `rule`: to `room` bytes, or else to `size`. Returns its address; on `None` it is as it
/// was. The caller copies objects of less than [`LEAST`], those that reach the size of a huge page, because they begin
/// at a multiple of it from then on, and those that another rule claims which places them differently.
pub fn grow(state: &'static State, old: &Object, size: usize, room: usize, rule: usize) -> Option<usize> {
    if size > MAX_SIZE || sandbox::entered() {
        return None;
    }
    let becomes_huge = old.bytes() < HUGE && bytes_of(old, size) >= HUGE;
    if old.rule != NO_RULE && (old.bytes() < LEAST || becomes_huge) {
        return None;
    }
    // Their parts are memory areas of their own: the caller copies.
    if [old.rule, rule].iter().any(|&rule| state.divides(rule)) {
        return None;
    }
    elsewhere::mapping(size.saturating_sub(old.bytes()));
    let grown = exchange(state, old, |object| {
        let own = object.rule;
        let rule = Some(rule).filter(|rule| *rule != own);
        if rule.is_some_and(|rule| !places_alike(state, object, rule)) {
            return None;
        }
        with_room(state, object, rule.unwrap_or(own), size, room.min(MAX_SIZE))?;
        if let Some(rule) = rule.and_then(|rule| state.rules.get(rule)) {
            rule.counters.found.count(number::of_this_thread(), size);
        }
        Some(())
    })?;
    charge(state, old, &grown)
}

/// Charges what the object `old` grew by, and returns the address of what it is `now`.
fn charge(state: &'static State, old: &Object, now: &Object) -> Option<usize> {
    released::charge(state, now, now.bytes().saturating_sub(old.bytes()), false);
    Some(now.address())
}

/// Bytes of the pages of an object if it has `size` bytes.
fn bytes_of(object: &Object, size: usize) -> usize {
    colour::pages_of(size, object.colour) as usize * PAGE
}

/// Makes `old` larger wherever the kernel puts it: where memory or address space is too short for anything else.
pub fn grow_unplaced(state: &'static State, old: &Object, size: usize) -> Option<usize> {
    if size > MAX_SIZE || sandbox::entered() {
        return None;
    }
    elsewhere::mapping(size.saturating_sub(old.bytes()));
    let grown = exchange(state, old, |object| lose_place(state, object, size))?;
    charge(state, old, &grown)
}

/// Takes `old` from the table, and enters what `work` made of it; that leaves it as it was where it returns `None`.
/// Not inlined: what `work` holds would be in the stack frame of the others that grow, too. For the same reason the
/// object is changed where it is, here and in what is called, and charged by the callers.
#[inline(never)]
fn exchange(state: &'static State, old: &Object, work: impl FnOnce(&mut Object) -> Option<()>) -> Option<Object> {
    let history = heap_table::history(old.base);
    let mut object = take_idle(old)?;
    let outcome = work(&mut object);
    let grown = if outcome.is_some() { heap_table::GROWN } else { 0 };
    put_back(state, &object, history | grown);
    outcome.map(|()| object)
}

/// Takes an object that stays alive from the table, so that no other thread finds it, once the mover is not working on
/// it. `None` when it is gone, or when the mover does not go on.
#[inline(never)]
pub fn take_idle(object: &Object) -> Option<Object> {
    for _ in 0..MOST_STEPS {
        if let Some(taken) = heap_table::take_unless_moving(object.address(), exclusion::has_mover()) {
            in_use::ended(taken.bytes(), taken.touched());
            return Some(taken);
        }
        heap_table::find(object.address()).filter(|_| !exclusion::stopped())?;
        exclusion::wait(object.base, object.base + object.bytes());
    }
    None
}

/// Enters an object from [`take_idle`] again, where it is now, with its history ([`heap_table::note`]).
#[inline(never)]
pub fn put_back(state: &State, object: &Object, history: u64) {
    let rule = state.rules.get(object.rule);
    // A pass of the mover that did not find the object, or found it half done, is repeated.
    let missed = exclusion::mover_works() || rule.is_some_and(|rule| rule.current_index() != object.placing);
    // The parts of an object do not move between phases.
    let may_move = rule.is_some_and(|rule| rule.parts().is_empty());
    let now = Object { waiting: object.waiting || (missed && may_move), ..*object };
    in_use::began(now.bytes(), now.touched(), false);
    if !heap_table::reserve(now.base) || !heap_table::insert(&now) {
        // Only where memory is too short for a node of the table: the address stays the program's, and is never freed.
        say_once!("memory is short: an array that grew cannot be freed any more");
    }
    heap_table::note(now.base, history);
    if now.waiting {
        mover_request::request();
    } else if let Some(rule) = rule {
        mover_request::note_object(rule);
    }
}

/// Whether `rule` places all pages of `object` where they belong now.
#[inline(never)]
fn places_alike(state: &'static State, object: &Object, rule: usize) -> bool {
    let Some(placing) = state.rules.get(rule).map(Rule::current_index) else { return false };
    let like = Object { rule, placing, block: 0, ..*object };
    let same = || Some(like.plan(state)? == Object { block: 0, ..*object }.plan(state)?);
    same() == Some(true)
}

/// Gives `object` `room` bytes or else `size`, under `rule`, which places it as its own.
fn with_room(state: &'static State, object: &mut Object, rule: usize, size: usize, room: usize) -> Option<()> {
    if object.rule == NO_RULE {
        return unplaced(state, object, size);
    }
    for wanted in [room, size] {
        match placed(state, object, rule, wanted) {
            Ok(()) => return Some(()),
            Err(Refusal::Divided) => return None,
            Err(Refusal::Short) => released::release_all(),
        };
    }
    lose_place(state, object, size)
}

/// As [`unplaced`], counted for the rule.
#[cold]
fn lose_place(state: &'static State, object: &mut Object, size: usize) -> Option<()> {
    let rule = object.rule;
    unplaced(state, object, size)?;
    state.rules.get(rule).inspect(|rule| add(&rule.counters.unplaced, 1));
    Some(())
}

/// Gives `object` `size` bytes, all pages where `rule` wants them.
#[inline(never)]
fn placed(state: &'static State, object: &mut Object, rule: usize, size: usize) -> Result<(), Refusal> {
    let plan = object.plan(state).ok_or(Refusal::Divided)?;
    let bytes = bytes_of(object, size);
    if object.bytes() < HUGE && (divides(&plan) || bytes >= HUGE) {
        return Err(Refusal::Divided);
    }
    let round = round(&plan, if bytes < HUGE { PAGE } else { HUGE }).ok_or(Refusal::Short)?;
    let placing = match state.rules.get(rule) {
        Some(other) if rule != object.rule => other.current_index(),
        _ => object.placing,
    };
    let mut next = Object { rule, placing, size, pages: (bytes / PAGE) as u64, block: 0, ..*object };
    let before = object.mappings(state, object.whole());
    let next_plan = next.fit_replacing(state, before).ok_or(Refusal::Short)?;
    match unite(state, object, &plan).and_then(|()| remap(object, next.bytes(), round)) {
        Ok(base) => next.base = base,
        Err(why) => {
            state.give_mappings(next.mappings(state, next.whole()).wrapping_sub(before));
            divide(state, object, &plan);
            return Err(why);
        }
    }
    if next_plan.populates() {
        populate(state, &next, &next_plan, object.pages, plan.layout == next_plan.layout);
    }
    // A refusal is reported and counted; the object is where it is.
    divide(state, &next, &next_plan);
    next.waiting |= exclusion::shared().is_some() && divides(&next_plan) && plan.layout != next_plan.layout;
    *object = next;
    Ok(())
}

/// Allocates the pages of an object from number `old` on, and moves the others where its blocks are not the `same` as
/// before.
pub fn populate(state: &'static State, object: &Object, plan: &PagePlan<'_>, old: u64, same: bool) {
    let fresh = Part { first: old, pages: object.pages - old };
    let Some(rule) = state.rules.get(object.rule) else { return };
    let work = || {
        populate::populate_blocks(plan, object.base, fresh)?;
        if !same {
            relocate::move_resident(plan, object.base, object.whole());
        }
        Ok(())
    };
    let populated = || allocating::run(work).unwrap_or(Err(libc::ENOMEM));
    if let Err(error) = counted_calls::measure(&rule.counters, populated) {
        refusals::report(rule.rule.name(), error);
    }
}

/// Gives `object` `size` bytes, its new pages where the policy of its memory puts them.
#[inline(never)]
fn unplaced(state: &'static State, object: &mut Object, size: usize) -> Option<()> {
    let plan = object.plan(state);
    if let Some(plan) = &plan {
        unite(state, object, plan).ok()?;
    }
    let pages = colour::pages_of(size, object.colour);
    let Some(base) = remap_anywhere(object, pages as usize * PAGE) else {
        plan.inspect(|plan| divide(state, object, plan));
        return None;
    };
    state.give_mappings(object.mappings(state, object.whole()));
    *object = Object { rule: NO_RULE, placing: 0, waiting: false, block: 0, base, size, pages, ..*object };
    Some(())
}

/// Lets the memory of `object` grow to `bytes`, in place or wherever the kernel puts it.
fn remap_anywhere(object: &Object, bytes: usize) -> Option<usize> {
    if grow_in_place(object.base, object.bytes(), bytes).is_ok() {
        return Some(object.base);
    }
    // Memory for the table, so that the object can be entered there wherever the kernel puts it.
    let spare = sys::map_anonymous(TABLE_BYTES)?;
    // SAFETY: the mapping is the object's own, and the caller gives up its old address; the spare one is not used.
    unsafe {
        let moved = sys::remap(object.base as *mut _, object.bytes(), bytes);
        sys::unmap(spare, TABLE_BYTES);
        moved.map(|at| at as usize)
    }
}

/// Bytes by which the address of an object may change without a change of where its pages, of `page` bytes at most,
/// belong; `None` without memory to read the weights of the nodes.
fn round(plan: &PagePlan<'_>, page: usize) -> Option<usize> {
    match plan.layout {
        Layout::Interleave => Some(plan.nodes.len().max(1) * page),
        Layout::Weighted => allocating::run(|| interleaving::round_pages(plan)).map(|pages| pages * page),
        _ => Some(page),
    }
}

/// Lets the memory of `object` grow to `bytes`, in place or at another address that differs by a multiple of `round`.
fn remap(object: &Object, bytes: usize, round: usize) -> Result<usize, Refusal> {
    match grow_in_place(object.base, object.bytes(), bytes) {
        Ok(()) => return Ok(object.base),
        Err(libc::EFAULT) => return Err(Refusal::Divided),
        // Locked memory that may not become more, wherever it is.
        Err(libc::EAGAIN) => return Err(Refusal::Short),
        Err(_) => {}
    }
    let target = reserve(object.base, bytes, round).ok_or(Refusal::Short)?;
    // SAFETY: the mapping is the object's own, the caller gives up its old address, and the target was reserved for it.
    let moved = unsafe { move_to(object.base, object.bytes(), bytes, target) };
    moved.then_some(target).ok_or(Refusal::Short)
}

/// Reserves `bytes` at an address for which there is room in the table, and that differs from `like` by a multiple of
/// `round`.
fn reserve(like: usize, bytes: usize, round: usize) -> Option<usize> {
    let whole = bytes.checked_add(round)?;
    let raw = mappings::reserve(whole)?;
    let start = raw + like.wrapping_sub(raw % round) % round;
    // SAFETY: parts of the fresh reservation, which nothing uses.
    unsafe {
        let give_back = |from: usize, to: usize| {
            if from < to {
                sys::unmap(from as *mut _, to - from);
            }
        };
        give_back(raw, start);
        give_back(start + bytes, raw + whole);
        if heap_table::reserve(start) {
            return Some(start);
        }
        give_back(start, start + bytes);
    }
    None
}

/// Whether the plan gives parts of an object policies of their own.
fn divides(plan: &PagePlan<'_>) -> bool {
    matches!(plan.layout, Layout::Blocks(..)) && plan.run_count() > 1
}

/// Node of the first block.
fn first_node(plan: &PagePlan<'_>) -> Option<u32> {
    plan.runs_of(0, 1).next().and_then(|run| plan.nodes.get(run.node as usize)).copied()
}

/// Gives the whole object one policy: that of the first block where each has its own, else that of its plan, of which
/// a phase may have replaced a part.
fn unite(state: &'static State, object: &Object, plan: &PagePlan<'_>) -> Result<(), Refusal> {
    let set = if state.divides(object.rule) {
        counted_calls::mbind(object.base, object.bytes(), Mode::Default, &[], false)
    } else if divides(plan) {
        let first = first_node(plan).ok_or(Refusal::Divided)?;
        counted_calls::mbind(object.base, object.bytes(), Mode::Preferred, &[first], false)
    } else if exclusion::shared().is_none() {
        Ok(())
    } else if plan.layout == Layout::Default || plan.populates() {
        counted_calls::mbind(object.base, object.bytes(), Mode::Default, &[], false)
    } else {
        object.place(state, plan, false)
    };
    set.map_err(|_| Refusal::Divided)
}

/// As [`prepare`], of an object in parts. The page is the last one, which must not be a huge one, as above: until it is
/// there, it is a memory area of its own. Its placing takes much of a stack.
#[cold]
#[inline(never)]
fn prepare_parts(state: &'static State, object: &Object) {
    let end = object.base + object.bytes();
    let may_be_huge = |is_set: bool| !is_set && end.is_multiple_of(HUGE);
    let placed = allocating::run(|| object.place_last_page(state)).flatten();
    if let Some(is_set) = placed.filter(|is_set| !may_be_huge(*is_set)) {
        // SAFETY: the last byte of a fresh mapping.
        unsafe { ptr::write_volatile((end - 1) as *mut u8, 0) };
        if is_set {
            let _ = counted_calls::mbind(object.base, object.bytes(), Mode::Default, &[], false);
        }
    }
}

/// Gives the blocks of the object their policies, and moves the pages that are on another node. Where a phase may have
/// begun the mover moves them.
fn divide(state: &'static State, object: &Object, plan: &PagePlan<'_>) {
    if divides(plan) {
        let _ = object.place(state, plan, exclusion::shared().is_none());
    }
}

/// Called with the fresh memory of an object that grows, before its policies are set: gives its areas a page in common,
/// the first, which the caller is going to write.
pub fn prepare(state: &'static State, object: &Object, plan: &PagePlan<'_>) {
    if state.divides(object.rule) && object.bytes() >= HUGE {
        return prepare_parts(state, object);
    }
    let (true, Some(first)) = (divides(plan) && object.bytes() >= HUGE, first_node(plan)) else { return };
    let rule = state.rules.get(object.rule);
    let is_fixed = rule.and_then(|r| r.current_placing()).is_some_and(|placing| placing.place.block.is_some());
    let holds_huge = plan.block_bytes().is_some_and(|block| block >= HUGE as u64);
    match plan.huge {
        Huge::Want if !holds_huge => return,
        Huge::Want => pages::huge_pages(object.base, object.bytes(), true),
        Huge::Keep if holds_huge => {}
        // The page must not be a huge one, which would take other blocks with it. Areas of this size never get one.
        Huge::Keep if is_fixed => pages::huge_pages(object.base, object.bytes(), false),
        Huge::Keep => return,
        Huge::Split => pages::huge_pages(object.base, object.bytes(), false),
    }
    if counted_calls::mbind(object.base, object.bytes(), Mode::Preferred, &[first], false).is_ok() {
        // SAFETY: the first byte of a fresh mapping.
        unsafe { ptr::write_volatile(object.base as *mut u8, 0) };
    }
}
