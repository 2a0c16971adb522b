//! How far a price may be off because the samples are a draw: a bootstrap over random groups of samples.
//!
//! Every sample belongs to one of [`GROUPS`] groups, chosen at random and alike for all placements, and a load keeps
//! the sums of each group. A replicate draws as many groups with replacement (Efron and Tibshirani, "An Introduction to
//! the Bootstrap", 1993, chapter 6), adds their sums up and is priced like the whole. So a replicate costs as much as a
//! few sums, however many samples there are. The sequence of draws is fixed: the same profile gives the same ranges.
//!
//! The ranges are those of the samples, not of the model: latencies, caches and the pattern are taken to be right.

use super::clock::Charge;
use super::load::Load;
use super::{Demands, World};
use crate::profile::summary::Entry;

/// Groups of samples: the standard error of so many is known to 13 % (1 / sqrt(2 (n - 1))).
pub(in crate::advise) const GROUPS: usize = 32;
/// Replicates: 50 are often enough for a standard error (Efron and Tibshirani, section 6.4).
const REPLICATES: usize = 50;
/// Samples up to which each gets its own group; more are so many in a group that their number is close to a normal
/// distribution.
const FEW: f64 = 8.0 * GROUPS as f64;
/// Demands of an object from which its own range is estimated: 128 samples for each group.
const ENOUGH: usize = 128 * GROUPS;
/// 97.5 % of Student's t distribution: ranges have 95 %. Groups have 31 degrees of freedom and replicates of them 49;
/// the error of a standard error from both is that of 1 / (1 / 31 + 1 / 49) = 19.
const STUDENT: f64 = 2.093;
/// The same where only the groups are a draw.
const STUDENT_OF_GROUPS: f64 = 2.040;
/// The logarithms of a ratio of which no replicate tells anything: 1.
const NO_TIME: Range = Range { low: 0.0, high: 0.0 };
/// Most sums of a load in groups, so that it takes 16 MiB at most; loads of machines with more have no range.
const MOST_SUMS: usize = 2 << 20;

/// The ends of a range that covers a value with a probability of 95 %, as far as the samples decide it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::advise) struct Range {
    pub low: f64,
    pub high: f64,
}

/// What a placement saves of the time that is spent waiting for an object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::advise) struct Saving {
    /// The part of the waiting that it saves.
    pub part: Range,
    /// By how much of itself the waiting may be less or more.
    pub open: f64,
}

/// Numbers that look random and depend on what they are made from only (SplitMix64: Steele, Lea and Flood, "Fast
/// Splittable Pseudorandom Number Generators", OOPSLA 2014).
pub(super) fn mixed(seed: u64, index: u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(index.wrapping_add(1));
    x = x.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// A number of mean 0 and variance 1 from random bits: the sum of four even ones, close to a normal distribution.
fn normal(bits: u64) -> f64 {
    let even = |i: u32| f64::from((bits >> (16 * i)) as u16) / 65_536.0;
    ((0..4).map(even).sum::<f64>() - 2.0) * 3f64.sqrt()
}

/// How often each group is drawn in each replicate.
pub(in crate::advise) fn draws() -> Vec<[f64; GROUPS]> {
    let one = |replicate: usize| {
        let mut drawn = [0.0; GROUPS];
        for i in 0..GROUPS {
            drawn[(mixed(replicate as u64, i as u64) >> 32) as usize % GROUPS] += 1.0;
        }
        drawn
    };
    (0..REPLICATES).map(one).collect()
}

/// The range around `estimate` from the values of the replicates.
pub(in crate::advise) fn range(estimate: f64, values: &[f64]) -> Range {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    // A sum of groups drawn with replacement varies less than the sum of independent groups by this factor.
    let half = STUDENT * (variance * GROUPS as f64 / (GROUPS as f64 - 1.0)).sqrt();
    Range { low: estimate - half, high: estimate + half }
}

impl Range {
    /// The range of so many times as many samples around the same estimate.
    pub fn of_more(self, estimate: f64, times: f64) -> Range {
        let nearer = |end: f64| estimate + (end - estimate) / times.sqrt();
        Range { low: nearer(self.low), high: nearer(self.high) }
    }
}

/// The range around a ratio, which is never below 0, from numerators and denominators. An end is open, 0 or infinite,
/// where a replicate has nothing above or below the line.
pub(in crate::advise) fn range_of_ratio(estimate: f64, above: &[f64], below: &[f64]) -> Range {
    let pairs = || above.iter().zip(below).filter(|(a, b)| **a > 0.0 || **b > 0.0);
    let logs: Vec<f64> = pairs().filter(|(a, b)| **a > 0.0 && **b > 0.0).map(|(a, b)| (a / b).ln()).collect();
    let closed = if logs.len() > 1 { range(estimate.max(f64::MIN_POSITIVE).ln(), &logs) } else { NO_TIME };
    Range {
        low: if pairs().any(|(a, _)| *a <= 0.0) { 0.0 } else { closed.low.exp() },
        high: if pairs().any(|(_, b)| *b <= 0.0) { f64::INFINITY } else { closed.high.exp() },
    }
}

/// The range around the part of `before` that `after` is less, from the times of the replicates: the ratio is taken as
/// linear in both, so that no replicate is divided by a time close to 0.
pub(in crate::advise) fn range_of_part(part: f64, before: &[f64], after: &[f64]) -> Range {
    let mean = before.iter().sum::<f64>() / before.len().max(1) as f64;
    let off = |(before, after): (&f64, &f64)| if mean > 0.0 { ((1.0 - part) * before - after) / mean } else { 0.0 };
    range(part, &before.iter().zip(after).map(off).collect::<Vec<_>>())
}

/// Half of the range around the mean of what all groups tell, over that mean, from what each tells over it.
pub(in crate::advise) fn half_range(told: &[f64; GROUPS]) -> f64 {
    let n = GROUPS as f64;
    let mean = told.iter().sum::<f64>() / n;
    let variance = told.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (n - 1.0);
    STUDENT_OF_GROUPS * (variance / n).sqrt()
}

/// `count` samples that are worth `whole` together, distributed over the groups at random.
pub(super) fn spread(seed: u64, count: f64, whole: f64) -> [f64; GROUPS] {
    let mut out = [0.0; GROUPS];
    if count <= FEW {
        let each = if count > 0.0 { whole / count.ceil() } else { 0.0 };
        (0..count.ceil() as u64).for_each(|i| out[(mixed(seed, i) >> 32) as usize % GROUPS] += each);
        return out;
    }
    let deviation = (GROUPS as f64 / count).sqrt();
    out = std::array::from_fn(|g| (1.0 + deviation * normal(mixed(seed, g as u64))).max(0.0));
    let sum: f64 = out.iter().sum();
    if sum > 0.0 {
        out.iter_mut().for_each(|part| *part *= whole / sum);
    }
    out
}

impl World<'_> {
    /// CPU time of the samples that are not priced, ns, by group.
    pub fn spread_others(&self, cpu_ns: f64) -> [f64; GROUPS] {
        let each = match self.charge {
            Charge::Cost => self.summary.header.sampling.period_ns as f64,
            Charge::Share(each) => each,
            Charge::One => 1.0,
        };
        spread(u64::MAX, cpu_ns / each.max(1.0), cpu_ns)
    }
}

/// How a load divides the samples of the object that is added.
pub(super) struct Split {
    /// Seed of the object, and samples for each access.
    seed: u64,
    per_access: f64,
    /// By group: what its samples tell of the waiting for the object, over what all tell.
    pub waiting: [f64; GROUPS],
    /// CPU time that waits and that computes for each access, ns.
    pub waits_ns: f64,
    pub computes_ns: f64,
}

impl Split {
    pub fn of(world: &World<'_>, entry: &Entry, demands: &Demands, waiting_known: bool) -> Split {
        let per_access = if demands.per_sample > 0.0 { 1.0 / demands.per_sample } else { 0.0 };
        Split {
            seed: u64::from(entry.id),
            per_access,
            waiting: if waiting_known { [1.0; GROUPS] } else { world.waiting_by_group(entry) },
            waits_ns: demands.waits_ns,
            computes_ns: demands.computes_ns,
        }
    }

    /// Calls `add` with each group that has samples of the demand with this index, and with their part of it.
    pub fn parts(&self, index: usize, accesses: f64, mut add: impl FnMut(usize, f64)) {
        let count = (accesses * self.per_access).round().max(1.0);
        let seed = mixed(self.seed, index as u64);
        if count > GROUPS as f64 {
            spread(seed, count, 1.0).into_iter().enumerate().for_each(|(group, part)| add(group, part));
            return;
        }
        for sample in 0..count as u64 {
            add((mixed(seed, sample) >> 32) as usize % GROUPS, 1.0 / count);
        }
    }
}

/// Loads of one set of accesses in groups, for the replicates.
pub(in crate::advise) struct Groups<'a>(Load<'a>);

impl<'a> Groups<'a> {
    /// Nothing added yet. None where the sums would take too much memory.
    pub fn new(world: &'a World<'a>) -> Option<Groups<'a>> {
        let load = Load::new(world);
        (load.sums() * GROUPS <= MOST_SUMS).then(|| Groups(Load::in_groups(world, GROUPS)))
    }

    /// The same for one object whose times are only compared with each other: which part of its time waits is then the
    /// same in all of them, and taken as known.
    pub fn of_one(world: &'a World<'a>) -> Option<Groups<'a>> {
        let mut groups = Groups::new(world)?;
        groups.0.waiting_known = true;
        Some(groups)
    }

    /// The same for a load of one object with so many demands, of which it takes [`ENOUGH`] at most, each for several.
    pub fn sparse(world: &'a World<'a>, demands: usize) -> Option<Groups<'a>> {
        let mut groups = Groups::of_one(world)?;
        // Odd, as the price of balanced pages takes demands in pairs.
        groups.0.one_in = (demands / ENOUGH) | 1;
        Some(groups)
    }

    /// The part of the demands that it takes: the square root of it is the part of the range that all of them have.
    pub fn taken(&self) -> f64 {
        1.0 / self.0.one_in as f64
    }

    /// The load to which accesses are added.
    pub fn load(&mut self) -> &mut Load<'a> {
        &mut self.0
    }

    /// A replicate: each group as often as it was drawn, times `scale`.
    pub fn replicate(&self, drawn: &[f64; GROUPS], scale: f64) -> Load<'a> {
        self.0.combined(&drawn.map(|times| times * scale))
    }

    /// The waiting of each replicate, ns.
    pub fn times(&self, draws: &[[f64; GROUPS]]) -> Vec<f64> {
        draws.iter().map(|drawn| self.replicate(drawn, 1.0).outcome().time_ns).collect()
    }

    /// CPU time by group and slice, ns: what waits, and what computes, of the accesses that were added.
    pub fn cpu_ns(&self) -> (&[f64], &[f64]) {
        self.0.cpu_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_fixed_and_have_all_groups() {
        let all = draws();
        assert_eq!(all, draws());
        assert!(all.iter().all(|d| d.iter().sum::<f64>() == GROUPS as f64));
        // A group is not drawn with the probability (1 - 1 / n)^n.
        let missing = all.iter().flatten().filter(|n| **n == 0.0).count() as f64 / (REPLICATES * GROUPS) as f64;
        assert!((missing - 0.362).abs() < 0.03, "{missing}");
    }

    /// The mean of n samples of variance v has the standard error sqrt(v / n), whatever the groups are.
    #[test]
    fn ranges_of_a_sum_cover_it_as_often_as_they_say() {
        let (mut covered, runs) = (0, 400);
        for run in 0..runs {
            let mut groups = [0.0; GROUPS];
            let sample = |i: u64| (mixed(1_000 + run, i) >> 11) as f64 / (1u64 << 53) as f64;
            for i in 0..1_000 {
                groups[(mixed(77 + run, 5_000 + i) >> 32) as usize % GROUPS] += sample(i) - 0.5;
            }
            let sum = |drawn: &[f64; GROUPS]| drawn.iter().zip(&groups).map(|(n, g)| n * g).sum::<f64>();
            let values: Vec<f64> = draws().iter().map(sum).collect();
            let found = range(groups.iter().sum(), &values);
            covered += u32::from(found.low <= 0.0 && found.high >= 0.0);
        }
        let share = f64::from(covered) / runs as f64;
        assert!((0.91..0.985).contains(&share), "{share}");
    }

    #[test]
    fn a_ratio_has_an_open_end_where_a_replicate_has_no_time() {
        let all = |low: f64, high: f64| Range { low, high };
        assert_eq!(range_of_ratio(1.0, &[0.0, 0.0], &[0.0, 0.0]), all(1.0, 1.0), "nothing over nothing is 1");
        assert_eq!(
            range_of_ratio(2.0, &[2.0, 4.0, 0.0], &[1.0, 2.0, 0.0]).low,
            2.0,
            "one without either tells nothing"
        );
        assert_eq!(range_of_ratio(2.0, &[2.0, 4.0, 1.0], &[1.0, 2.0, 0.0]).high, f64::INFINITY);
        assert_eq!(range_of_ratio(2.0, &[2.0, 4.0, -1.0], &[1.0, 2.0, 1.0]).low, 0.0);
    }

    #[test]
    fn many_samples_are_spread_evenly_but_not_exactly() {
        let parts = spread(3, 10_000.0, 1.0);
        assert!((parts.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let mean = 1.0 / GROUPS as f64;
        let variance = parts.iter().map(|p| (p / mean - 1.0).powi(2)).sum::<f64>() / GROUPS as f64;
        let wanted = GROUPS as f64 / 10_000.0;
        assert!((0.4..2.0).contains(&(variance / wanted)), "{variance} instead of {wanted}");
    }
}
