//! Memory that a process shares with the children that it forks, however it does so: what they learn is not lost when
//! they end. It is a shared mapping; exec ends that, as it ends all else that this library knows.
//!
//! A process may end at any point, so what is shared must be atomic integers of which each value is valid by itself,
//! and nothing is ever waited for.

use core::ops::Deref;
use std::sync::Mutex;

use numamma_kernel::sys::{self, PAGE};

/// Bytes that are mapped at a time. Only pages that are written take memory.
const CHUNK: usize = 16 * PAGE;

/// A type of atomic integers.
///
/// # Safety
/// Memory of zeroes is a value of the type, and so is what other processes leave there at any time.
pub unsafe trait AllZero: Default + Sync + 'static {}

/// The first free byte of the last mapping, and its end. Only used while the library starts.
static FREE: Mutex<(usize, usize)> = Mutex::new((0, 0));

/// A value of zeroes that forked children share; their own copy where the kernel gives no memory.
pub struct Inherited<T: 'static>(&'static T);

impl<T: AllZero> Default for Inherited<T> {
    fn default() -> Inherited<T> {
        match take(size_of::<T>().next_multiple_of(align_of::<T>().max(64))) {
            // SAFETY: as many bytes at a multiple of 64 that nothing else has, zero, and mapped for good.
            Some(at) if align_of::<T>() <= 64 => Inherited(unsafe { &*(at as *const T) }),
            _ => Inherited(Box::leak(Box::default())),
        }
    }
}

impl<T> Deref for Inherited<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.0
    }
}

/// `bytes` bytes at a multiple of 64, which `bytes` is, too.
fn take(bytes: usize) -> Option<usize> {
    let mut free = FREE.lock().ok().filter(|_| bytes <= CHUNK)?;
    if free.1 - free.0 < bytes {
        let start = sys::map_inherited(CHUNK)? as usize;
        *free = (start, start + CHUNK);
    }
    let at = free.0;
    free.0 += bytes;
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU64, Ordering};

    #[derive(Default)]
    struct Numbers {
        all: [AtomicU64; 9],
    }

    // SAFETY: atomic integers.
    unsafe impl AllZero for Numbers {}

    #[test]
    fn what_a_child_writes_is_there_for_its_parent() {
        let numbers: Vec<Inherited<Numbers>> = (0..1000).map(|_| Inherited::default()).collect();
        // SAFETY: the child makes no call that could wait for another thread.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                numbers.iter().zip(1..).for_each(|(one, n)| one.all[8].store(n, Ordering::Relaxed));
                libc::_exit(0);
            }
            assert_eq!(libc::waitpid(child, core::ptr::null_mut(), 0), child);
        }
        for (one, n) in numbers.iter().zip(1..) {
            assert_eq!((one.all[0].load(Ordering::Relaxed), one.all[8].load(Ordering::Relaxed)), (0, n));
        }
    }
}
