//! A table of sums by key that is larger than the caches. Sums are added many at a time, so that the memory which they
//! miss the caches for is fetched side by side: one by one, each would wait for its own.

use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use super::cells::{Key, Sums};

/// Sums that are added at a time: 18 KiB, which stay in the nearest cache.
const BATCH: usize = 256;
/// A slot without a sum.
const FREE: u32 = u32::MAX;

/// Sums by key.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// In the order in which they came.
    sums: Vec<(Key, Sums)>,
    /// Indices of sums, each at the first free slot from that of its hash on; at most half of the slots are taken.
    slots: Vec<u32>,
    waiting: Vec<(Key, Sums)>,
}

impl Table {
    /// A table with room for so many sums.
    pub fn with_capacity(sums: usize) -> Table {
        let mut table = Table { sums: Vec::with_capacity(sums), ..Table::default() };
        table.spread(sums);
        table
    }

    /// Sums so far, without those that wait.
    pub fn len(&self) -> usize {
        self.sums.len()
    }

    /// Adds a sum, which may wait.
    #[inline]
    pub fn add(&mut self, key: Key, sums: Sums) {
        self.waiting.push((key, sums));
        if self.waiting.len() == BATCH {
            self.settle();
        }
    }

    /// Adds what waits.
    pub fn settle(&mut self) {
        if 2 * (self.sums.len() + self.waiting.len()) > self.slots.len() {
            self.spread(self.sums.len() + self.waiting.len());
        }
        let waiting = std::mem::take(&mut self.waiting);
        // No load of these two loops depends on another one.
        let mut first = [FREE; BATCH];
        for ((key, _), first) in waiting.iter().zip(&mut first) {
            *first = self.slots[self.home(key)];
        }
        for (sum, first) in waiting.iter().zip(first) {
            match self.sums.get_mut(first as usize) {
                Some((key, sums)) if *key == sum.0 => sums.add(&sum.1),
                _ => self.probe(sum),
            }
        }
        self.waiting = waiting;
        self.waiting.clear();
    }

    /// Adds a sum wherever it is.
    fn probe(&mut self, sum: &(Key, Sums)) {
        let mut slot = self.home(&sum.0);
        while let Some((key, sums)) = self.sums.get_mut(self.slots[slot] as usize) {
            if *key == sum.0 {
                return sums.add(&sum.1);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = self.sums.len() as u32;
        self.sums.push(*sum);
    }

    /// The slot of a key's hash.
    #[inline]
    fn home(&self, key: &Key) -> usize {
        FxBuildHasher.hash_one(key) as usize & (self.slots.len() - 1)
    }

    /// Makes slots for so many sums.
    fn spread(&mut self, sums: usize) {
        self.slots.clear();
        self.slots.resize((2 * sums).max(2 * BATCH).next_power_of_two(), FREE);
        for index in 0..self.sums.len() {
            let mut slot = self.home(&self.sums[index].0);
            while self.slots[slot] != FREE {
                slot = (slot + 1) & (self.slots.len() - 1);
            }
            self.slots[slot] = index as u32;
        }
    }

    /// All sums but those that wait.
    pub fn all(&self) -> &[(Key, Sums)] {
        &self.sums
    }

    /// All sums; the table is empty then.
    pub fn take(&mut self) -> Vec<(Key, Sums)> {
        self.settle();
        self.slots.fill(FREE);
        std::mem::take(&mut self.sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sum_is_in_the_table_once() {
        let mut table = Table::with_capacity(3);
        let sums = Sums { time_ns: 5, addr: 1, cost_ns: 7, reads: 1, writes: 0, remote: 0, placed: 0 };
        // Each key comes three times: twice in a row, and again much later.
        let key = |n: u32| Key { object: n % 7, thread: n % 3, page: u64::from(n) << 12, slot: n, ip: 1 };
        for n in (0..5000).chain(0..5000) {
            table.add(key(n), sums);
            if n % 2 == 0 {
                table.add(key(n), sums);
            }
        }
        let mut all = table.take();
        assert_eq!((table.len(), table.all().len()), (0, 0));
        all.sort_unstable_by_key(|(key, _)| key.slot);
        assert_eq!(all.len(), 5000);
        for (n, (found, sum)) in (0..).zip(&all) {
            let times = if n % 2 == 0 { 4 } else { 2 };
            assert_eq!((*found, sum.reads, sum.cost_ns), (key(n), times, u64::from(times) * 7));
        }
        table.add(key(1), sums);
        assert_eq!(table.take().len(), 1);
    }
}
