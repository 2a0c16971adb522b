//! Block: one contiguous slice per thread. Also the tests that block and block-cyclic share: the accepted number of
//! slices, and the order of their threads.

use std::collections::HashMap;

use super::fold::{Cut, Fit, Folder};
use super::limits::SLICES_PER_THREAD;
use super::points::Points;

/// Best slices of the whole object.
pub(crate) fn find(points: &Points, folder: &mut Folder) -> Fit {
    folder.fit(points, f64::from(points.pages))
}

/// Whether there is about one slice per owner, as [`SLICES_PER_THREAD`] allows.
pub(crate) fn one_slice_each(fit: &Fit, wraps: bool) -> bool {
    let owners = fit.owners() as f64;
    let extra = f64::from(u8::from(wraps));
    owners >= 2.0 && fit.cuts.len() as f64 <= (owners * SLICES_PER_THREAD).floor() + extra
}

/// For each owner the slice that holds most of its samples; its other slices are stray samples that are neighbours by
/// chance. With `wraps` a slice that crosses the end of the period stays in two pieces.
pub(crate) fn principal(cuts: &[Cut], wraps: bool) -> Vec<Cut> {
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
