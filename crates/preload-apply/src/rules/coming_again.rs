//! What heaps for small objects keep while they are empty, because the same objects come again: lists that each step of
//! the program builds and frees. Otherwise the pages of such a list would be new in each step.
//!
//! A heap that has become empty several times may keep what it needs up to a bound that is small; one that had about the
//! same objects each time, up to a bound as large as that of kept arrays. The memory of such heaps is given back when it
//! has not been used while other heaps allocated and freed several times as much, and when memory is short.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::OnceLock;

use numamma_hook::sandbox;

use super::heap_account;
use super::small_heap::Heap;

/// Empty heaps with much memory that can be given back.
const PLACES: usize = 64;
/// A heap that kept memory is given up when this many times as much was allocated and freed elsewhere.
const UNUSED: usize = 8;

/// Why a heap keeps memory while it is empty.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It has become empty often.
    Often,
    /// It has become empty often with about the same objects each time.
    Alike,
}

/// Bytes that the heaps of a class keep together, and the most that they may.
struct Bound {
    kept: AtomicUsize,
    highest: AtomicUsize,
}

static BOUNDS: [Bound; 2] = [const { Bound { kept: AtomicUsize::new(0), highest: AtomicUsize::new(0) } }; 2];

/// An empty heap of [`Class::Alike`].
struct Place {
    heap: AtomicPtr<Heap>,
    bytes: AtomicUsize,
    /// What all heaps had turned over when it was empty last.
    since: AtomicUsize,
}

static EMPTY: [Place; PLACES] =
    [const { Place { heap: AtomicPtr::new(ptr::null_mut()), bytes: AtomicUsize::new(0), since: AtomicUsize::new(0) } };
        PLACES];
/// A thread gives heaps back. Of a child that was forked meanwhile, none does.
static GIVING: AtomicBool = AtomicBool::new(false);
/// Called before much memory is kept for the first time, see [`keep_at_most`].
static FIRST: OnceLock<fn()> = OnceLock::new();

/// Lets heaps that become empty again and again keep up to `often` bytes together, and those that have the same objects
/// each time up to `alike` bytes. `first` is called before that: from then on failing calls must ask [`release_all`].
pub fn keep_at_most(often: usize, alike: usize, first: fn()) {
    let _ = FIRST.set(first);
    for (class, bytes) in [(Class::Often, often), (Class::Alike, alike)] {
        BOUNDS[class as usize].highest.store(bytes, Ordering::Relaxed);
    }
}

/// Whether `bytes` more may be kept; counted if so.
pub fn take(class: Class, bytes: usize) -> bool {
    let bound = &BOUNDS[class as usize];
    let fits = bound.kept.fetch_add(bytes, Ordering::Relaxed) + bytes <= bound.highest.load(Ordering::Relaxed);
    if !fits {
        give(class, bytes);
    } else if class == Class::Alike {
        FIRST.get().inspect(|first| first());
    }
    fits
}

/// Takes back what [`take`] counted.
pub fn give(class: Class, bytes: usize) {
    BOUNDS[class as usize].kept.fetch_sub(bytes, Ordering::Relaxed);
}

/// Notes that `heap` is empty now and keeps `bytes`.
pub fn note_empty(heap: &Heap, bytes: usize) {
    let own = ptr::from_ref(heap).cast_mut();
    let found = EMPTY.iter().find(|place| place.heap.load(Ordering::Relaxed) == own);
    let vacant = || {
        let try_one = |place: &&Place| {
            place.heap.compare_exchange(ptr::null_mut(), own, Ordering::Release, Ordering::Relaxed).is_ok()
        };
        EMPTY.iter().find(try_one)
    };
    if let Some(place) = found.or_else(vacant) {
        place.bytes.store(bytes, Ordering::Relaxed);
        place.since.store(heap_account::turned_over(), Ordering::Relaxed);
    }
}

/// Gives back the memory of heaps that has not been used for long.
pub fn release_unused() {
    release(|place| {
        let turned = heap_account::turned_over().wrapping_sub(place.since.load(Ordering::Relaxed));
        turned / UNUSED > place.bytes.load(Ordering::Relaxed)
    });
}

/// Gives back the memory of all empty heaps; true if there was one.
pub fn release_all() -> bool {
    release(|_| true)
}

#[inline]
fn release(wanted: impl Fn(&Place) -> bool) -> bool {
    if BOUNDS[Class::Alike as usize].kept.load(Ordering::Relaxed) == 0 || sandbox::entered() {
        return false;
    }
    if GIVING.swap(true, Ordering::Acquire) {
        return false;
    }
    let mut any = false;
    for place in &EMPTY {
        // SAFETY: null, or a heap, which is never freed.
        let heap = unsafe { place.heap.load(Ordering::Acquire).as_ref() };
        if let Some(heap) = heap.filter(|_| wanted(place))
            && heap.unmap_if_empty()
        {
            place.heap.store(ptr::null_mut(), Ordering::Relaxed);
            any = true;
        }
    }
    GIVING.store(false, Ordering::Release);
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_keeps_no_more_than_it_may() {
        keep_at_most(1000, 5000, || {});
        assert!(take(Class::Often, 900) && !take(Class::Often, 200) && take(Class::Alike, 4000));
        give(Class::Often, 900);
        assert!(take(Class::Often, 1000) && !take(Class::Alike, 2000));
        give(Class::Often, 1000);
        give(Class::Alike, 4000);
        keep_at_most(0, 0, || {});
    }
}
