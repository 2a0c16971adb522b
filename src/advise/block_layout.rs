//! Layouts of a sliced object in blocks, and the share of the object that each makes local. The share is estimated from
//! evenly spaced offsets and the thread of the target that uses each.

use numamma_plan::plan::{self, PAGE};
use numamma_plan::policy::PolicyKind;

use crate::detect::Slice;
use crate::profile::records::ObjectKind;
use crate::profile::summary::Entry;

/// 2^64 over the golden ratio: its multiples lie evenly in 64 bits.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// Number of offsets from which a local share is estimated.
const OFFSETS: u64 = 8192;
/// Largest number of nodes that Linux can number.
const MOST_NODES: usize = 1024;

/// Blocks of `block` bytes on nodes in `order`, and the share of the object that is then local to the threads using it.
pub(super) struct Layout {
    pub order: Vec<u32>,
    pub block: u64,
    pub local: f64,
}

/// An object whose slices are used by one thread each.
pub(super) struct SlicedObject<'a> {
    pub slices: &'a [Slice],
    pub size: u64,
    pub whole: u64,
    /// Whether the slices are those of a period.
    pub repeats: bool,
    /// Offset of the first byte of block 0, see [`first_planned`].
    pub first: i64,
    /// Workers of the team that uses it in the profile and on the target.
    pub seen: u32,
    pub threads: u32,
}

/// Bytes of an entry's first page that lie before it.
fn ahead(entry: &Entry) -> u64 {
    entry.seen.first().map_or(entry.vaddr, |i| i.base) % PAGE
}

/// Number of recorded pages of an entry before page 0 of its plan. Variables keep their address, so that a plan begins
/// with the first whole page of one, and with the page nearest to the first byte of a part. Allocations that a rule
/// places begin with a page, so that page 0 is the recorded one with most of its first bytes.
pub(super) fn pages_before(entry: &Entry) -> u64 {
    let keeps_address = matches!(entry.kind, ObjectKind::Global | ObjectKind::Section);
    let is_inside = entry.part.as_ref().is_some_and(|part| part.offset > 0);
    let most = if keeps_address && !is_inside { 0 } else { PAGE / 2 };
    u64::from(ahead(entry) > most)
}

/// Offset of the first byte of page 0 of a plan in the bytes that slices count: those of the object for plain blocks,
/// those of its pages for the slices of a period.
pub(super) fn first_planned(entry: &Entry, policy: PolicyKind) -> i64 {
    let ahead = if policy == PolicyKind::BlockCyclic { 0 } else { ahead(entry) };
    (pages_before(entry) * PAGE) as i64 - ahead as i64
}

/// The worker, of `threads` on the target, that takes over from worker `rank` of `seen` in the profile, at `part` (0
/// to 1) of its slice. Ranks are scaled to [0, 1), so that a pattern of T threads applies to T' threads. A thread that
/// is none of the workers (`rank` from `seen` on) is not bound, and counts where thread 0 runs.
pub(super) fn extrapolate(rank: u32, part: f64, seen: u32, threads: u32) -> u32 {
    if rank >= seen {
        return 0;
    }
    if seen == threads {
        return rank;
    }
    let place = (f64::from(rank) + part) / f64::from(seen.max(1));
    ((place * f64::from(threads)) as u32).min(threads.saturating_sub(1))
}

/// Whether workers, in the order of the memory that each of them uses, come with descending numbers, as in a loop that
/// runs backwards. Most steps decide: a rotated order has one in the other direction.
pub(super) fn descends(workers: impl Iterator<Item = u32> + Clone) -> bool {
    let steps = workers.clone().zip(workers.skip(1));
    let (up, down) = steps.fold((0, 0), |(up, down), (a, b)| (up + u32::from(a < b), down + u32::from(a > b)));
    down > up
}

/// The slice that has byte `inside` of the object or period, and the position of the byte in it, 0 to 1 in the order of
/// the workers: where they descend, those of a target with more workers do so within each slice, too.
pub(super) fn place_in_slice(slices: &[Slice], inside: u64) -> Option<(Slice, f64)> {
    let index = slices.partition_point(|s| s.end <= inside);
    let slice = *slices.get(index).filter(|s| s.start <= inside)?;
    let ahead = match descends(slices.iter().map(|s| s.thread)) {
        true => slice.end - 1 - inside,
        false => inside - slice.start,
    };
    Some((slice, ahead as f64 / (slice.end - slice.start).max(1) as f64))
}

/// An offset below `step` that is another one for each `i`. With one for all, of each period that is a multiple of
/// `step` the same few pages would be looked at.
fn spread(i: u64, step: u64) -> u64 {
    ((u128::from(i.wrapping_mul(GOLDEN)) * u128::from(step)) >> 64) as u64
}

impl SlicedObject<'_> {
    /// Size of a block of which `count` make up `base` bytes, in memory with pages of `page` bytes: whole pages, but
    /// for a period on pages of 4 KiB, since what is added to each of its blocks adds up over the periods.
    pub fn block(&self, base: u64, count: u64, page: u64) -> u64 {
        if self.repeats && page == PAGE {
            plan::part_of(base, count).max(PAGE)
        } else {
            base.div_ceil(count.max(1)).div_ceil(page).saturating_mul(page)
        }
    }

    pub fn offsets(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let step = (self.size / OFFSETS).max(1);
        (0..self.size.div_ceil(step)).filter_map(move |i| {
            let at = i * step + spread(i, step);
            let inside = at % self.whole.max(1);
            let (slice, part) = place_in_slice(self.slices, inside)?;
            Some((at, extrapolate(slice.thread, part, self.seen, self.threads)))
        })
    }

    /// Number of the block in which an offset is. What lies before the first block shares its page with another object,
    /// and goes with it.
    fn block_of(&self, at: u64, block: u64) -> u64 {
        plan::block_of_page(at.saturating_add_signed(self.first.saturating_neg()) / PAGE, block)
    }

    /// Share of the offsets whose block is on the node of the thread that uses them.
    pub fn local_share(&self, order: &[u32], block: u64, node_of: impl Fn(u32) -> u32) -> f64 {
        let (mut all, mut good) = (0u64, 0u64);
        for (at, thread) in self.offsets() {
            all += 1;
            let node = order.get((self.block_of(at, block) % order.len().max(1) as u64) as usize);
            good += u64::from(node == Some(&node_of(thread)));
        }
        if all == 0 { 0.0 } else { good as f64 / all as f64 }
    }

    /// For each block of the cycle the node on which most of its users run. Blocks of a period that nobody uses go with
    /// those before them. Those behind the last slice are left out of an object that does not repeat.
    pub fn preferred_nodes(&self, count: u32, block: u64, node_of: impl Fn(u32) -> u32) -> Vec<u32> {
        let mut votes = vec![vec![0u64; MOST_NODES]; count as usize];
        for (at, thread) in self.offsets() {
            let index = (self.block_of(at, block) % u64::from(count.max(1))) as usize;
            if let Some(vote) = votes[index].get_mut(node_of(thread) as usize) {
                *vote += 1;
            }
        }
        let best = |v: &Vec<u64>| {
            let most = v.iter().copied().max().filter(|m| *m > 0)?;
            v.iter().position(|x| *x == most).map(|i| i as u32)
        };
        if !self.repeats {
            return votes.iter().map_while(best).collect();
        }
        let found: Vec<Option<u32>> = votes.iter().map(best).collect();
        let before = found.iter().rev().flatten().next().copied();
        let filled = found.iter().scan(before, |last, node| {
            *last = node.or(*last);
            Some(*last)
        });
        filled.flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nodes of eight blocks of an object whose four slices belong to `workers`, on eight nodes with a worker each.
    fn nodes_of(workers: [u32; 4], repeats: bool) -> Vec<u32> {
        let quarter = 1 << 20;
        let slice = |(at, &thread): (usize, &u32)| {
            let start = at as u64 * quarter;
            Slice { start, end: start + quarter, thread }
        };
        let slices: Vec<Slice> = workers.iter().enumerate().map(slice).collect();
        let (size, whole) = (4 * quarter * if repeats { 3 } else { 1 }, 4 * quarter);
        let object = SlicedObject { slices: &slices, size, whole, repeats, first: 0, seen: 4, threads: 8 };
        object.preferred_nodes(8, quarter / 2, |thread| thread)
    }

    #[test]
    fn workers_in_reverse_order_stay_so_when_there_are_more() {
        for repeats in [false, true] {
            assert_eq!(nodes_of([0, 1, 2, 3], repeats), [0, 1, 2, 3, 4, 5, 6, 7]);
            assert_eq!(nodes_of([3, 2, 1, 0], repeats), [7, 6, 5, 4, 3, 2, 1, 0]);
            assert_eq!(nodes_of([1, 0, 3, 2], repeats), [3, 2, 1, 0, 7, 6, 5, 4], "most steps are down");
            assert_eq!(nodes_of([2, 3, 0, 1], repeats), [4, 5, 6, 7, 0, 1, 2, 3], "a rotated order");
        }
    }
}
