//! The teams of workers that a policy names, so that the preload binds the threads that the profile showed to work.

use numamma_plan::callsite::function::without_parameters;
use numamma_plan::nodes::format_runs;
use numamma_plan::teams::{MOST_TEAMS, Team};

use super::Target;
use crate::detect::Roles;
use crate::detect::roles::Kind;
use crate::profile::records::Frame;
use crate::profile::summary::Summary;

/// The teams of at least two workers, in the order in which their first threads were created; none when a team cannot
/// be named, because the profile lacks its start routine.
pub(super) fn teams(summary: &Summary, roles: &Roles, target: &Target) -> Vec<Team> {
    let mut number: Vec<Option<u32>> = vec![None; roles.kinds.len()];
    let mut teams: Vec<Team> = Vec::new();
    for (index, kind) in roles.kinds.iter().enumerate().skip(1).filter(|(_, kind)| kind.team() > 1) {
        let Some(mut team) = named(summary, kind) else { return Vec::new() };
        team.inside = kind.creator.and_then(|outer| number[outer]);
        team.creator = kind.creator_works.then_some(true);
        team.workers = (!target.portable).then(|| workers(kind, roles, target, team.inside, &teams));
        team.slots = slots(kind);
        teams.push(team);
        number[index] = Some(teams.len() as u32);
    }
    teams.truncate(MOST_TEAMS);
    teams
}

/// Workers on the target: in proportion to the largest team. Of nested teams the inner ones grow.
fn workers(kind: &Kind, roles: &Roles, target: &Target, inside: Option<u32>, teams: &[Team]) -> u32 {
    let mut outer = 1;
    let mut next = inside;
    while let Some(team) = next.and_then(|n| teams.get(n as usize - 1)) {
        outer *= team.workers.unwrap_or(1).max(1);
        next = team.inside;
    }
    let (seen, wanted) = (u64::from(roles.workers.max(1)), u64::from(target.threads));
    let all = u64::from(kind.team()) * u64::from(outer);
    let has_inner =
        roles.kinds.iter().any(|k| k.team() > 1 && k.creator.is_some_and(|c| roles.kinds.get(c) == Some(kind)));
    if seen == wanted || has_inner {
        return kind.team();
    }
    (all * wanted).div_ceil(seen).div_ceil(u64::from(outer)).clamp(1, wanted) as u32
}

fn named(summary: &Summary, kind: &Kind) -> Option<Team> {
    if kind.openmp {
        return Some(Team { openmp: Some(true), ..Team::default() });
    }
    let place = |frame: &Frame| summary.frame_place(*frame);
    let mut team = Team::default();
    for (routine, site) in &kind.origins {
        match (routine, site) {
            (_, Some(site)) => team.site.get_or_insert_default().push(place(site)),
            (Some(routine), None) => team.start.get_or_insert_default().push(place(routine)),
            (None, None) => return None,
        }
    }
    let routines = kind.origins.iter().filter(|(_, site)| site.is_none()).filter_map(|(routine, _)| *routine);
    let functions: Vec<String> = routines.filter_map(|routine| linkage(summary, routine)).collect();
    team.function = (!functions.is_empty()).then_some(functions);
    (team.start.is_some() || team.site.is_some()).then_some(team)
}

/// The name of a function of C, which is its linkage name.
fn linkage(summary: &Summary, routine: Frame) -> Option<String> {
    let name = summary.symbols.get(&routine)?.last()?.function.as_deref()?;
    (without_parameters(name) == name && !name.contains("::") && !name.contains('<')).then(|| name.to_owned())
}

/// The slots that work; none when all do. The last ones of a pool are open-ended, because a larger pool has more.
fn slots(kind: &Kind) -> Option<String> {
    let (first, last) = (*kind.slots.first()?, *kind.slots.last()?);
    let all_from_first = kind.slots.len() as u32 == last - first + 1;
    match (all_from_first, last + 1 == kind.width) {
        (true, _) if first == 0 => None,
        (true, true) => Some(format!("{first}-")),
        _ => Some(format_runs(&kind.slots)),
    }
}
