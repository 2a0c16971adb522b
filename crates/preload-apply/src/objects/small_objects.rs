//! Places small objects of matched call sites: linked structures, rows, tables of strings.
//!
//! An object of less than a page shares its page, so each rule (for `local`, each node of a rule) has a home for small
//! objects: extents of 2 MiB, placed before they are touched and cut into slabs of one object size. Policies that place
//! the pages of one object on several nodes by offset (block, skew, map ...) do not apply, and such small objects come
//! from the real allocator.
//!
//! Never waits: an allocation tries the locks of a few shards and goes to the real allocator when all are held (for
//! ever, in a child that was forked while a lock was held). Any thread pushes freed objects on a list without a lock,
//! and the next allocation of that size takes the whole list, so there is no ABA. The slab, found by the address, tells
//! which heap an object belongs to.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use numamma_hook::allocating;
use numamma_kernel::mappings;
use numamma_kernel::sys::PAGE;
use numamma_plan::policy::PolicyKind;

use super::backing::Backing;
use super::object::Object;
use crate::phases::mover_request;
use crate::place::{mapping_budget, refusals};
use crate::rules::small_heap::{Free, Heap, Held, Home, SHARDS, SIZES, SLAB};
use crate::rules::state::{Rule, State};

/// Reserved address space, once the first small object is to be placed. It takes no memory and is not readable before
/// it is handed out. Where so much is refused (`ulimit -v`), small objects are not placed.
const REGION: usize = 64 << 30;
/// Bytes placed at a time: a huge page, so that the system may use one.
const EXTENT: usize = 2 << 20;
/// Shards tried before the real allocator is called.
const TRIES: usize = 3;
/// Start and length of the region. The length is 0 until the region exists, so that no address is inside.
static BASE: AtomicUsize = AtomicUsize::new(0);
static LENGTH: AtomicUsize = AtomicUsize::new(0);
/// A request to the kernel was refused; none is repeated.
static REFUSED: AtomicBool = AtomicBool::new(false);
static RESERVING: AtomicBool = AtomicBool::new(false);
/// Bytes of the region handed out.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// For each slab the address of its heap and, in the low bits, its size class; 0: not in use. Points to a mapping of
/// its own.
static SLABS: AtomicPtr<AtomicUsize> = AtomicPtr::new(ptr::null_mut());
/// For each extent, 0 while not in use: waiting 1 | placing 8 | node 16 | rule index + 1 32 (low).
static EXTENTS: [AtomicU64; REGION / EXTENT] = [const { AtomicU64::new(0) }; REGION / EXTENT];

fn pack_extent(object: &Object) -> u64 {
    (if object.waiting { 1 << 63 } else { 0 })
        | (object.placing as u64 & 0xff) << 48
        | u64::from(object.node & 0xffff) << 32
        | (object.rule as u64 + 1)
}

/// The extent number `number` with its stored word. Extents are never unmapped.
fn unpack_extent(number: usize, word: u64) -> Option<Object> {
    let rule = (word as u32 as usize).checked_sub(1)?;
    let base = BASE.load(Ordering::Relaxed) + number * EXTENT;
    let (node, placing) = ((word >> 32 & 0xffff) as u32, (word >> 48 & 0xff) as usize);
    Some(Object { placing, node, waiting: word >> 63 == 1, ..fresh_extent(rule, base) })
}

fn fresh_extent(rule: usize, base: usize) -> Object {
    let (pages, backing) = ((EXTENT / PAGE) as u64, Backing::PRIVATE);
    Object { rule, placing: 0, waiting: false, node: 0, block: 0, base, size: EXTENT, pages, backing }
}

/// Calls `visit` with every extent and stores what it returns. Only the mover changes extents.
pub fn for_each(mut visit: impl FnMut(Object) -> Object) {
    for (number, cell) in EXTENTS.iter().enumerate().take(NEXT.load(Ordering::Acquire).min(REGION) / EXTENT) {
        if let Some(before) = unpack_extent(number, cell.load(Ordering::Acquire)) {
            let after = visit(before);
            cell.store(pack_extent(&after), Ordering::Release);
        }
    }
}

/// Whether `address` lies in the region of small objects.
#[inline(always)]
pub fn owns(address: usize) -> bool {
    address.wrapping_sub(BASE.load(Ordering::Relaxed)) < LENGTH.load(Ordering::Relaxed)
}

/// A small object under rule `index`, aligned to 16 bytes; its contents are undefined.
pub fn allocate(state: &'static State, index: usize, size: usize) -> Option<usize> {
    let class = SIZES.iter().position(|s| usize::from(*s) >= size)?;
    let home = home(state, index)?;
    let first = crate::threads::binding::thread_number();
    (0..TRIES).find_map(|step| {
        let heap = &home.shards[(first + step) % SHARDS];
        let _held = Held::take(heap)?;
        // SAFETY: the lock is held.
        unsafe { heap.object(class, || slab_for(heap, class, home, state)) }
    })
}

/// Whether an object begins at `address`.
pub fn begins(address: usize) -> bool {
    let offset = address.wrapping_sub(BASE.load(Ordering::Relaxed)) % SLAB;
    slab(address).is_some_and(|(_, class)| offset.is_multiple_of(usize::from(SIZES[class])))
}

/// Bytes an object can hold.
pub fn usable(address: usize) -> usize {
    slab(address).map_or(0, |(_, class)| usize::from(SIZES[class]))
}

/// Rule of an object.
pub fn rule_of(address: usize) -> Option<usize> {
    let number = address.wrapping_sub(BASE.load(Ordering::Relaxed)) / EXTENT;
    Some(unpack_extent(number, EXTENTS.get(number)?.load(Ordering::Acquire))?.rule)
}

/// Releases an object, from any thread.
///
/// # Safety
/// `address` is a live small object that the program gives up.
pub unsafe fn release(address: usize) {
    let Some((heap, class)) = slab(address) else { return };
    let object = address as *mut Free;
    let list = &heap.returned[class];
    let mut head = list.load(Ordering::Relaxed);
    loop {
        // SAFETY: the object is not used any more and at least as large as a pointer.
        unsafe { object.write(Free { next: head }) };
        // Release: the thread that takes the list sees the link.
        match list.compare_exchange_weak(head, object, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Checks the pages of every extent, whole extents since the system may have used a huge page. Extents keep their place
/// when the current one has none for small objects.
pub fn examine_all(state: &'static State) {
    for_each(|extent| {
        if let Some(rule) = state.rules.get(extent.rule) {
            let waiting = extent.waiting || (extent.placing != rule.current_index() && can_follow(rule));
            Object { waiting, ..extent }.count(state, extent.whole());
        }
        extent
    });
}

/// Whether extents can be moved to the current place of the rule, which must have one home for all small objects.
pub fn can_follow(rule: &Rule) -> bool {
    rule.current_placing().is_some_and(|p| p.homes.len() == 1 && p.place.policy != PolicyKind::Local)
}

/// Heap and size class of the slab at `address`.
fn slab(address: usize) -> Option<(&'static Heap, usize)> {
    let offset = address.wrapping_sub(BASE.load(Ordering::Relaxed));
    let table = SLABS.load(Ordering::Acquire);
    if table.is_null() || offset >= REGION {
        return None;
    }
    // SAFETY: the table has a word for every slab of the region and is never unmapped.
    let word = unsafe { (*table.add(offset / SLAB)).load(Ordering::Acquire) };
    // SAFETY: a word that is not 0 holds the address of a leaked heap, above its low bits.
    let heap = unsafe { ((word & !63) as *const Heap).as_ref() }?;
    Some((heap, (word & 63).min(SIZES.len() - 1)))
}

fn home(state: &'static State, index: usize) -> Option<&'static Home> {
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
    let cell = placing.homes.get(place)?;
    let found = cell.load(Ordering::Acquire);
    // SAFETY: null, or a leaked box that was published with Release.
    if let Some(home) = unsafe { found.as_ref() } {
        return Some(home);
    }
    let create = || {
        let (cursor, shards) = (AtomicUsize::new(0), [const { Heap::empty() }; SHARDS]);
        Box::into_raw(Box::new(Home { rule: index, placing: now, node, cursor, shards }))
    };
    let fresh = allocating::run(create)?;
    // The thread that loses the race leaves a few KiB unused.
    let home = match cell.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        Err(first) => first,
    };
    // SAFETY: as above.
    unsafe { home.as_ref() }
}

/// A fresh slab of size class `class` for `heap` of `home`.
fn slab_for(heap: &'static Heap, class: usize, home: &Home, state: &'static State) -> Option<usize> {
    let mut at = home.cursor.load(Ordering::Relaxed);
    let slab = loop {
        let (slab, fresh) = match at.is_multiple_of(EXTENT) {
            true => (new_extent(state, home)?, true),
            false => (at, false),
        };
        match home.cursor.compare_exchange(at, slab + SLAB, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => break slab,
            // Another shard added an extent at the same time: only this slab of the new extent is used.
            Err(_) if fresh => break slab,
            Err(now) => at = now,
        }
    };
    let number = (slab - BASE.load(Ordering::Relaxed)) / SLAB;
    // SAFETY: the table was mapped before the region was published, with a word for every slab.
    let word = unsafe { &*SLABS.load(Ordering::Acquire).add(number) };
    word.store(ptr::from_ref(heap) as usize | class, Ordering::Release);
    Some(slab)
}

/// The next extent, readable, writable and placed.
fn new_extent(state: &'static State, home: &Home) -> Option<usize> {
    let Home { rule: index, placing, node, .. } = *home;
    if REFUSED.load(Ordering::Relaxed) || !(LENGTH.load(Ordering::Acquire) > 0 || reserve()) {
        return None;
    }
    let at = NEXT.fetch_add(EXTENT, Ordering::AcqRel);
    if at + EXTENT > REGION {
        NEXT.fetch_sub(EXTENT, Ordering::AcqRel);
        return None;
    }
    let start = BASE.load(Ordering::Relaxed) + at;
    let rule = state.rules.get(index)?;
    let fresh = Object { placing, node, ..fresh_extent(index, start) };
    let mut plan = fresh.plan(state)?;
    let usable = mapping_budget::fit(state, index, &mut plan) && mappings::make_usable(start, EXTENT);
    if !usable {
        refusals::report(rule.rule.name(), libc::ENOMEM);
    }
    if !usable || fresh.place(state, &plan, false).is_err() {
        REFUSED.store(true, Ordering::Relaxed);
        return None;
    }
    EXTENTS.get(at / EXTENT)?.store(pack_extent(&fresh), Ordering::Release);
    mover_request::request_if_outdated(rule, placing);
    Some(start)
}

/// Reserves the region and the table of slabs. False while another thread does so, and when the kernel refuses.
#[cold]
fn reserve() -> bool {
    if RESERVING.swap(true, Ordering::AcqRel) {
        return LENGTH.load(Ordering::Acquire) > 0;
    }
    let table = mappings::reserve(REGION / SLAB * size_of::<AtomicUsize>());
    let (Some(table), Some(region)) = (table, mappings::reserve(REGION + EXTENT)) else {
        REFUSED.store(true, Ordering::Relaxed);
        return false;
    };
    if !mappings::make_usable(table, REGION / SLAB * size_of::<AtomicUsize>()) {
        REFUSED.store(true, Ordering::Relaxed);
        return false;
    }
    SLABS.store(table as *mut c_void as *mut AtomicUsize, Ordering::Release);
    BASE.store(region.next_multiple_of(EXTENT), Ordering::Relaxed);
    // Release: a thread that sees the length sees base and table.
    LENGTH.store(REGION, Ordering::Release);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_owned_before_there_is_a_region() {
        assert!(!owns(0) && !owns(0x1000) && !owns(usize::MAX));
        assert_eq!(usable(0x1000), 0);
    }
}
