//! Where in a page its accesses begin, of a profile that has all of them: code that goes through memory in sequence
//! enters each page at an end, and code that accesses it at random does so anywhere.
//!
//! A trace keeps where in the page the first access of each thread by each instruction was. An instruction that goes
//! through an array enters each page within an element of its first byte, or of its last one when it goes downwards,
//! whichever thread has that part. At random each thread begins with the same probability in each line of the page.

use rustc_hash::FxHashMap;

use super::types::PageEntries;
use crate::profile::records::{Folded, Frame, ObjectId};

/// Lines of 64 bytes in a page of 4 KiB, one bit each.
const LINE_SHIFT: u32 = 6;
const PAGE_SHIFT: u32 = 12;
/// Lines at each end of a page that elements of up to 512 bytes may begin in, where an array is gone through: an eighth
/// of the page.
const AT_ENDS: u32 = 8;
/// Pages by object and instruction that are told apart, 48 bytes each; of further ones nothing is known.
const MOST: usize = 1 << 22;

/// Sums over the pages that an instruction accesses.
#[derive(Debug, Clone, Copy, Default)]
struct OfCode {
    accesses: f64,
    /// Accesses to pages that are entered inside, away from both ends, and what this would be at random.
    inside: f64,
    at_random: f64,
}

impl OfCode {
    fn add(&mut self, lines: u64, accesses: u64) {
        let at_ends = ((1 << AT_ENDS) - 1) | !(u64::MAX >> AT_ENDS);
        let of_one = 1.0 - f64::from(2 * AT_ENDS) / f64::from(u64::BITS);
        let accesses = accesses as f64;
        self.accesses += accesses;
        self.inside += if lines & at_ends == 0 { accesses } else { 0.0 };
        self.at_random += accesses * of_one.powi(lines.count_ones() as i32);
    }

    fn entries(&self) -> PageEntries {
        let share = if self.at_random > 0.0 { (self.inside / self.at_random).min(1.0) } else { 0.0 };
        PageEntries { random: (self.accesses * share).round() as u64, all: self.accesses as u64 }
    }
}

/// Lines where threads began with a page, by object, instruction and page, and the accesses.
#[derive(Debug, Default)]
pub(super) struct Entered(FxHashMap<(ObjectId, Frame, u64), (u64, u64)>);

impl Entered {
    /// Adds accesses to a page.
    pub fn add(&mut self, a: &Folded) {
        let key = (a.object, a.ip, a.addr >> PAGE_SHIFT);
        if a.object_only || (self.0.len() >= MOST && !self.0.contains_key(&key)) {
            return;
        }
        let line = (a.addr >> LINE_SHIFT) & ((1 << (PAGE_SHIFT - LINE_SHIFT)) - 1);
        let (lines, accesses) = self.0.entry(key).or_default();
        *lines |= 1 << line;
        *accesses = accesses.saturating_add(a.reads.saturating_add(a.writes));
    }

    /// What is known by entry, of the objects for which `entry_of` names one.
    pub fn by_entry(&self, entry_of: impl Fn(ObjectId) -> Option<u32>) -> FxHashMap<u32, PageEntries> {
        let mut sums: FxHashMap<(u32, Frame), OfCode> = FxHashMap::default();
        for ((object, ip, _), (lines, accesses)) in &self.0 {
            if let Some(entry) = entry_of(*object) {
                sums.entry((entry, *ip)).or_default().add(*lines, *accesses);
            }
        }
        let mut found: FxHashMap<u32, PageEntries> = FxHashMap::default();
        sums.into_iter().for_each(|((entry, _), sum)| found.entry(entry).or_default().add(&sum.entries()));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random_share(addresses: impl Iterator<Item = u64>) -> f64 {
        let mut entered = Entered::default();
        for addr in addresses {
            let ip = Frame { module: 0, offset: 16 };
            let a = Folded {
                time_ns: 0,
                thread: 0,
                object: 1,
                addr,
                object_only: false,
                ip,
                reads: 9,
                writes: 0,
                remote: 0,
                placed: 0,
                cost_ns: 9,
            };
            entered.add(&a);
        }
        let mut sum = OfCode::default();
        entered.0.values().for_each(|(lines, accesses)| sum.add(*lines, *accesses));
        sum.entries().random_share().expect("accesses")
    }

    /// The first access of each of `threads` threads to each of 4,096 pages.
    fn at_random(threads: u64) -> f64 {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % 4096 / 8 * 8
        };
        let all: Vec<u64> = (0..4096 * threads).map(|n| n / threads * 4096 + next()).collect();
        random_share(all.into_iter())
    }

    #[test]
    fn pages_are_entered_anywhere_at_random_and_at_an_end_in_sequence() {
        for threads in [1, 4] {
            let found = at_random(threads);
            assert!((0.9..=1.0).contains(&found), "{threads} threads: {found}");
        }
        // Structures of 104 bytes, up and down.
        let first = |page: u64| (page * 4096).div_ceil(104) * 104;
        assert_eq!(random_share((0..4096).map(first)), 0.0);
        let last = |page: u64| ((page + 1) * 4096 - 104) / 104 * 104;
        assert_eq!(random_share((1..4096).map(last)), 0.0);
        // Pieces of 128 bytes that threads take in turn.
        let pieces = |page: u64| (0..4).map(move |thread| page * 4096 + 128 * ((thread + page) % 4));
        assert_eq!(random_share((0..4096).flat_map(pieces)), 0.0);
    }

    #[test]
    fn nothing_is_known_without_accesses() {
        assert_eq!(PageEntries::default().random_share(), None);
    }
}
