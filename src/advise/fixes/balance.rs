//! Work that is divided unevenly: over the threads of a kind, and over the kinds.

use super::fix::{Fix, FixKind};
use crate::detect::{KindLoad, Roles, is_uneven, loads};
use crate::profile::summary::{Summary, ratio};

/// Times the mean of its team that a thread's work must be for a finding. Work is counted by samples of CPU time, and a thread
/// that shares its core with another one (SMT) gets on at 0.6 to 0.7 of its speed alone: it takes up to 1.7 times the time for
/// the same work.
const UNEVEN: f64 = 1.7;
/// Standard deviations of counted accesses by which it must be above the mean, so that chance makes none in a team of a
/// thousand threads.
const SURE: f64 = 4.5;

/// Accesses of the threads of one kind that work.
struct Team {
    kind: usize,
    name: String,
    /// By thread, with the number of the thread.
    work: Vec<(u32, u64)>,
}

impl Team {
    fn sum(&self) -> u64 {
        self.work.iter().map(|(_, n)| n).sum()
    }

    fn mean(&self) -> f64 {
        self.sum() as f64 / self.work.len() as f64
    }
}

/// Teams of at least a thread that works, by kind.
fn teams(summary: &Summary, roles: &Roles) -> Vec<Team> {
    let mut teams: Vec<Team> = Vec::new();
    let mut by_thread = std::collections::BTreeMap::<u32, u64>::new();
    for (thread, counters) in summary.entries.iter().flat_map(|e| e.threads()) {
        *by_thread.entry(thread).or_default() += counters.accesses();
    }
    for (thread, accesses) in by_thread {
        let Some(role) = roles.of(thread).filter(|role| role.rank.is_some()) else { continue };
        let name = summary.threads.iter().find(|t| t.id == thread).map_or("", |t| &t.name);
        match teams.iter_mut().find(|team| team.kind == role.kind) {
            Some(team) => team.work.push((thread, accesses)),
            None => teams.push(Team { kind: role.kind, name: name.to_owned(), work: vec![(thread, accesses)] }),
        }
    }
    teams
}

/// Uneven threads of a team, and kinds whose numbers of threads do not fit their work.
pub(super) fn fixes(summary: &Summary, roles: &Roles) -> Vec<Fix> {
    let teams = teams(summary, roles);
    let mut out: Vec<Fix> = teams.iter().filter_map(uneven).collect();
    out.extend(counts(&loads(summary, roles)));
    out
}

fn uneven(team: &Team) -> Option<Fix> {
    let (most, work) = team.work.iter().max_by_key(|(_, n)| *n)?;
    let (mean, work) = (team.mean(), *work as f64);
    if team.work.len() < 2 || work < UNEVEN * mean || work - mean < SURE * mean.sqrt() {
        return None;
    }
    let what = "divide the work by its cost and not by its number: schedule(dynamic) or (guided), or shorter parts";
    let why = format!(
        "thread {most} makes {:.1} times the accesses of the mean of its {} threads ({})",
        work / mean,
        team.work.len(),
        team.name
    );
    let gain = format!(
        "not in the model: at most {:.1}x for the time in which the others wait for this thread, by the accesses",
        work / mean
    );
    Some(Fix::about_threads(FixKind::Balance, (what.into(), why), gain))
}

/// Numbers of threads that fit the work of each kind.
fn counts(loads: &[KindLoad]) -> Option<Fix> {
    if !is_uneven(loads) {
        return None;
    }
    let list = |n: fn(&KindLoad) -> usize| {
        let each: Vec<String> = loads.iter().map(|load| format!("{} {}", n(load), load.name)).collect();
        each.join(", ")
    };
    let what = format!("start {} (now {})", list(|load| load.proposed), list(|load| load.threads));
    let all: u64 = loads.iter().map(|load| load.accesses).sum();
    let shares: Vec<String> =
        loads.iter().map(|load| format!("{} {:.0} %", load.name, 100.0 * ratio(load.accesses, all))).collect();
    let why = format!("of the accesses, {}: in this proportion no kind waits for another", shares.join(", "));
    let most = |mean: fn(&KindLoad) -> f64| loads.iter().map(mean).fold(0.0, f64::max);
    let (now, then) = (most(KindLoad::mean), most(KindLoad::proposed_mean));
    let gain = format!(
        "not in the model: at most {:.1}x for the time in which other kinds wait for the one with most work for each \
         thread, by the accesses",
        now / then.max(1.0)
    );
    Some(Fix::about_threads(FixKind::ThreadCounts, (what, why), gain))
}
