//! Free memory in glibc's heap that stands beside placed arrays. Of objects that are not placed for a while because
//! they come and go too often (see [`crate::rules::churn`]) glibc keeps the memory when they are freed below others
//! that stay, for the next ones. But those may be placed again: arrays that grow side by side move from glibc's heap to
//! placed memory one by one, and the process would hold their memory twice. Nor can placed arrays use what small
//! objects leave there that are never placed, as under a policy by blocks. So it is told to give it back.
//!
//! glibc gives such memory back when it is asked (malloc_trim(3)): that takes time in proportion to the free blocks and
//! the locks of its heaps, and what it takes from there afterwards faults again. So it is asked
//! - only after objects were left to it that are a part of what the process holds, or small ones,
//! - only when the process is about to hold more than it did before, by a part ([`DIVISOR`]): less harms nobody. And
//!   only when as much was mapped for placed objects meanwhile: what glibc itself used again would fault each time. When
//!   it gives back less than that part, or has not to, the process needs what it holds, which is the measure from then on.
//! - at most one part in [`TIME_PART`] of the time, where that takes longer than the page faults of what was given back.
//!
//! Other allocators than glibc's are left alone, as are forked children: a raw clone does not reset glibc's locks.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use numamma_hook::real::symbol;
use numamma_hook::{errno, fork_wiped, sandbox};
use numamma_kernel::{clock, statm};

use crate::rules::churn::{self, allocator};
use crate::rules::heap_account;

/// Part (1/16) of what the process held at most by which it may hold more before glibc is asked, and that glibc must
/// give back then. With the look at what the process holds, which comes after as much, the sum stays below a fourth.
const DIVISOR: usize = 16;
/// Bytes by which the process may hold more in any case: what this library may keep in any case.
const ALWAYS: usize = 2 << 20;
/// Part (1/20) of the time that glibc may search its heaps, as of what placing may be charged.
const TIME_PART: u64 = 20;

/// Stands for a number of bytes that nobody counted: more than a process can have.
const ALL: usize = usize::MAX / 2;

static HEAP: Heap = Heap::new();

struct Heap {
    /// Bytes of the objects that were left to glibc so far; the most that there is where small ones were, which are not
    /// counted.
    left: AtomicUsize,
    /// The most that the process held, as far as it was needed; 0 before anything was left.
    most: AtomicUsize,
    /// Bytes that were mapped for placed objects when it held more than that.
    mapped: AtomicUsize,
    /// glibc is to be asked.
    is_due: AtomicBool,
    /// Not before this time, ns.
    not_before: AtomicU64,
}

impl Heap {
    const fn new() -> Heap {
        Heap {
            left: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            mapped: AtomicUsize::new(0),
            is_due: AtomicBool::new(false),
            not_before: AtomicU64::new(0),
        }
    }

    /// Notes that the process holds `resident` bytes, and that `mapped` bytes were mapped for placed objects so far. How
    /// many more it may hold until glibc is asked.
    fn holds(&self, resident: usize, mapped: usize) -> usize {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 || left < resident / DIVISOR {
            return usize::MAX;
        }
        let most = self.most.load(Ordering::Relaxed);
        if most == 0 {
            self.most.store(resident, Ordering::Relaxed);
            return (resident / DIVISOR).max(ALWAYS);
        }
        let room = (most + (most / DIVISOR).max(ALWAYS)).saturating_sub(resident);
        if room == 0 {
            let more = mapped.wrapping_sub(self.mapped.swap(mapped, Ordering::Relaxed));
            if more >= resident / DIVISOR {
                self.is_due.store(true, Ordering::Relaxed);
            } else {
                self.most.store(resident, Ordering::Relaxed);
            }
        }
        room
    }

    /// Notes what the process held before and after glibc was asked, with `kept` bytes that this library keeps. True if
    /// glibc gave back much of it.
    fn gave_back(&self, before: usize, after: usize, kept: usize) -> bool {
        let is_much = before.saturating_sub(after) > before / DIVISOR;
        if !is_much {
            self.most.fetch_max(after.saturating_sub(kept), Ordering::Relaxed);
        }
        is_much
    }
}

/// Notes that an object of `bytes` is left to the program's allocator because such ones come and go too often.
#[inline]
pub fn left(bytes: usize) {
    if HEAP.left.load(Ordering::Relaxed) < ALL {
        HEAP.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Notes that an object is left to the program's allocator because it is small.
#[inline]
pub fn left_small() {
    if HEAP.left.load(Ordering::Relaxed) < ALL {
        HEAP.left.store(ALL, Ordering::Relaxed);
    }
}

/// Notes that the process holds `resident` bytes beside what this library keeps, and will hold more: how many until
/// glibc is asked.
pub fn holds(resident: usize) -> usize {
    if allocator::is_foreign() || fork_wiped::is_forked_child() {
        return usize::MAX;
    }
    HEAP.holds(resident, heap_account::all_mapped())
}

/// Lets glibc give free memory back if that is due; `kept` tells how many bytes this library keeps. No lock of it is
/// held.
#[inline]
pub fn trim_if_due(kept: fn() -> usize) {
    if HEAP.is_due.load(Ordering::Relaxed) {
        trim(kept);
    }
}

#[cold]
#[inline(never)]
fn trim(kept: fn() -> usize) {
    let is_allowed = !fork_wiped::is_forked_child() && !sandbox::entered();
    let is_over = clock::monotonic_ns() >= HEAP.not_before.load(Ordering::Relaxed);
    if !HEAP.is_due.swap(false, Ordering::Relaxed) || !is_over || !is_allowed {
        return;
    }
    // No other thread meanwhile.
    HEAP.not_before.store(u64::MAX, Ordering::Relaxed);
    let _errno = errno::Saved::now();
    let (before, began) = (statm::read(), clock::thread_cpu_ns());
    // SAFETY: glibc's function, outside of its heaps; it changes no block that is in use.
    symbol::malloc_trim().map(|trim| unsafe { trim(0) });
    // Without the time for which other threads or programs had the processor.
    let took = clock::thread_cpu_ns().saturating_sub(began);
    let after = statm::read();
    churn::also_took(took);
    let [before, after] = [before, after].map(|read| read.map_or(0, |read| read.resident));
    let is_worth = HEAP.gave_back(before, after, kept()) && took < churn::faulting_ns(before - after);
    let until = clock::monotonic_ns() + TIME_PART * took;
    HEAP.not_before.store(if is_worth { 0 } else { until }, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn glibc_is_asked_when_the_process_holds_more_than_it_needed() {
        let heap = Heap::new();
        let is_due = |mib: usize| {
            heap.holds(mib * MIB, heap.mapped.load(Ordering::Relaxed) + 10 * MIB);
            heap.is_due.swap(false, Ordering::Relaxed)
        };
        assert!(!is_due(100) && !is_due(200), "nothing was left");
        heap.left.store(ALL, Ordering::Relaxed);
        assert!(!is_due(100) && is_due(107), "small objects were");
        heap.most.store(0, Ordering::Relaxed);
        heap.left.store(8 * MIB, Ordering::Relaxed);
        assert!(!is_due(96), "so much it needed before");
        assert!(!is_due(101) && is_due(102) && !is_due(200), "little was left");
        assert!(heap.gave_back(103 * MIB, 90 * MIB, 0));
        assert!(!is_due(101) && is_due(102));
        assert!(!heap.gave_back(104 * MIB, 101 * MIB, MIB));
        assert_eq!((heap.holds(106 * MIB, 0), is_due(106), is_due(107)), (MIB / 4, false, true), "it needs so much");
        heap.holds(107 * MIB, heap.mapped.load(Ordering::Relaxed) + MIB);
        assert!(!is_due(107), "glibc needs so much");
    }
}
