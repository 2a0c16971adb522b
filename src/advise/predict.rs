//! Predicts the run on the target under several policies with the cost model: first touch without and with the kernel's
//! NUMA balancing, interleave, block-naive, the advised policy, the given files, and the best placement that was found.
//! Of the first two the one that the target does by default is the baseline: its time is 1. What a policy leaves
//! unplaced is as in the baseline.
//!
//! Objects are priced one at a time, so that memory is bounded by the pages of the largest object.

use numamma_plan::policy::{Place, Policy, PolicyKind};
use serde::Serialize;

use super::columns::{BALANCED, Column, FIRST_TOUCH, PredictError};
use super::cost::resample::{self, Groups};
use super::cost::{Demands, Load, Outcome, PageMap, Placement, Spill, World};
use super::phase_demands::PhaseDemands;
use super::run_sums::{self, PolicyPrice, RunSums};
use super::{Advice, AdviceError, Target};
use crate::detect::{Pattern, Roles, cost_shares, limits::HOT_SHARE, roles};
use crate::profile::summary::{Entry, Summary};

/// A policy file to price.
#[derive(Debug, Clone)]
pub struct Given {
    /// Name of its column in the table.
    pub name: String,
    /// The parsed policy.
    pub policy: Policy,
}

/// The prices of one object under every policy, as if only accesses to this object waited for memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ObjectPrice {
    /// Name for people.
    pub name: String,
    /// Share of the run's cost, 0 to 1.
    pub share: f64,
    /// Share of the priced waiting for memory that is for it, 0 to 1: 0 for what the target's caches hold.
    pub waiting: f64,
    /// Its pattern.
    pub pattern: &'static str,
    /// In the order of [`Prediction::policies`]; times are of the object's waiting.
    pub policies: Vec<PolicyPrice>,
}

/// The table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// Name of the target's model.
    pub target: String,
    /// First touch, first touch with the kernel's balancing, interleave, block-naive, advised, the given ones, best
    /// possible.
    pub policies: Vec<PolicyPrice>,
    /// Name of the policy whose time is 1: what the target does by default.
    pub baseline: &'static str,
    /// Objects with at least 1 % of the cost whose waiting is priced, highest share first.
    pub objects: Vec<ObjectPrice>,
    /// Share of the run's cost that is priced: all but stacks, unknown addresses and objects smaller than a page.
    pub priced_share: f64,
    /// Sources and assumptions of the model, one sentence each.
    pub inputs: Vec<String>,
    /// Limits of this prediction, one sentence each.
    pub remarks: Vec<String>,
}

/// Prices the run. `advice` must have been made for the same profile and target.
///
/// # Errors
/// See [`PredictError`].
pub fn predict(
    summary: &Summary,
    patterns: &[Pattern],
    target: &Target,
    advice: &Advice,
    given: &[Given],
) -> Result<Prediction, PredictError> {
    if patterns.len() != summary.entries.len() {
        let e = AdviceError::Patterns { entries: summary.entries.len(), patterns: patterns.len() };
        return Err(PredictError::Profile(e));
    }
    let roles = roles(summary);
    if roles.is_empty() {
        return Err(PredictError::Profile(AdviceError::NoThreads));
    }
    let world = World::new(summary, &roles, target);
    let everywhere = |policy| Place { policy, ..Place::default() };
    let mut columns = vec![
        Column::FirstTouch,
        Column::Balanced,
        Column::All(everywhere(PolicyKind::Interleave)),
        Column::All(everywhere(PolicyKind::Block)),
        Column::file("advised", &advice.policy),
    ];
    columns.extend(given.iter().map(|g| Column::file(&g.name, &g.policy)));
    Table::fill(&world, patterns, columns)
}

/// Share of the accesses of each entry that would be remote on the target under first touch, in the order of
/// `summary.entries`; none where the model prices no accesses. From the same model as [`predict`].
///
/// # Errors
/// As [`predict`], for profiles without patterns or threads.
pub fn remote_shares(
    summary: &Summary,
    roles: &Roles,
    patterns: &[Pattern],
    target: &Target,
) -> Result<Vec<Option<f64>>, AdviceError> {
    if patterns.len() != summary.entries.len() {
        return Err(AdviceError::Patterns { entries: summary.entries.len(), patterns: patterns.len() });
    }
    if roles.is_empty() {
        return Err(AdviceError::NoThreads);
    }
    let world = World::new(summary, roles, target);
    let nothing_full = Spill::of(&world, &vec![0.0; world.nodes()], &[]);
    let share = |(entry, pattern): (&Entry, &Pattern)| {
        let mut load = Load::new(&world);
        let demands = Demands::of(&world, entry, Some(pattern));
        load.add(&demands, &Placement::first_touch(&world, entry), &nothing_full);
        let outcome = load.outcome();
        (outcome.busiest_share > 0.0).then_some(1.0 - outcome.local_share)
    };
    Ok(summary.entries.iter().zip(patterns).map(share).collect())
}

/// The table while it is filled.
struct Table<'a> {
    world: &'a World<'a>,
    columns: Vec<Column<'a>>,
    spills: Vec<Spill>,
    /// By column, and of the best.
    sums: RunSums<'a>,
    objects: Vec<ObjectPrice>,
    priced_share: f64,
    /// Share of the run's cost that is at objects without waiting.
    without_waiting: f64,
}

impl<'a> Table<'a> {
    fn fill(
        world: &'a World<'a>,
        patterns: &[Pattern],
        mut columns: Vec<Column<'a>>,
    ) -> Result<Prediction, PredictError> {
        let entries: Vec<&Entry> = world.summary.entries.iter().filter(|e| world.waits(e)).collect();
        let mut spills = Vec::with_capacity(columns.len());
        for column in &mut columns {
            let mut bytes = vec![0.0; world.nodes()];
            for entry in &entries {
                let own = column.placement(world, entry)?.bytes();
                bytes.iter_mut().zip(own).for_each(|(sum, b)| *sum += b);
            }
            spills.push(Spill::of(world, &bytes, &[]));
        }
        let mut table = Table {
            world,
            sums: RunSums::new(world, columns.len() + 1),
            columns,
            spills,
            objects: Vec::new(),
            priced_share: 0.0,
            without_waiting: 0.0,
        };
        let shares = cost_shares(world.summary);
        for ((entry, pattern), share) in world.summary.entries.iter().zip(patterns).zip(shares) {
            if world.waits(entry) && !entry.cells.is_empty() {
                table.add(entry, pattern, share)?;
            }
        }
        Ok(table.done())
    }

    fn add(&mut self, entry: &'a Entry, pattern: &Pattern, share: f64) -> Result<(), PredictError> {
        let world = self.world;
        let demands = Demands::of(world, entry, Some(pattern));
        self.sums.count(&demands);
        self.priced_share += share;
        self.without_waiting += if demands.waits_ns > 0.0 { 0.0 } else { share };
        let hot = share >= HOT_SHARE;
        let mut outcomes = Vec::with_capacity(self.columns.len() + 1);
        let mut times = Vec::with_capacity(self.columns.len() + 1);
        let draws = resample::draws();
        let mut placements = Vec::with_capacity(self.columns.len());
        for (index, (column, spill)) in self.columns.iter_mut().zip(&self.spills).enumerate() {
            let placement = column.placement(world, entry)?;
            let later = column.later(world, entry)?;
            let stages = PhaseDemands::of(world, entry, pattern, &demands, (&placement, &later));
            stages.add_to(&mut self.sums.loads[index], spill);
            if let Some(groups) = &mut self.sums.groups[index] {
                stages.add_to(groups.load(), spill);
            }
            let moving_ns = stages.moving_ns + column.placing_ns(world, entry);
            self.sums.moving_ns[index] += moving_ns;
            if hot {
                let mut alone = Load::new(world);
                stages.add_to(&mut alone, spill);
                let outcome = alone.outcome();
                outcomes.push(Outcome { time_ns: outcome.time_ns + moving_ns, ..outcome });
                times.push(Groups::of_one(world).map(|mut groups| {
                    stages.add_to(groups.load(), spill);
                    groups.times(&draws).into_iter().map(|time| time + moving_ns).collect()
                }));
            }
            placements.push((placement, spill));
        }
        let best = self.columns.len();
        if !hot {
            // The best placement of a cold object is not searched for; the advised one is used.
            let (placement, spill) = &placements[ADVISED];
            self.sums.loads[best].add(&demands, placement, spill);
            let groups = self.sums.groups[best].as_mut();
            groups.into_iter().for_each(|groups| groups.load().add(&demands, placement, spill));
            return Ok(());
        }
        let map = PageMap::best(world, entry, &demands, &[]);
        let cheapest = |a: &(usize, &Outcome), b: &(usize, &Outcome)| a.1.time_ns.total_cmp(&b.1.time_ns);
        let (index, least) = outcomes.iter().enumerate().min_by(cheapest).map_or((0, outcomes[0]), |(i, o)| (i, *o));
        let all = self.sums.groups[best].as_mut();
        match map.filter(|m| m.outcome.time_ns < least.time_ns) {
            Some(map) => {
                map.add_to(&mut self.sums.loads[best], &demands);
                all.into_iter().for_each(|groups| map.add_to(groups.load(), &demands));
                outcomes.push(map.outcome);
                times.push(Groups::of_one(world).map(|mut groups| {
                    map.add_to(groups.load(), &demands);
                    groups.times(&draws)
                }));
            }
            None => {
                let (placement, spill) = &placements[index];
                self.sums.loads[best].add(&demands, placement, spill);
                all.into_iter().for_each(|groups| groups.load().add(&demands, placement, spill));
                outcomes.push(least);
                times.push(times[index].clone());
            }
        }
        let policies = self.prices(&outcomes, &times, 0.0);
        // Of all waiting when it is known.
        let waiting = demands.waited_ns.iter().sum();
        let (name, pattern) = (entry.name.clone(), pattern.kind.as_str());
        self.objects.push(ObjectPrice { name, share, waiting, pattern, policies });
        Ok(())
    }

    /// Outcomes of all columns and of the best, next to the baseline; `compute_ns` is added to each. `times` are those
    /// of the replicates.
    fn prices(&self, outcomes: &[Outcome], times: &[Option<Vec<f64>>], compute_ns: f64) -> Vec<PolicyPrice> {
        let names = self.columns.iter().map(Column::name).chain([BEST]);
        run_sums::prices(names, self.baseline(), (outcomes, times), compute_ns)
    }

    /// Index of the column of what the target does by default.
    fn baseline(&self) -> usize {
        usize::from(self.world.balances())
    }

    fn done(self) -> Prediction {
        let compute_ns = self.sums.compute_ns();
        let mut outcomes = self.sums.outcomes();
        // Objects share controllers, so the best placements of single objects together need not be the best of all.
        let mut times = self.sums.replicates();
        let least = (0..outcomes.len()).min_by(|a, b| outcomes[*a].time_ns.total_cmp(&outcomes[*b].time_ns));
        if let (Some(least), Some(best)) = (least, outcomes.len().checked_sub(1)) {
            outcomes[best] = outcomes[least];
            times[best] = times[least].clone();
        }
        let policies = self.prices(&outcomes, &times, compute_ns);
        let all_ns = self.sums.all_waiting_ns();
        let mut objects = self.objects;
        objects.iter_mut().for_each(|o| o.waiting = if all_ns > 0.0 { o.waiting / all_ns } else { 0.0 });
        let mut remarks = remarks(self.world);
        if self.without_waiting >= SAYS_LITTLE {
            remarks.push(format!(
                "{:.0} % of the cost is at objects for which no waiting for memory was seen: local and busiest node leave out the \
                 accesses to them, and the model has no placement that changes their time.",
                100.0 * self.without_waiting
            ));
        }
        for (column, spill) in self.columns.iter().zip(&self.spills) {
            if spill.any {
                remarks.push(format!(
                    "{}: the planned nodes lack memory for all objects; the rest is on the nearest nodes.",
                    column.name()
                ));
            }
            let Column::File { name, policy, used } = column else { continue };
            let untimed: Vec<&str> =
                policy.phases.iter().filter(|p| p.after.is_none()).map(|p| p.name.as_str()).collect();
            if !untimed.is_empty() {
                remarks.push(format!(
                    "{name}: phase {} has no start time (`after`), so the prediction leaves it out.",
                    untimed.join(", ")
                ));
            }
            let idle = policy.objects.iter().zip(used).filter(|(_, used)| !**used).map(|(rule, _)| rule.name());
            let idle: Vec<&str> = idle.collect();
            if !idle.is_empty() {
                remarks.push(format!("{name}: no object of the profile is named by its rule for {}.", idle.join(", ")));
            }
        }
        Prediction {
            target: self.world.model().name.clone(),
            policies,
            baseline: if self.world.balances() { BALANCED } else { FIRST_TOUCH },
            objects,
            priced_share: self.priced_share,
            inputs: self.world.inputs(),
            remarks,
        }
    }
}

/// Share of the run's cost at objects without waiting from which on local shares say little of the whole run: what is
/// left out must not be taken for local.
const SAYS_LITTLE: f64 = 0.1;
/// Index of the advised policy's column.
const ADVISED: usize = 4;
/// Name of the last column.
const BEST: &str = "best possible";

fn remarks(world: &World<'_>) -> Vec<String> {
    let mut remarks = Vec::new();
    if world.target.nodes < 2 {
        remarks.push("The target has one node: all memory is local, and no policy can differ from another.".into());
    } else if world.target.portable {
        remarks.push(format!(
            "This machine has one node; the table is for {} equal nodes. Use --nodes N for another machine.",
            world.target.nodes
        ));
    }
    if world.roles.workers < 2 {
        remarks.push("The profile has one thread: the run is priced as serial, whatever the target's threads.".into());
    }
    let touched = world.summary.entries.iter().filter(|e| world.waits(e)).any(|e| !e.touches.is_empty());
    if !touched {
        remarks.push("The profile holds no first touches: the main thread is taken to touch everything first.".into());
    }
    remarks.extend(world.time_remarks());
    if world.summary.ending.is_none() {
        remarks.push("The recording was cut off; the table is based on the recorded part.".into());
    }
    remarks
}
