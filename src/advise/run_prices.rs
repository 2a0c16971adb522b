//! Prices of many policies for the whole run, without those of single objects. Policies that differ in one object treat
//! all others alike, so each object is priced once for each treatment, and not for each policy.

use numamma_plan::policy::Policy;

use super::columns::{Column, PredictError, Treatment};
use super::cost::resample::Groups;
use super::cost::{Demands, Load, Spill, World};
use super::phase_demands::PhaseDemands;
use super::run_sums::{self, PolicyPrice, RunSums};
use super::{AdviceError, Target};
use crate::detect::{Pattern, roles};
use crate::profile::summary::{Entry, Summary};

/// The price of each of the named policies, as [`super::predict()`] has it.
///
/// # Errors
/// See [`PredictError`].
pub(super) fn run_prices(
    summary: &Summary,
    patterns: &[Pattern],
    target: &Target,
    policies: &[(&str, &Policy)],
) -> Result<Vec<PolicyPrice>, PredictError> {
    if patterns.len() != summary.entries.len() {
        let e = AdviceError::Patterns { entries: summary.entries.len(), patterns: patterns.len() };
        return Err(PredictError::Profile(e));
    }
    let roles = roles(summary);
    if roles.is_empty() {
        return Err(PredictError::Profile(AdviceError::NoThreads));
    }
    let world = World::new(summary, &roles, target);
    let baseline = if world.balances() { Column::Balanced } else { Column::FirstTouch };
    let given = policies.iter().map(|(name, policy)| Column::file(name, policy));
    let mut columns: Vec<Column<'_>> = [baseline].into_iter().chain(given).collect();
    let mut objects = Vec::new();
    let mut bytes = vec![vec![0.0; world.nodes()]; columns.len()];
    for (entry, pattern) in summary.entries.iter().zip(patterns).filter(|(entry, _)| world.waits(entry)) {
        let alike = alike(&world, &columns, entry);
        for group in &alike {
            let own = columns[group[0]].placement(&world, entry)?.bytes();
            group.iter().for_each(|i| bytes[*i].iter_mut().zip(&own).for_each(|(sum, b)| *sum += b));
        }
        if !entry.cells.is_empty() {
            objects.push((entry, pattern, alike));
        }
    }
    let spills: Vec<Spill> = bytes.iter().map(|bytes| Spill::of(&world, bytes, &[])).collect();
    let mut sums = RunSums::new(&world, columns.len());
    for (entry, pattern, alike) in objects {
        let demands = Demands::of(&world, entry, Some(pattern));
        sums.count(&demands);
        for group in alike {
            for group in group.chunk_by(|a, b| spills[*a] == spills[*b]) {
                add(&world, (entry, pattern, &demands), (&mut columns[group[0]], &spills[group[0]]), group, &mut sums)?;
            }
        }
    }
    let names = columns.iter().map(Column::name);
    let mut prices = run_sums::prices(names, 0, (&sums.outcomes(), &sums.replicates()), sums.compute_ns());
    Ok(prices.split_off(1))
}

/// The columns that treat an entry alike, by index.
fn alike(world: &World<'_>, columns: &[Column<'_>], entry: &Entry) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Treatment<'_>, Vec<usize>)> = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        let treatment = column.treatment(world, entry);
        match groups.iter_mut().find(|(known, _)| known.is_like(&treatment)) {
            Some((_, members)) => members.push(index),
            None => groups.push((treatment, vec![index])),
        }
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

/// Adds an object to the sums of the columns `group`, one of which is `column`.
fn add<'a>(
    world: &'a World<'a>,
    (entry, pattern, demands): (&'a Entry, &Pattern, &Demands),
    (column, spill): (&mut Column<'a>, &Spill),
    group: &[usize],
    sums: &mut RunSums<'a>,
) -> Result<(), PredictError> {
    let (placement, later) = (column.placement(world, entry)?, column.later(world, entry)?);
    let stages = PhaseDemands::of(world, entry, pattern, demands, (&placement, &later));
    let moving_ns = stages.moving_ns + column.placing_ns(world, entry);
    group.iter().for_each(|i| sums.moving_ns[*i] += moving_ns);
    let mut alone = Load::new(world);
    // To add sums up takes as long as to add so many accesses.
    if group.len() == 1 || demands.list.len() < alone.sums() {
        for i in group {
            stages.add_to(&mut sums.loads[*i], spill);
            sums.groups[*i].iter_mut().for_each(|groups| stages.add_to(groups.load(), spill));
        }
        return Ok(());
    }
    stages.add_to(&mut alone, spill);
    group.iter().for_each(|i| sums.loads[*i].merge(&alone));
    if let Some(mut alone) = Groups::new(world) {
        stages.add_to(alone.load(), spill);
        group.iter().for_each(|i| sums.groups[*i].iter_mut().for_each(|groups| groups.load().merge(alone.load())));
    }
    Ok(())
}
