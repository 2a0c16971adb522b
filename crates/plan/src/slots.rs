//! Slots of the living threads of one kind: a new thread takes the lowest free slot, so threads that are created anew
//! get the slots of those that ended.
//!
//! The detector replays the threads of a profile with this table, and the apply preload gives slots to living threads
//! with it, so that both number the threads alike.

use core::sync::atomic::{AtomicU64, Ordering};

/// Slots of a table: four times the hardware threads of the largest machines that Linux distributions are built for
/// (NR_CPUS = 8192 is a limit of the kernel, not a machine). Threads beyond have no slot.
pub const MOST_SLOTS: usize = 4096;
const WORD: usize = u64::BITS as usize;

/// A set of taken slots, without locks.
#[derive(Debug)]
pub struct Slots {
    taken: [AtomicU64; MOST_SLOTS / WORD],
}

impl Default for Slots {
    fn default() -> Slots {
        Slots::new()
    }
}

impl Slots {
    /// All slots free.
    pub const fn new() -> Slots {
        Slots { taken: [const { AtomicU64::new(0) }; MOST_SLOTS / WORD] }
    }

    /// Takes the lowest free slot; `None` when all are taken.
    pub fn take(&self) -> Option<u32> {
        for (index, word) in self.taken.iter().enumerate() {
            let mut seen = word.load(Ordering::Relaxed);
            while seen != u64::MAX {
                let bit = seen.trailing_ones();
                // Slots guard no memory, so no ordering is needed.
                match word.compare_exchange_weak(seen, seen | 1 << bit, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => return Some((index * WORD) as u32 + bit),
                    Err(now) => seen = now,
                }
            }
        }
        None
    }

    /// Frees a slot.
    pub fn give(&self, slot: u32) {
        if let Some(word) = self.taken.get(slot as usize / WORD) {
            word.fetch_and(!(1 << (slot as usize % WORD)), Ordering::Relaxed);
        }
    }

    /// Frees all slots: a forked process has one thread.
    pub fn clear(&self) {
        self.taken.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_slot_is_taken() {
        let slots = Slots::new();
        assert_eq!([slots.take(), slots.take(), slots.take()], [Some(0), Some(1), Some(2)]);
        slots.give(1);
        slots.give(0);
        assert_eq!([slots.take(), slots.take(), slots.take()], [Some(0), Some(1), Some(3)]);
        slots.clear();
        assert_eq!(slots.take(), Some(0));
        slots.give(u32::MAX);
    }

    #[test]
    fn threads_get_different_slots_and_the_table_has_an_end() {
        let slots = Slots::new();
        let taken: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let take = || (0..MOST_SLOTS / 4).map_while(|_| slots.take()).collect();
            let all: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let mut all: Vec<u32> = taken.concat();
        all.sort_unstable();
        assert_eq!(all, (0..MOST_SLOTS as u32).collect::<Vec<_>>());
        assert_eq!(slots.take(), None);
    }
}
