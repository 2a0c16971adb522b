//! What a process did with each object that matters in it, in a few numbers: for comparing processes.

use std::collections::BTreeMap;

use super::catalog::Process;
use crate::detect::limits::{ACCESSES_PER_SAMPLE, HOT_SHARE, HOT_SIGMA, STRUCTURE_MIN};
use crate::profile::summary::Entry;

/// Threads and parts of an object that are told apart.
const SIDE: usize = 16;
/// Share of a process's cost from which an object is kept: below what matters anywhere, so that an object that is hot
/// in one process can be compared with the others.
const LEAST: f64 = HOT_SHARE / 4.0;
/// Ratio of shares or sizes from which processes differ. A run of a parallel program easily varies by half, and what an
/// advice weighs by an object's cost does not change by less.
const APART: f64 = 2.0;
/// Difference of the shares of the cost of an object from which it counts: what a placement can save of it, half of its
/// cost at a NUMA factor of 2, is then more than the variation between runs.
const SHARE_APART: f64 = 0.05;
/// Standard error up to which a distance is believed: [`STRUCTURE_MIN`] is then [`HOT_SIGMA`] of them.
const ERROR: f64 = STRUCTURE_MIN / HOT_SIGMA;
/// Distance that chance makes, up to which a table is fine enough not to be made coarser: half of what counts.
const CHANCE: f64 = STRUCTURE_MIN / 2.0;
/// Standard deviations from which a cell of two tables differs: of cells that do not, one in twenty is so far apart.
const CERTAIN: f64 = 2.0;

/// One object.
#[derive(Debug, Clone, PartialEq)]
pub struct Use {
    /// Cost, ns; accesses where the profile has no costs.
    pub cost: f64,
    /// Accesses seen.
    pub accesses: u64,
    /// Bytes of the largest instance.
    pub size: u64,
    /// Whether a placement can reach it: no stack, no shared mapping, and no less than a page.
    pub reached: bool,
    /// Accesses by thread (rows) and part of the object.
    who: Box<[u32]>,
}

/// One process, or several together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Digest {
    /// Objects by their number.
    pub objects: BTreeMap<u32, Use>,
    /// Cost of the objects that a placement can reach. What a rank that waits for others reads meanwhile is none of
    /// them.
    pub cost: f64,
    /// Accesses to them.
    pub accesses: u64,
    /// Cost of all objects.
    pub total: f64,
}

/// In what a process differs from others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Difference {
    /// Share that an object has of the cost of those that can be placed, in it and in the others.
    Share(f64, f64),
    /// Bytes of the object, in it and in the others.
    Size(u64, u64),
    /// Share of the accesses that other threads make, or to other parts of the object.
    Pattern(f64),
    /// Cost, ns, in it and at the median of the others.
    Cost(f64, f64),
}

impl Digest {
    /// The digest of a process.
    pub(super) fn of(process: &Process) -> Digest {
        let entries = &process.summary.entries;
        let by_cost = entries.iter().any(|e| e.total.cost_ns > 0);
        let weight = |e: &Entry| match by_cost {
            true => e.total.cost_ns as f64,
            false => e.total.accesses() as f64,
        };
        let page_size = process.summary.header.page_size.max(1);
        let reached = |e: &Entry| e.placeable() && e.file().is_none() && e.size >= page_size;
        let total: f64 = entries.iter().map(weight).sum();
        let cost: f64 = entries.iter().filter(|e| reached(e)).map(weight).sum();
        let accesses = entries.iter().filter(|e| reached(e)).map(|e| e.total.accesses()).sum();
        let mut objects: BTreeMap<u32, Use> = BTreeMap::new();
        for (e, &object) in entries.iter().zip(&process.objects) {
            if weight(e) < LEAST * cost || weight(e) <= 0.0 {
                continue;
            }
            let starts = starts(e, page_size);
            let pages = starts.last().copied().unwrap_or(1);
            let mut who = vec![0u32; SIDE * SIDE].into_boxed_slice();
            for c in &e.cells {
                let at = starts.get(c.instance as usize).copied().unwrap_or(0).saturating_add(u64::from(c.page));
                let part = (at.saturating_mul(SIDE as u64) / pages).min(SIDE as u64 - 1) as usize;
                let slot = &mut who[c.thread as usize % SIDE * SIDE + part];
                *slot = slot.saturating_add(c.counters.accesses().min(u64::from(u32::MAX)) as u32);
            }
            let reached = reached(e);
            let one = Use { cost: weight(e), accesses: e.total.accesses(), size: e.size, reached, who };
            objects.entry(object).and_modify(|known| known.add(&one)).or_insert(one);
        }
        Digest { objects, cost, accesses, total }
    }

    /// Adds another process.
    pub fn add(&mut self, more: &Digest) {
        self.cost += more.cost;
        self.accesses += more.accesses;
        self.total += more.total;
        for (object, own) in &more.objects {
            self.objects.entry(*object).and_modify(|known| known.add(own)).or_insert_with(|| own.clone());
        }
    }

    /// Share that an object has of the cost of those that a placement can reach; 0 of one that it cannot.
    pub fn share(&self, object: u32) -> f64 {
        let cost = self.objects.get(&object).filter(|o| o.reached).map_or(0.0, |o| o.cost);
        if self.cost > 0.0 { cost / self.cost } else { 0.0 }
    }

    /// In what this process differs from others, by object, so that it may need other placements.
    pub fn differences(&self, others: &Digest) -> Vec<(u32, Difference)> {
        let mut found = Vec::new();
        let mut objects: Vec<u32> = self.objects.keys().chain(others.objects.keys()).copied().collect();
        objects.sort_unstable();
        objects.dedup();
        for object in objects {
            let (own, other) = (self.share(object), others.share(object));
            if is_apart(own, other) && self.shows(own, other, others) {
                found.push((object, Difference::Share(own, other)));
            }
            let (Some(a), Some(b)) = (self.objects.get(&object), others.objects.get(&object)) else { continue };
            if own.min(other) < HOT_SHARE {
                continue;
            }
            if a.size as f64 >= APART * b.size as f64 || b.size as f64 >= APART * a.size as f64 {
                found.push((object, Difference::Size(a.size, b.size)));
            } else if let Some(moved) = a.moved(b)
                && moved >= STRUCTURE_MIN
            {
                found.push((object, Difference::Pattern(moved)));
            }
        }
        found
    }

    /// Whether the samples show that two shares differ (two-sample test of shares).
    fn shows(&self, own: f64, other: f64, others: &Digest) -> bool {
        let samples = |d: &Digest| (d.accesses as f64 / ACCESSES_PER_SAMPLE).max(f64::MIN_POSITIVE);
        let (a, b) = (samples(self), samples(others));
        let mean = (own * a + other * b) / (a + b);
        let error = (mean * (1.0 - mean) * (1.0 / a + 1.0 / b)).sqrt();
        (own - other).abs() >= HOT_SIGMA * error
    }
}

/// The pages of all instances before each, and at the end those of all: parts of an object are counted through its
/// instances, so that one that is larger than the others has more of them.
fn starts(e: &Entry, page_size: u64) -> Vec<u64> {
    let mut starts = vec![0];
    if e.seen.len() < 2 {
        starts.push(e.size.div_ceil(page_size).max(1));
        return starts;
    }
    let mut pages = 0u64;
    for instance in &e.seen {
        pages = pages.saturating_add(instance.size.div_ceil(page_size).max(1));
        starts.push(pages);
    }
    starts
}

fn is_apart(own: f64, other: f64) -> bool {
    own.max(other) >= APART * own.min(other) && (own - other).abs() >= SHARE_APART
}

/// Deviations from the median, of the median deviation, from which a cost is not that of the others: three standard
/// deviations of a normal distribution, whose median deviation is 0.6745 of one.
const FAR: f64 = 3.0 / 0.6745;

/// Whether a process's cost of an object is out of the usual: far from the median as others go, at least twice or half
/// of it, and by [`SHARE_APART`] of what a process costs on average.
pub(super) fn is_outlier(cost: f64, median: f64, spread: f64, mean: f64) -> bool {
    let away = (cost - median).abs();
    away > FAR * spread && cost.max(median) >= APART * cost.min(median) && away >= SHARE_APART * mean
}

impl Use {
    fn add(&mut self, more: &Use) {
        self.cost += more.cost;
        self.accesses += more.accesses;
        self.size = self.size.max(more.size);
        self.reached |= more.reached;
        self.who.iter_mut().zip(&more.who).for_each(|(sum, n)| *sum = sum.saturating_add(*n));
    }

    /// Share of the accesses that would have to be by other threads, or to other parts, for two uses to be alike: the
    /// distance of the distributions without what chance makes of samples of their size. None where both together have
    /// too few samples to tell.
    fn moved(&self, other: &Use) -> Option<f64> {
        let mut side = SIDE;
        while side > 1 {
            let found = distance(&folded(&self.who, side), &folded(&other.who, side));
            if found.error > ERROR {
                return None;
            }
            if found.chance <= CHANCE {
                return Some(found.apart);
            }
            side /= 2;
        }
        None
    }
}

/// The table with `side` rows and columns: neighbouring parts together, and threads by the remainder of their number.
fn folded(who: &[u32], side: usize) -> Vec<f64> {
    let mut out = vec![0.0; side * side];
    for (i, n) in who.iter().enumerate() {
        let (thread, part) = (i / SIDE, i % SIDE);
        out[thread % side * side + part * side / SIDE] += f64::from(*n);
    }
    out
}

/// How far two distributions are apart.
struct Distance {
    /// Total variation distance, less what chance makes of cells of the table that do not differ.
    apart: f64,
    /// What chance makes on average of samples of one distribution.
    chance: f64,
    /// Standard error of the distance, at most.
    error: f64,
}

/// The distance of two tables of accesses, by the variance of shares of independent samples.
fn distance(a: &[f64], b: &[f64]) -> Distance {
    let (all_a, all_b) = (a.iter().sum::<f64>(), b.iter().sum::<f64>());
    if all_a <= 0.0 || all_b <= 0.0 {
        return Distance { apart: 0.0, chance: 1.0, error: f64::MAX };
    }
    let each = ACCESSES_PER_SAMPLE / all_a + ACCESSES_PER_SAMPLE / all_b;
    let (mut apart, mut chance) = (0.0f64, 0.0);
    for (x, y) in a.iter().zip(b) {
        let both = (x + y) / (all_a + all_b);
        let found = (x / all_a - y / all_b).abs();
        let deviation = (both * (1.0 - both) * each).sqrt();
        // The mean of the absolute value of a normal deviate is sqrt(2 / pi) of its standard deviation.
        let by_chance = deviation * (2.0 / std::f64::consts::PI).sqrt() / 2.0;
        // Chance adds to a difference as often as it takes from it, unless there is none.
        apart += found / 2.0 - if found < CERTAIN * deviation { by_chance } else { 0.0 };
        chance += by_chance;
    }
    // One sample changes the distance by 1 / n at most (Efron and Stein: variance <= n (1 / n)^2 / 2).
    Distance { apart: apart.max(0.0), chance, error: (each / 2.0).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::records::Instance;

    fn one(cost: f64, size: u64, who: impl Fn(usize, usize) -> u32) -> Use {
        let who: Box<[u32]> = (0..SIDE * SIDE).map(|i| who(i / SIDE, i % SIDE)).collect();
        Use { cost, accesses: who.iter().map(|n| u64::from(*n)).sum(), size, reached: true, who }
    }

    fn digest(objects: Vec<Use>) -> Digest {
        let cost: f64 = objects.iter().map(|o| o.cost).sum();
        let accesses = objects.iter().map(|o| o.accesses).sum();
        Digest { objects: (0..).zip(objects).collect(), cost, accesses, total: cost }
    }

    /// Four threads, each in its quarter.
    fn slices(n: u32) -> Use {
        one(50.0, 1 << 20, move |thread, part| if thread == part / 4 { n } else { 0 })
    }

    fn evenly(n: u32) -> Use {
        one(50.0, 1 << 20, move |thread, _| if thread < 4 { n } else { 0 })
    }

    #[test]
    fn the_same_use_at_another_rate_is_no_difference() {
        assert!(digest(vec![slices(40), evenly(10)]).differences(&digest(vec![slices(4), evenly(1)])).is_empty());
    }

    #[test]
    fn other_threads_other_sizes_and_other_shares() {
        let usual = digest(vec![slices(40), evenly(10)]);
        let turned = digest(vec![evenly(10), evenly(10)]);
        let [(0, Difference::Pattern(moved))] = turned.differences(&usual)[..] else {
            panic!("{:?}", turned.differences(&usual))
        };
        assert!((moved - 0.75).abs() < 0.05, "{moved}");
        let large = digest(vec![Use { size: 4 << 20, ..slices(40) }, evenly(10)]);
        assert_eq!(large.differences(&usual), [(0, Difference::Size(4 << 20, 1 << 20))]);
        let alone = digest(vec![slices(40)]);
        let found = alone.differences(&usual);
        assert_eq!(found, [(0, Difference::Share(1.0, 0.5)), (1, Difference::Share(0.0, 0.5))]);
    }

    #[test]
    fn a_large_instance_has_more_parts_than_a_small_one() {
        let instance = |pages: u64| Instance { size: pages * 4096, ..Instance::default() };
        let several = Entry { seen: [30, 1, 1].map(instance).to_vec(), size: 30 * 4096, ..Entry::default() };
        assert_eq!(starts(&several, 4096), [0, 30, 31, 32]);
        let one = Entry { seen: vec![instance(4)], size: 5 * 4096, ..Entry::default() };
        assert_eq!(starts(&one, 4096), [0, 5]);
    }

    #[test]
    fn a_few_samples_show_nothing() {
        let few = digest(vec![one(50.0, 1 << 20, |thread, part| u32::from(thread == 0 && part == 0)), evenly(1)]);
        let found = few.differences(&digest(vec![slices(40), evenly(10)]));
        assert!(found.iter().all(|(_, d)| !matches!(d, Difference::Pattern(_))), "{found:?}");
    }
}
