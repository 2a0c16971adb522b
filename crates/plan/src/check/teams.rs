//! Rules for teams.

use super::{KeyFault, readable, refuse};
use crate::callsite::Frame;
use crate::ranks::Ranks;
use crate::teams::{MOST_TEAMS, MOST_WORKERS, Team};

/// Checks the teams of a policy.
pub(super) fn check(teams: &[Team]) -> Result<(), KeyFault> {
    if teams.len() > MOST_TEAMS {
        return refuse("team", format!("more than {MOST_TEAMS} teams; leave out those with few accesses"));
    }
    for (index, team) in teams.iter().enumerate() {
        check_team(index, team)?;
    }
    Ok(())
}

fn check_team(index: usize, team: &Team) -> Result<(), KeyFault> {
    let lists = [&team.start, &team.function, &team.site];
    if lists.iter().any(|list| list.as_ref().is_some_and(Vec::is_empty)) {
        return refuse("team", "a list of this team is empty; name a start routine, function or site, or leave it out");
    }
    if team.openmp != Some(true) && lists.iter().all(|list| list.is_none()) {
        let message = "this team has no threads: write openmp = true, start = [...], function = [...] or site = [...]";
        return refuse("team", message);
    }
    if team.inside.is_some_and(|outer| outer == 0 || outer as usize > index) {
        return refuse("team", "`inside` must be the number, from 1, of a team before this one");
    }
    if team.workers.is_some_and(|n| n == 0 || n > MOST_WORKERS) {
        return refuse("team", format!("`workers` must be 1 to {MOST_WORKERS}"));
    }
    let frames = team.start.iter().chain(&team.site).flatten();
    readable("team", frames.map(|frame| frame.parse::<Frame>().map(drop)).find(Result::is_err))?;
    readable("team", team.slots.as_deref().map(Ranks::parse))
}
