//! Sums counters by key. Fast when keys repeat soon, as the accesses of one sample and those of hot cells do.

use std::hash::{BuildHasher, Hash};

use rustc_hash::{FxBuildHasher, FxHashMap};

use super::types::Counters;

/// Slots in front of the map: 1024 keys with their counters stay in the nearest caches.
const RECENT_BITS: u32 = 10;

/// Sums counters by key. Keys that were used lately are summed in a small direct-mapped table and reach the
/// map, whose every use may miss the cache, only when another key takes their slot.
#[derive(Debug)]
pub(super) struct Tally<K> {
    recent: Vec<Option<(K, Counters)>>,
    /// Index into `sums`, so that the map, which grows by copying, has small entries.
    all: FxHashMap<K, u32>,
    sums: Vec<(K, Counters)>,
    /// Keys kept at most; counters of further keys are dropped.
    limit: usize,
    /// Accesses in counters that were dropped.
    pub dropped: u64,
}

/// A tally that keeps nothing.
impl<K> Default for Tally<K> {
    fn default() -> Tally<K> {
        Tally { recent: Vec::new(), all: FxHashMap::default(), sums: Vec::new(), limit: 0, dropped: 0 }
    }
}

impl<K: Copy + Eq + Hash> Tally<K> {
    /// A tally of at most `limit` keys, with room for `expected`.
    pub(super) fn new(limit: usize, expected: usize) -> Tally<K> {
        let room = expected.min(limit);
        Tally {
            recent: vec![None; 1 << RECENT_BITS],
            all: FxHashMap::with_capacity_and_hasher(room, FxBuildHasher),
            sums: Vec::with_capacity(room),
            limit: limit.min(u32::MAX as usize),
            dropped: 0,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, key: K, counters: &Counters) {
        // The multiplicative hash is best in its high bits; hashbrown uses the others.
        let slot = (FxBuildHasher.hash_one(key) >> (u64::BITS - RECENT_BITS)) as usize;
        match &mut self.recent[slot] {
            Some((k, sum)) if *k == key => sum.add(counters),
            other => {
                if let Some((k, sum)) = other.replace((key, *counters)) {
                    self.spill(k, &sum);
                }
            }
        }
    }

    fn spill(&mut self, key: K, counters: &Counters) {
        if let Some(&known) = self.all.get(&key) {
            self.sums[known as usize].1.add(counters);
        } else if self.sums.len() < self.limit {
            self.all.insert(key, self.sums.len() as u32);
            self.sums.push((key, *counters));
        } else {
            self.dropped += counters.accesses();
        }
    }

    /// All keys with their sums, in no order.
    pub(super) fn finish(&mut self) -> Vec<(K, Counters)> {
        for (key, sum) in std::mem::take(&mut self.recent).into_iter().flatten() {
            self.spill(key, &sum);
        }
        std::mem::take(&mut self.sums)
    }
}
