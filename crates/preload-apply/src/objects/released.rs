//! Memory of heap objects that the program has released: kept for the next allocation of the same rule and size, or
//! unmapped.
//!
//! An array that is allocated and freed in every step would otherwise cost a mapping, a memory policy and a page fault
//! for each page, every time. A kept block has the policy of its placing, and is used again only while that is the
//! current one of the rule, for the same node and size. It is not an object: it is neither in the heap table nor
//! checked, and the mover leaves it alone.
//!
//! Only blocks of a size that comes again are kept: of a rule and size that was allocated after one of them had been
//! freed. An array that grows leaves nothing behind.
//!
//! The blocks are in a table of sets. A thread takes an entry by a compare-and-exchange of its first word, which no
//! other thread waits for. Of a child that was forked meanwhile, that entry is lost.
//!
//! Bounds, which follow glibc's: it keeps up to twice the largest block that was freed (M_MMAP_THRESHOLD in
//! mallopt(3)).
//! - The blocks take at most twice the bytes of the largest one, at least [`LIMIT_LOWEST`] and at most
//!   [`LIMIT_HIGHEST`]; less in a process that may use little memory, see [`start`] and [`allowed`].
//! - Within that limit there must also be room for a new object that none of them serves.
//! - A rule and size has at most [`WAYS`] blocks, and a block that did not serve while [`SWEEP`] to twice as many
//!   were freed is given back.
//! - All are given back when the budget of mappings or the kernel refuses something to this library, or when an
//!   allocation, mapping or thread of the program fails for want of memory; the call is then made again.
//!
//! A program that frees nothing any more keeps what is within these bounds.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;

use numamma_hook::{errno, sandbox};
use numamma_kernel::sys;

use super::heap_table;
use super::object::Object;
use crate::phases::exclusion;
use crate::rules::small_heap::WINDOW;
use crate::rules::state::State;

/// Bytes that may be kept in any case, if no limit is low.
const LIMIT_LOWEST: usize = 1 << 20;
/// Most bytes that are ever kept: the largest block that glibc keeps (DEFAULT_MMAP_THRESHOLD_MAX).
const LIMIT_HIGHEST: usize = 32 << 20;
/// Share (1/64) of the memory and of the address space available to the process that may be kept.
const SHARE_DIVISOR: u64 = 64;
/// Sets of the table, and the blocks of a set: those of a rule and size are in one set.
const SETS: usize = 32;
const WAYS: usize = 16;
/// Bytes up to which a block is cleared by writing. A larger one loses its pages instead.
const WRITTEN: usize = 128 << 10;

/// Rules and sizes that are remembered, by a hash; a newer one replaces an older one.
const SIZES: usize = 1024;

/// Blocks that are freed between two searches for blocks that nothing asks for any more.
const SWEEP: u32 = 4096;

const EMPTY: u64 = 0;
const BUSY: u64 = 1;

struct Entry {
    /// [`EMPTY`], [`BUSY`] while a thread changes the entry, else the object's word of the heap table.
    word: AtomicU64,
    base: AtomicUsize,
    size: AtomicUsize,
    /// Number of the sweep before which the block was freed.
    freed: AtomicU32,
}

static ENTRIES: [[Entry; WAYS]; SETS] = [const {
    [const {
        Entry {
            word: AtomicU64::new(EMPTY),
            base: AtomicUsize::new(0),
            size: AtomicUsize::new(0),
            freed: AtomicU32::new(0),
        }
    }; WAYS]
}; SETS];
/// Hashes of rules and sizes that were freed. The lowest bit: they were allocated again.
static FREED: [AtomicU64; SIZES] = [const { AtomicU64::new(0) }; SIZES];
const AGAIN: u64 = 1;
/// Bytes of all kept blocks.
static KEPT: AtomicUsize = AtomicUsize::new(0);
/// Most bytes that may be kept now.
static LIMIT: AtomicUsize = AtomicUsize::new(0);
/// Most bytes that may ever be kept.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
/// The entry that is given up next.
static HAND: AtomicUsize = AtomicUsize::new(0);
/// Blocks freed so far. Threads may overwrite each other's count: how often a sweep comes need not be exact.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Called when the first block is kept, see [`start`].
static FIRST: OnceLock<fn()> = OnceLock::new();
static IS_FIRST: AtomicBool = AtomicBool::new(true);

/// Allows blocks to be kept in a process that can allocate `available` bytes. `first` is called when the first one is
/// kept: from then on failing calls must ask [`give_way`].
pub fn start(available: Option<u64>, first: fn()) {
    let _ = FIRST.set(first);
    let share = available.map_or(usize::MAX, |bytes| (bytes / SHARE_DIVISOR) as usize);
    HIGHEST.store(share.min(LIMIT_HIGHEST), Ordering::Relaxed);
    LIMIT.store(share.min(LIMIT_LOWEST), Ordering::Relaxed);
}

impl Entry {
    /// Takes the entry if its word is `word`, and returns the block in it. Only [`Entry::set`] ends that.
    fn claim(&self, word: u64) -> Option<Object> {
        // Acquire pairs with the Release of `set`: base and size belong to the word.
        self.word.compare_exchange(word, BUSY, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let (base, size) = (self.base.load(Ordering::Relaxed), self.size.load(Ordering::Relaxed));
        Some(heap_table::object_of(base, size, word))
    }

    fn set(&self, word: u64) {
        self.word.store(word, Ordering::Release);
    }

    /// Whether there is a block of the rule and size of `object`.
    fn is_like(&self, object: &Object) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let same_size = word > BUSY && self.size.load(Ordering::Relaxed) == object.size;
        same_size && heap_table::rule_of(word) == object.rule as u64
    }

    /// Removes the block, whichever it is.
    fn remove(&self) -> Option<Object> {
        let word = self.word.load(Ordering::Relaxed);
        let block = if word > BUSY { self.claim(word) } else { None }?;
        self.set(EMPTY);
        KEPT.fetch_sub(block.bytes(), Ordering::Relaxed);
        Some(block)
    }

    /// Stores `block` if the entry is empty.
    fn fill(&self, block: &Object) -> bool {
        let empty = self.word.load(Ordering::Relaxed) == EMPTY
            && self.word.compare_exchange(EMPTY, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if empty {
            self.base.store(block.base, Ordering::Relaxed);
            self.size.store(block.size, Ordering::Relaxed);
            self.freed.store(COUNT.load(Ordering::Relaxed) / SWEEP, Ordering::Relaxed);
            self.set(heap_table::word_of(block));
        }
        empty
    }
}

/// A number for rule and size. Multiplying by 2^64 divided by the golden ratio spreads the bits (Knuth, The Art of
/// Computer Programming, volume 3, 6.4).
fn hash(object: &Object) -> u64 {
    (object.size as u64 ^ (object.rule as u64) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn set_of(block: &Object) -> &'static [Entry; WAYS] {
    &ENTRIES[(hash(block) >> 32) as usize % SETS]
}

fn freed_before(object: &Object) -> &'static AtomicU64 {
    &FREED[(hash(object) >> 40) as usize % SIZES]
}

/// Called when no kept block serves `object`: gives blocks back so that they and its memory stay within the limit.
pub fn none_fits(state: &'static State, object: &Object) {
    let limit = LIMIT.load(Ordering::Relaxed).saturating_sub(object.bytes());
    if KEPT.load(Ordering::Relaxed) > limit {
        give_back(state, limit);
    }
}

/// Notes that memory for an object was mapped, see [`comes_again`].
pub fn mapped(object: &Object) {
    let (noted, hash) = (freed_before(object), hash(object) & !AGAIN);
    if noted.load(Ordering::Relaxed) == hash {
        noted.store(hash | AGAIN, Ordering::Relaxed);
    }
}

/// Whether objects of the rule and size are allocated after one of them was freed. Notes that one was freed.
fn comes_again(object: &Object) -> bool {
    let (noted, hash) = (freed_before(object), hash(object) & !AGAIN);
    let found = noted.load(Ordering::Relaxed);
    if found & !AGAIN != hash {
        noted.store(hash, Ordering::Relaxed);
    }
    found == hash | AGAIN
}

/// Whether any block is kept.
#[inline]
fn any() -> bool {
    KEPT.load(Ordering::Relaxed) > 0
}

/// A kept block for the object `wanted`, at a multiple of `align`; its pages hold what the object before left there.
pub fn take(state: &'static State, wanted: &Object, align: usize) -> Option<Object> {
    if !any() {
        return None;
    }
    let key = heap_table::key_of(heap_table::word_of(wanted));
    let rule = heap_table::rule_of(key);
    for entry in set_of(wanted) {
        let word = entry.word.load(Ordering::Relaxed);
        if word <= BUSY || entry.size.load(Ordering::Relaxed) != wanted.size || heap_table::rule_of(word) != rule {
            continue;
        }
        let Some(block) = entry.claim(word) else { continue };
        let outdated = block.rule == wanted.rule && block.placing != wanted.placing;
        let fits = heap_table::key_of(word) == key && block.size == wanted.size && block.base.is_multiple_of(align);
        if !fits && !outdated {
            entry.set(word);
            continue;
        }
        entry.set(EMPTY);
        KEPT.fetch_sub(block.bytes(), Ordering::Relaxed);
        if fits {
            return Some(block);
        }
        unmap(state, &block);
    }
    None
}

/// Keeps the memory of an object that has been taken from the heap table; false when the caller must unmap it.
fn keep(state: &'static State, object: &Object) -> bool {
    let current = state.rules.get(object.rule).is_some_and(|rule| rule.current_index() == object.placing);
    let bytes = object.bytes();
    let can_serve = current && !object.waiting && !exclusion::mover_works();
    if !can_serve || bytes > HIGHEST.load(Ordering::Relaxed) || !comes_again(object) {
        return false;
    }
    let mut limit = LIMIT.load(Ordering::Relaxed);
    if limit < bytes.saturating_mul(2).min(HIGHEST.load(Ordering::Relaxed)) {
        limit = raise(bytes.saturating_mul(2));
        if bytes > limit {
            return false;
        }
    }
    let set = set_of(object);
    if KEPT.fetch_add(bytes, Ordering::Relaxed) + bytes > limit {
        // Of many arrays of a size that are freed together, the first stay.
        if set.iter().any(|entry| entry.is_like(object)) {
            KEPT.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        give_back(state, limit);
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
    if set.iter().any(|entry| entry.fill(object)) {
        return true;
    }
    let victim = &set[HAND.fetch_add(1, Ordering::Relaxed) % WAYS];
    if let Some(old) = victim.remove() {
        unmap(state, &old);
        if victim.fill(object) {
            return true;
        }
    }
    KEPT.fetch_sub(bytes, Ordering::Relaxed);
    false
}

/// Raises the limit to `wanted` bytes as far as allowed; returns the new limit.
#[cold]
fn raise(wanted: usize) -> usize {
    let highest = HIGHEST.load(Ordering::Relaxed).min(allowed());
    let limit = wanted.min(highest);
    LIMIT.fetch_max(limit, Ordering::Relaxed).max(limit)
}

/// Bytes that may be kept with the present limits of address space and data.
fn allowed() -> usize {
    let limit = |resource: u32| {
        let mut found = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the kernel fills the structure; no limit is set.
        unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, core::ptr::null::<libc::rlimit>(), &raw mut found) };
        found.rlim_cur
    };
    (limit(libc::RLIMIT_AS).min(limit(libc::RLIMIT_DATA)) / SHARE_DIVISOR) as usize
}

/// Unmaps kept blocks, one entry after the other, until `limit` bytes or none are left.
#[cold]
fn give_back(state: &'static State, limit: usize) {
    for _ in 0..SETS * WAYS {
        if KEPT.load(Ordering::Relaxed) <= limit {
            return;
        }
        let number = HAND.fetch_add(1, Ordering::Relaxed) % (SETS * WAYS);
        if let Some(old) = ENTRIES[number % SETS][number / SETS].remove() {
            unmap(state, &old);
        }
    }
}

/// Unmaps the blocks that were freed before the sweep before number `now`.
#[cold]
fn sweep(state: &'static State, now: u32) {
    for entry in ENTRIES.iter().flatten() {
        if now.wrapping_sub(entry.freed.load(Ordering::Relaxed)) > 1
            && let Some(old) = entry.remove()
        {
            unmap(state, &old);
        }
    }
}

/// Unmaps all kept blocks because a call of the program failed for want of memory; true if there was one, so that the
/// call may succeed now. errno stays.
#[cold]
pub fn give_way() -> bool {
    !sandbox::entered() && release_all()
}

/// Unmaps all kept blocks; true if there was one.
#[cold]
pub fn release_all() -> bool {
    let Some(state) = crate::rules::state::get().filter(|_| any()) else { return false };
    let blocks = ENTRIES.iter().flatten().filter_map(Entry::remove);
    blocks.map(|block| unmap(state, &block)).count() > 0
}

/// Unmaps all kept blocks if the budget of mappings is too small for `object`, whose mappings replace `old` ones.
pub fn make_room(state: &'static State, object: &Object, old: u64) {
    let wanted = || object.mappings(state, object.whole()).saturating_sub(old);
    if any() && state.used_mappings().saturating_add(wanted()) > state.budget() {
        release_all();
    }
}

/// Makes the first `size` bytes of a block from [`take`] zero. `populated`: its pages must stay.
pub fn clear(block: &Object, size: usize, populated: bool) {
    if !populated && size > WRITTEN {
        // SAFETY: the block belongs to the caller, and what it holds is not needed.
        let dropped = unsafe { sys::advise(block.base as *mut c_void, block.bytes(), libc::MADV_DONTNEED) };
        if dropped {
            return;
        }
    }
    // SAFETY: as above; the block is at least as large as the object.
    unsafe { (block.base as *mut u8).write_bytes(0, size) };
}

/// Ends an object that was taken from the heap table: checks its pages, then keeps or unmaps its memory. If the mover
/// is working on it, the mover unmaps it when its step ends.
pub fn release(state: &'static State, object: &Object, moving: bool) {
    if left_to_mover(moving) {
        return;
    }
    examine(state, object);
    if !keep(state, object) {
        unmap(state, object);
    }
}

/// As [`release`], for memory that is not kept.
pub fn examine_and_unmap(state: &'static State, object: &Object, moving: bool) {
    if !left_to_mover(moving) {
        examine(state, object);
        unmap(state, object);
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

/// Unmaps memory that is in no list any more, and returns its mappings to the budget.
pub fn unmap(state: &'static State, object: &Object) {
    let _errno = errno::Saved::now();
    state.give_mappings(object.mappings(state, object.whole()));
    // SAFETY: the program gave the object up or never got it, and the caller took it from its list.
    unsafe {
        match WINDOW.owns(object.base) && object.base == WINDOW.slot_start(object.base) {
            true => WINDOW.unmap(object.base, object.bytes()),
            false => sys::unmap(object.base as *mut c_void, object.bytes()),
        }
    }
}
