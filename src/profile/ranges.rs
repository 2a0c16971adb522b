//! Disjoint ranges with a value each: the layers of an address space, the variables of a file, the pages touched.
//!
//! The caller removes overlapping ranges ([`Ranges::cut`] or [`Ranges::remove_overlapping`]) before it inserts one;
//! ranges are half-open and never empty.

use std::collections::BTreeMap;

/// One range: `low` is its first byte, `high` the one after its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span<V> {
    /// First byte.
    pub low: u64,
    /// One past the last byte.
    pub high: u64,
    /// Value of the range.
    pub value: V,
}

/// A set of disjoint ranges.
#[derive(Debug, Clone)]
pub struct Ranges<V> {
    map: BTreeMap<u64, (u64, V)>,
}

impl<V> Default for Ranges<V> {
    fn default() -> Self {
        Ranges { map: BTreeMap::new() }
    }
}

impl<V: Copy> Ranges<V> {
    /// The range that holds `addr`.
    pub fn get(&self, addr: u64) -> Option<Span<V>> {
        let (&low, &(high, value)) = self.map.range(..=addr).next_back()?;
        (addr < high).then_some(Span { low, high, value })
    }

    /// The range that holds `addr`, or the bounds of the gap it lies in.
    pub fn locate(&self, addr: u64) -> Result<Span<V>, (u64, u64)> {
        let mut gap_low = 0;
        if let Some((&low, &(high, value))) = self.map.range(..=addr).next_back() {
            if addr < high {
                return Ok(Span { low, high, value });
            }
            gap_low = high;
        }
        let gap_high = self.map.range(addr..).next().map_or(u64::MAX, |(&low, _)| low);
        Err((gap_low, gap_high))
    }

    /// Every range that shares a byte with `low..high`, ascending, with its full bounds.
    pub fn overlapping(&self, low: u64, high: u64) -> impl Iterator<Item = Span<V>> + '_ {
        let first = self.map.range(..low).next_back().filter(|(_, (end, _))| *end > low);
        let rest = self.map.range(low..high.max(low));
        first.into_iter().chain(rest).map(|(&low, &(high, value))| Span { low, high, value })
    }

    /// Removes `low..high`, keeping the parts of ranges outside it. Returns the ranges that overlapped it, with their
    /// full bounds.
    pub fn cut(&mut self, low: u64, high: u64) -> Vec<Span<V>> {
        let hit = self.remove_overlapping(low, high);
        for span in &hit {
            if span.low < low {
                self.map.insert(span.low, (low, span.value));
            }
            if span.high > high {
                self.map.insert(high, (span.high, span.value));
            }
        }
        hit
    }

    /// Removes whole every range that shares a byte with `low..high`, and returns them.
    pub fn remove_overlapping(&mut self, low: u64, high: u64) -> Vec<Span<V>> {
        let hit: Vec<Span<V>> = self.overlapping(low, high).collect();
        for span in &hit {
            self.map.remove(&span.low);
        }
        hit
    }

    /// Adds `low..high`, which must be free and not empty.
    pub fn insert(&mut self, low: u64, high: u64, value: V) {
        debug_assert!(low < high && self.overlapping(low, high).next().is_none());
        self.map.insert(low, (high, value));
    }

    /// Gives those parts of `low..high` that are in no range the value, and returns their bounds.
    pub fn fill(&mut self, low: u64, high: u64, value: V) -> Vec<(u64, u64)> {
        let mut free = Vec::new();
        let mut at = low;
        for span in self.overlapping(low, high) {
            if at < span.low {
                free.push((at, span.low));
            }
            at = span.high;
        }
        if at < high {
            free.push((at, high));
        }
        self.map.extend(free.iter().map(|&(low, high)| (low, (high, value))));
        free
    }

    /// All ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Span<V>> + '_ {
        self.map.iter().map(|(&low, &(high, value))| Span { low, high, value })
    }
}

/// How many pieces of `span` are left after `low..high` was cut out of it.
pub fn leftovers<V>(span: &Span<V>, low: u64, high: u64) -> u32 {
    u32::from(span.low < low) + u32::from(span.high > high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(r: &Ranges<u32>) -> Vec<(u64, u64, u32)> {
        r.iter().map(|s| (s.low, s.high, s.value)).collect()
    }

    #[test]
    fn cutting_keeps_both_sides_and_returns_full_bounds() {
        let mut r = Ranges::default();
        r.insert(10, 20, 1);
        r.insert(20, 30, 2);
        r.insert(40, 50, 3);
        let hit = r.cut(15, 45);
        assert_eq!(hit.iter().map(|s| (s.low, s.high)).collect::<Vec<_>>(), [(10, 20), (20, 30), (40, 50)]);
        assert_eq!(spans(&r), [(10, 15, 1), (45, 50, 3)]);
        r.cut(11, 12);
        assert_eq!(spans(&r), [(10, 11, 1), (12, 15, 1), (45, 50, 3)]);
    }

    #[test]
    fn locating_gives_the_range_or_the_gap() {
        let mut r = Ranges::default();
        assert_eq!(r.locate(5), Err((0, u64::MAX)));
        r.insert(10, 20, 1);
        r.insert(30, 40, 2);
        assert_eq!(r.locate(19).map(|s| s.value), Ok(1));
        assert_eq!(r.locate(20), Err((20, 30)));
        assert_eq!(r.locate(9), Err((0, 10)));
        assert_eq!(r.locate(40), Err((40, u64::MAX)));
        assert_eq!(r.get(39).map(|s| s.low), Some(30));
        assert_eq!(r.get(29), None);
    }

    #[test]
    fn filling_leaves_the_ranges_that_are_there() {
        let mut r = Ranges::default();
        r.insert(10, 20, 1);
        r.insert(30, 40, 2);
        assert_eq!(r.fill(15, 35, 3), [(20, 30)]);
        assert_eq!(r.fill(0, 50, 4), [(0, 10), (40, 50)]);
        assert_eq!(r.fill(5, 45, 5), []);
        assert_eq!(spans(&r), [(0, 10, 4), (10, 20, 1), (20, 30, 3), (30, 40, 2), (40, 50, 4)]);
    }

    #[test]
    fn removing_takes_whole_ranges() {
        let mut r = Ranges::default();
        r.insert(10, 20, 1);
        r.insert(20, 30, 2);
        assert_eq!(r.remove_overlapping(19, 20).len(), 1);
        assert_eq!(spans(&r), [(20, 30, 2)]);
    }
}
