//! What measured times say of the model of a program: how much it waits for memory, over what the model says.
//!
//! The model takes from the samples which part of a program's time waits, and that is its most uncertain figure: it
//! says little of what a core does meanwhile. It is one factor for all policies, so the measured times of a few correct
//! the prediction for the others.

use serde::{Deserialize, Serialize};

use super::Target;

/// Factor by which the modelled waiting of a program is multiplied on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Correction {
    /// The machine, as [`Correction::machine_of`] names it.
    pub machine: String,
    /// The factor; 0 says that no policy makes a difference, and 1 that no factor is better than none.
    pub waiting: f64,
    /// Largest difference left between the predicted and a measured speed-up, as a share of the measured one.
    pub left: f64,
    /// Timed runs that it was found from.
    pub runs: u32,
}

/// A measured speed-up over the bare program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// The estimate.
    pub speedup: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Powers of two between which the factor is searched: all time waits at some factor below the upper one unless next
/// to nothing was charged to memory.
const POWERS: (i32, i32) = (-5, 5);
/// Steps by which the best factor is narrowed down between its neighbours: to a hundredth of the distance.
const STEPS: u32 = 10;
/// Part of the squared differences between the model and the times that a factor must explain: one half, so that what
/// it explains is no less than what it leaves. Otherwise the program waits for something else, and whichever factor is
/// the best of them says nothing.
const LEAST_EXPLAINED: f64 = 0.5;

impl Correction {
    /// The machine that a target stands for.
    pub fn machine_of(target: &Target) -> String {
        format!("{}, {}", target.model.name, target.topology)
    }

    /// Whether it brings the predictions nearer to the times; otherwise the program waits for something else than
    /// memory.
    pub fn explains(&self) -> bool {
        self.waiting != 1.0
    }

    /// Whether it was measured on the target's machine.
    pub fn is_of(&self, target: &Target) -> bool {
        self.waiting.is_finite() && self.waiting >= 0.0 && self.machine == Correction::machine_of(target)
    }

    /// The factor with which the predicted speed-ups come closest to the measured ones, by the squares of their
    /// differences in units of the measured intervals; 1 where none explains half of them. `predict` gives the
    /// speed-ups of the policies of `measured`, in their order, for a factor; `runs` is the number of timed runs.
    /// `None` where the model's own speed-ups are inside of all intervals, or nothing was measured.
    ///
    /// # Errors
    /// Those of `predict`.
    pub fn fit<E>(
        target: &Target,
        measured: &[Measured],
        runs: u32,
        mut predict: impl FnMut(f64) -> Result<Vec<f64>, E>,
    ) -> Result<Option<Correction>, E> {
        let own = predict(1.0)?;
        if own.iter().zip(measured).all(|(own, m)| (m.low..=m.high).contains(own)) {
            return Ok(None);
        }
        let mut distance = |factor: f64| -> Result<f64, E> { Ok(distance(&predict(factor)?, measured)) };
        let mut grid = vec![0.0];
        grid.extend((POWERS.0..=POWERS.1).map(|power| 2.0_f64.powi(power)));
        let of_grid = grid.iter().map(|factor| distance(*factor)).collect::<Result<Vec<f64>, E>>()?;
        let best = (0..grid.len()).min_by(|a, b| of_grid[*a].total_cmp(&of_grid[*b])).unwrap_or(0);
        let (mut low, mut high) = (grid[best.saturating_sub(1)], grid[(best + 1).min(grid.len() - 1)]);
        // Golden section search: the distance has one minimum between the neighbours of the best of the grid.
        let golden = (5.0_f64.sqrt() - 1.0) / 2.0;
        for _ in 0..STEPS {
            let (a, b) = (high - golden * (high - low), low + golden * (high - low));
            if distance(a)? <= distance(b)? { high = b } else { low = a }
        }
        let middle = f64::midpoint(low, high);
        let found = if distance(middle)? < of_grid[best] { middle } else { grid[best] };
        let explains = distance(found)? <= (1.0 - LEAST_EXPLAINED) * distance(1.0)?;
        let waiting = if explains { found } else { 1.0 };
        let left = predict(waiting)?.iter().zip(measured).map(|(p, m)| (p / m.speedup - 1.0).abs()).fold(0.0, f64::max);
        Ok(Some(Correction { machine: Correction::machine_of(target), waiting, left, runs }))
    }
}

fn distance(predicted: &[f64], measured: &[Measured]) -> f64 {
    let of_pair = |(p, m): (&f64, &Measured)| {
        let width = (m.high / m.low).ln().max(f64::MIN_POSITIVE.sqrt());
        ((p / m.speedup).ln() / width).powi(2)
    };
    predicted.iter().zip(measured).map(of_pair).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    /// Speed-ups of a program of which `part` of the time waits, and that waits `less` times as long under each policy.
    fn speedups(part: f64, less: &[f64]) -> Vec<f64> {
        less.iter().map(|less| 1.0 / (1.0 - part + part * less)).collect()
    }

    fn measured(speedup: f64) -> Measured {
        Measured { speedup, low: speedup * 0.98, high: speedup * 1.02 }
    }

    fn target() -> Target {
        Target::new(Some(4), Some(8), &Topology::uniform(4, 2), 8, "never")
    }

    /// A program that the model says waits for 60 % of its time, and that waits for less or more of it.
    #[test]
    fn the_factor_of_a_program_that_waits_less_or_more_is_found() {
        let less = [0.5, 0.8, 1.2];
        for true_part in [0.0, 0.15, 0.3, 0.9] {
            let truth: Vec<Measured> = speedups(true_part, &less).into_iter().map(measured).collect();
            let mut calls = 0;
            let predict = |factor: f64| {
                calls += 1;
                Ok::<_, ()>(speedups((0.6 * factor).min(1.0), &less))
            };
            let found = Correction::fit(&target(), &truth, 30, predict).unwrap().expect("a correction");
            assert!((found.waiting - true_part / 0.6).abs() < 0.02, "{true_part}: {found:?}");
            assert!(found.left < 0.01 && found.runs == 30 && found.is_of(&target()), "{found:?}");
            assert!(calls < 40, "{calls} predictions");
        }
    }

    #[test]
    fn a_model_that_the_times_do_not_contradict_stays() {
        let less = [0.5, 0.8];
        let truth: Vec<Measured> = speedups(0.6, &less).into_iter().map(|s| measured(s * 1.01)).collect();
        assert_eq!(Correction::fit(&target(), &truth, 9, |f| Ok::<_, ()>(speedups(0.6 * f, &less))), Ok(None));
        assert_eq!(Correction::fit(&target(), &[], 0, |_| Ok::<_, ()>(Vec::new())), Ok(None));
    }

    #[test]
    fn no_factor_explains_what_does_not_come_from_memory() {
        let predict = |factor: f64| Ok::<_, ()>(speedups((0.1 * factor).min(0.1), &[0.5]));
        let found = Correction::fit(&target(), &[measured(4.0)], 9, predict).unwrap().expect("a difference");
        assert!(!found.explains() && found.left > 0.7, "{found:?}");
    }

    /// The model says that one policy is a little better and the other a little worse, and both are much faster: no
    /// difference at all is the nearest factor, and the furthest from the truth.
    #[test]
    fn a_factor_that_explains_next_to_nothing_is_none() {
        let truth = [Measured { speedup: 1.28, low: 1.24, high: 1.33 }, Measured { speedup: 4.5, low: 4.0, high: 5.3 }];
        let found = Correction::fit(&target(), &truth, 9, |f| Ok::<_, ()>(speedups((0.03 * f).min(1.0), &[1.4, 0.95])));
        let found = found.unwrap().expect("a difference");
        assert!(!found.explains() && found.left > 0.7, "{found:?}");
    }

    #[test]
    fn it_holds_on_its_machine_only() {
        let truth = [measured(1.1)];
        let found = Correction::fit(&target(), &truth, 9, |f| Ok::<_, ()>(speedups((0.6 * f).min(1.0), &[0.5])));
        let found = found.unwrap().expect("a correction");
        let other = Target::new(Some(8), Some(8), &Topology::uniform(8, 2), 8, "never");
        assert!(found.is_of(&target()) && !found.is_of(&other));
        assert!(!Correction { waiting: f64::NAN, ..found }.is_of(&target()));
    }
}
