//! A range of addresses whose mappings are recognised by their address alone, although nothing is reserved.
//!
//! Reserved address space counts against `RLIMIT_AS` and, after mlockall(2), against `RLIMIT_MEMLOCK`. A [`Window`]
//! takes none: it is a range far from where the kernel puts mappings of its own choice, and each mapping in it is made
//! at an address that must be free (MAP_FIXED_NOREPLACE). Another mapping may lie in the window nevertheless, so
//! [`Window::owns`] answers "certainly not" or "look it up".

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::sys::{self, PAGE};

/// Distance of the addresses at which mappings begin, and the most bytes of one.
pub const SLOT: usize = 8 << 20;
const SLOTS: usize = 1 << 16;
/// Bytes of a window.
const LENGTH: usize = SLOT * SLOTS;

/// The addresses among which a window is chosen. x86_64 Linux puts position-independent programs at two thirds of
/// 128 TiB (0x5555...) with the heap behind them, mappings below the stack (0x7fff...) downwards, and with an unlimited
/// stack upwards from a third (0x2aaa...). Between these numbers nothing lies unless a program asked for it.
const LOWEST: usize = 0x6000_0000_0000;
const HIGHEST: usize = 0x7000_0000_0000;
/// Start of a window that is not chosen yet: not an address, and so far up that no address is inside.
const UNCHOSEN: usize = 1 << 63;
/// Occupied slots that are passed over before the window counts as unusable.
const TRIES: usize = 64;
/// 2^64 divided by the golden ratio: multiplying by it spreads the bits of an address (Knuth, The Art of Computer
/// Programming, volume 3, 6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// linux/mman.h; since Linux 4.17. Older kernels take the address as a hint, which is checked.
const MAP_FIXED_NOREPLACE: i32 = 0x10_0000;

/// See the top of this file.
pub struct Window {
    start: AtomicUsize,
    /// A bit for each slot that is in use, by this window or by another mapping.
    used: [AtomicU64; SLOTS / 64],
}

impl Default for Window {
    fn default() -> Window {
        Window::new()
    }
}

impl Window {
    /// A window without mappings, whose addresses are chosen when the first one is made.
    pub const fn new() -> Window {
        Window { start: AtomicUsize::new(UNCHOSEN), used: [const { AtomicU64::new(0) }; SLOTS / 64] }
    }

    /// Whether `address` may lie in a mapping of this window.
    #[inline(always)]
    pub fn owns(&self, address: usize) -> bool {
        address.wrapping_sub(self.start.load(Ordering::Relaxed)) < LENGTH
    }

    /// Start of the slot that holds `address`, which [`Window::owns`].
    #[inline(always)]
    pub fn slot_start(&self, address: usize) -> usize {
        address & !(SLOT - 1)
    }

    /// Maps `len` bytes, at most [`SLOT`], that can be neither read nor written yet. `random` decides where the window
    /// is, at the first call. `None` when the kernel refuses.
    pub fn map(&self, len: usize, random: usize) -> Option<usize> {
        let start = self.start(random);
        for _ in 0..TRIES {
            let slot = self.claim()?;
            let at = start + slot * SLOT;
            match map_at(at, len) {
                Ok(()) => return Some(at),
                // Another mapping is there: the slot stays marked.
                Err(libc::EEXIST) => {}
                Err(_) => {
                    self.unclaim(slot);
                    return None;
                }
            }
        }
        None
    }

    /// Unmaps `len` bytes at `address`, which is the start of a slot.
    ///
    /// # Safety
    /// [`Window::map`] returned the address for that length, and nothing uses the range after the call.
    pub unsafe fn unmap(&self, address: usize, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { sys::unmap(address as *mut c_void, len) };
        self.unmapped(address);
    }

    /// Takes note that the caller has unmapped what [`Window::map`] returned at `address`.
    pub fn unmapped(&self, address: usize) {
        self.unclaim(address.wrapping_sub(self.start.load(Ordering::Relaxed)) / SLOT);
    }

    fn start(&self, random: usize) -> usize {
        let known = self.start.load(Ordering::Relaxed);
        if known != UNCHOSEN {
            return known;
        }
        let choices = (HIGHEST - LOWEST - LENGTH) / SLOT;
        let number = ((random as u64).wrapping_mul(SPREAD) >> 32) as usize % choices;
        let chosen = LOWEST + number * SLOT;
        // Relaxed: the start orders no other memory. A thread that passes an address on orders that itself.
        self.start.compare_exchange(UNCHOSEN, chosen, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(chosen)
    }

    /// Marks the lowest free slot.
    fn claim(&self) -> Option<usize> {
        self.used.iter().enumerate().find_map(|(index, word)| {
            let free = |now: u64| (now != u64::MAX).then(|| now | (now + 1));
            // Acquire pairs with the Release of `unclaim`: the mapping before is gone.
            let before = word.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).ok()?;
            Some(index * 64 + before.trailing_ones() as usize)
        })
    }

    fn unclaim(&self, slot: usize) {
        if let Some(word) = self.used.get(slot / 64) {
            word.fetch_and(!(1 << (slot % 64)), Ordering::Release);
        }
    }
}

fn map_at(address: usize, len: usize) -> Result<(), i32> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    // SAFETY: the flag makes the kernel refuse an address range that is in use.
    let at = unsafe { libc::syscall(libc::SYS_mmap, address, len, libc::PROT_NONE, flags, -1, 0_usize) };
    match at {
        -1 => Err(crate::errno::get()),
        at if at as usize == address => Ok(()),
        at => {
            // SAFETY: the mapping was made above, and no pointer to it exists.
            unsafe { sys::unmap(at as *mut c_void, len.next_multiple_of(PAGE)) };
            Err(libc::EEXIST)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_and_occupied_ones_are_passed_over() {
        let window = Window::new();
        for address in [0, 4096, 0x5555_5555_0000, LOWEST, HIGHEST, 0x7fff_ffff_f000, usize::MAX] {
            assert!(!window.owns(address), "{address:x} before the first mapping");
        }
        let one = window.map(3 * PAGE, 12_345).unwrap();
        let two = window.map(SLOT, 54_321).unwrap();
        assert_eq!((two, window.slot_start(two + SLOT - 1)), (one + SLOT, two));
        assert!(window.owns(one) && window.owns(two + SLOT - 1) && !window.owns(one - 1));
        assert!((LOWEST..HIGHEST - LENGTH).contains(&one));
        // SAFETY: nothing uses the mappings.
        unsafe { window.unmap(one, 3 * PAGE) };
        map_at(one, PAGE).unwrap();
        assert_eq!(window.map(PAGE, 0), Some(two + SLOT), "the first slot is occupied");
        // SAFETY: as above.
        unsafe {
            window.unmap(two, SLOT);
            sys::unmap(one as *mut c_void, PAGE);
        }
        assert_eq!(window.map(PAGE, 0), Some(two));
    }

    #[test]
    fn windows_of_different_processes_differ() {
        let starts: Vec<usize> = (0..100).map(|n| Window::new().start(n * 4096 + 0x7f00_0000_0000)).collect();
        let mut sorted = starts.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), starts.len());
    }
}
