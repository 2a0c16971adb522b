//! Memory of the sampler, far from where the kernel maps what the program asks for.
//!
//! The thread maps memory whenever a window opens. A program that unmaps or moves a range may know that nobody else
//! maps memory in it, and map there again (MAP_FIXED) or unmap the range once more. What the kernel had mapped there
//! for the thread meanwhile would be lost with the pages in it, and later the thread would unmap what is the program's
//! by then.

use core::ffi::c_void;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use numamma_kernel::{errno, sys};

use super::pages::HUGE;

/// Nothing is mapped between these on x86_64 unless a program names the address: they lie above TASK_UNMAPPED_BASE (43
/// TiB), from which mappings grow upwards where stacks are unlimited, and below ELF_ET_DYN_BASE (85 TiB), where
/// position-independent programs begin with their heaps behind them.
const LOW: usize = 48 << 40;
const HIGH: usize = 64 << 40;
/// Places that are tried before the kernel chooses one.
const TRIES: usize = 8;

/// The next place; used by the sampler's thread, or by the one that is about to start it.
static NEXT: AtomicUsize = AtomicUsize::new(LOW);

/// Maps `len` bytes of zeros that are not counted as promised memory (see [`sys::map_room`]); `None` when the kernel
/// refuses.
pub fn map(len: usize) -> Option<*mut c_void> {
    for _ in 0..TRIES {
        let at = place(NEXT.load(Relaxed), len);
        NEXT.store(at.saturating_add(len).next_multiple_of(HUGE), Relaxed);
        match sys::map_room_at(at, len) {
            Some(found) => return Some(found),
            None if errno::get() == libc::EEXIST => {}
            None => break,
        }
    }
    sys::map_room(len)
}

/// `next`, or the first place when `len` bytes there would not lie below the last one.
fn place(next: usize, len: usize) -> usize {
    if next.checked_add(len).is_some_and(|end| end <= HIGH) { next } else { LOW }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_lies_apart_and_never_replaces_any() {
        let len = 5 * sys::PAGE;
        let first = map(len).expect("memory") as usize;
        assert!((LOW..HIGH).contains(&first));
        NEXT.store(first, Relaxed);
        let second = map(len).expect("memory") as usize;
        assert!((LOW..HIGH).contains(&second) && second != first);
        for at in [first, second] {
            // SAFETY: mapped above.
            unsafe { sys::unmap(at as *mut c_void, len) };
        }
    }

    #[test]
    fn places_begin_anew_behind_the_last() {
        assert_eq!(place(LOW + HUGE, HUGE), LOW + HUGE);
        assert_eq!(place(HIGH - HUGE, HUGE), HIGH - HUGE);
        assert_eq!((place(HIGH - HUGE, 2 * HUGE), place(HIGH - HUGE, usize::MAX)), (LOW, LOW));
    }
}
