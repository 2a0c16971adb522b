//! Which wanted names stand for a return address in one file.
//!
//! Ranges of several names may overlap (aliases, the lines of a function), so they are cut into disjoint segments, each
//! with the list of its names.

use std::collections::BTreeMap;

/// Number of a wanted name, see `super::names`.
pub type NameId = u32;

/// Addresses as in the file, and the names in `CodeMap::lists` that hold there.
#[derive(Clone, Copy)]
struct Segment {
    start: u64,
    end: u64,
    first: u32,
    count: u32,
}

/// The names of every address of a file.
#[derive(Default)]
pub struct CodeMap {
    /// Disjoint and ascending.
    segments: Vec<Segment>,
    /// Lists of names, one after the other; each ascending.
    lists: Vec<NameId>,
    /// All names with code in this file, ascending.
    names: Vec<NameId>,
}

impl CodeMap {
    /// From half-open ranges in any order; empty ones are left out.
    pub fn of(mut ranges: Vec<(u64, u64, NameId)>) -> CodeMap {
        ranges.retain(|(start, end, _)| start < end);
        let mut map = CodeMap::default();
        map.names = ranges.iter().map(|&(.., name)| name).collect();
        map.names.sort_unstable();
        map.names.dedup();
        // At an address ranges end before others begin.
        let mut bounds: Vec<(u64, bool, NameId)> = Vec::with_capacity(ranges.len() * 2);
        for (start, end, name) in ranges {
            bounds.extend([(start, true, name), (end, false, name)]);
        }
        bounds.sort_unstable();
        let mut known: BTreeMap<Vec<NameId>, (u32, u32)> = BTreeMap::new();
        let mut active: Vec<(NameId, usize)> = Vec::new(); // with the number of ranges that hold here
        let mut at = 0;
        for (address, begins, name) in bounds {
            if address > at && !active.is_empty() {
                map.push(at, address, &active, &mut known);
            }
            at = address;
            match (active.binary_search_by_key(&name, |&(n, _)| n), begins) {
                (Ok(i), true) => active[i].1 += 1,
                (Err(i), true) => active.insert(i, (name, 1)),
                (Ok(i), false) if active[i].1 == 1 => {
                    active.remove(i);
                }
                (Ok(i), false) => active[i].1 -= 1,
                (Err(_), false) => {}
            }
        }
        map.segments.shrink_to_fit();
        map
    }

    fn push(
        &mut self,
        start: u64,
        end: u64,
        active: &[(NameId, usize)],
        known: &mut BTreeMap<Vec<NameId>, (u32, u32)>,
    ) {
        let names: Vec<NameId> = active.iter().map(|&(name, _)| name).collect();
        let (first, count) = *known.entry(names).or_insert_with_key(|names| {
            let first = self.lists.len() as u32;
            self.lists.extend_from_slice(names);
            (first, names.len() as u32)
        });
        match self.segments.last_mut() {
            Some(last) if last.end == start && last.first == first => last.end = end,
            _ => self.segments.push(Segment { start, end, first, count }),
        }
    }

    /// The names of an address, ascending.
    #[inline]
    pub fn at(&self, address: u64) -> &[NameId] {
        let after = self.segments.partition_point(|s| s.start <= address);
        match after.checked_sub(1).and_then(|i| self.segments.get(i)) {
            Some(s) if address < s.end => {
                self.lists.get(s.first as usize..(s.first + s.count) as usize).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// All names with code in this file, ascending.
    pub fn names(&self) -> &[NameId] {
        &self.names
    }

    /// Memory that the map takes.
    pub fn bytes(&self) -> usize {
        self.segments.capacity() * size_of::<Segment>() + (self.lists.capacity() + self.names.capacity()) * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ranges_are_cut() {
        let map = CodeMap::of(vec![(10, 20, 5), (12, 15, 7), (15, 18, 7), (14, 16, 5), (20, 22, 5), (30, 30, 9)]);
        let cases: [(u64, &[NameId]); 9] = [
            (9, &[]),
            (10, &[5]),
            (12, &[5, 7]),
            (15, &[5, 7]),
            (17, &[5, 7]),
            (18, &[5]),
            (21, &[5]),
            (22, &[]),
            (30, &[]),
        ];
        for (address, names) in cases {
            assert_eq!(map.at(address), names, "{address}");
        }
        assert_eq!((map.names(), map.segments.len()), (&[5, 7][..], 3));
        assert!(CodeMap::default().at(0).is_empty());
    }

    #[test]
    fn a_map_answers_as_its_ranges_do() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let ranges: Vec<(u64, u64, NameId)> = (0..random(12))
                .map(|_| {
                    let start = random(60);
                    (start, start + random(25), random(4) as NameId)
                })
                .collect();
            let map = CodeMap::of(ranges.clone());
            for address in 0..90 {
                let mut expected: Vec<NameId> =
                    ranges.iter().filter(|(s, e, _)| (*s..*e).contains(&address)).map(|r| r.2).collect();
                expected.sort_unstable();
                expected.dedup();
                assert_eq!(map.at(address), expected, "{address} of {ranges:?}");
            }
        }
    }
}
