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
//! A heap has a lock for which no thread waits long. A thread that cannot take it allocates from another heap of the
//! home, or puts the object to be freed on a list that the holder of the lock empties. Of a child that was forked while
//! another thread held the lock, that heap gets no object any more and frees none: the lock has the number of the
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
pub mod source;
mod turnover;

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};

use numamma_hook::{errno, fork_wiped, sandbox};
use numamma_kernel::sys;
use numamma_kernel::window::Window;

use super::coming_again::{Link, Why};
use super::extent::HeapAddress;
use home::{Home, Number};
use inner::Inner;

/// The addresses of all extents.
pub static WINDOW: Window = Window::new();

/// Looks at a lock that another thread holds before the next heap is tried: about 100 ns, in which a call ends.
const SPINS: usize = 30;
/// Looks after which a thread waits for the holder, which seems not to run; and for how long each time, ns.
const LOOKS: usize = 4;
const WAIT_NS: i64 = 200_000;
/// A freed object that waits for the lock of its heap.
struct Free {
    next: *mut Free,
}

/// In a cache line of its own: other threads read it while the rest of the heap changes.
#[repr(align(64))]
struct Apart<T>(T);

/// One heap, with its lock.
#[repr(align(64))]
pub struct Heap {
    /// The home that it is part of.
    home: Apart<&'static Home>,
    /// The lock: 0, or the number of the process in which a thread holds it.
    busy: AtomicU32,
    /// Not 0 while a thread may wait for the lock, see [`Heap::let_go_on`]. Who lets the lock go wakes it.
    waiters: AtomicU32,
    /// Objects that were allocated, modulo 2^32.
    allocations: AtomicU32,
    /// Bytes of all objects when there were last half or twice as many as at the time before.
    used: AtomicUsize,
    /// Objects that were freed while another thread held the lock.
    returned: AtomicPtr<Free>,
    link: Link,
    inner: UnsafeCell<Inner>,
}

// SAFETY: `inner` is only touched by the thread that holds `busy`.
unsafe impl Sync for Heap {}

/// The lock of a heap; released on drop.
struct Held<'a>(&'a Heap);

impl Held<'_> {
    /// Locks `heap` if no other thread holds it.
    fn take(heap: &Heap) -> Option<Held<'_>> {
        // The load keeps the cache line shared while another thread holds the lock.
        let free = heap.busy.load(Ordering::Relaxed) == 0 && heap.lock();
        // then_some would make a Held and drop it, which unlocks.
        free.then(|| Held(heap))
    }

    fn free_returned(&self) {
        // Acquire pairs with the Release of the pushes; the whole list belongs to this thread from here on.
        let mut object = self.0.returned.swap(ptr::null_mut(), Ordering::Acquire);
        while !object.is_null() {
            // SAFETY: a freed object that only this list knows; the lock is held.
            unsafe {
                let next = (*object).next;
                if !(*self.0.inner.get()).free(object as usize) {
                    return; // an object that was put on the list twice leads in a circle
                }
                object = next;
            }
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        loop {
            if !self.0.returned.load(Ordering::Relaxed).is_null() {
                self.free_returned();
            }
            self.0.busy.store(0, Ordering::Release);
            // Pairs with the fence of `Heap::free_later`: either this thread sees the object that was returned
            // meanwhile, or the thread that returned it sees the lock free.
            fence(Ordering::SeqCst);
            if self.0.waiters.load(Ordering::Relaxed) != 0 {
                self.0.wake();
            }
            if self.0.returned.load(Ordering::Relaxed).is_null() || !self.0.lock() {
                return;
            }
        }
    }
}

impl Heap {
    fn new(home: &'static Home) -> Heap {
        let inner = UnsafeCell::new(Inner::new(home.owner, home.extents));
        let (busy, waiters, allocations, used, returned) = Default::default();
        let link = Link::new(|heap, why| {
            // SAFETY: the address that the heap entered the list with.
            let heap = unsafe { Heap::at(heap) };
            match why {
                Why::Unused(now) => heap.release_unused(now),
                Why::Needed | Why::Forks => heap.release(why),
            }
        });
        Heap { home: Apart(home), busy, waiters, allocations, used, returned, link, inner }
    }

    /// What names the heap where it is not known.
    fn address(&'static self) -> HeapAddress {
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

    #[inline]
    fn lock(&self) -> bool {
        self.busy.compare_exchange(0, fork_wiped::generation(), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether a thread holds the lock that does not exist in this process.
    #[cold]
    fn is_lost(&self) -> bool {
        ![0, fork_wiped::generation()].contains(&self.busy.load(Ordering::Relaxed))
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
            let holder = self.busy.load(Ordering::Relaxed);
            if holder != 0 {
                // Pairs with the fence of `Held::drop`: if the lock is let go after this, its holder sees the waiter;
                // if before, the kernel sees another value than `holder`.
                self.waiters.store(1, Ordering::SeqCst);
                sys::wait_while(&self.busy, holder, WAIT_NS);
            }
            return;
        }
        if step % 2 == 1 && !sandbox::entered() {
            sys::yield_now();
        }
        for _ in 0..SPINS {
            if self.busy.load(Ordering::Relaxed) == 0 {
                return;
            }
            core::hint::spin_loop();
        }
    }

    /// Wakes the threads that wait for the lock. One that is about to wait does so for [`WAIT_NS`] at most.
    #[cold]
    fn wake(&self) {
        let _errno = errno::Saved::now();
        self.waiters.store(0, Ordering::Relaxed);
        if !sandbox::entered() {
            sys::wake_all(&self.busy);
        }
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
            unsafe { self.free_later(address) };
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

    /// Leaves an object to the thread that holds the lock, to be freed; is that itself where none does.
    ///
    /// # Safety
    /// As [`Heap::give_up`].
    unsafe fn free_later(&self, address: usize) {
        let object = address as *mut Free;
        let mut head = self.returned.load(Ordering::Relaxed);
        loop {
            // SAFETY: the object is not used any more and at least as large as a pointer.
            unsafe { object.write(Free { next: head }) };
            // Release: the thread that takes the list sees the link.
            match self.returned.compare_exchange_weak(head, object, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        fence(Ordering::SeqCst); // see the drop of `Held`
        drop(Held::take(self));
    }
}

#[cfg(test)]
mod tests;
