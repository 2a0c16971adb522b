//! Heaps for small objects, without the memory behind them: see [`crate::objects::small_objects`].
//!
//! These structures are in this folder because each placing of a rule owns homes.
//!
//! A heap is an instance of `dlmalloc`, the algorithm that glibc's malloc comes from: neighbouring free blocks become
//! one whatever their sizes were, so a rule's heap takes about the memory that the same objects would take in glibc.
//! Its memory comes in extents; an extent without an object is given back, except for a bounded rest (see
//! `SLACK` and `KEPT_EMPTY`). What all heaps keep together is bounded, too: see [`super::heap_account`] and
//! [`super::coming_again`]; but a heap that needs again what it gave back is [patient](super::patience).
//!
//! A heap has a [`lock`] for which no thread waits long. A thread that cannot take it allocates from another heap of
//! the home, or puts the object to be freed on a list that the holder of the lock empties. Of a child that was forked
//! while another thread held the lock, that heap gets no object any more and frees none: the lock has the number of the
//! process that took it ([`fork_wiped::generation`]), and another heap takes the place of one whose holder does not
//! exist.
//!
//! Once many objects have been freed, most come from [`cache`]s, which have no lock.

mod cache;
mod caches;
pub mod chunk;
mod emptied;
mod handed;
pub mod home;
mod inner;
mod lock;
pub mod source;
mod turnover;

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use numamma_hook::{errno, fork_wiped, sandbox};
use numamma_kernel::window::Window;
use numamma_kernel::{clock, sys};

use super::coming_again::{Link, Why};
use super::extent::{Extent, HeapAddress};
use home::{Home, Number};
use inner::Inner;
use lock::{Held, Lock, Locked};

/// The addresses of all extents.
pub static WINDOW: Window = Window::new();

/// Looks at a lock that another thread holds before the next heap is tried: about 100 ns, in which a call ends.
const SPINS: usize = 30;
/// Looks after which a thread waits for the holder, which seems not to run; and for how long each time, ns.
const LOOKS: usize = 4;
const WAIT_NS: i64 = 200_000;
/// Time after which a lock that nobody was seen to let go is taken for one whose holder is gone: a signal handler of the
/// program ended the thread there, or left by siglongjmp. The time slice of a thread with a real-time policy
/// (sched_rr_get_interval(2)), which is longer than those of others.
const GONE_NS: u64 = 100_000_000;
/// Longest pause between two waits for one lock that count as one.
const PAUSE_NS: u64 = 10_000_000;

/// In a cache line of its own: other threads read it while the rest of the heap changes.
#[repr(align(64))]
struct Apart<T>(T);

/// One heap, with its lock.
#[repr(align(64))]
pub struct Heap {
    /// The home that it is part of.
    home: Apart<&'static Home>,
    lock: Lock,
    /// Objects that were allocated, modulo 2^32.
    allocations: AtomicU32,
    /// Bytes of all objects when there were last half or twice as many as at the time before.
    used: AtomicUsize,
    /// See [`home`].
    lender: AtomicU32,
    /// Since when nobody was seen to let the lock go, and the last time that a thread waited for that in vain, ns; or 0.
    stuck: [AtomicU64; 2],
    link: Link,
    inner: UnsafeCell<Inner>,
}

// SAFETY: `inner` is only touched by the thread that holds `lock`.
unsafe impl Sync for Heap {}

impl Locked for Heap {
    #[inline(always)]
    fn lock(&self) -> &Lock {
        &self.lock
    }

    #[inline(always)]
    fn process() -> u32 {
        fork_wiped::generation()
    }

    unsafe fn free_returned(&self, address: usize) -> bool {
        // SAFETY: the caller's promises.
        unsafe { (*self.inner.get()).free(address) }
    }

    /// A thread that is about to wait does so for [`WAIT_NS`] at most.
    #[cold]
    fn wake(&self) {
        let _errno = errno::Saved::now();
        self.lock.waiters.store(0, Ordering::Relaxed);
        if !sandbox::entered() {
            sys::wake_all(&self.lock.busy);
        }
    }
}

impl Heap {
    fn new(home: &'static Home) -> Heap {
        let inner = UnsafeCell::new(Inner::new(home.owner, home.extents));
        let (lock, allocations, used, lender, stuck) = Default::default();
        let link = Link::new(|heap, why| {
            // SAFETY: the address that the heap entered the list with.
            let heap = unsafe { Heap::at(heap) };
            match why {
                Why::Unused(now) => heap.release_unused(now),
                Why::Needed | Why::Forks => heap.release(why),
            }
        });
        Heap { home: Apart(home), lock, allocations, used, lender, stuck, link, inner }
    }

    /// Its rule, or the first of the rules that share it.
    pub fn rule(&self) -> usize {
        self.home.0.owner.rule
    }

    /// Whether it has objects of several rules.
    pub fn is_shared(&self) -> bool {
        self.home.0.owner.is_shared
    }

    /// What names the heap where it is not known.
    fn address(&self) -> HeapAddress {
        HeapAddress(ptr::from_ref(self) as usize)
    }

    /// The heap with this address.
    ///
    /// # Safety
    /// `address` comes from [`Heap::address`].
    pub unsafe fn at(address: HeapAddress) -> &'static Heap {
        // SAFETY: the caller's promise; a heap is never freed.
        unsafe { &*(address.0 as *const Heap) }
    }

    /// The object at `address` with `size` bytes; `None` when the heap is in use or gets no memory: it is as it was.
    ///
    /// # Safety
    /// `address` is an object of this heap; if another address is returned, it has been freed.
    pub unsafe fn resize(&'static self, address: usize, size: usize) -> Option<usize> {
        let held = Held::take(self)?;
        // SAFETY: the lock is held; the caller's promise.
        unsafe { (*held.0.inner.get()).resize(self.address(), address, size) }
    }

    /// Waits for about as long as a call takes that holds the lock; at every second `step` it lets that thread run, and
    /// from the [`LOOKS`]th on it waits for longer.
    #[cold]
    fn let_go_on(&self, step: usize) {
        if step >= LOOKS && !sandbox::entered() {
            let _errno = errno::Saved::now();
            let holder = self.lock.busy.load(Ordering::Relaxed);
            if holder != 0 {
                // Pairs with the fence of `Held::drop`: if the lock is let go after this, its holder sees the waiter;
                // if before, the kernel sees another value than `holder`.
                self.lock.waiters.store(1, Ordering::SeqCst);
                self.waited(sys::wait_while(&self.lock.busy, holder, WAIT_NS));
            }
            return;
        }
        if step % 2 == 1 && !sandbox::entered() {
            sys::yield_now();
        }
        for _ in 0..SPINS {
            if self.lock.busy.load(Ordering::Relaxed) == 0 {
                return;
            }
            core::hint::spin_loop();
        }
        self.waited(false);
    }

    /// The lock was free.
    #[inline(always)]
    fn was_taken(&self) {
        if self.stuck[0].load(Ordering::Relaxed) != 0 {
            self.waited(true);
        }
    }

    /// A thread has waited for the lock, which was let go meanwhile or not.
    #[cold]
    fn waited(&self, was_let_go: bool) {
        let ([since, last], now) = (&self.stuck, clock::coarse_ns());
        let pauses = now.saturating_sub(last.load(Ordering::Relaxed)) > PAUSE_NS;
        if was_let_go || pauses {
            since.store(if was_let_go { 0 } else { now }, Ordering::Relaxed);
        }
        last.store(now, Ordering::Relaxed);
    }

    /// Whether the thread that holds the lock is gone, as far as others can tell: if it is not, it goes on with this
    /// heap, and others with one in its place.
    #[cold]
    fn is_left(&self) -> bool {
        let [since, last] = [0, 1].map(|i| self.stuck[i].load(Ordering::Relaxed));
        since != 0 && last.saturating_sub(since) >= GONE_NS
    }

    /// Its place in the list of heaps that have kept memory.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Gives back what the heap keeps that it does not need, if no thread uses it; true if there was any.
    pub fn release(&self, why: Why) -> bool {
        let _errno = errno::Saved::now();
        let caches = &self.home.0.caches;
        if why == Why::Needed && caches.are_on() {
            caches.end();
        }
        let held = Held::take(self);
        // SAFETY: the lock is held.
        held.is_some_and(|held| unsafe { (*held.0.inner.get()).release(why) })
    }

    /// As [`Heap::release`], if the heap has not been used for long at the time `now`, ns.
    pub fn release_unused(&self, now: u64) -> bool {
        let _errno = errno::Saved::now();
        let (held, allocations) = (Held::take(self), self.allocations.load(Ordering::Relaxed));
        // SAFETY: the lock is held.
        held.is_some_and(|held| unsafe { (*held.0.inner.get()).release_unused(allocations, now) })
    }

    /// Takes an object that the program gives up, from any thread. `caller` is as for [`Home::allocate`].
    ///
    /// # Safety
    /// `address` is an object of this heap that the program gives up.
    pub unsafe fn give_up(&self, address: usize, caller: impl Fn(Number) -> usize) {
        let home = self.home.0;
        // SAFETY: the caller's promise.
        unsafe {
            if home.caches.are_on() {
                // Freed twice, as far as that can be seen.
                if chunk::usable(address) == 0 || home.caches.put(home.number(&caller, 0), address) {
                    return;
                }
            }
            self.free(address, caller);
        }
    }

    /// Frees an object, from any thread; `caller` is as for [`Home::allocate`].
    ///
    /// # Safety
    /// As [`Heap::give_up`].
    unsafe fn free(&self, address: usize, caller: impl Fn(Number) -> usize) {
        let Some(held) = Held::take(self) else {
            // SAFETY: the caller's promise.
            unsafe { lock::free_later(self, address) };
            return;
        };
        // SAFETY: the lock is held.
        let inner = unsafe { &mut *held.0.inner.get() };
        // SAFETY: the caller's promise.
        unsafe { inner.free(address) };
        let has_shrunk = self.look(inner);
        let is_handed = inner.handed.freed(address, || caller(Number::OfThread));
        let are_worth = inner.turnover.freed(inner.objects);
        drop(held);
        let home = self.home.0;
        if has_shrunk {
            home.caches.end();
        }
        if let Some(by_another) = is_handed {
            home.sample(by_another);
        }
        if are_worth && !home.caches.are_on() {
            home.caches.begin(home.used());
        }
    }

    /// Called after a change of `inner`: whether the caches of the home are to be emptied.
    #[inline]
    fn look(&self, inner: &mut Inner) -> bool {
        let Some(used) = inner.changed_much() else { return false };
        self.used.store(used, Ordering::Relaxed);
        let home = self.home.0;
        home.caches.are_on() && home.caches.have_shrunk(home.used())
    }
}

/// Gives an object to its heap without waiting for the lock.
///
/// # Safety
/// It is an object in an extent of a heap that nobody else has.
unsafe fn give_back(address: usize) {
    // SAFETY: the caller's promise; the header of the extent names its heap.
    unsafe { lock::free_later(Heap::at(Extent::of(address).heap), address) };
}

#[cfg(test)]
mod tests;
