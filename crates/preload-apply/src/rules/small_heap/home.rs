//! The heaps of one placing of a rule: one until threads meet there.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use numamma_hook::{allocating, errno, sandbox};
use numamma_kernel::clock;
use numamma_plan::policy::PolicyKind;

use super::Heap;
use super::caches::Caches;
use super::chunk::ALIGN;
use super::lock::{Held, Locked};
use super::source::{Extents, Owner};
use super::turnover::Freed;
use crate::rules::patience::{REGRET_PAGES, WINDOW_NS};

/// Most heaps of a home; a power of two. A home uses one heap until threads meet there, and then one for each thread up
/// to this number: of more threads than processors most that are interrupted hold the lock of a heap.
pub(super) const HEAPS: usize = 64;
/// A home gets more heaps when more than every 64th allocation meets another thread, among as many meetings.
const MEETINGS: u32 = 64;
const OFTEN_MET: u32 = 64;
/// Heaps tried before the real allocator is called.
const TRIES: usize = 6;
/// Times that a thread waits for the only heap of a home.
const PATIENT: u32 = 3;
/// Tries of the only heap of a home until it gets a second one even so: with [`super::WAIT_NS`] each, the time slice of
/// a thread that is interrupted while it holds the lock. A second heap of each home takes memory for all of the run.
const TRIES_ALONE: usize = 24;

/// Memory for the small objects of one placing of a rule; for `local`, of one node of the placing.
pub struct Home {
    pub(super) owner: Owner,
    pub(super) extents: Extents,
    /// Heaps in use: 1 to [`HEAPS`], a power of two.
    pub(super) in_use: AtomicUsize,
    /// Times that a thread met another one, and the objects that had been allocated at the last look.
    met: AtomicU32,
    looked: AtomicU32,
    /// Pages that objects got again since that was as many as a heap regrets, and when it was, ns.
    needed: AtomicUsize,
    needed_since: AtomicU64,
    /// Threads of a CPU share a heap.
    by_cpu: AtomicBool,
    /// Times that the thread which held the lock of the only heap did not run.
    stuck: AtomicU32,
    /// Each is made when it is first used: of 200 rules, most have one. Null before.
    heaps: [AtomicPtr<Heap>; HEAPS],
    pub(super) caches: Caches,
}

impl Home {
    /// A home without memory.
    pub fn new(owner: Owner, extents: Extents) -> Home {
        let (met, looked, stuck, needed, needed_since, by_cpu) = Default::default();
        let heaps = [const { AtomicPtr::new(ptr::null_mut()) }; HEAPS];
        let (in_use, caches) = (AtomicUsize::new(1), Caches::new());
        Home { owner, extents, in_use, met, looked, needed, needed_since, by_cpu, stuck, heaps, caches }
    }

    /// An object of `size` bytes aligned to [`super::chunk::ALIGN`] and to `align`, a power of two below a page; with
    /// `zero` its bytes are zero. `first` tells which of several heaps to try first, its number modulo that of the heaps: one
    /// that differs between threads, or with true one that differs between CPUs. `None` when no heap is free or none
    /// gets memory.
    pub fn allocate(
        &'static self,
        size: usize,
        align: usize,
        zero: bool,
        first: impl Fn(bool) -> usize,
    ) -> Option<usize> {
        if self.caches.are_on()
            && align <= ALIGN
            && let Some(object) = self.caches.take(self.own_number(&first), size, zero)
        {
            return Some(object);
        }
        let mut tries = 0;
        for step in 0..TRIES_ALONE + TRIES {
            let in_use = self.in_use.load(Ordering::Relaxed);
            if in_use > 1 && tries == TRIES {
                break;
            }
            tries += usize::from(in_use > 1);
            let number = if in_use > 1 { self.own_number(&first).wrapping_add(step) % in_use.min(HEAPS) } else { 0 };
            let heap = self.heap(number)?;
            if let Some(held) = Held::take(heap) {
                // Only the thread that holds the lock changes it.
                heap.allocations.store(heap.allocations.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
                // SAFETY: the lock is held.
                let inner = unsafe { &mut *held.0.inner.get() };
                // SAFETY: as above.
                let object = unsafe { inner.allocate(heap.address(), size, align, zero) };
                let again = core::mem::take(&mut inner.again);
                heap.look(inner);
                if again > 0 {
                    self.needed_again(again, in_use);
                }
                return object;
            }
            if heap.lock.is_lost(Heap::process()) {
                self.new_heap(number, heap)?;
                continue;
            }
            // A second heap is needed when the thread that holds the lock does not run.
            if in_use < HEAPS && ((step == 0 && self.is_contended(in_use)) || (in_use == 1 && self.is_stuck(step))) {
                // If another thread did so meanwhile, its number stays.
                let _ = self.in_use.compare_exchange(in_use, in_use * 2, Ordering::Relaxed, Ordering::Relaxed);
            } else if step > 0 || in_use == 1 {
                heap.let_go_on(step);
            }
        }
        None
    }

    /// The number of the heap that the calling thread tries first.
    #[inline]
    pub(super) fn own_number(&self, first: impl Fn(bool) -> usize) -> usize {
        let in_use = self.in_use.load(Ordering::Relaxed).min(HEAPS);
        if in_use > 1 { first(self.by_cpu.load(Ordering::Relaxed)) % in_use } else { 0 }
    }

    /// About the bytes of the objects in all heaps.
    pub(super) fn used(&self) -> usize {
        // SAFETY: null, or a leaked box that was published with Release.
        let heaps = self.heaps.iter().filter_map(|heap| unsafe { heap.load(Ordering::Acquire).as_ref() });
        heaps.map(|heap| heap.used.load(Ordering::Relaxed)).sum()
    }

    /// Called when many objects have been freed in a heap. If most were freed by threads with another heap, the threads
    /// of a CPU share one from then on: each of them frees what another one allocated, whatever the heap.
    #[cold]
    #[inline(never)]
    pub(super) fn has_freed_many(&self, freed: Freed) {
        if freed.by_others && !self.by_cpu.swap(true, Ordering::Relaxed) {
            // Those of threads are not those of CPUs.
            self.caches.end();
        }
        if freed.has_many && !self.caches.are_on() {
            self.caches.begin(self.used());
        }
    }

    /// Notes that a heap, one of `in_use`, gave objects `pages` pages which it had given back to the kernel. If that
    /// happens all the time, the threads of a CPU share a heap from then on. Where threads free each other's objects,
    /// all objects are in the heaps of the threads that ran last, and the other heaps give their memory back. Before,
    /// each thread has a heap of its own: the objects of threads that free only their own then fill one heap each.
    #[cold]
    #[inline(never)]
    fn needed_again(&self, pages: usize, in_use: usize) {
        let all = self.needed.fetch_add(pages, Ordering::Relaxed) + pages;
        if all >= REGRET_PAGES {
            self.needed.store(0, Ordering::Relaxed);
            let now = clock::coarse_ns();
            let before = self.needed_since.swap(now, Ordering::Relaxed);
            if in_use > 1 && now.saturating_sub(before) < WINDOW_NS {
                self.by_cpu.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Whether a second heap is needed because the thread that holds the lock of the only one does not run. It takes
    /// memory for all of the run, so the first [`PATIENT`] times a thread waits.
    #[cold]
    fn is_stuck(&self, step: usize) -> bool {
        let is_late = step + 2 == TRIES && self.stuck.fetch_add(1, Ordering::Relaxed) >= PATIENT;
        is_late || step + 1 >= TRIES_ALONE
    }

    /// Called when a thread has met another one: whether that happens often. Each heap more takes memory of its own,
    /// and on a processor with fewer cores than threads a thread is now and then interrupted while it holds a lock.
    #[cold]
    fn is_contended(&'static self, in_use: usize) -> bool {
        let met = self.met.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if !met.is_multiple_of(MEETINGS) {
            return false;
        }
        let heaps = (0..in_use).filter_map(|number| self.heap(number));
        let now = heaps.fold(0, |sum: u32, heap| sum.wrapping_add(heap.allocations.load(Ordering::Relaxed)));
        now.wrapping_sub(self.looked.swap(now, Ordering::Relaxed)) < MEETINGS * OFTEN_MET
    }

    pub(super) fn heap(&'static self, number: usize) -> Option<&'static Heap> {
        // SAFETY: null, or a leaked box that was published with Release.
        unsafe { self.heaps[number].load(Ordering::Acquire).as_ref() }.or_else(|| self.new_heap(number, ptr::null()))
    }

    /// A heap in place of `before`, which is null or lost.
    #[cold]
    #[inline(never)]
    fn new_heap(&'static self, number: usize, before: *const Heap) -> Option<&'static Heap> {
        if sandbox::entered() {
            return None;
        }
        let _errno = errno::Saved::now();
        let fresh = allocating::run(|| boxed(self, number))?;
        let slot = &self.heaps[number];
        // The thread that loses the race leaves its heap unused.
        let found = slot.compare_exchange(before.cast_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
        // SAFETY: as in `heap`; no slot becomes null again.
        unsafe { found.map_or_else(|first| first, |_| fresh).as_ref() }
    }
}

/// Not inlined: a heap is 1 KiB, which would be in the stack frame of the caller, too.
#[cold]
#[inline(never)]
fn boxed(home: &'static Home, number: usize) -> *mut Heap {
    Box::into_raw(Box::new(Heap::new(home, number)))
}

/// Homes of a rule: one, or one for each node of its list.
pub type Homes = Vec<AtomicPtr<Home>>;

/// Null pointers for the homes that a placing may need; a home is built when it is first used.
pub fn homes(policy: PolicyKind, nodes: usize) -> Homes {
    let count = match policy {
        PolicyKind::Local => nodes,
        PolicyKind::Bind
        | PolicyKind::Preferred
        | PolicyKind::PreferredMany
        | PolicyKind::Interleave
        | PolicyKind::WeightedInterleave => 1,
        _ => 0,
    };
    (0..count).map(|_| AtomicPtr::new(ptr::null_mut())).collect()
}
