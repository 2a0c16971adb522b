//! Affinity: whether the samples of a page come from the same threads in two halves of the data, beyond chance.
//!
//! The statistic is the sum over pages of the product of the two halves' thread counts, each less its expectation
//! from the threads' shares, divided by the samples of the page, so that a page counts by its samples and not by their
//! square: a page with a counter has more pairs than all other pages together. Without affinity the mean is 0 and the
//! variance, halves being independent, sum A B tr(C D) / (A + B)^2 with A and B the samples of a page in each half and
//! C, D the covariances of one draw. One pass over the samples.

use super::limits::STRUCTURE_MIN;
use super::samples::Samples;

/// One sample: page, thread, half, weight; ascending by page.
type Draw = (u32, u16, bool, f32);

/// Affinity at one size of page group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Level {
    /// Pages per group, as a power of two.
    pub shift: u32,
    /// Standard deviations above chance.
    pub sigma: f64,
    /// Share of the samples that come from their group's main thread: the root of the excess agreement.
    pub share: f64,
    /// Agreeing pairs beyond chance.
    pub excess: f64,
    /// Standard deviations that a share of [`STRUCTURE_MIN`] would reach with these samples.
    pub power: f64,
}

/// Samples divided into two halves, with the shares of the threads in each half.
pub(crate) struct Halves {
    draws: Vec<Draw>,
    early: Vec<f64>,
    late: Vec<f64>,
    /// Agreement that is expected from the shares alone.
    chance: f64,
}

impl Halves {
    /// Divides the samples by their time slot.
    pub fn of(samples: &Samples, late: impl Fn(u16) -> bool) -> Halves {
        let threads = samples.threads();
        let mut draws: Vec<Draw> = samples.list.iter().map(|s| (s.page, s.thread, late(s.slot), s.weight)).collect();
        if !draws.is_sorted_by_key(|d| d.0) {
            draws.sort_unstable_by_key(|d| d.0);
        }
        let mut halves = Halves { draws: Vec::new(), early: vec![0.0; threads], late: vec![0.0; threads], chance: 0.0 };
        for &(_, thread, late, weight) in &draws {
            let half = if late { &mut halves.late } else { &mut halves.early };
            half[usize::from(thread)] += f64::from(weight);
        }
        for half in [&mut halves.early, &mut halves.late] {
            let total: f64 = half.iter().sum();
            half.iter_mut().for_each(|w| *w /= total.max(f64::MIN_POSITIVE));
        }
        halves.chance = halves.early.iter().zip(&halves.late).map(|(x, y)| x * y).sum();
        halves.draws = draws;
        halves
    }

    /// Affinity of groups of `1 << shift` pages; none without pairs. The search stops after a part of the groups,
    /// spread over the object, as soon as that part is [clear](Level::is_clear).
    pub fn level(&self, shift: u32) -> Option<Level> {
        let parts: Vec<&[Draw]> = self.parts(shift);
        let mut sum = Sum { early: vec![0.0; self.early.len()], ..Sum::default() };
        for round in 0..ROUNDS {
            for part in parts.iter().skip(round).step_by(ROUNDS) {
                part.chunk_by(|a, b| a.0 >> shift == b.0 >> shift).for_each(|place| self.add(place, &mut sum));
            }
            if let Some(level) = self.judge(shift, &sum).filter(|l| round + 1 == ROUNDS || l.is_clear()) {
                return Some(level);
            }
        }
        None
    }

    /// The draws in [`PARTS`] parts of about equal size, cut between page groups.
    fn parts(&self, shift: u32) -> Vec<&[Draw]> {
        let mut rest = &self.draws[..];
        let size = self.draws.len() / PARTS + 1;
        let mut parts = Vec::with_capacity(PARTS);
        while rest.len() > size {
            let place = rest[size].0 >> shift;
            let (part, after) = rest.split_at(rest.partition_point(|d| d.0 >> shift <= place));
            parts.push(part);
            rest = after;
        }
        parts.push(rest);
        parts
    }

    /// Adds the pairs of one page group.
    fn add(&self, place: &[Draw], sum: &mut Sum) {
        // Most pages of a large object have samples in one half only, and so no pair.
        if place.iter().all(|d| d.2 == place[0].2) {
            return;
        }
        let (mut own, mut others, mut mean, mut a, mut b) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for &(_, t, _, weight) in place.iter().filter(|p| !p.2) {
            sum.early[usize::from(t)] += f64::from(weight);
            a += f64::from(weight);
            others += f64::from(weight) * self.late[usize::from(t)];
        }
        for &(_, t, _, weight) in place.iter().filter(|p| p.2) {
            own += f64::from(weight) * sum.early[usize::from(t)];
            b += f64::from(weight);
            mean += f64::from(weight) * self.early[usize::from(t)];
        }
        place.iter().for_each(|p| sum.early[usize::from(p.1)] = 0.0);
        let excess = own - b * others - a * mean + a * b * self.chance;
        let weight = 1.0 / (a + b);
        sum.excess += excess;
        sum.weighted += weight * excess;
        sum.pairs += weight * a * b;
        sum.squares += weight * weight * a * b;
    }

    fn judge(&self, shift: u32, sum: &Sum) -> Option<Level> {
        let chance = self.chance;
        // tr(C D) of the covariances C = diag(e) - e e', D = diag(l) - l l' of one draw in each half.
        let cubic: f64 = self.early.iter().zip(&self.late).map(|(e, l)| e * l * (e + l)).sum();
        let trace = (chance - cubic + chance * chance).max(0.0);
        if sum.pairs <= 0.0 || trace <= 0.0 {
            return None;
        }
        let share = (sum.weighted / sum.pairs / (1.0 - chance).max(1e-9)).max(0.0).sqrt().min(1.0);
        let deviation = (sum.squares * trace).sqrt();
        let power = STRUCTURE_MIN * STRUCTURE_MIN * (1.0 - chance) * sum.pairs / deviation;
        Some(Level { shift, sigma: sum.weighted / deviation, share, excess: sum.excess, power })
    }
}

/// Rounds in which page groups are counted, and parts from which the groups of a round are taken: each round covers the
/// whole object.
const ROUNDS: usize = 4;
const PARTS: usize = 16 * ROUNDS;
/// Standard deviations that [`STRUCTURE_MIN`] would show as from which more places would change nothing: the share is
/// then known to a part of it that no threshold is near.
const CLEAR: f64 = 60.0;

impl Level {
    fn is_clear(&self) -> bool {
        self.power >= CLEAR
    }
}

/// Sums over page groups.
#[derive(Default)]
struct Sum {
    /// Agreeing pairs beyond chance, and the same by the samples of their groups.
    excess: f64,
    weighted: f64,
    /// Pairs by the samples of their groups, and by the squares of these.
    pairs: f64,
    squares: f64,
    /// Weights of the threads in the early half of one page group; zero between groups.
    early: Vec<f64>,
}

/// Affinity of single pages between even and odd slots: what there is for any description of the object to explain,
/// whatever changes in time. None when samples are too few to say.
pub(crate) fn page_affinity(samples: &Samples) -> Option<f64> {
    // At ten standard deviations an object with just enough structure is taken for none once in 10^20.
    const POWER: f64 = 10.0;
    let level = Halves::of(samples, |slot| slot % 2 == 1).level(0)?;
    (level.power >= POWER).then_some(level.share)
}
