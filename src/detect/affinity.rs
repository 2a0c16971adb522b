//! Affinity: whether samples of the same pages, parted in two halves, come from the same threads more than chance says.
//!
//! The statistic is the sum over pages of the product of the two halves' thread counts, each less its expectation
//! from the threads' shares. Without affinity its mean is 0 and its variance, halves being independent,
//! sum A B tr(C D) with A and B the samples of a page and C, D the covariances of one draw. One pass over the samples.

use super::limits::STRUCTURE_MIN;
use super::samples::Samples;

/// One sample: page, thread, half, weight; ascending by page.
type Draw = (u32, u16, bool, f32);

/// Affinity at one size of place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Level {
    /// Places are this many pages, as a power of two.
    pub shift: u32,
    /// Standard deviations above chance.
    pub sigma: f64,
    /// Share of the samples that stay with their place's thread: the root of the excess agreement.
    pub share: f64,
    /// Agreeing pairs beyond chance.
    pub excess: f64,
    /// Standard deviations that [`STRUCTURE_MIN`] would show as.
    pub power: f64,
}

/// Samples parted in two, with the shares of the threads in both halves.
pub(crate) struct Halves {
    draws: Vec<Draw>,
    early: Vec<f64>,
    late: Vec<f64>,
}

impl Halves {
    /// Parts the samples by their slot.
    pub fn of(samples: &Samples, late: impl Fn(u16) -> bool) -> Halves {
        let threads = samples.threads();
        let mut draws: Vec<Draw> = samples.list.iter().map(|s| (s.page, s.thread, late(s.slot), s.weight)).collect();
        if !draws.is_sorted_by_key(|d| d.0) {
            draws.sort_unstable_by_key(|d| d.0);
        }
        let mut halves = Halves { draws: Vec::new(), early: vec![0.0; threads], late: vec![0.0; threads] };
        for &(_, thread, late, weight) in &draws {
            let half = if late { &mut halves.late } else { &mut halves.early };
            half[usize::from(thread)] += f64::from(weight);
        }
        for half in [&mut halves.early, &mut halves.late] {
            let total: f64 = half.iter().sum();
            half.iter_mut().for_each(|w| *w /= total.max(f64::MIN_POSITIVE));
        }
        halves.draws = draws;
        halves
    }

    /// Affinity of places of `1 << shift` pages; none without pairs.
    pub fn level(&self, shift: u32) -> Option<Level> {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
        let chance = dot(&self.early, &self.late);
        // tr(C D) of the covariances C = diag(e) - e e', D = diag(l) - l l' of one draw in each half.
        let cubic: f64 = self.early.iter().zip(&self.late).map(|(e, l)| e * l * (e + l)).sum();
        let trace = (chance - cubic + chance * chance).max(0.0);
        let (mut excess, mut pairs) = (0.0, 0.0);
        let mut early = vec![0.0; self.early.len()];
        for place in self.draws.chunk_by(|a, b| a.0 >> shift == b.0 >> shift) {
            let (mut own, mut others, mut a, mut b) = (0.0, 0.0, 0.0, 0.0);
            for &(_, t, _, weight) in place.iter().filter(|p| !p.2) {
                early[usize::from(t)] += f64::from(weight);
                a += f64::from(weight);
                others += f64::from(weight) * self.late[usize::from(t)];
            }
            let mut mean = 0.0;
            for &(_, t, _, weight) in place.iter().filter(|p| p.2) {
                own += f64::from(weight) * early[usize::from(t)];
                b += f64::from(weight);
                mean += f64::from(weight) * self.early[usize::from(t)];
            }
            place.iter().for_each(|p| early[usize::from(p.1)] = 0.0);
            excess += own - b * others - a * mean + a * b * chance;
            pairs += a * b;
        }
        if pairs <= 0.0 || trace <= 0.0 {
            return None;
        }
        let share = (excess / pairs / (1.0 - chance).max(1e-9)).max(0.0).sqrt().min(1.0);
        let deviation = (pairs * trace).sqrt();
        let power = STRUCTURE_MIN * STRUCTURE_MIN * (1.0 - chance) * pairs / deviation;
        Some(Level { shift, sigma: excess / deviation, share, excess, power })
    }
}

/// Affinity of single pages between even and odd slots: what there is for any description of the object to explain,
/// whatever changes in time. None when samples are too few to say.
pub(crate) fn to_explain(samples: &Samples) -> Option<f64> {
    // At ten standard deviations an object with just enough structure is taken for none once in 10^20.
    const POWER: f64 = 10.0;
    let level = Halves::of(samples, |slot| slot % 2 == 1).level(0)?;
    (level.power >= POWER).then_some(level.share)
}
