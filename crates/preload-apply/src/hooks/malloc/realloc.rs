//! realloc and reallocarray.
//!
//! A placed object of pages stays where it is or is moved by the kernel ([`growth`], [`cut`]). It is copied where its
//! rule asks for other pages than it has, where it is small, and where the kernel cannot move it;
//! the copy takes the place of the old object step by step ([`contents`]). On failure the old object is as it was.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

use numamma_hook::entry::Caller;
use numamma_hook::real::in_effect::{self, Member};
use numamma_hook::{errno, real, sandbox};
use numamma_kernel::clock;
use numamma_kernel::sys::PAGE;
use numamma_plan::plan::HUGE_PAGE;

use super::super::contained;
use super::{Ptr, malloc_or_give_way, or_give_way, place_matched, plain};
use crate::matching::cached::groups::Taker;
use crate::matching::cached::{decided, unmatched};
use crate::matching::call_sites;
use crate::objects::heap::{ROOM_DIVISOR, Wanted, colour, contents, cut, growth, small_growth};
use crate::objects::heap_table::NO_RULE;
use crate::objects::object::Object;
use crate::objects::released;
use crate::objects::released::glibc::{self, ReleasedBy};
use crate::objects::small_objects::Small;
use crate::objects::{heap, heap_table, small_objects};
use crate::rules::churn::allocator;
use crate::rules::state;

/// An object that was made smaller and larger again keeps its pages when it is made smaller once more, down to this
/// part (1/8) of them: a scratch buffer that follows what it holds up and down, which glibc cuts from its heap at no
/// cost. Up to a huge page. And of the last few that were cut, so that buffers which are large in turn do not all keep
/// their largest size.
const SWING: usize = 8;
/// The same part (1/2) of larger ones, which take more memory: of those that glibc would have in its heap. What it maps
/// it cuts and maps again as well.
const LARGE_SWING: usize = 2;

/// Objects that were cut last.
static LAST_CUT: Noted<4> = Noted::new();
/// Blocks of the program's allocator that were made smaller last.
static LAST_SHRUNK: Noted<16> = Noted::new();

/// A few addresses, of which a newer one replaces the oldest.
struct Noted<const COUNT: usize> {
    last: [AtomicUsize; COUNT],
    /// How many there have been.
    count: AtomicUsize,
}

impl<const COUNT: usize> Noted<COUNT> {
    const fn new() -> Noted<COUNT> {
        Noted { last: [const { AtomicUsize::new(0) }; COUNT], count: AtomicUsize::new(0) }
    }

    fn find(&self, address: usize) -> Option<&AtomicUsize> {
        self.last.iter().find(|last| last.load(Ordering::Relaxed) == address)
    }

    fn note(&self, address: usize) {
        if self.find(address).is_none() {
            let next = self.count.fetch_add(1, Ordering::Relaxed) % COUNT;
            self.last[next].store(address, Ordering::Relaxed);
        }
    }

    fn moved(&self, from: usize, to: usize) {
        self.find(from).inspect(|last| last.store(to, Ordering::Relaxed));
    }
}

/// realloc(3).
///
/// # Safety
/// C's contract; `ra`, `cfa` and `rbp` come from the entry stub.
pub unsafe extern "C" fn realloc(ptr: Ptr, size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    // SAFETY: C's contract; the caller as the stub saw it.
    unsafe {
        if let Some(resized) = resize(ptr, size, &Caller { ra, cfa, rbp }) {
            return resized;
        }
        // The size of a block of another allocator may be unknown, and with it how much to copy.
        let movable = ptr.is_null() || (size > 0 && in_effect::measures());
        // For no bytes realloc frees and returns null.
        let real = || if size > 0 { or_give_way(size, || real::realloc(ptr, size)) } else { real::realloc(ptr, size) };
        if unmatched::is_unmatched(ra, cfa) || !movable {
            return real();
        }
        let known = if ptr.is_null() { 0 } else { real::malloc_usable_size(ptr) };
        let shrinks = known.saturating_sub(size) > known / UNUSED_DIVISOR;
        let swings = shrinks || (known > 0 && LAST_SHRUNK.find(ptr as usize).is_some());
        match place_matched(Member::Realloc, Wanted { swings, ..resized(size) }, &Caller { ra, cfa, rbp }) {
            None => {
                let resized = real();
                if shrinks && !resized.is_null() {
                    LAST_SHRUNK.note(resized as usize);
                } else if swings && !resized.is_null() {
                    LAST_SHRUNK.moved(ptr as usize, resized as usize);
                }
                resized
            }
            Some(fresh) => {
                if !ptr.is_null() {
                    take_over(ptr as usize, fresh, known.min(size), known);
                    glibc::free_replaced(ptr, known);
                }
                fresh
            }
        }
    }
}

/// reallocarray(3).
///
/// # Safety
/// See [`realloc`].
pub unsafe extern "C" fn reallocarray(ptr: Ptr, count: usize, size: usize, ra: usize, cfa: usize, rbp: usize) -> Ptr {
    if !in_effect::returns(Member::Reallocarray) {
        // SAFETY: forwarded unchanged: the C library's calls the realloc of the program.
        return unsafe { real::reallocarray(ptr, count, size) };
    }
    match count.checked_mul(size) {
        // SAFETY: as in `realloc`.
        Some(bytes) => unsafe { realloc(ptr, bytes, ra, cfa, rbp) },
        None => {
            errno::set(libc::ENOMEM);
            core::ptr::null_mut()
        }
    }
}

/// Changes the size of a placed object as realloc does; `None` when `ptr` is no placed object.
///
/// # Safety
/// C's contract of realloc; `caller` comes from an entry stub.
pub unsafe fn resize(ptr: Ptr, size: usize, caller: &Caller) -> Option<Ptr> {
    // SAFETY: C's contract: the program gives the old object up.
    unsafe {
        if let Some(resized) = resize_if_small(ptr, size, caller) {
            return Some(resized);
        }
        if !heap_table::possible(ptr as usize) {
            return None;
        }
        // By reference: no second copy of it is in the stack frame.
        heap_table::find(ptr as usize).as_ref().map(|old| resize_pages(old, size, caller))
    }
}

/// As [`resize`], for a small placed object. Not inlined: what it holds would be in the stack frame of larger ones,
/// too.
#[inline(never)]
unsafe fn resize_if_small(ptr: Ptr, size: usize, caller: &Caller) -> Option<Ptr> {
    let small = small_objects::find(ptr as usize)?;
    // SAFETY: the caller's promise.
    Some(unsafe { resize_small(ptr, &small, size, caller) })
}

/// The rule under which an object of rule `owner` is after realloc changed it to `size` bytes: its own, unless a rule
/// of another call site claims the object, which has counted it then.
///
/// # Safety
/// `caller` comes from an entry stub.
unsafe fn rule_after(owner: usize, size: usize, caller: &Caller) -> usize {
    let _errno = errno::Saved::now();
    // SAFETY: the caller's promise.
    contained(|| unsafe { call_sites::find(caller, size, Some(owner)) }).unwrap_or(owner)
}

/// Rules of a small object that realloc changes.
struct Claim {
    /// From now on.
    rule: usize,
    /// So far; [`NO_RULE`] if it was another one, whichever.
    before: usize,
}

/// As [`rule_after`], for a small object. Of one in a heap that rules share it is only known that it is of one of these.
/// If the one that takes such an object here has objects there, it is of that, as most are changed where they were made;
/// else it becomes one of that.
///
/// # Safety
/// `caller` comes from an entry stub.
unsafe fn claim_small(small: &Small, size: usize, caller: &Caller) -> Claim {
    if !small.is_shared() {
        // SAFETY: the caller's promise.
        return Claim { rule: unsafe { rule_after(small.rule, size, caller) }, before: small.rule };
    }
    let shares = |rule: usize| {
        let taker = state::get().and_then(|state| state.rules.get(rule));
        taker.is_some_and(|taker| taker.shares_heaps_of() == Some(small.rule) && taker.shares())
    };
    // SAFETY: the caller's promise.
    let known = unsafe { decided::look_up(caller) };
    let rule = match call_sites::taker(known, size) {
        Taker::Rule(rule) if shares(rule) => rule,
        // SAFETY: the caller's promise.
        _ => unsafe { rule_after(NO_RULE, size, caller) },
    };
    match rule {
        NO_RULE => Claim { rule: small.rule, before: small.rule },
        _ if shares(rule) => Claim { rule, before: rule },
        _ => Claim { rule, before: NO_RULE },
    }
}

/// What realloc asks for.
fn resized(size: usize) -> Wanted {
    Wanted { resized: true, ..plain(size) }
}

/// A placed object under `rule` that replaces one under rule `owner`. If the rules differ it counts as new. `None` when
/// the real allocator must provide it.
fn place_instead(owner: usize, rule: usize, wanted: Wanted) -> Option<Ptr> {
    if sandbox::entered() {
        return None;
    }
    let _errno = errno::Saved::now();
    let place = if rule == owner { heap::place_under } else { heap::place_new };
    contained(|| place(state::get()?, rule, wanted)).map(|address| address as Ptr)
}

/// Bytes of the whole pages of a new object; 0 when it shares pages or is not placed.
fn owned(fresh: Ptr) -> usize {
    heap_table::find(fresh as usize).map_or(0, |object| object.usable())
}

/// Copies `len` bytes of a block of `known` bytes at `from` to `fresh`, and charges that if the new one has pages of
/// its own.
///
/// # Safety
/// As [`contents::take_over`].
#[inline(never)]
unsafe fn take_over(from: usize, fresh: Ptr, len: usize, known: usize) {
    let owned = owned(fresh);
    let begun = if owned > 0 { clock::monotonic_ns() } else { 0 };
    // SAFETY: the caller's promise.
    unsafe { contents::take_over(from, fresh as usize, len, owned) };
    if owned > 0 {
        released::charge_copied(fresh as usize, known, len, clock::monotonic_ns().saturating_sub(begun));
    }
}

/// Changes the size of a placed object of whole pages.
#[cold]
#[inline(never)]
unsafe fn resize_pages(old: &Object, size: usize, caller: &Caller) -> Ptr {
    if size == 0 {
        heap::release(old.address(), ReleasedBy::Free);
        // SAFETY: the object is not used any more.
        return unsafe { resized_to_nothing() };
    }
    if size >= PAGE && colour::pages_of(size, old.colour) == old.pages {
        heap_table::resize(old.base, size);
        return old.address() as Ptr;
    }
    // SAFETY: the caller's promise.
    unsafe {
        if colour::pages_of(size, old.colour) > old.pages {
            grow_pages(old, size, caller)
        } else {
            shrink_pages(old, size, caller)
        }
    }
}

/// Bytes for an object of `size` that grows again and again. Not more than a huge page if it fits into one: what is
/// larger begins at a huge page, and is cut when it swings, see [`SWING`].
fn with_room(size: usize) -> usize {
    let most = if size <= HUGE_PAGE as usize { HUGE_PAGE as usize } else { usize::MAX };
    size.saturating_add(size / ROOM_DIVISOR).min(most)
}

/// How an object of whole pages grows.
struct Growth<'a> {
    old: &'a Object,
    /// Bytes that are wanted, and with room to grow again.
    size: usize,
    room: usize,
    /// Its rule from now on.
    rule: usize,
    /// See [`heap_table::note`].
    history: u64,
}

/// Notes where an object went that may have been cut.
fn note_moved(old: &Object, now: Ptr) {
    LAST_CUT.moved(old.address(), now as usize);
}

/// Not inlined, as [`shrink_pages`] and what it calls: each holds much, which would be in the stack frame of the
/// others.
#[inline(never)]
unsafe fn grow_pages(old: &Object, size: usize, caller: &Caller) -> Ptr {
    let history = heap_table::history(old.base);
    let room = if history & heap_table::GROWN != 0 { with_room(size) } else { size };
    // An object that lost its place has no rule, and none claims it.
    // SAFETY: the caller as the stub saw it.
    let rule = if old.rule == NO_RULE { NO_RULE } else { unsafe { rule_after(old.rule, size, caller) } };
    let growth = Growth { old, size, room, rule, history };
    if let Some(moved) = without_copy(|state| growth::grow(state, old, size, room, rule)) {
        note_moved(old, moved);
        return moved;
    }
    // SAFETY: the promise of the caller.
    unsafe { growth.copy() }
}

#[inline(never)]
fn without_copy(grow: impl FnOnce(&'static state::State) -> Option<usize>) -> Option<Ptr> {
    let _errno = errno::Saved::now();
    contained(|| grow(state::get()?)).map(|address| address as Ptr)
}

impl Growth<'_> {
    /// A larger copy of the object, which is given up; if there is no memory for that, the object where it grew.
    ///
    /// # Safety
    /// The program gives the object up.
    #[inline(never)]
    unsafe fn copy(&self) -> Ptr {
        let Growth { old, size, room, rule, history } = *self;
        let before = errno::get();
        let placed = place_instead(old.rule, rule, Wanted { grows: true, ..resized(room) });
        // SAFETY: plain allocation.
        let fresh = placed.unwrap_or_else(|| unsafe { malloc_or_give_way(size) });
        if fresh.is_null() {
            let moved = without_copy(|state| growth::grow_unplaced(state, old, size));
            errno::set(if moved.is_some() { before } else { libc::ENOMEM });
            return moved.unwrap_or(core::ptr::null_mut());
        }
        heap_table::note(fresh as usize, history | heap_table::GROWN);
        note_moved(old, fresh);
        // SAFETY: the copy stays inside both blocks, and the program gives the old one up.
        unsafe { take_over(old.address(), fresh, old.usable().min(size), old.bytes()) };
        heap::release(old.address(), ReleasedBy::Realloc);
        fresh
    }
}

/// Never fails: what cannot be made smaller stays as it is, and so does what takes system calls to be made smaller in a
/// process that has confined itself.
#[inline(never)]
unsafe fn shrink_pages(old: &Object, size: usize, caller: &Caller) -> Ptr {
    let (base, history) = (old.address() as Ptr, heap_table::history(old.base));
    if sandbox::entered() {
        return base;
    }
    let has_swung = history == heap_table::GROWN | heap_table::CUT && LAST_CUT.find(old.address()).is_some();
    let kept = match old.bytes() {
        bytes if has_swung && bytes <= HUGE_PAGE as usize => bytes / SWING,
        bytes if has_swung && bytes < allocator::mapped_from() => bytes / LARGE_SWING,
        bytes => bytes - bytes / (ROOM_DIVISOR / 2),
    };
    if history & heap_table::GROWN != 0 && size > kept {
        return base;
    }
    let _errno = errno::Saved::now();
    if size < PAGE {
        // SAFETY: the caller as the stub saw it; plain allocation; the copy stays inside both blocks.
        unsafe {
            let rule = rule_after(old.rule, size, caller);
            let placed = place_instead(old.rule, rule, resized(size));
            let fresh = placed.unwrap_or_else(|| malloc_or_give_way(size));
            if !fresh.is_null() {
                core::ptr::copy_nonoverlapping(base.cast::<u8>(), fresh.cast(), size);
                heap::release(old.address(), ReleasedBy::Realloc);
                return fresh;
            }
        }
    }
    contained(|| cut::shrink(state::get()?, old, size));
    LAST_CUT.note(old.address());
    base
}

/// What the real allocator returns for a block that is resized to 0 bytes, which C leaves open: null, or a block.
unsafe fn resized_to_nothing() -> Ptr {
    // SAFETY: a block of the real allocator, which is given up.
    unsafe {
        let block = real::malloc(1);
        if block.is_null() { block } else { real::realloc(block, 0) }
    }
}

/// Part (1/8) of a small object, or of a block of the program's allocator, that may stay unused when it becomes smaller:
/// about what size classes waste.
const UNUSED_DIVISOR: usize = 8;

/// Changes the size of a small placed object.
#[cold]
#[inline(never)]
unsafe fn resize_small(old: *mut c_void, small: &Small, size: usize, caller: &Caller) -> Ptr {
    let known = small.usable();
    // SAFETY: C's contract: the program gives the old object up; the copy stays inside both, which cannot overlap.
    unsafe {
        if size == 0 {
            small.release();
            return resized_to_nothing();
        }
        if size <= known && known - size <= known / UNUSED_DIVISOR {
            return old;
        }
        let Claim { rule, before } = claim_small(small, size, caller);
        if rule == before
            && let Some(resized) = small_growth::resize(small, size)
        {
            return resized as Ptr;
        }
        let fresh = place_instead(before, rule, resized(size)).unwrap_or_else(|| malloc_or_give_way(size));
        if !fresh.is_null() {
            core::ptr::copy_nonoverlapping(old.cast::<u8>(), fresh.cast(), size.min(known));
            small.release();
        }
        fresh
    }
}
