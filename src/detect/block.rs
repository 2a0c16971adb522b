//! Block: one contiguous slice per thread, and what both kinds of slices share: how many slices are too many, and
//! in which order their threads come.

use std::collections::HashMap;

use super::fold::{Cut, Fit, Folder};
use super::limits::SLICES_PER_THREAD;
use super::points::Points;

/// Best slices of the whole object.
pub(crate) fn find(points: &Points, folder: &mut Folder) -> Fit {
    folder.fit(points, f64::from(points.pages))
}

/// Whether the cuts are about one slice per owner.
pub(crate) fn one_slice_each(fit: &Fit, wraps: bool) -> bool {
    let owners = fit.owners() as f64;
    let extra = f64::from(u8::from(wraps));
    owners >= 2.0 && fit.cuts.len() as f64 <= (owners * SLICES_PER_THREAD).floor() + extra
}

/// The one slice of each owner that holds most of its samples: what lies between are strays that happened to be
/// neighbours. With `wraps` a slice that runs over the end of the period stays in two pieces.
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

/// Order of the owners: of the neighbouring slices, nine in ten must agree (noise may misplace one).
pub(crate) fn order(cuts: &[Cut], wraps: bool) -> Order {
    const AGREE: f64 = 0.9;
    let steps: Vec<bool> =
        cuts.windows(2).filter(|w| w[0].thread != w[1].thread).map(|w| w[0].thread < w[1].thread).collect();
    let up = steps.iter().filter(|s| **s).count();
    let down = steps.len() - up;
    // A rotation has one step the wrong way.
    let pardon = usize::from(wraps);
    let most = |n: usize| (n + pardon) as f64 >= AGREE * steps.len() as f64;
    match (most(up) && up >= down, most(down)) {
        (true, _) => Order::Threads,
        (_, true) => Order::Reverse,
        _ => Order::Mixed,
    }
}
