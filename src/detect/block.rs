//! Block: one contiguous slice per thread. Also the tests that block and block-cyclic share: the accepted number of
//! slices, and the order of their threads.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use super::fold::{Cut, Fit, Folder};
use super::limits::{SLICES_PER_THREAD, STRAY_SLICES};
use super::points::Points;

/// Best slices of the whole object.
pub(crate) fn find(points: &Points, folder: &mut Folder) -> Fit {
    folder.fit(points, f64::from(points.pages))
}

/// Whether there is about one slice per owner, as [`SLICES_PER_THREAD`] allows, or all further slices together hold so
/// little that they are stray samples ([`STRAY_SLICES`]).
pub(crate) fn one_slice_each(fit: &Fit, wraps: bool) -> bool {
    let owners = fit.owners() as f64;
    let extra = f64::from(u8::from(wraps));
    let few = fit.cuts.len() as f64 <= (owners * SLICES_PER_THREAD).floor() + extra;
    let matched = |cuts: &[Cut]| cuts.iter().map(|c| c.matched).sum::<f64>();
    owners >= 2.0 && (few || matched(&principal(&fit.cuts, wraps)) >= (1.0 - STRAY_SLICES) * matched(&fit.cuts))
}

/// For each owner the slice that holds most of its samples, once slices are [`joined`]; its other slices are stray
/// samples that are neighbours by chance. With `wraps` a slice that crosses the end of the period stays in two pieces.
pub(crate) fn principal(cuts: &[Cut], wraps: bool) -> Vec<Cut> {
    let cuts = &joined(cuts, wraps)[..];
    let mut most: HashMap<u16, f64> = HashMap::new();
    for c in cuts {
        let m = most.entry(c.thread).or_default();
        *m = m.max(c.matched);
    }
    let pieces = match (cuts.first(), cuts.last()) {
        (Some(a), Some(b)) if wraps && a.thread == b.thread => Some(a.thread),
        _ => None,
    };
    let kept = |(i, c): (usize, &Cut)| {
        let outer = i == 0 || i + 1 == cuts.len();
        let keep = if pieces == Some(c.thread) { outer } else { most.get(&c.thread) == Some(&c.matched) };
        keep.then_some(*c)
    };
    cuts.iter().enumerate().filter_map(kept).collect()
}

/// Slices without the smallest ones, as far as these are neither the largest of their thread nor hold more than
/// [`STRAY_SLICES`] together. What they had cut in two is one slice again: the pages of a counter that all threads use,
/// or the stray samples in parts of the object that nobody uses, as the ends of a triangle's rows.
fn joined(cuts: &[Cut], wraps: bool) -> Vec<Cut> {
    let mut left = STRAY_SLICES * cuts.iter().map(|c| c.matched).sum::<f64>();
    let mut kept: Vec<Option<Cut>> = cuts.iter().copied().map(Some).collect();
    let mut largest: HashMap<u16, f64> = HashMap::new();
    let size = |c: &Cut| c.matched.to_bits();
    for c in cuts {
        let most = largest.entry(c.thread).or_default();
        *most = most.max(c.matched);
    }
    let outer = |i: usize| wraps && (i == 0 || i + 1 == cuts.len());
    // Smallest first; what is joined comes again with its new size.
    let mut open: BTreeSet<(u64, Reverse<usize>)> =
        cuts.iter().enumerate().filter(|(i, _)| !outer(*i)).map(|(i, c)| (size(c), Reverse(i))).collect();
    let mut places: BTreeSet<usize> = (0..cuts.len()).collect();
    while let Some((_, Reverse(i))) = open.pop_first() {
        let Some(cut) = kept[i] else { continue };
        if cut.matched > left {
            break;
        }
        if largest.get(&cut.thread) == Some(&cut.matched) {
            continue;
        }
        left -= cut.matched;
        kept[i] = None;
        places.remove(&i);
        let (before, after) = (places.range(..i).next_back().copied(), places.range(i..).next().copied());
        if let (Some(b), Some(a)) = (before, after)
            && let (Some(first), Some(last)) = (kept[b], kept[a])
            && first.thread == last.thread
        {
            let whole = Cut { last: last.last, matched: first.matched + last.matched, ..first };
            let most = largest.entry(whole.thread).or_default();
            *most = most.max(whole.matched);
            open.remove(&(size(&first), Reverse(b)));
            open.remove(&(size(&last), Reverse(a)));
            (kept[b], kept[a]) = (Some(whole), None);
            places.remove(&a);
            if !outer(a) && !outer(b) {
                open.insert((size(&whole), Reverse(b)));
            }
        }
    }
    kept.into_iter().flatten().collect()
}

/// Order of the owners along the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Ascending (for periods: up to a rotation).
    Threads,
    /// Descending.
    Reverse,
    /// Anything else.
    Mixed,
}

impl Order {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Order::Threads => "in thread order",
            Order::Reverse => "in reverse thread order",
            Order::Mixed => "not in thread order",
        }
    }
}

/// Order of the owners. Nine in ten pairs of neighbouring slices must agree, because noise may misplace a slice.
pub(crate) fn order(cuts: &[Cut], wraps: bool) -> Order {
    const AGREE: f64 = 0.9;
    let steps: Vec<bool> =
        cuts.windows(2).filter(|w| w[0].thread != w[1].thread).map(|w| w[0].thread < w[1].thread).collect();
    let up = steps.iter().filter(|s| **s).count();
    let down = steps.len() - up;
    // A rotated order has one step in the other direction.
    let exceptions = usize::from(wraps);
    let most = |n: usize| (n + exceptions) as f64 >= AGREE * steps.len() as f64;
    match (most(up) && up >= down, most(down)) {
        (true, _) => Order::Threads,
        (_, true) => Order::Reverse,
        _ => Order::Mixed,
    }
}
