//! A value that hooks read while another thread replaces it.
//!
//! Neither side waits. A reader counts itself in one of [`SHARDS`] counters, then loads the current version; a thread
//! that replaces the version retires the old one, which is freed once every counter has been seen at zero since: a
//! reader that is counted later can only find a later version. Readers may be signal handlers, and may be nested.
//!
//! A reader that never leaves (its thread was stopped for good) keeps old versions; after [`MAX_RETIRED`] of them
//! [`Versions::replace`] refuses. The counters lie in a page that a forked child finds zeroed: the threads that were
//! reading do not exist there. The reading thread itself may: a signal handler that forks inside a reader. So a thread
//! that is inside a reader frees nothing.

use core::cell::Cell;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use numamma_kernel::mappings::map_wiped_on_fork;
use numamma_kernel::sys::PAGE;

use crate::alloc::elsewhere;
use crate::stackbounds;

/// Counters of readers: one for each bit of a word, and together one page.
const SHARDS: usize = u64::BITS as usize;
/// Old versions that may wait for their readers. Each takes a few kilobytes, and one is normal.
const MAX_RETIRED: usize = 1024;

/// Readers of all versions; a cache line of its own.
#[repr(align(64))]
struct Shard(AtomicU32);

const _: () = assert!(size_of::<[Shard; SHARDS]>() <= PAGE);

/// The counters before [`start`], and where the kernel cannot zero a page in a forked child.
static UNWIPED: [Shard; SHARDS] = [const { Shard(AtomicU32::new(0)) }; SHARDS];
static READERS: AtomicPtr<[Shard; SHARDS]> = AtomicPtr::new(&raw const UNWIPED as *mut _);

#[repr(C)]
struct Block {
    /// Readers of this thread.
    depth: Cell<u32>,
}

crate::static_tls!(fn block() -> Block, "numamma_hook_versions");

fn readers() -> &'static [Shard; SHARDS] {
    // SAFETY: `UNWIPED`, or a zeroed page that is never unmapped.
    unsafe { &*READERS.load(Ordering::Acquire) }
}

fn own_shard() -> &'static Shard {
    // Thread control blocks are at least a page apart; stacks are often a power of two apart.
    let thread = stackbounds::thread_pointer();
    &readers()[(thread >> 12 ^ thread >> 18 ^ thread >> 23) % SHARDS]
}

/// Maps the counters; to be called once, before the first version is stored.
pub fn start() {
    if let Some(page) = map_wiped_on_fork(PAGE) {
        READERS.store(page.cast(), Ordering::Release);
    }
}

/// The readers of the calling thread at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth(u32);

/// The readers of the calling thread.
pub fn depth() -> Depth {
    Depth(block().depth.get())
}

/// Ends the readers that this thread has begun since `before` and that are not dropped any more, because the work that
/// they belonged to was given up.
pub fn abandon(before: Depth) {
    let depth = &block().depth;
    let lost = depth.get().saturating_sub(before.0);
    depth.set(before.0.min(depth.get()));
    let _ = own_shard().0.fetch_update(Ordering::Release, Ordering::Relaxed, |n| Some(n.saturating_sub(lost)));
}

struct Node<T> {
    value: T,
    /// Shards that were seen at zero since the node was retired; belongs to the thread that took the list.
    quiet: u64,
    next: *mut Node<T>,
}

/// The versions of one value.
pub struct Versions<T> {
    current: AtomicPtr<Node<T>>,
    retired: AtomicPtr<Node<T>>,
    /// Number of retired versions.
    waiting: AtomicUsize,
}

/// A version in use. It stays alive as long as this.
///
/// The node is no reference: its links change while it is read, and a thread that replaces the version writes them.
/// The pointer also keeps a reader in the thread for which it counts (it is not `Send`).
pub struct Reading<'a, T> {
    node: ptr::NonNull<Node<T>>,
    shard: &'static Shard,
    _versions: core::marker::PhantomData<&'a Versions<T>>,
}

impl<T> Deref for Reading<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the node stays alive as long as this reader counts; nobody writes the value.
        unsafe { &(*self.node.as_ptr()).value }
    }
}

impl<T> Drop for Reading<'_, T> {
    fn drop(&mut self) {
        // Release: what this reader read, it read before. A reader that a signal handler took along into a forked child
        // finds 0.
        let _ = self.shard.0.fetch_update(Ordering::Release, Ordering::Relaxed, |n| n.checked_sub(1));
        let depth = &block().depth;
        depth.set(depth.get().saturating_sub(1));
    }
}

/// Why a version was not replaced.
pub enum NotReplaced {
    /// Another thread replaced it first, or old versions had to be freed: to be tried again.
    Outdated,
    /// There is no memory, or too many old versions have readers.
    NoRoom,
}

// SAFETY: a version is shared by reference among threads (Sync), and freed by any of them (Send).
unsafe impl<T: Send + Sync> Sync for Versions<T> {}

impl<T> Default for Versions<T> {
    fn default() -> Versions<T> {
        Versions::new()
    }
}

impl<T> Versions<T> {
    /// Without a version.
    pub const fn new() -> Versions<T> {
        Versions {
            current: AtomicPtr::new(ptr::null_mut()),
            retired: AtomicPtr::new(ptr::null_mut()),
            waiting: AtomicUsize::new(0),
        }
    }

    /// The current version; `None` before the first.
    #[inline]
    pub fn read(&self) -> Option<Reading<'_, T>> {
        // Once there is a version, `start` has run: the reader counts where it will be looked for.
        if self.current.load(Ordering::Acquire).is_null() {
            return None;
        }
        let (shard, depth) = (own_shard(), &block().depth);
        depth.set(depth.get() + 1);
        // SeqCst here, in `replace` and in `free_retired`: if the load below finds a version that is replaced later,
        // this increment precedes the replacement, and so the look at the counter.
        shard.0.fetch_add(1, Ordering::SeqCst);
        // SAFETY: not null, as above: versions are only replaced. The version is not freed while the reader counts.
        let node = unsafe { ptr::NonNull::new_unchecked(self.current.load(Ordering::SeqCst)) };
        Some(Reading { node, shard, _versions: core::marker::PhantomData })
    }

    /// Whether `reading` is of the current version.
    pub fn is_current(&self, reading: &Reading<'_, T>) -> bool {
        ptr::eq(self.current.load(Ordering::SeqCst), reading.node.as_ptr())
    }

    /// Makes `value` the current version unless another thread replaced `old` (no version when `None`) meanwhile.
    ///
    /// # Errors
    /// Why the current version stays.
    pub fn replace(&self, old: Option<Reading<'_, T>>, value: T) -> Result<(), NotReplaced> {
        if self.waiting.load(Ordering::Relaxed) >= MAX_RETIRED {
            drop(old); // a thread that reads frees nothing
            self.free_retired();
            let full = self.waiting.load(Ordering::Relaxed) >= MAX_RETIRED;
            return Err(if full { NotReplaced::NoRoom } else { NotReplaced::Outdated });
        }
        let layout = core::alloc::Layout::new::<Node<T>>();
        // SAFETY: a node is not zero-sized.
        let node = elsewhere::fallibly(|| unsafe { std::alloc::alloc(layout) }).cast::<Node<T>>();
        if node.is_null() {
            return Err(NotReplaced::NoRoom);
        }
        // SAFETY: fresh memory of the layout of a node.
        unsafe { node.write(Node { value, quiet: 0, next: ptr::null_mut() }) };
        let before = old.as_ref().map_or(ptr::null_mut(), |old| old.node.as_ptr());
        // The reader `old` keeps its node alive, so the address cannot have become that of a later version.
        let replaced = self.current.compare_exchange(before, node, Ordering::SeqCst, Ordering::Relaxed);
        drop(old);
        if replaced.is_err() {
            // SAFETY: allocated and written above; no other thread has the pointer.
            drop(unsafe { Box::from_raw(node) });
            return Err(NotReplaced::Outdated);
        }
        if !before.is_null() {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            // SAFETY: `before` was current, so it is alive, and only this thread has taken it out.
            unsafe { self.push_retired(before, before) };
            self.free_retired();
        }
        Ok(())
    }

    /// Puts the linked nodes from `first` to `last` on the list of retired ones.
    ///
    /// # Safety
    /// The nodes are out of `current` and of the list.
    unsafe fn push_retired(&self, first: *mut Node<T>, last: *mut Node<T>) {
        // Release: the thread that takes the list sees the links. The closure never refuses.
        let _ = self.retired.fetch_update(Ordering::Release, Ordering::Relaxed, |head| {
            // SAFETY: the caller's promise; `next` is not read by readers.
            unsafe { (&raw mut (*last).next).write(head) };
            Some(first)
        });
    }

    /// Frees the retired versions that have no reader any more.
    fn free_retired(&self) {
        if block().depth.get() != 0 || self.retired.load(Ordering::Relaxed).is_null() {
            return;
        }
        // Acquire pairs with the Release of `push_retired`: the whole list belongs to this thread from here on.
        let mut at = self.retired.swap(ptr::null_mut(), Ordering::Acquire);
        let zero = readers().iter().enumerate().filter(|(_, shard)| shard.0.load(Ordering::SeqCst) == 0);
        let quiet = zero.fold(0_u64, |bits, (index, _)| bits | 1 << index);
        while !at.is_null() {
            let node = at;
            // SAFETY: a node of the taken list; readers that are left use `value` only.
            unsafe {
                at = (&raw const (*node).next).read();
                let seen = (&raw const (*node).quiet).read() | quiet;
                if seen == u64::MAX {
                    self.waiting.fetch_sub(1, Ordering::Relaxed);
                    // Every counter was zero at some time after this version had been replaced.
                    drop(Box::from_raw(node));
                } else {
                    (&raw mut (*node).quiet).write(seen);
                    self.push_retired(node, node);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    static ALIVE: AtomicUsize = AtomicUsize::new(0);

    /// Counts its instances; its words are equal while it is alive.
    struct Counted([u64; 64]);

    impl Counted {
        fn new(n: u64) -> Counted {
            ALIVE.fetch_add(1, Ordering::SeqCst);
            Counted([n; 64])
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            ALIVE.fetch_sub(1, Ordering::SeqCst);
            self.0.fill(u64::MAX);
            self.0[0] = 0;
        }
    }

    static VALUE: Versions<Counted> = Versions::new();
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    fn replace(n: u64) -> bool {
        (0..2).any(|_| VALUE.replace(VALUE.read(), Counted::new(n)).is_ok())
    }

    /// Other tests of this process may be reading while a version is replaced, which delays that old ones are freed.
    fn only_the_current_one_is_left() -> bool {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while std::time::Instant::now() < until {
            if replace(1) && ALIVE.load(Ordering::SeqCst) == 1 {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    #[test]
    fn readers_never_see_a_freed_version_and_old_ones_are_freed() {
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        start();
        assert!(replace(0));
        let (end, replaced) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !end.load(Ordering::Relaxed) {
                        let seen = VALUE.read().unwrap();
                        let inner = VALUE.read().unwrap();
                        assert!(seen.0.iter().all(|n| *n == seen.0[0]) && inner.0.iter().all(|n| *n == inner.0[0]));
                        drop((seen, inner));
                        std::thread::yield_now();
                    }
                });
            }
            let writers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        for n in 1..20_000 {
                            replaced.fetch_add(usize::from(replace(n)), Ordering::Relaxed);
                            assert!(ALIVE.load(Ordering::SeqCst) <= MAX_RETIRED + 8);
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|w| w.join().unwrap());
            end.store(true, Ordering::Relaxed);
        });
        assert!(replaced.load(Ordering::Relaxed) > MAX_RETIRED);
        assert!(only_the_current_one_is_left());
    }

    #[test]
    fn a_reader_keeps_its_version_and_too_many_old_ones_are_refused() {
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        start();
        assert!(replace(0));
        let (stay, tell) = (std::sync::mpsc::channel::<()>(), std::sync::mpsc::channel::<()>());
        let held = std::thread::spawn(move || {
            let seen = VALUE.read().unwrap();
            tell.0.send(()).unwrap();
            let _ = stay.1.recv();
            assert!(seen.0.iter().all(|n| *n == seen.0[0]));
        });
        tell.1.recv().unwrap();
        let done = (0..2 * MAX_RETIRED as u64).filter(|n| replace(*n)).count();
        assert_eq!(done, MAX_RETIRED);
        drop(stay.0);
        held.join().unwrap();
        assert!(replace(1));
        let before = depth();
        core::mem::forget((VALUE.read(), VALUE.read()));
        assert!(replace(2) && ALIVE.load(Ordering::SeqCst) > 1, "a thread that reads frees nothing");
        abandon(before);
        assert_eq!(depth(), before);
        assert!(only_the_current_one_is_left());
    }
}
