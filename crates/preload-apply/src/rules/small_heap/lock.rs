//! The lock of a heap, and the objects that are returned to the heap while a thread holds it.
//!
//! No thread waits here. Whoever returns an object and finds the lock taken leaves the object on a list, which the
//! holder empties before and after it lets the lock go. `models/` runs this file with all interleavings of a few
//! threads.

use core::ptr;

use numamma_hook::atomics::{AtomicPtr, AtomicU32, Ordering, Unshared, fence};

/// What has a lock.
pub(super) trait Locked {
    /// It.
    fn lock(&self) -> &Lock;

    /// The number of this process, not 0.
    fn process() -> u32;

    /// Frees an object that was returned; false if it was free already.
    ///
    /// # Safety
    /// The lock is held; the object at `address` was given to [`free_later`].
    unsafe fn free_returned(&self, address: usize) -> bool;

    /// Wakes the threads that wait for the lock.
    fn wake(&self);
}

/// A lock with the objects that wait for it.
#[derive(Default)]
pub(super) struct Lock {
    /// 0, or the number of the process in which a thread holds the lock.
    pub(super) busy: AtomicU32,
    /// Not 0 while a thread may wait for the lock. Who lets it go calls [`Locked::wake`].
    pub(super) waiters: AtomicU32,
    /// Objects that were freed while another thread held the lock.
    pub(super) returned: AtomicPtr<Free>,
}

/// A freed object that waits for the lock of its heap.
pub(super) struct Free {
    pub(super) next: Unshared<*mut Free>,
}

impl Lock {
    #[inline]
    fn lock(&self, process: u32) -> bool {
        self.busy.compare_exchange(0, process, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether a thread holds it that does not exist in this `process`.
    #[cold]
    pub(super) fn is_lost(&self, process: u32) -> bool {
        ![0, process].contains(&self.busy.load(Ordering::Relaxed))
    }
}

/// The lock of a heap, taken; let go on drop.
pub(super) struct Held<'a, H: Locked>(pub(super) &'a H);

impl<'a, H: Locked> Held<'a, H> {
    /// Locks `heap` if no other thread holds the lock.
    #[inline]
    pub(super) fn take(heap: &'a H) -> Option<Held<'a, H>> {
        let lock = heap.lock();
        // The load keeps the cache line shared while another thread holds the lock.
        let free = lock.busy.load(Ordering::Relaxed) == 0 && lock.lock(H::process());
        // then_some would make a Held and drop it, which unlocks.
        free.then(|| Held(heap))
    }

    fn free_returned(&self) {
        // Acquire pairs with the Release of the pushes; the whole list belongs to this thread from here on.
        let mut object = self.0.lock().returned.swap(ptr::null_mut(), Ordering::Acquire);
        while !object.is_null() {
            // SAFETY: a freed object that only this list knows; the lock is held.
            unsafe {
                let next = Unshared::read(&raw const (*object).next);
                if !self.0.free_returned(object as usize) {
                    return; // an object that was put on the list twice leads in a circle
                }
                object = next;
            }
        }
    }
}

impl<H: Locked> Drop for Held<'_, H> {
    fn drop(&mut self) {
        let lock = self.0.lock();
        loop {
            if !lock.returned.load(Ordering::Relaxed).is_null() {
                self.free_returned();
            }
            lock.busy.store(0, Ordering::Release);
            // Pairs with the fence of `free_later`: either this thread sees the object that was returned meanwhile, or
            // the thread that returned it sees the lock free.
            fence(Ordering::SeqCst);
            if lock.waiters.load(Ordering::Relaxed) != 0 {
                self.0.wake();
            }
            if lock.returned.load(Ordering::Relaxed).is_null() || !lock.lock(H::process()) {
                return;
            }
        }
    }
}

/// Leaves an object to the thread that holds the lock of its heap, to be freed; is that itself where none does.
///
/// # Safety
/// `address` is an object of `heap` that the program gives up.
pub(super) unsafe fn free_later<H: Locked>(heap: &H, address: usize) {
    let object = address as *mut Free;
    let returned = &heap.lock().returned;
    let mut head = returned.load(Ordering::Relaxed);
    loop {
        // SAFETY: the object is not used any more and at least as large as a pointer.
        unsafe { Unshared::write(&raw const (*object).next, head) };
        // Release: the thread that takes the list sees the link.
        match returned.compare_exchange_weak(head, object, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => head = now,
        }
    }
    fence(Ordering::SeqCst); // see the drop of `Held`
    drop(Held::take(heap));
}
