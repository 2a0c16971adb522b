//! Places small objects of matched call sites: linked structures, rows, tables of strings.
//!
//! An object of less than a page shares its page, so the rules that place alike (for `local`, each node of them) have a
//! home for small objects: heaps (`rules/small_heap.rs`) whose extents are placed before they are touched. Policies that
//! place the pages of one object on several nodes by offset (block, skew, map ...) do not apply, and such small objects
//! come from the real allocator.
//!
//! An extent is an object of the heap table, like an allocation of its size: the mover, the check of the pages and the
//! budget of mappings treat both alike, and the mover unmaps an extent that its heap gives up during a step. Extents
//! lie in a window of addresses ([`WINDOW`]), so that free() sees by the address that a pointer is none of a small
//! object; nothing of the window is reserved.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;

use numamma_hook::real::of_libc;
use numamma_hook::{allocating, errno, own_stack, sandbox, say_once};
use numamma_kernel::mappings;
use numamma_plan::policy::PolicyKind;

use super::backing::Backing;
use super::object::Object;
use super::{heap_table, released};
use crate::phases::mover_request;
use crate::place::refusals;
use crate::rules::churn::Churn;
use crate::rules::coming_again;
use crate::rules::extent::{Extent, HEADER, HeapAddress};
use crate::rules::heap_account;
use crate::rules::small_heap::chunk;
use crate::rules::small_heap::home::{self, Home, Number};
use crate::rules::small_heap::source::{Extents, Owner};
use crate::rules::small_heap::{Heap, WINDOW};
use crate::rules::state::{self, Rule, State};
use crate::threads::number;

/// Requests for extents that are refused without a system call after the kernel refused one.
const PAUSE: usize = 1024;
/// Requests for extents that are still refused.
static PAUSED: AtomicUsize = AtomicUsize::new(0);

/// Part (1/16) of the address space of a process with a limit that extents may take: an extent with one object left
/// takes as much of it as a full one, where glibc would use the rest for others.
const SHARE_DIVISOR: u64 = 16;
/// Called before an extent is mapped.
static EXPECT: OnceLock<fn()> = OnceLock::new();

const EXTENTS: Extents = Extents { map: map_extent, unmap: unmap_extent };

/// `expect` is called before there is a small object: from then on every free must ask [`owns`]. The machine has `cpus`
/// CPUs.
pub fn start(expect: fn(), cpus: usize) {
    let _ = EXPECT.set(expect);
    home::start(cpus);
}

/// Of a thread.
#[repr(C)]
struct Asking {
    /// The rule for which it allocated an object in a shared heap last.
    rule: Cell<usize>,
}

numamma_hook::static_tls!(fn asking() -> Asking, "numamma_apply_asking");

/// A small object that was looked up by its address.
pub struct Small {
    /// Index of its rule, or of the first of the rules that share its heap ([`state::share_memory`]).
    pub rule: usize,
    heap: &'static Heap,
    /// Its address.
    pub address: usize,
}

impl Small {
    /// Bytes it can hold.
    pub fn usable(&self) -> usize {
        // SAFETY: `find` checked that the address lies behind the header of an extent.
        unsafe { chunk::usable(self.address) }
    }

    /// Whether its rule is not known: its heap is shared.
    pub fn is_shared(&self) -> bool {
        self.heap.is_shared()
    }

    /// The object with `size` bytes, in the same heap; `None` when that is in use or has no memory: it is as it was.
    ///
    /// # Safety
    /// It is a live object; if another address is returned, it has been released.
    pub unsafe fn resize(&self, size: usize) -> Option<usize> {
        // SAFETY: the caller's promise.
        unsafe { self.heap.resize(self.address, size) }
    }

    /// Releases it, from any thread.
    ///
    /// # Safety
    /// It is a live object that the program gives up.
    pub unsafe fn release(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.heap.give_up(self.address, caller) };
    }
}

/// Whether `address` may be that of a small object; [`find`] knows.
#[inline(always)]
pub fn owns(address: usize) -> bool {
    WINDOW.owns(address)
}

/// The small object at `address`; `None` for other addresses.
#[inline]
pub fn find(address: usize) -> Option<Small> {
    if !owns(address) {
        return None;
    }
    let extent = heap_table::find(WINDOW.slot_start(address))?;
    let inside = address.wrapping_sub(extent.base) > HEADER && address < extent.base + extent.bytes();
    // SAFETY: the header was written before the extent was entered in the table, with the heap's own address; an extent
    // with an object is mapped.
    let heap = || unsafe { Heap::at(Extent::of(extent.base).heap) };
    inside.then(heap).map(|heap| Small { rule: heap.rule(), heap, address })
}

/// A small object under rule `index`, aligned to 16 bytes and to `align`, a power of two below a page; its contents are
/// undefined, or zero if wanted. One that realloc has `resized` is not in a heap that rules share: its rule counts
/// when realloc changes it again.
pub fn allocate(
    state: &'static State,
    index: usize,
    size: usize,
    align: usize,
    zero: bool,
    resized: bool,
) -> Option<usize> {
    let rule = state.rules.get(index)?;
    let shares = if resized { None } else { rule.shares_heaps_of() };
    if shares.is_some() {
        asking().rule.set(index);
    }
    let object = home(state, shares.unwrap_or(index), shares.is_some())?.allocate(size, align, zero, caller)?;
    if shares.is_some() {
        rule.note_sharing();
    }
    Some(object)
}

/// A number of the calling thread. Where no system call may be made, always its own.
fn caller(number: Number) -> usize {
    let cpu = if number == Number::OfCpu && !sandbox::entered() { of_libc::sched_getcpu() } else { None };
    cpu.map_or_else(number::of_this_thread, |cpu| cpu as usize)
}

/// Whether an object begins at `address`, as far as the words around it show.
pub fn begins(address: usize) -> bool {
    // SAFETY: `find` checked that the address lies behind the header of an extent.
    let is_object = |extent_end: usize| unsafe { chunk::is_object(address, extent_end) };
    let extent = find(address).and_then(|_| heap_table::find(WINDOW.slot_start(address)));
    extent.is_some_and(|extent| is_object(extent.base + extent.bytes()))
}

/// Checks the pages of an extent, all of them since the system may have used a huge page. Extents keep their place when
/// the current one has none for small objects.
pub fn examine(state: &'static State, extent: &Object) {
    if let Some(rule) = state.rules.get(extent.rule) {
        let waiting = extent.waiting || (extent.placing != rule.current_index() && can_follow(rule));
        Object { waiting, ..*extent }.count(state, extent.whole());
    }
}

/// Whether extents can be moved to the current place of the rule, which must have one home for all small objects.
pub fn can_follow(rule: &Rule) -> bool {
    rule.current_placing().is_some_and(|p| p.homes.len() == 1 && p.place.policy != PolicyKind::Local)
}

/// The home for the small objects of rule `index`, or for those of all rules that share it.
fn home(state: &'static State, index: usize, is_shared: bool) -> Option<&'static Home> {
    let rule: &Rule = state.rules.get(index)?;
    let now = rule.current_index();
    let placing = rule.placings.get(now)?;
    let (place, node) = match placing.place.policy {
        PolicyKind::Local => {
            let node = crate::threads::binding::local_node(state, &placing.nodes);
            (placing.nodes.iter().position(|n| *n == node)?, node)
        }
        _ => (0, 0),
    };
    let cell = if is_shared { &placing.shared } else { &placing.homes }.get(place)?;
    let found = cell.load(Ordering::Acquire);
    // SAFETY: null, or a leaked box that was published with Release.
    if let Some(home) = unsafe { found.as_ref() } {
        return Some(home);
    }
    if sandbox::entered() {
        return None;
    }
    let _errno = errno::Saved::now();
    let owner = Owner { rule: index, placing: now, node, is_shared };
    let fresh = allocating::run(|| new_home(owner))?;
    // The thread that loses the race leaves a few KiB unused.
    let home = match cell.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        Err(first) => first,
    };
    // SAFETY: as above.
    unsafe { home.as_ref() }
}

#[cold]
#[inline(never)]
fn new_home(owner: Owner) -> *mut Home {
    Box::into_raw(Box::new(Home::new(owner, EXTENTS)))
}

/// A placed extent of `len` bytes for `heap`: its usable memory. Charged unless it is rent, see [`Extents`].
fn map_extent(owner: &Owner, heap: HeapAddress, len: usize, is_rent: bool) -> Option<(usize, usize)> {
    let paused = |left: usize| left.checked_sub(1);
    // What is free in the heap is used again; more of it takes system calls that a filter may not allow.
    if sandbox::entered() || PAUSED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paused).is_ok() {
        return None;
    }
    if state::get().and_then(|state| state.churn_of(owner.rule)).is_some_and(Churn::is_over_small) {
        return None;
    }
    if is_too_much(len) {
        PAUSED.store(PAUSE, Ordering::Relaxed);
        return None;
    }
    coming_again::release_unused();
    state::get().inspect(|state| released::elsewhere::mapping_small(state, len));
    // Below the calls of the heap it would take too much of the program's stack.
    let map = || own_stack::run_or_directly(|| map_placed(owner, heap, len, is_rent));
    // Kept memory may be what is missing.
    let placed = map().or_else(|| released::release_all().then(map).flatten());
    if placed.is_none() {
        PAUSED.store(PAUSE, Ordering::Relaxed);
    }
    Some((placed? + HEADER, len - HEADER))
}

/// Whether another extent of `len` bytes would take too much of the address space.
fn is_too_much(len: usize) -> bool {
    let most = mappings::limit() / SHARE_DIVISOR;
    let is_too_much = (heap_account::extents() + len) as u64 > most;
    if is_too_much && state::get().is_some_and(|state| state.verbose) {
        say_once!("small objects beyond a sixteenth of the address space (ulimit -v, -d) stay where they are");
    }
    is_too_much
}

/// The rule for which the pages of a new extent are counted: of those that share the heap the one that needs it.
fn counted_for(state: &State, owner: &Owner) -> usize {
    let rule = asking().rule.get();
    let shares = owner.is_shared && state.rules.get(rule).is_some_and(|r| r.shares_heaps_of() == Some(owner.rule));
    if shares { rule } else { owner.rule }
}

fn map_placed(owner: &Owner, heap: HeapAddress, len: usize, is_rent: bool) -> Option<usize> {
    let state = state::get()?;
    let Owner { placing, node, .. } = *owner;
    let index = counted_for(state, owner);
    let rule = state.rules.get(index)?;
    let (pages, backing, waiting) = (heap_table::pages_of(len), Backing::PRIVATE, false);
    let mut extent =
        Object { rule: index, placing, waiting, node, block: 0, base: 0, colour: 0, size: len, pages, backing };
    let plan = extent.fit(state)?;
    if let Some(expect) = EXPECT.get() {
        expect();
    }
    // Two addresses that differ between processes.
    let random = ptr::from_ref(state) as usize ^ (&raw const extent as usize).rotate_left(17);
    let Some(base) = WINDOW.map(len, random) else {
        refusals::report(rule.rule.name(), libc::ENOMEM);
        state.give_mappings(plan.run_count());
        return None;
    };
    extent.base = base;
    // The policy is set before the extent can be written: after mlockall(MCL_FUTURE) that allocates its pages.
    if extent.place(state, &plan, false).is_ok() && mappings::make_usable(base, len) && heap_table::reserve(base) {
        // SAFETY: the extent is writable and no other thread knows it.
        unsafe { write_header(base, heap) };
        if heap_table::insert(&extent) {
            heap_account::extent_mapped(len);
            mover_request::placed(rule, placing);
            state.churn_of(index).inspect(|churn| churn.extent_mapped(len, is_rent));
            return Some(base);
        }
    }
    released::unmap_unseen(state, &extent);
    None
}

/// Not inlined: the header would be in the stack frame of the caller, too.
///
/// # Safety
/// An extent begins at `base`, and no other thread knows it.
#[inline(never)]
unsafe fn write_header(base: usize, heap: HeapAddress) {
    // SAFETY: the caller's promise.
    unsafe { (base as *mut Extent).write(Extent::new(heap)) };
}

fn unmap_extent(usable: usize) {
    if let (Some(state), Some((extent, moving))) = (state::get(), heap_table::take(usable - HEADER)) {
        heap_account::extent_unmapped(extent.bytes());
        released::examine_and_unmap(state, &extent, moving);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_owned_before_there_is_an_extent() {
        assert!(!owns(0) && !owns(0x1000) && !owns(usize::MAX));
        assert!(find(0x1000).is_none());
    }
}
