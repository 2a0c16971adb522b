//! The whole run under several policies: sums of the accesses of all objects, and the prices that follow from them.

use serde::Serialize;

use super::cost::resample::{self, Groups};
use super::cost::{Demands, Load, Outcome, World};

/// One policy's price.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyPrice {
    /// `first-touch`, `first-touch, balanced`, `interleave`, `block-naive`, `advised`, `best possible`, or the name of
    /// a file.
    pub name: String,
    /// Share of the priced accesses whose page is on the thread's own node, 0 to 1; none without such accesses.
    pub local_share: Option<f64>,
    /// Share of them that the busiest node's memory serves; 1 / nodes when balanced.
    pub busiest_node_share: Option<f64>,
    /// Estimated time over that of the baseline.
    pub time: f64,
    /// The inverse.
    pub speedup: f64,
    /// Lower end of the range of the speed-up: the samples leave it open within this range with a probability of 95 %.
    /// None where the samples set no lower end, or the target has too many nodes for ranges.
    pub low: Option<f64>,
    /// Upper end, in the same way.
    pub high: Option<f64>,
}

/// Sums under several policies.
pub(super) struct RunSums<'a> {
    world: &'a World<'a>,
    /// By policy.
    pub loads: Vec<Load<'a>>,
    /// By policy: the same loads in groups of samples.
    pub groups: Vec<Option<Groups<'a>>>,
    /// By policy: what placing allocations, and moving pages between phases, costs.
    pub moving_ns: Vec<f64>,
    /// By slice: CPU time that waits for the priced objects, ns.
    waited_ns: Vec<f64>,
    /// By slice: CPU time that computes on them, ns.
    computed_ns: Vec<f64>,
}

impl<'a> RunSums<'a> {
    /// Nothing added yet, for so many policies.
    pub fn new(world: &'a World<'a>, policies: usize) -> RunSums<'a> {
        RunSums {
            world,
            loads: (0..policies).map(|_| Load::new(world)).collect(),
            groups: (0..policies).map(|_| Groups::new(world)).collect(),
            moving_ns: vec![0.0; policies],
            waited_ns: vec![0.0; world.clock.slices.len()],
            computed_ns: vec![0.0; world.clock.slices.len()],
        }
    }

    /// Counts the CPU time of an object.
    pub fn count(&mut self, demands: &Demands) {
        self.waited_ns.iter_mut().zip(&demands.waited_ns).for_each(|(sum, w)| *sum += w);
        let computed = demands.computed_ns(self.world.clock.slices.len());
        self.computed_ns.iter_mut().zip(computed).for_each(|(sum, c)| *sum += c);
    }

    /// CPU time of the run that waits, ns.
    pub fn all_waiting_ns(&self) -> f64 {
        self.waited_ns.iter().sum()
    }

    /// Time of the run that no policy changes, ns.
    pub fn compute_ns(&self) -> f64 {
        self.world.compute_ns(&self.waited_ns)
    }

    /// What each policy comes to.
    pub fn outcomes(&self) -> Vec<Outcome> {
        let spoken_for = self.waited_ns.iter().zip(&self.computed_ns).map(|(waited, computed)| waited + computed);
        let slices = self.world.clock.slices.iter().zip(spoken_for);
        let other_ns: Vec<f64> = slices.map(|(slice, known)| (slice.cpu_ns - known).max(0.0)).collect();
        let moved = |(load, moving): (&Load<'_>, &f64)| {
            let outcome = load.outcome_beside(&other_ns);
            Outcome { time_ns: outcome.time_ns + moving, ..outcome }
        };
        self.loads.iter().zip(&self.moving_ns).map(moved).collect()
    }

    /// By policy: the times of the whole run, ns, in each replicate. The CPU time of a run is known; a
    /// replicate says which part of it is for what.
    pub fn replicates(&self) -> Vec<Option<Vec<f64>>> {
        let slices = &self.world.clock.slices;
        let others: f64 =
            slices.iter().map(|s| s.cpu_ns).sum::<f64>() - self.waited_ns.iter().chain(&self.computed_ns).sum::<f64>();
        let others = self.world.spread_others(others.max(0.0));
        let of_policy = |(groups, moving): (&Option<Groups<'_>>, &f64)| {
            let groups = groups.as_ref()?;
            Some(resample::draws().iter().map(|drawn| moving + self.replicate(groups, drawn, &others)).collect())
        };
        self.groups.iter().zip(&self.moving_ns).map(of_policy).collect()
    }

    /// The time of the run in a replicate, ns; `others` is the CPU time of samples that are not priced, by group.
    fn replicate(&self, groups: &Groups<'_>, drawn: &[f64; resample::GROUPS], others: &[f64]) -> f64 {
        let slices = &self.world.clock.slices;
        let (waited, computed) = groups.cpu_ns();
        let sum = |of_groups: &[f64], slice: usize| -> f64 {
            drawn.iter().enumerate().map(|(g, times)| times * of_groups[g * slices.len() + slice]).sum()
        };
        let parts: Vec<(f64, f64)> = (0..slices.len()).map(|s| (sum(waited, s), sum(computed, s))).collect();
        let priced: f64 = parts.iter().map(|(waited, computed)| waited + computed).sum();
        let whole: f64 = slices.iter().map(|s| s.cpu_ns).sum();
        let all = priced + drawn.iter().zip(others).map(|(times, other)| times * other).sum::<f64>();
        let scale = if all > 0.0 { whole / all } else { 1.0 };
        let waited: Vec<f64> = parts.iter().map(|(waited, _)| waited * scale).collect();
        let known = parts.iter().map(|(waited, computed)| scale * (waited + computed));
        let other_ns: Vec<f64> = slices.iter().zip(known).map(|(s, known)| (s.cpu_ns - known).max(0.0)).collect();
        groups.replicate(drawn, scale).outcome_beside(&other_ns).time_ns + self.world.compute_ns(&waited)
    }
}

/// Prices of policies with these names from their outcomes, next to the one with the index `baseline`; `compute_ns` is
/// added to each. `times` are those of the replicates.
pub(super) fn prices<'n>(
    names: impl Iterator<Item = &'n str>,
    baseline: usize,
    (outcomes, times): (&[Outcome], &[Option<Vec<f64>>]),
    compute_ns: f64,
) -> Vec<PolicyPrice> {
    let first = outcomes.get(baseline).map_or(0.0, |o| o.time_ns) + compute_ns;
    let of_baseline = times.get(baseline).and_then(Option::as_ref);
    let price = |((name, o), own): ((&str, &Outcome), &Option<Vec<f64>>)| {
        let time = if first > 0.0 { (o.time_ns + compute_ns) / first } else { 1.0 };
        let speedup = if time > 0.0 { 1.0 / time } else { 1.0 };
        let range = of_baseline.zip(own.as_ref()).map(|(first, own)| resample::range_of_ratio(speedup, first, own));
        PolicyPrice {
            name: name.to_owned(),
            local_share: (o.busiest_share > 0.0).then_some(o.local_share),
            busiest_node_share: (o.busiest_share > 0.0).then_some(o.busiest_share),
            time,
            speedup,
            low: range.map(|r| r.low).filter(|low| *low > 0.0),
            high: range.map(|r| r.high).filter(|high| high.is_finite()),
        }
    };
    names.zip(outcomes).zip(times).map(price).collect()
}
