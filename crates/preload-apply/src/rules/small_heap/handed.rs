//! Whether the objects of a heap are freed by other threads than those that allocated them, seen by samples.

use core::mem;

/// Part (1/64) of the objects that are looked at, by their addresses: of others nothing need be looked up.
const SAMPLED_BITS: u32 = 6;
/// Samples that are remembered at a time.
const PLACES: usize = 32;
/// Later samples that find the place of a sample taken until it is given up: some of those that are remembered are as
/// old as the objects that live long.
const PATIENCE: u32 = 64;
/// Freed samples that decide.
const ENOUGH: u32 = 64;
/// 2^64 divided by the golden ratio: multiplying by it spreads the bits of an address (Knuth, The Art of Computer
/// Programming, volume 3, 6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// An object, and the thread that allocated it.
#[derive(Clone, Copy, Default)]
struct Sample {
    /// 0: none.
    address: usize,
    thread: u32,
    /// Samples that it has been in the way of.
    in_way_of: u32,
}

/// See the module.
#[derive(Default)]
pub(super) struct Handed {
    samples: [Sample; PLACES],
    freed: u32,
    by_others: u32,
}

/// The place of a sample; none for other objects.
#[inline]
fn place(address: usize) -> Option<usize> {
    let hash = (address as u64).wrapping_mul(SPREAD);
    (hash >> (u64::BITS - SAMPLED_BITS) == 0).then_some((hash >> 40) as usize % PLACES)
}

impl Handed {
    /// Notes that the object at `address` was allocated by this thread.
    #[inline]
    pub(super) fn allocated(&mut self, address: usize, thread: impl FnOnce() -> usize) {
        if let Some(place) = place(address) {
            self.remember(place, address, thread() as u32);
        }
    }

    #[cold]
    fn remember(&mut self, place: usize, address: usize, thread: u32) {
        let sample = &mut self.samples[place];
        if sample.address != 0 && sample.in_way_of < PATIENCE {
            sample.in_way_of += 1;
            return;
        }
        *sample = Sample { address, thread, in_way_of: 0 };
    }

    /// Notes that the object at `address` was freed by this thread; true if most objects are freed by another one than
    /// allocated them.
    #[inline]
    pub(super) fn freed(&mut self, address: usize, thread: impl FnOnce() -> usize) -> bool {
        place(address).is_some_and(|place| self.count(place, address, thread() as u32))
    }

    #[cold]
    fn count(&mut self, place: usize, address: usize, thread: u32) -> bool {
        if self.samples[place].address != address {
            return false;
        }
        let sample = mem::take(&mut self.samples[place]);
        self.freed += 1;
        self.by_others += u32::from(sample.thread != thread);
        if self.freed < ENOUGH {
            return false;
        }
        self.freed = 0;
        mem::take(&mut self.by_others) > ENOUGH / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns over objects at `live` addresses; returns after how many frees it is seen that others free them.
    fn seen(live: usize, threads: usize) -> Option<usize> {
        let (mut handed, mut random) = (Handed::default(), 1_u64);
        let mut objects = vec![false; live];
        (0..300 * live).find(|step| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (object, thread) = ((random >> 33) as usize % live, step % threads);
            let address = 0x6000_0000_0000 + object * 48;
            let seen = mem::replace(&mut objects[object], true) && handed.freed(address, || thread);
            handed.allocated(address, || thread);
            seen
        })
    }

    #[test]
    fn objects_that_other_threads_free_are_seen_however_many_there_are() {
        for live in [1000, 10_000, 300_000] {
            let seen = seen(live, 8);
            assert!(seen.is_some_and(|frees| frees < 100 * live.max(3000)), "{live} objects: after {seen:?} frees");
        }
    }

    #[test]
    fn objects_of_one_thread_are_not_handed_on() {
        assert_eq!(seen(3000, 1), None);
    }
}
