//! The teams of workers that a policy names, so that the preload binds the threads that the profile showed to work.

use numamma_plan::callsite::function::without_parameters;
use numamma_plan::nodes::format_runs;
use numamma_plan::teams::{MOST_TEAMS, Team};

use super::Target;
use super::team_sizes::TeamSizes;
use crate::detect::Roles;
use crate::detect::roles::Kind;
use crate::profile::records::Frame;
use crate::profile::summary::Summary;

/// The teams of at least two workers, in the order in which their first threads were created; none when a team cannot
/// be named, because the profile lacks its start routine.
pub(super) fn teams(summary: &Summary, roles: &Roles, target: &Target) -> Vec<Team> {
    let sizes = TeamSizes::of(roles, target);
    let mut number: Vec<Option<u32>> = vec![None; roles.teams.len()];
    let mut teams: Vec<Team> = Vec::new();
    for (index, kind) in roles.teams.iter().enumerate().skip(1).filter(|(_, kind)| kind.team() > 1) {
        let Some(mut team) = named(summary, kind) else { return Vec::new() };
        team.inside = kind.creator.and_then(|outer| number[outer]);
        team.creator = kind.creator_works.then_some(true);
        // On a machine that is not known, teams that scale with it have as many workers as it has CPUs.
        team.workers = (!target.portable || !sizes.scales(index)).then(|| sizes.of_kind(index));
        team.slots = slots(kind);
        teams.push(team);
        number[index] = Some(teams.len() as u32);
    }
    teams.truncate(MOST_TEAMS);
    teams
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
