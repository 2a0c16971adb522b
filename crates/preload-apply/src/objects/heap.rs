//! Heap objects of a page and more: each has a mapping of its own, at whose start it begins, or at its colour behind
//! ([`colour`]).

pub mod colour;
pub mod contents;
pub mod cut;
pub mod growth;
pub mod small_growth;
pub mod trim;

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};

use numamma_hook::{sandbox, say_once};
use numamma_kernel::mappings;
use numamma_kernel::pages;
use numamma_kernel::sys::{self, PAGE};
use numamma_plan::plan::HUGE_PAGE;

use super::backing::Backing;
use super::object::Object;
use super::released::glibc::ReleasedBy;
use super::released::{elsewhere, fitting};
use super::{heap_table, released, small_objects};
use crate::phases::mover_request;
use crate::rules::churn::MOST_SHARED;
use crate::rules::counters::add;
use crate::rules::state::{self, Rule, State};
use crate::rules::{coming_again, heap_account, in_use};
use crate::threads::{number, thread_nodes};

/// Largest object: PTRDIFF_MAX, less what alignment may add.
pub const MAX_SIZE: usize = isize::MAX as usize - HUGE_PAGE as usize;

/// An object that realloc makes larger for the second time gets this part (1/8) more than it asks for, so that an array
/// that grows in many small steps takes a time in proportion to its size.
pub const ROOM_DIVISOR: usize = 8;

/// Why nothing more is placed on the heap; null as long as objects are.
static STOPPED: AtomicPtr<String> = AtomicPtr::new(core::ptr::null_mut());

/// From now on nothing more is placed on the heap. The first allocation that a rule matches reports why.
pub fn stop(why: String) {
    let why = Box::into_raw(Box::new(why));
    let first = STOPPED.compare_exchange(core::ptr::null_mut(), why, Ordering::AcqRel, Ordering::Relaxed);
    if first.is_err() {
        // SAFETY: made above, and no other thread has it.
        drop(unsafe { Box::from_raw(why) });
    }
}

/// Why nothing more is placed on the heap; `None` as long as objects are.
pub fn stopped() -> Option<&'static str> {
    // SAFETY: null or a leaked box; Acquire pairs with the Release of `stop`.
    unsafe { STOPPED.load(Ordering::Acquire).as_ref() }.map(String::as_str)
}

/// Says once why nothing more is placed on the heap.
pub fn say_why_stopped() {
    if let Some(why) = stopped() {
        say_once!("{why}: nothing more is placed on the heap");
    }
}

/// What an allocation asks for.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub size: usize,
    pub align: usize,
    /// All bytes must be zero.
    pub zero: bool,
    /// It replaces a smaller object, whose content is about to be copied into it.
    pub grows: bool,
    /// realloc makes it.
    pub resized: bool,
    /// It replaces a block of the program's allocator that realloc makes smaller and larger by turns.
    pub swings: bool,
}

/// Address of a new placed object under rule `index`; counted for the rule whether it can be placed or not.
pub fn place_new(state: &'static State, index: usize, wanted: Wanted) -> Option<usize> {
    state.count_new(index, number::of_this_thread(), wanted.size);
    place_under(state, index, wanted)
}

/// Address of placed memory for an object under rule `index`; `None` when the real allocator must provide it.
pub fn place_under(state: &'static State, index: usize, wanted: Wanted) -> Option<usize> {
    let rule = state.rules.get(index)?;
    if stopped().is_some() {
        say_why_stopped();
        state.rules_of(index).for_each(|rule| add(&rule.counters.unplaced, 1));
        return None;
    }
    if wanted.swings && state.churn_of(index).is_some_and(|churn| churn.is_any_over(wanted.size)) {
        // Else it would be copied each time that it comes to a size of a pause, or from there.
        add(&rule.counters.too_brief, 1);
        state.rules_of(index).for_each(|rule| add(&rule.counters.unplaced, 1));
        return None;
    }
    if rule.is_small(wanted.size) {
        if wanted.align < PAGE
            && !state.divides(index)
            && let Some(address) = allocate_small(state, index, &wanted)
        {
            released::trim_if_due();
            return Some(address);
        }
        return leave_small(state, rule, index, wanted.size);
    }
    if rule.leaves(wanted.size) {
        return None;
    }
    if shares_pages(rule, &wanted)
        && let Some(address) = allocate_small(state, index, &wanted)
    {
        released::trim_if_due();
        return Some(address);
    }
    // New mappings take system calls that the program's own allocator may not make.
    let placed = if sandbox::entered() { None } else { place_pages(state, index, wanted) };
    if placed.is_none() {
        state.rules_of(index).for_each(|rule| add(&rule.counters.unplaced, 1));
    }
    placed
}

fn allocate_small(state: &'static State, index: usize, wanted: &Wanted) -> Option<usize> {
    let Wanted { size, align, zero, resized, .. } = *wanted;
    small_objects::allocate(state, index, size, align, zero, resized)
}

/// Whether an object of `size` bytes that rule `index` takes stays with the program's allocator, as far as that is
/// known without more ado; counted if somebody will ask. Of a rule's first one that is too small something is to be
/// said.
#[inline]
pub fn leaves(index: usize, size: usize) -> bool {
    let Some(state) = state::get() else { return false };
    let Some(rule) = state.rules.get(index).filter(|rule| rule.leaves(size)) else { return false };
    let is_small = size < PAGE || rule.is_too_small(size);
    if stopped().is_some() || (is_small && rule.counters.too_small.load(Ordering::Relaxed) == 0) {
        return false;
    }
    if state.counts() {
        state.count_new(index, number::of_this_thread(), size);
        if is_small {
            add(&rule.counters.too_small, 1);
        }
    }
    true
}

/// Leaves an object that is too small to be placed to the program's allocator, and counts it.
#[cold]
fn leave_small(state: &State, rule: &Rule, index: usize, size: usize) -> Option<usize> {
    let churn = state.churn_of(index).unwrap_or(&rule.churn);
    churn.asked(size);
    trim::left_small();
    elsewhere::leaving_small(size);
    if churn.is_over_small() {
        add(&rule.counters.too_brief, 1);
        state.rules_of(index).for_each(|rule| add(&rule.counters.unplaced, 1));
    } else if rule.counters.too_small.fetch_add(1, Ordering::Relaxed) == 0 && state.verbose {
        numamma_hook::say!(
            "{}: allocations too small for pages of their own are left where they are",
            rule.rule.name()
        );
    }
    None
}

/// Whether an object of a page and more is to share pages with the small ones of the rule: up to [`MOST_SHARED`], and
/// where no phase moves it on its own.
fn shares_pages(rule: &Rule, wanted: &Wanted) -> bool {
    wanted.align < PAGE && wanted.size < MOST_SHARED && rule.placings.len() == 1 && rule.parts().is_empty()
}

/// An object of whole pages: kept memory if there is any of the size, else a new mapping. Not inlined: what it holds
/// would be in the stack frame of small objects, too.
#[inline(never)]
fn place_pages(state: &'static State, index: usize, wanted: Wanted) -> Option<usize> {
    let Wanted { size, align, zero, grows, .. } = wanted;
    let rule = state.rules.get(index)?;
    if size > MAX_SIZE {
        return None;
    }
    let (placing, pages, backing) = (rule.current_index(), heap_table::pages_of(size), Backing::PRIVATE);
    let node = thread_nodes::instance_node(state, rule, placing);
    let (base, colour) = (0, 0);
    let mut object =
        Object { rule: index, placing, waiting: false, node, block: 0, base, colour, size, pages, backing };
    let coloured = Some(size).filter(|_| colour::is_possible(size, align) && released::serves_by_pages(rule));
    if coloured.is_some() {
        object.pages = colour::pages_with_room(size);
        object.size = object.bytes();
    }
    object.backing.touched = released::expected(state, &object);
    let churn = state.churn_of(index)?;
    churn.asked(object.bytes());
    let align = align.max(if size >= HUGE_PAGE as usize { HUGE_PAGE as usize } else { PAGE });
    if let Some(address) = take_kept(state, &object, align, zero, coloured) {
        return Some(address);
    }
    if churn.is_over(object.bytes()) {
        add(&rule.counters.too_brief, 1);
        trim::left(object.bytes());
        return None;
    }
    if !fitting::can_be_had(size) {
        return None; // nothing is given back for what the real allocator will refuse
    }
    released::none_fits(state, &object);
    heap_account::mapped_elsewhere(object.bytes());
    coming_again::release_unused();
    let address = map_new(state, &mut object, align, grows, coloured).or_else(|| {
        // What the kernel refused may be there once the freed memory that this library keeps is given back.
        released::release_all().then(|| map_new(state, &mut object, align, grows, coloured)).flatten()
    })?;
    // Here and not deeper in the stack: a pause may begin.
    let is_rent = in_use::began(object.bytes(), object.touched(), true);
    released::charge(state, &object, object.bytes(), is_rent);
    Some(address)
}

/// Kept memory for `object`, in which one of `coloured` bytes is coloured. Not inlined: the block that is taken would
/// be in the stack frame of new mappings, too.
#[inline(never)]
fn take_kept(
    state: &'static State,
    object: &Object,
    align: usize,
    zero: bool,
    coloured: Option<usize>,
) -> Option<usize> {
    let block = released::take(state, object, align)?;
    if zero {
        released::clear(state, &block, object.size);
    }
    // The array has the whole block, which may be larger.
    let coloured = coloured.map(|size| size.max(colour::size_in(block.bytes())));
    let address = enter(&block, coloured);
    if address.is_none() {
        released::unmap(state, &block);
        return None;
    }
    in_use::began(block.bytes(), block.touched(), false);
    mover_request::placed(state.rules.get(object.rule)?, object.placing);
    address
}

/// Enters `object`, or one of `coloured` bytes that is coloured in its pages. Returns its address.
fn enter(object: &Object, coloured: Option<usize>) -> Option<usize> {
    let entered = match coloured {
        Some(size) => Object { size, colour: colour::of_page(object.base), ..*object },
        None => *object,
    };
    heap_table::insert(&entered).then(|| entered.address())
}

/// As [`take_kept`], in a new mapping.
#[inline(never)]
fn map_new(
    state: &'static State,
    object: &mut Object,
    align: usize,
    grows: bool,
    coloured: Option<usize>,
) -> Option<usize> {
    let plan = object.fit(state)?;
    let taken = object.mappings(state, object.whole());
    let Some(address) = mappings::map_aligned(object.bytes(), align) else {
        state.give_mappings(taken);
        return None;
    };
    object.base = address;
    object.backing.touched = released::sparse::touched::of_new(object);
    if object.follows_allocator(state) {
        pages::huge_pages(address, object.bytes(), true);
    }
    if grows {
        growth::prepare(state, object, &plan);
    }
    if object.place(state, &plan, false).is_ok()
        && heap_table::reserve(address)
        && let Some(address) = enter(object, coloured)
    {
        mover_request::placed(state.rules.get(object.rule)?, object.placing);
        released::mapped(state, object);
        return Some(address);
    }
    state.give_mappings(taken);
    // SAFETY: the mapping was made above, and no pointer to it has left this function.
    unsafe { sys::unmap(address as *mut c_void, object.bytes()) };
    None
}

/// Releases the placed object that starts at `address`; false when there is none.
pub fn release(address: usize, by: ReleasedBy) -> bool {
    let grown = heap_table::has_grown(address);
    let Some((object, moving)) = heap_table::take(address) else { return false };
    in_use::ended(object.bytes(), object.touched());
    if let Some(state) = state::get() {
        released::release(state, &object, moving, grown, by);
    }
    true
}
