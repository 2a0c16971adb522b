//! Sums counters by key. Fast when keys repeat soon, as the accesses of one sample and those of hot cells do, and when
//! they do not: then they are sorted, a batch at a time, where a table of millions of keys would miss the caches.

use std::hash::{BuildHasher, Hash};

use rustc_hash::FxBuildHasher;

use super::types::Counters;

/// Slots in front of the sums: 1024 keys with their counters stay in the nearest caches.
const RECENT_BITS: u32 = 10;
/// Fewest sums that are sorted in at once: 12 MiB, which is all that a profile of some megabytes has.
const LEAST_BATCH: usize = 1 << 18;

/// Sums counters by key. Keys that were used lately are summed in a small direct-mapped table. When another key takes
/// their slot, the sum waits, and many are sorted in together; a key may wait several times.
#[derive(Debug)]
pub(super) struct Tally<K> {
    recent: Vec<Option<(K, Counters)>>,
    waiting: Vec<(K, Counters)>,
    /// Ascending, each key once.
    sums: Vec<(K, Counters)>,
    /// Keys kept at most; counters of further keys are dropped.
    limit: usize,
    /// Accesses in counters that were dropped.
    pub dropped: u64,
}

/// A tally that keeps nothing.
impl<K> Default for Tally<K> {
    fn default() -> Tally<K> {
        Tally { recent: Vec::new(), waiting: Vec::new(), sums: Vec::new(), limit: 0, dropped: 0 }
    }
}

impl<K: Copy + Ord + Hash> Tally<K> {
    /// A tally of at most `limit` keys.
    pub(super) fn new(limit: usize) -> Tally<K> {
        Tally { recent: vec![None; 1 << RECENT_BITS], limit, ..Tally::default() }
    }

    #[inline]
    pub(super) fn add(&mut self, key: K, counters: &Counters) {
        // The multiplicative hash is best in its high bits.
        let slot = (FxBuildHasher.hash_one(key) >> (u64::BITS - RECENT_BITS)) as usize;
        match &mut self.recent[slot] {
            Some((k, sum)) if *k == key => sum.add(counters),
            other => {
                if let Some(sum) = other.replace((key, *counters)) {
                    self.waiting.push(sum);
                    // Each sum is moved a few times only, however many there are.
                    if self.waiting.len() >= LEAST_BATCH.max(self.sums.len() / 2) {
                        self.settle();
                    }
                }
            }
        }
    }

    /// Sorts in what waits.
    fn settle(&mut self) {
        self.waiting.sort_unstable_by_key(|&(key, _)| key);
        self.sums.append(&mut self.waiting);
        // Two sorted runs, which a stable sort merges. Of a key the sum that was known comes first.
        self.sums.sort_by_key(|&(key, _)| key);
        self.sums.dedup_by(|again, first| {
            let same = again.0 == first.0;
            if same {
                first.1.add(&again.1);
            }
            same
        });
        if self.sums.len() > self.limit {
            self.drop_some(self.limit);
        }
    }

    /// Keys that are kept at most.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Adds all sums of another.
    pub(super) fn join(&mut self, mut other: Tally<K>) {
        self.waiting.append(&mut other.finish());
        self.dropped += other.dropped;
    }

    /// Keeps `most` sums, spread evenly over the keys.
    fn drop_some(&mut self, most: usize) {
        let (all, mut at) = (self.sums.len() as u128, 0u128);
        let dropped = &mut self.dropped;
        self.sums.retain(|(_, sum)| {
            at += 1;
            let kept = at * most as u128 / all > (at - 1) * most as u128 / all;
            *dropped += if kept { 0 } else { sum.accesses() };
            kept
        });
    }

    /// All keys with their sums, ascending.
    pub(super) fn finish(&mut self) -> Vec<(K, Counters)> {
        let recent = std::mem::take(&mut self.recent);
        self.waiting.extend(recent.into_iter().flatten());
        self.settle();
        std::mem::take(&mut self.sums)
    }
}
