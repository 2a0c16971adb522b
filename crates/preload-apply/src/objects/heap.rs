//! Heap objects of a page and more: each has a mapping of its own, which starts on a page.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};

use numamma_hook::{errno, say_once};
use numamma_kernel::mappings;
use numamma_kernel::sys::{self, PAGE};
use numamma_plan::plan::HUGE_PAGE;

use super::backing::Backing;
use super::object::Object;
use super::{heap_table, small_objects};
use crate::phases::{exclusion, mover_request};
use crate::rules::counters::add;
use crate::rules::small_heap::ALIGN;
use crate::rules::state::{self, State};
use crate::threads::thread_nodes;

/// Largest object: PTRDIFF_MAX, less what alignment may add.
pub const MAX_SIZE: usize = isize::MAX as usize - HUGE_PAGE as usize;

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

/// Address of a new placed object under rule `index`; counted for the rule whether it can be placed or not.
pub fn place_new(state: &'static State, index: usize, size: usize, align: usize) -> Option<usize> {
    let rule = state.rules.get(index)?;
    add(&rule.counters.instances, 1);
    add(&rule.counters.bytes, size as u64);
    place_under(state, index, size, align)
}

/// Address of placed memory for an object under rule `index`; `None` when the real allocator must provide it.
pub fn place_under(state: &'static State, index: usize, size: usize, align: usize) -> Option<usize> {
    let rule = state.rules.get(index)?;
    if let Some(why) = stopped() {
        say_once!("{why}: nothing more is placed on the heap");
        add(&rule.counters.unplaced, 1);
        return None;
    }
    if size < PAGE {
        if align <= ALIGN
            && let Some(address) = small_objects::allocate(state, index, size)
        {
            return Some(address);
        }
        if rule.counters.too_small.fetch_add(1, Ordering::Relaxed) == 0 && state.verbose {
            numamma_hook::say!("{}: allocations of less than a page are left where they are", rule.rule.name());
        }
        return None;
    }
    let placed = map_new(state, index, size, align);
    if placed.is_none() {
        add(&rule.counters.unplaced, 1);
    }
    placed
}

fn map_new(state: &'static State, index: usize, size: usize, align: usize) -> Option<usize> {
    let rule = state.rules.get(index)?;
    if size > MAX_SIZE {
        return None;
    }
    let (placing, pages, backing) = (rule.current_index(), heap_table::pages_of(size), Backing::PRIVATE);
    let node = thread_nodes::instance_node(state, rule, placing);
    let mut object = Object { rule: index, placing, waiting: false, node, block: 0, base: 0, size, pages, backing };
    let plan = object.fit(state)?;
    let huge = if size >= HUGE_PAGE as usize { HUGE_PAGE as usize } else { PAGE };
    let Some(address) = mappings::map_aligned(object.bytes(), align.max(huge)) else {
        state.give_mappings(plan.run_count());
        return None;
    };
    object.base = address;
    if object.place(state, &plan, false).is_ok() && heap_table::reserve(address) && heap_table::insert(&object) {
        mover_request::request_if_outdated(rule, placing);
        return Some(address);
    }
    state.give_mappings(plan.run_count());
    // SAFETY: the mapping was made above, and no pointer to it has left this function.
    unsafe { sys::unmap(address as *mut c_void, object.bytes()) };
    None
}

/// Releases the placed object that starts at `address`; false when there is none. If the mover is working on the
/// object, the mover releases it when its step ends.
pub fn free(address: usize) -> bool {
    let Some((object, moving)) = heap_table::take(address) else { return false };
    // The mover belongs to this process or to the parent that a vforked child shares memory with; a forked child has no
    // mover.
    if !(moving && exclusion::has_mover()) {
        discard(&object);
    }
    true
}

/// Checks and unmaps an object that the program has released.
pub fn discard(object: &Object) {
    let _errno = errno::Saved::now();
    if let Some(state) = state::get() {
        if state.reports() {
            object.examine(state, object.whole(), false);
        }
        state.give_mappings(object.mappings(state, object.whole()));
    }
    // SAFETY: the program gave the object up, and taking it from the table made this the only release.
    unsafe { sys::unmap(object.base as *mut c_void, object.bytes()) };
}
