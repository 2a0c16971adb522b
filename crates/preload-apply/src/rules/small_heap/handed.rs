//! Whether the objects of a heap are freed by other threads than those that allocated them, seen by samples.

use core::mem;

/// Part (1/64) of the objects that are looked at, by their addresses: of others nothing need be looked up.
const SAMPLED_BITS: u32 = 6;
/// Samples that are remembered at a time.
const PLACES: usize = 32;
/// Later samples that find the place of a sample taken until it is given up: some of those that are remembered are as
/// old as the objects that live long.
const PATIENCE: u32 = 64;
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

    /// Whether another thread than this one, which frees the object at `address`, allocated it; `None` when that is not
    /// known.
    #[inline]
    pub(super) fn freed(&mut self, address: usize, thread: impl FnOnce() -> usize) -> Option<bool> {
        place(address).and_then(|place| self.forget(place, address, thread() as u32))
    }

    #[cold]
    fn forget(&mut self, place: usize, address: usize, thread: u32) -> Option<bool> {
        let sample = &mut self.samples[place];
        (sample.address == address).then(|| mem::take(sample).thread != thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns over objects at `live` addresses, a hundred times; returns how many are known to have been freed by
    /// another thread, and how many by their own.
    fn known(live: usize, threads: usize) -> (usize, usize) {
        let (mut handed, mut random) = (Handed::default(), 1_u64);
        let mut objects = vec![false; live];
        let known = (0..100 * live).filter_map(|step| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (object, thread) = ((random >> 33) as usize % live, step % threads);
            let address = 0x6000_0000_0000 + object * 48;
            let known = if mem::replace(&mut objects[object], true) { handed.freed(address, || thread) } else { None };
            handed.allocated(address, || thread);
            known
        });
        let (others, own): (Vec<bool>, Vec<bool>) = known.partition(|by_another| *by_another);
        (others.len(), own.len())
    }

    #[test]
    fn objects_that_other_threads_free_are_known_however_many_there_are() {
        for live in [1000, 10_000, 300_000] {
            let (others, own) = known(live, 8);
            assert!(others > 500 && others > 4 * own, "of {live} objects {others}, {own}");
        }
    }

    #[test]
    fn objects_of_one_thread_are_not_freed_by_others() {
        let (others, own) = known(3000, 1);
        assert!(others == 0 && own > 500, "{others}, {own}");
    }
}
