//! The heaps of one placing of a rule: one until threads meet there.

mod lending;

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use numamma_hook::{allocating, errno, sandbox};
use numamma_plan::policy::PolicyKind;

use super::caches::{Caches, HEAPS};
use super::chunk::ALIGN;
use super::lock::{Held, Locked};
use super::source::{Extents, Owner};
use super::{Heap, give_back};

/// Heaps of a home for each CPU, about: of more threads than CPUs some that are interrupted hold the lock of a heap.
/// Each heap fragments on its own: 400,000 blocks whose sizes changed took 1.4 times the memory of glibc with up to 32
/// heaps for each CPU, 1.25 times with 8, and about the same with 4.
const HEAPS_PER_CPU: usize = 4;
/// Most heaps of a home on this machine.
static MOST_HEAPS: AtomicUsize = AtomicUsize::new(HEAPS);
/// A home gets more heaps when more than every 64th allocation meets another thread, among as many meetings.
const MEETINGS: u32 = 64;
const OFTEN_MET: u32 = 64;
/// Objects that a heap allocates until the threads of CPUs go on to the next ones, so that all heaps use again what is
/// freed in them. With heaps that stayed those of threads, all objects lay in the heaps of the threads that ran last;
/// with heaps that stayed those of CPUs, what was freed in the others was not used again: both took 1.3 to 1.8 times
/// the memory of glibc where threads free each other's objects. Where they free their own, going on takes twice the
/// time.
const TURN: u32 = 64;
/// 2^64 divided by the golden ratio: the multiples of it modulo 2^64 are far from each other (Knuth, The Art of
/// Computer Programming, volume 3, 6.4), and so are the heaps of CPUs.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Freed objects that decide whether threads free each other's: they do if most of these are such, and no longer if
/// fewer than this part (1/8) of them are.
const ENOUGH: u32 = 64;
const FEW_DIVISOR: u32 = 8;
/// Heaps tried before the real allocator is called.
const TRIES: usize = 6;
/// Times that a thread waits for the only heap of a home.
const PATIENT: u32 = 3;
/// Tries of the only heap of a home until it gets a second one even so: with [`super::WAIT_NS`] each, the time slice of
/// a thread that is interrupted while it holds the lock. A second heap of each home takes memory for all of the run.
const TRIES_ALONE: usize = 24;

/// The machine has so many CPUs.
pub fn start(cpus: usize) {
    MOST_HEAPS.store((cpus * HEAPS_PER_CPU).next_power_of_two().min(HEAPS), Ordering::Relaxed);
}

/// A number of the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// One that differs between threads.
    OfThread,
    /// That of its CPU.
    OfCpu,
}

/// What [`Home::allocate`] is asked for.
#[derive(Clone, Copy)]
struct Wanted {
    size: usize,
    align: usize,
    zero: bool,
}

/// Memory for the small objects of one placing of a rule; for `local`, of one node of the placing.
pub struct Home {
    pub(super) owner: Owner,
    pub(super) extents: Extents,
    /// Heaps in use: 1 to [`HEAPS`], a power of two.
    pub(super) in_use: AtomicUsize,
    /// Times that a thread met another one, and the objects that had been allocated at the last look.
    met: AtomicU32,
    looked: AtomicU32,
    /// Freed objects of which is known whether another thread had allocated them, up to [`ENOUGH`]; and those for which
    /// it had.
    samples: AtomicU32,
    by_another: AtomicU32,
    /// Threads free each other's objects: those of a CPU share a heap, and go on to the next one with each turn.
    is_shared: AtomicBool,
    turn: AtomicUsize,
    /// Times that the thread which held the lock of the only heap did not run.
    stuck: AtomicU32,
    /// Each is made when it is first used: of 200 rules, most have one. Null before.
    heaps: [AtomicPtr<Heap>; HEAPS],
    pub(super) caches: Caches,
}

impl Home {
    /// A home without memory.
    pub fn new(owner: Owner, extents: Extents) -> Home {
        let (met, looked, samples, by_another, is_shared, turn, stuck) = Default::default();
        let heaps = [const { AtomicPtr::new(ptr::null_mut()) }; HEAPS];
        let (in_use, caches) = (AtomicUsize::new(1), Caches::new(give_back));
        Home { owner, extents, in_use, met, looked, samples, by_another, is_shared, turn, stuck, heaps, caches }
    }

    /// An object of `size` bytes aligned to [`super::chunk::ALIGN`] and to `align`, a power of two below a page; with
    /// `zero` its bytes are zero. `caller` tells the [`Number`] of the calling thread that it is asked for. `None` when no heap is free or none gets
    /// memory.
    pub fn allocate(
        &'static self,
        size: usize,
        align: usize,
        zero: bool,
        caller: impl Fn(Number) -> usize,
    ) -> Option<usize> {
        if self.caches.are_on()
            && align <= ALIGN
            && let Some(object) = self.caches.take(self.number(&caller, 0), size, zero)
        {
            return Some(object);
        }
        let wanted = Wanted { size, align, zero };
        let (mut tries, mut has_asked) = (0, false);
        for step in 0..TRIES_ALONE + TRIES {
            let in_use = self.in_use.load(Ordering::Relaxed);
            if in_use > 1 && tries == TRIES {
                break;
            }
            tries += usize::from(in_use > 1);
            let number = self.number(&caller, self.turn.load(Ordering::Relaxed).wrapping_add(step));
            let heap = self.heap(number)?;
            if in_use > 1
                && !has_asked
                && let Some(object) = self.lent(heap, wanted, &caller)
            {
                return Some(object);
            }
            if let Some(held) = Held::take(heap) {
                heap.was_taken();
                let may_map = in_use == 1 || has_asked || self.is_shared.load(Ordering::Relaxed);
                let (object, is_refused) = self.allocate_in(held, in_use, wanted, may_map, &caller);
                if !is_refused {
                    return object;
                }
                has_asked = true;
                if let Some(object) = self.borrow(number, heap, wanted, &caller) {
                    return Some(object);
                }
                continue;
            }
            if heap.lock.is_lost(Heap::process()) || heap.is_left() {
                self.new_heap(number, heap)?;
                continue;
            }
            // A second heap is needed when the thread that holds the lock does not run.
            if in_use < MOST_HEAPS.load(Ordering::Relaxed)
                && ((step == 0 && self.is_contended(in_use)) || (in_use == 1 && self.is_stuck(step)))
            {
                // If another thread did so meanwhile, its number stays.
                let _ = self.in_use.compare_exchange(in_use, in_use * 2, Ordering::Relaxed, Ordering::Relaxed);
            } else if step > 0 || in_use == 1 {
                heap.let_go_on(step);
            }
        }
        None
    }

    /// An object from a heap whose lock is held, and whether that would have had to map memory for it, which it may not.
    #[inline]
    fn allocate_in(
        &self,
        held: Held<'_, Heap>,
        in_use: usize,
        Wanted { size, align, zero }: Wanted,
        may_map: bool,
        caller: impl Fn(Number) -> usize,
    ) -> (Option<usize>, bool) {
        let heap = held.0;
        // Only the thread that holds the lock changes it.
        let allocations = heap.allocations.load(Ordering::Relaxed).wrapping_add(1);
        heap.allocations.store(allocations, Ordering::Relaxed);
        if allocations.is_multiple_of(TURN) && self.is_shared.load(Ordering::Relaxed) {
            self.turn.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the lock is held.
        let inner = unsafe { &mut *heap.inner.get() };
        inner.heaps = in_use;
        // SAFETY: as above.
        let object = unsafe { inner.allocate(heap.address(), size, align, zero, may_map) };
        heap.look(inner);
        match object {
            Some(object) => inner.handed.allocated(object, || caller(Number::OfThread)),
            None => return (None, inner.core.allocator().is_refused.take()),
        }
        (object, false)
    }

    /// The number of the heap for the calling thread, `turn` heaps on; without turn, that whose cache it uses.
    #[inline]
    pub(super) fn number(&self, caller: impl Fn(Number) -> usize, turn: usize) -> usize {
        let in_use = self.in_use.load(Ordering::Relaxed).min(HEAPS);
        if in_use == 1 {
            return 0;
        }
        let first = if self.is_shared.load(Ordering::Relaxed) {
            let spread = (caller(Number::OfCpu) as u64).wrapping_mul(SPREAD) >> 32;
            (spread as usize * in_use) >> 32
        } else {
            caller(Number::OfThread)
        };
        first.wrapping_add(turn) % in_use
    }

    /// Counts a freed object, which another thread than the one that frees it allocated or not. If most are such, the
    /// threads of a CPU share a heap from then on.
    #[cold]
    #[inline(never)]
    pub(super) fn sample(&self, by_another: bool) {
        if by_another {
            self.by_another.fetch_add(1, Ordering::Relaxed);
        }
        if self.samples.fetch_add(1, Ordering::Relaxed) + 1 < ENOUGH {
            return;
        }
        self.samples.store(0, Ordering::Relaxed);
        let by_another = self.by_another.swap(0, Ordering::Relaxed);
        let is_shared = self.is_shared.load(Ordering::Relaxed);
        let now = by_another > if is_shared { ENOUGH / FEW_DIVISOR } else { ENOUGH / 2 };
        if self.is_shared.swap(now, Ordering::Relaxed) != now {
            // The caches of threads are not those of CPUs.
            self.caches.end();
        }
    }

    /// About the bytes of the objects in all heaps.
    pub(super) fn used(&self) -> usize {
        // SAFETY: null, or a leaked box that was published with Release.
        let heaps = self.heaps.iter().filter_map(|heap| unsafe { heap.load(Ordering::Acquire).as_ref() });
        heaps.map(|heap| heap.used.load(Ordering::Relaxed)).sum()
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
        let fresh = allocating::run(|| boxed(self))?;
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
fn boxed(home: &'static Home) -> *mut Heap {
    Box::into_raw(Box::new(Heap::new(home)))
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
