//! Memory of heap objects that the program has released: kept for the next allocations of the same rule and of rules that
//! place alike (`rules/state.rs`), or unmapped.
//!
//! An array that is allocated and freed in every step would otherwise cost a mapping, a memory policy and a page fault
//! for each page, every time. A kept block has the policy of its placing, and is used again only while that is the
//! current one of the rule, for the same node. It is not an object: it is neither in the heap table nor checked, and
//! the mover leaves it alone. The table of the blocks, and which object one serves, are in [`kept`].
//!
//! Only blocks of a size that comes again are kept: of a rule and about a size that was allocated after one of them had
//! been freed, or that a kept block served. An array that grows leaves nothing behind.
//!
//! Bounds, which follow glibc's: it keeps up to twice the largest block that was freed (M_MMAP_THRESHOLD in
//! mallopt(3)).
//! - The blocks take at most twice the bytes of the largest one, at least [`LIMIT_LOWEST`] and at most what the
//!   program's allocator keeps ([`kept_below`], 32 MiB with glibc as it is by default, which is also the size from which
//!   a block is never kept); less in a process that may use little memory, see [`start`] and [`allowed`]. Beside large
//!   arrays that are in use they take a part of these, see [`room`]; and of arrays that are freed together and asked for
//!   again, as much as comes and goes so, see [`in_use`]: what is more than a small share of the memory is offered to
//!   the kernel, see [`offered`].
//! - Within that limit there must also be room for a new object that none of them serves.
//! - The blocks and the arrays in use together take little more than the arrays took at a time before, and they and what
//!   the process holds otherwise little more than that was before, see [`room`].
//! - A block that did not serve, the larger part of it, while [`SWEEP`] to twice as many were freed is given back if
//!   the blocks take more than that part. So is one that is too small for the largest object so far of its rule, when
//!   that needs a mapping.
//! - One of which the program touches a part loses pages when it serves while there are many, see [`sparse::touched`].
//! - All are given back when the program goes on with other memory for some time, see [`room`].
//! - All are given back before the process forks, see [`forks`].
//! - All are given back when the budget of mappings or the kernel refuses something to this library, or when an
//!   allocation, mapping or thread of the program fails for want of memory; the call is then made again.
//!
//! A program that frees nothing any more keeps what is within these bounds.

pub mod elsewhere;
pub mod fitting;
pub mod forks;
pub mod glibc;
mod kept;
mod offered;
mod room;
pub mod sparse;
mod sum;

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::OnceLock;

use numamma_hook::real::of_libc;
use numamma_hook::{errno, own_stack, sandbox, say};
use numamma_kernel::cgroup::Group;
use numamma_kernel::{mappings, sys};

use self::glibc::ReleasedBy;
use self::sparse::touched;
use super::backing::{Pages, Touched};
use super::heap_table;
use super::object::Object;
use crate::phases::exclusion;
use crate::place::mapping_budget;
use crate::rules::churn::allocator::{ALWAYS_MAPPED, kept_below};
use crate::rules::churn::{self, Ended};
use crate::rules::small_heap::WINDOW;
use crate::rules::state::{Rule, State};
use crate::rules::{coming_again, heap_account, in_use};

/// Bytes that may be kept in any case, if no limit is low.
const LIMIT_LOWEST: usize = 1 << 20;
/// Most bytes that heaps of small objects which become empty again and again keep together, if they do so neither very
/// often nor with the same objects each time.
const HEAPS_HIGHEST: usize = 2 << 20;
/// Share (1/64) of the memory and of the address space available to the process that may be kept.
const SHARE_DIVISOR: u64 = 64;
/// Blocks that are freed between two searches for blocks that nothing asks for any more.
const SWEEP: u32 = 4096;

/// Most bytes that may be kept where it is known to save page faults.
static SHARE: AtomicUsize = AtomicUsize::new(0);
/// The entry that is given up next.
static HAND: AtomicUsize = AtomicUsize::new(0);
/// Blocks freed so far. Threads may overwrite each other's count: how often a sweep comes need not be exact.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Called when the first block is kept, see [`start`].
static FIRST: OnceLock<fn()> = OnceLock::new();
static IS_FIRST: AtomicBool = AtomicBool::new(true);

/// Allows blocks to be kept in a process that can allocate `available` bytes and is in control groups that limit memory,
/// `groups`. `first` is called when the first one is kept: from then on failing calls must ask [`give_way`].
pub fn start(available: Option<u64>, groups: Vec<Group>, first: fn()) {
    let _ = FIRST.set(first);
    room::start(groups);
    mapping_budget::on_shortage(release_all);
    let share = available.map_or(usize::MAX, |bytes| (bytes / SHARE_DIVISOR) as usize);
    SHARE.store(share, Ordering::Relaxed);
    room::keep_in_any_case(share.min(LIMIT_LOWEST));
    coming_again::keep_at_most(share.min(HEAPS_HIGHEST), share.min(ALWAYS_MAPPED), share, first);
}

/// Lets glibc give free memory back if that is due. No lock of this library may be held.
#[inline]
pub fn trim_if_due() {
    super::heap::trim::trim_if_due(standing);
}

/// Called when no kept block serves `object`: gives blocks back so that they and its memory stay within the limit. Not
/// inlined, as [`charge`]: what they hold would be in the stack frame of the calls that place the object, too.
#[inline(never)]
pub fn none_fits(state: &'static State, object: &Object) {
    if room::is_needed_for_new(object.bytes(), standing()) {
        give_all_back(state);
    }
    room::mapped();
    trim_if_due();
    if any() {
        kept::replace(state, object);
        let limit = Limits::now().most.saturating_sub(object.bytes());
        give_back(state, limit);
    }
}

/// Whether kept memory of a rule is pages that serve any of its objects.
pub fn serves_by_pages(rule: &Rule) -> bool {
    kept::is_by_pages(rule)
}

/// Notes that memory for an object was mapped, which decides whether later ones of its size are kept.
pub fn mapped(state: &State, object: &Object) {
    kept::mapped(state, object);
}

/// Looks what the program has touched of `object`, if that can be seen. Not inlined: what it holds would be in the
/// stack frame of [`keep`], too.
#[inline(never)]
fn see_touched(state: &State, object: &Object) {
    touched::freed(|| kept::hash_of_class(state, object), object);
}

/// What the program is expected to touch of `object`. Not inlined, see [`see_touched`].
#[inline(never)]
pub fn expected(state: &State, object: &Object) -> Touched {
    touched::expected(|| kept::hash_of_class(state, object), object)
}

/// Whether any block is kept.
#[inline]
fn any() -> bool {
    sum::bytes() > 0
}

/// Bytes of all blocks, and of what heaps keep as much for as long.
#[inline]
fn standing() -> usize {
    sum::bytes().wrapping_add(heap_account::standing())
}

/// A kept block for the object `wanted`, at a multiple of `align`; its pages hold what the object before left there.
pub fn take(state: &'static State, wanted: &Object, align: usize) -> Option<Object> {
    let mut block = if any() { kept::take(state, wanted, align) } else { None };
    if let Some(block) = &mut block {
        room::serves();
        touched::serve(state, wanted.backing.touched, block, kept::hash_of_class);
    }
    block
}

/// Notes that the program is about to change attributes of the `len` bytes at `start`, or what is mapped there: access
/// rights, locks, advice, policies, another mapping in its place. glibc unmaps a large block that is freed, and with it
/// all of that. So memory of which this was noted is not kept. For signal handlers, too.
///
/// It is not noted of an object that begins [`kept_below`] bytes or more before `start`, which is never kept; a tail
/// that realloc cuts off such an object must not be kept, either.
pub fn changing(start: usize, len: usize) {
    heap_table::mark_changed(start, start.saturating_add(len), kept_below());
}

/// Notes that larger or smaller blocks than before are kept from now on, [`kept_below`] `before` and `now`. What the
/// program did to large objects was not noted so far.
#[cold]
pub fn bounds_change(before: usize, now: usize) {
    if now > before {
        heap_table::mark_changed(0, usize::MAX, before);
    } else if now < before {
        give_way();
    }
}

/// Most bytes that may be kept elsewhere, beside a part of the objects in use.
fn highest() -> usize {
    SHARE.load(Ordering::Relaxed).min(kept_below())
}

/// Whether a block of `bytes` is never kept.
fn is_too_large(bytes: usize) -> bool {
    bytes >= kept_below() || (is_beyond_share(bytes) && !offered::is_possible())
}

/// Whether a block of `bytes` is kept only as part of what is freed together and asked for again, and as one that the
/// kernel may take, unless the program's allocator was told to keep such blocks.
fn is_beyond_share(bytes: usize) -> bool {
    bytes > highest() && kept_below() == ALWAYS_MAPPED
}

/// Keeps the memory of an object that has been taken from the heap table; false when the caller must unmap it.
fn keep(state: &'static State, object: &Object, grown: bool) -> bool {
    let current = state.rules.get(object.rule).is_some_and(|rule| rule.current_index() == object.placing);
    let bytes = object.bytes();
    let can_serve = current && !object.backing.changed && !object.waiting && !exclusion::mover_works();
    if !can_serve || is_too_large(bytes) {
        return false;
    }
    see_touched(state, object);
    let is_over = state.churn_of(object.rule).is_some_and(|churn| churn.is_over(bytes));
    if is_over || !kept::comes_again(state, object, grown) {
        return false;
    }
    if room::in_any_case() < bytes.saturating_mul(2).min(highest()) {
        raise(bytes.saturating_mul(2));
    }
    if room::is_left(standing()) {
        give_all_back(state);
    }
    let Limits { firm, most } = Limits::now();
    let limit = most.min(room::allowed_by_groups(bytes, standing()));
    if bytes > limit {
        return false;
    }
    if sum::count(bytes) > limit {
        // Of many arrays of a size that are freed together, the first stay.
        if kept::has_like(state, object) {
            sum::discount(bytes);
            give_back(state, limit);
            return false;
        }
        give_back(state, limit);
    }
    if (sum::bytes() > firm || is_beyond_share(bytes)) && !offered::offer(state, object) {
        sum::discount(bytes);
        return false;
    }
    if IS_FIRST.load(Ordering::Relaxed) {
        IS_FIRST.store(false, Ordering::Relaxed);
        FIRST.get().inspect(|first| first());
    }
    let count = COUNT.load(Ordering::Relaxed).wrapping_add(1);
    COUNT.store(count, Ordering::Relaxed);
    if count.is_multiple_of(SWEEP) {
        sweep(state, count / SWEEP);
    }
    kept::store(state, object, count / SWEEP);
    true
}

/// Bytes that may be kept beside the arrays in use.
struct Limits {
    /// So that they stay.
    firm: usize,
    /// With those that the kernel may take, see [`offered`].
    most: usize,
}

impl Limits {
    fn now() -> Limits {
        let share = if kept_below() == ALWAYS_MAPPED { SHARE.load(Ordering::Relaxed) } else { usize::MAX };
        let (of_turns, left) = (in_use::coming_again(), room::left());
        let in_any_case = room::in_any_case().max(room::part_of_live());
        let firm = in_any_case.max(of_turns.min(share)).min(left);
        let is_more = of_turns > share && offered::is_possible();
        let most = if is_more { of_turns.min(allowed()).min(left) } else { 0 };
        Limits { firm, most: most.max(firm) }
    }
}

/// Raises the limit to `wanted` bytes as far as allowed.
#[cold]
fn raise(wanted: usize) {
    let highest = highest().min(allowed());
    room::keep_in_any_case(wanted.min(highest));
}

/// Bytes that may be kept with the present limits of address space and data.
#[cold]
fn allowed() -> usize {
    let _errno = errno::Saved::now();
    (mappings::limit() / SHARE_DIVISOR) as usize
}

/// Unmaps kept blocks, one entry after the other, until `limit` bytes or none are left.
#[cold]
fn give_back(state: &'static State, limit: usize) {
    for _ in 0..kept::PLACES {
        if sum::bytes() <= limit {
            return;
        }
        // What is kept beyond those is being taken or given back by other threads.
        let Some(old) = kept::remove_any(HAND.fetch_add(1, Ordering::Relaxed)) else { return };
        unmap(state, &old);
    }
}

/// Unmaps the blocks that were freed before the sweep before number `now`.
#[cold]
fn sweep(state: &'static State, now: u32) {
    if sum::bytes() > room::part_of_live().max(in_use::coming_again()) {
        kept::remove_all(|freed| now.wrapping_sub(freed) > 1).for_each(|old| unmap(state, &old));
    }
    coming_again::release_unused();
}

/// Unmaps all kept blocks because a call of the program failed for want of memory; true if there was one, so that the
/// call may succeed now. errno stays.
#[cold]
pub fn give_way() -> bool {
    !sandbox::entered() && release_all()
}

/// As [`give_way`], for a call that asked for `bytes`: not if they could not be had then, either.
#[cold]
pub fn give_way_for(bytes: usize) -> bool {
    fitting::can_be_had(bytes) && give_way()
}

/// Unmaps all kept blocks; true if there was one.
#[cold]
pub fn release_all() -> bool {
    let of_heaps = coming_again::release_all();
    let Some(state) = crate::rules::state::get().filter(|_| any()) else { return of_heaps };
    kept::remove_all(|_| true).map(|block| unmap(state, &block)).count() > 0 || of_heaps
}

/// Unmaps all kept blocks where locks of this library may be held.
#[cold]
#[inline(never)]
fn give_all_back(state: &'static State) {
    kept::remove_all(|_| true).for_each(|block| unmap_unseen(state, &block));
    // A heap whose lock this thread holds stays as it is.
    coming_again::release_all();
}

/// Makes the first `size` bytes of a block from [`take`] zero. What the program has touched of it is written, as glibc
/// does: to lose the pages and touch them again takes ten times as long.
pub fn clear(state: &'static State, block: &Object, size: usize) {
    if matches!(block.backing.touched.pages(), Pages::New | Pages::Lost) {
        return;
    }
    if offered::is_populated(state, block) {
        // SAFETY: the block belongs to the caller, what it holds is not needed, and it is at least that large.
        unsafe { (block.base as *mut u8).write_bytes(0, size) };
    } else {
        sparse::clear(block.base, size, touched::are_read(kept::hash_of_class(state, block)));
    }
}

/// Ends an object that was taken from the heap table: checks its pages, then keeps or unmaps its memory. If the mover
/// is working on it, the mover unmaps it when its step ends. `grown`: realloc made it larger.
pub fn release(state: &'static State, object: &Object, moving: bool, grown: bool, by: ReleasedBy) {
    if left_to_mover(moving) {
        return;
    }
    if sandbox::entered() {
        if glibc::would_unmap(object.bytes()) {
            unmap(state, object);
        }
        return;
    }
    examine(state, object);
    let pages = object.as_pages();
    if !keep(state, &pages, grown) {
        unmap(state, &pages);
    }
    glibc::released(object, by);
}

/// As [`release`], for memory that is not kept, and as [`unmap_unseen`].
pub fn examine_and_unmap(state: &'static State, object: &Object, moving: bool) {
    if !left_to_mover(moving) {
        examine(state, object);
        unmap_unseen(state, object);
    }
}

/// The mover belongs to this process or to the parent that a vforked child shares memory with; a forked child has no
/// mover.
fn left_to_mover(moving: bool) -> bool {
    moving && exclusion::has_mover()
}

fn examine(state: &'static State, object: &Object) {
    if state.reports() {
        let _errno = errno::Saved::now();
        object.examine(state, object.whole(), false);
    }
}

/// Unmaps memory that is in no list any more, and returns its mappings to the budget. Calls the munmap that the
/// program's own free would, see [`of_libc`]. No lock of this library is held, since what replaces it may allocate.
pub fn unmap(state: &'static State, object: &Object) {
    // SAFETY: the program gave the object up or never got it, and the caller took it from its list.
    unmap_by(state, object, |address, len| unsafe {
        of_libc::munmap(address, len);
    });
}

/// Charges `bytes` that were mapped for an array, unless they are rent and could be kept, see [`churn`].
#[inline(never)]
pub fn charge(state: &'static State, object: &Object, bytes: usize, is_rent: bool) {
    let Some(churn) = state.churn_of(object.rule).filter(|_| bytes > 0) else { return };
    let is_rent = is_rent && kept::has_room(state, object, in_use::count());
    if let Ended::Pause { first } = churn.array_mapped(bytes, is_rent) {
        let _errno = errno::Saved::now();
        pause(state, object, first);
    }
}

/// Charges that a kept block was cut for `object`, see [`churn`].
fn charge_cut(state: &'static State, object: &Object) {
    let Some(churn) = state.churn_of(object.rule) else { return };
    if let Ended::Pause { first } = churn.array_cut(object.bytes()) {
        pause(state, object, first);
    }
}

/// Charges that realloc copied `len` bytes from a block of `from` bytes to the array at `address`, if that is placed,
/// which took `ns`.
#[inline(never)]
pub fn charge_copied(address: usize, from: usize, len: usize, ns: u64) {
    let Some(state) = crate::rules::state::get().filter(|_| !sandbox::entered()) else { return };
    let Some(object) = &heap_table::find(address) else { return };
    let Some(churn) = state.churn_of(object.rule) else { return };
    if let Ended::Pause { first } = churn.array_copied(from, object.bytes(), (len, ns)) {
        let _errno = errno::Saved::now();
        pause(state, object, first);
    }
}

/// Gives back the blocks that nothing takes any more, because objects of the rule are not placed for a while. Not
/// inlined: the message takes much of the stack.
#[cold]
#[inline(never)]
fn pause(state: &'static State, object: &Object, first: bool) {
    let take_any = || {
        let block = kept::remove_all(|_| true).next()?;
        give_mappings_of(state, &block);
        Some(block)
    };
    // One by one: the search takes more of the program's stack than there may be. What a library's munmap takes is not
    // known, so it is not called there.
    loop {
        let mut block = None;
        own_stack::run(|| block = take_any());
        let Some(block) = &block else { break };
        unmap_uncounted(block);
    }
    if let Some(rule) = state.rules.get(object.rule).filter(|_| first && state.verbose) {
        let kib = object.size.div_ceil(1024);
        say!(
            "{}: objects of about {kib} KiB come and go too often, more of them stay where they are",
            rule.rule.name()
        );
    }
}

/// As [`unmap`] by the system call itself: for small objects, under the lock of their heap, and for the thread that
/// moves pages, for which others wait.
pub fn unmap_unseen(state: &'static State, object: &Object) {
    // SAFETY: as in `unmap`.
    unmap_by(state, object, |address, len| unsafe { sys::unmap(address, len) });
}

/// As [`unmap`], for memory whose mappings have returned to the budget already.
fn unmap_uncounted(object: &Object) {
    let _errno = errno::Saved::now();
    churn::unmapped(object.bytes());
    // SAFETY: as in `unmap`.
    unsafe { of_libc::munmap(object.base as *mut c_void, object.bytes()) };
}

/// Returns the mappings of `object` to the budget. Making the plan that tells how many takes much of a stack.
fn give_mappings_of(state: &'static State, object: &Object) {
    let of_plan = || kept::loose::mappings(state, object);
    let on_own_stack = || own_stack::run_or_directly(of_plan);
    state.give_mappings(kept::loose::known_mappings(state, object).unwrap_or_else(on_own_stack));
}

fn unmap_by(state: &'static State, object: &Object, unmap: impl FnOnce(*mut c_void, usize)) {
    let _errno = errno::Saved::now();
    let is_extent = WINDOW.owns(object.base) && object.base == WINDOW.slot_start(object.base);
    churn::unmapped(object.bytes());
    give_mappings_of(state, object);
    unmap(object.base as *mut c_void, object.bytes());
    if is_extent {
        WINDOW.unmapped(object.base);
    }
}
