//! What heaps for small objects keep while they are empty, because objects come again: buffers that each call of a
//! function allocates and frees, lists that each step of the program builds and frees. Otherwise their pages would be
//! new each time.
//!
//! A heap that has become empty several times may keep what it needs up to a bound that is small for all heaps
//! together; one that has so very often, or had about the same objects each time, up to a bound as large as that of
//! kept arrays. Its memory is given back when it has not been used while other heaps allocated and freed several times
//! as much, for the time of its [patience] at least; and when memory is short, as is that of the heaps which are
//! patient with objects in them.
//!
//! One that has mapped anew several times what it needs keeps that whatever its size is: as kept arrays it is given
//! back when it would stand beside other memory (see `objects/released/room.rs`).

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;

use numamma_hook::{fork_wiped, sandbox};
use numamma_kernel::clock;

use super::extent::HeapAddress;
use super::{heap_account, patience};

/// How much a heap may keep while it is empty.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It has become empty often.
    Little,
    /// It has become empty very often, or often with about the same objects each time, and needs little.
    Much,
    /// The same, and it needs more than [`MOST_SMALL`].
    Large,
    /// It has mapped anew several times what it needs.
    Together,
}

/// Bytes up to which a heap needs little: many rules and threads have such heaps, so that all of them together must not
/// keep more than objects had at a time.
pub const MOST_SMALL: usize = 512 << 10;

/// Bytes that the heaps of a class keep together, and the most that they may.
struct Bound {
    kept: AtomicUsize,
    highest: AtomicUsize,
}

static BOUNDS: [Bound; 4] = [const { Bound { kept: AtomicUsize::new(0), highest: AtomicUsize::new(0) } }; 4];
/// Bytes that the heaps which need little keep however few there have been at a time.
const LEAST: usize = 2 << 20;
/// Part (1/4) of the most bytes that objects had at a time by which heaps may keep more, as arrays may.
const MORE_DIVISOR: usize = 4;
/// Bytes that all heaps together may map anew beyond several times what they need, until they keep that.
pub const LENT: usize = 1 << 30;
/// What is left of that.
static LEFT: AtomicUsize = AtomicUsize::new(LENT);
/// See [`keep_below`].
static ALLOWED: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The heaps that have kept memory, linked by [`Link`].
static HEAPS: AtomicPtr<Link> = AtomicPtr::new(ptr::null_mut());
/// The number of the process in which a thread gives heaps back, or 0: of a child that was forked meanwhile, none does.
static GIVING: AtomicU32 = AtomicU32::new(0);
/// When heaps that are not used were last looked for, ns.
static LOOKED: AtomicU64 = AtomicU64::new(0);
/// Called before memory is kept for the first time, see [`keep_at_most`].
static FIRST: OnceLock<fn()> = OnceLock::new();

/// Why heaps give memory back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Others need it.
    Needed,
    /// The process forks, see `objects/released/forks.rs`.
    Forks,
    /// It has not been used for long at this time, ns. Only then is it given back.
    Unused(u64),
}

/// Makes a heap give back what it does not need. True if there was any.
pub type Release = fn(HeapAddress, Why) -> bool;

/// The place of a heap in the list of those that have kept memory. They stay in it.
pub struct Link {
    release: Release,
    heap: AtomicUsize,
    is_in: AtomicBool,
    next: AtomicPtr<Link>,
}

impl Link {
    /// The link of a heap that is not in the list yet.
    pub const fn new(release: Release) -> Link {
        Link {
            release,
            heap: AtomicUsize::new(0),
            is_in: AtomicBool::new(false),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

/// Lets heaps that become empty again and again keep up to `little` bytes together, those that may keep much up to
/// `much` bytes, and those that have mapped anew what they need several times up to `most` bytes. `first` is called
/// before that: from then on failing calls must ask [`release_all`].
pub fn keep_at_most(little: usize, much: usize, most: usize, first: fn()) {
    let _ = FIRST.set(first);
    let all = [(Class::Little, little), (Class::Much, much), (Class::Large, much), (Class::Together, most)];
    for (class, bytes) in all {
        BOUNDS[class as usize].highest.store(bytes, Ordering::Relaxed);
    }
}

/// Lets heaps keep no more than `bytes` from now on, because the control group of the process has no more.
pub fn keep_below(bytes: usize) {
    ALLOWED.store(bytes, Ordering::Relaxed);
}

/// Whether `bytes` more may be kept; counted if so.
pub fn take(class: Class, bytes: usize) -> bool {
    let fits = BOUNDS[class as usize].kept.fetch_add(bytes, Ordering::Relaxed) + bytes <= highest(class);
    if !fits {
        give(class, bytes);
    }
    fits
}

/// Whether `bytes` more may be kept now.
pub fn has_room(class: Class, bytes: usize) -> bool {
    BOUNDS[class as usize].kept.load(Ordering::Relaxed).saturating_add(bytes) <= highest(class)
}

/// Takes `bytes` of [`LENT`]; false if they are not left.
pub fn lend(bytes: usize) -> bool {
    LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
}

fn highest(class: Class) -> usize {
    let most = heap_account::most();
    let most = match class {
        Class::Little | Class::Much => most.max(LEAST),
        Class::Large => usize::MAX,
        Class::Together => most + most / MORE_DIVISOR + LEAST,
    };
    BOUNDS[class as usize].highest.load(Ordering::Relaxed).min(most).min(ALLOWED.load(Ordering::Relaxed))
}

/// Takes back what [`take`] counted.
pub fn give(class: Class, bytes: usize) {
    BOUNDS[class as usize].kept.fetch_sub(bytes, Ordering::Relaxed);
}

/// Bytes that heaps may keep so now.
pub fn kept() -> usize {
    BOUNDS.iter().map(|bound| bound.kept.load(Ordering::Relaxed)).sum()
}

/// Notes that the heap with this link keeps memory from now on.
#[inline]
pub fn enter(link: &'static Link, heap: HeapAddress) {
    if !link.is_in.load(Ordering::Relaxed) {
        enter_first(link, heap);
    }
}

#[cold]
fn enter_first(link: &'static Link, heap: HeapAddress) {
    if link.is_in.swap(true, Ordering::Relaxed) {
        return;
    }
    FIRST.get().inspect(|first| first());
    link.heap.store(heap.0, Ordering::Relaxed);
    let own = ptr::from_ref(link).cast_mut();
    let mut next = HEAPS.load(Ordering::Relaxed);
    loop {
        link.next.store(next, Ordering::Relaxed);
        // Release: who finds the heap in the list sees it as it is.
        match HEAPS.compare_exchange_weak(next, own, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => next = now,
        }
    }
}

/// Gives back the memory of heaps that has not been used for long, if that was not done a short time ago.
pub fn release_unused() {
    if HEAPS.load(Ordering::Relaxed).is_null() || sandbox::entered() {
        return;
    }
    let now = clock::coarse_ns();
    if now.saturating_sub(LOOKED.load(Ordering::Relaxed)) >= patience::SHORTEST_NS / 2 {
        LOOKED.store(now, Ordering::Relaxed);
        release(Why::Unused(now));
    }
}

/// Gives back what all heaps keep that they do not need; true if there was any.
pub fn release_all() -> bool {
    release_for(Why::Needed)
}

/// As [`release_all`], before the process forks.
pub fn release_before_fork() -> bool {
    release_for(Why::Forks)
}

fn release_for(why: Why) -> bool {
    !HEAPS.load(Ordering::Relaxed).is_null() && !sandbox::entered() && release(why)
}

#[inline(never)]
fn release(why: Why) -> bool {
    let (giving, own) = (GIVING.load(Ordering::Relaxed), fork_wiped::generation());
    if giving == own || GIVING.compare_exchange(giving, own, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return false;
    }
    let (mut any, mut next) = (false, HEAPS.load(Ordering::Acquire));
    // SAFETY: null, or the link of a heap, which is never freed.
    while let Some(link) = unsafe { next.as_ref() } {
        any |= (link.release)(HeapAddress(link.heap.load(Ordering::Relaxed)), why);
        next = link.next.load(Ordering::Relaxed);
    }
    GIVING.store(0, Ordering::Release);
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_keeps_no_more_than_it_may() {
        keep_at_most(1000, 5000, 9000, || {});
        assert!(take(Class::Little, 900) && !take(Class::Little, 200) && take(Class::Much, 4000));
        give(Class::Little, 900);
        assert!(take(Class::Little, 1000) && !take(Class::Much, 2000));
        give(Class::Little, 1000);
        give(Class::Much, 4000);
        assert!(has_room(Class::Together, 9000) && !has_room(Class::Together, 9001));
        keep_at_most(0, 0, 0, || {});
    }

    #[test]
    fn a_thread_that_was_not_forked_keeps_no_other_from_giving_back() {
        let other = fork_wiped::generation() + 1;
        GIVING.store(other, Ordering::Relaxed);
        release(Why::Needed);
        assert_eq!(GIVING.load(Ordering::Relaxed), 0);
        GIVING.store(fork_wiped::generation(), Ordering::Relaxed);
        assert!(!release(Why::Needed) && GIVING.swap(0, Ordering::Relaxed) > 0);
    }
}
