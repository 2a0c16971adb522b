//! Work that is divided unevenly: over the threads of a kind, and over the kinds.

use super::{Fix, FixKind, Roles, about_threads};
use crate::profile::summary::Summary;

/// Times the mean of its team that a thread's work must be for a finding. Work is counted by samples of CPU time, and a thread
/// that shares its core with another one (SMT) gets on at 0.6 to 0.7 of its speed alone: it takes up to 1.7 times the time for
/// the same work.
const UNEVEN: f64 = 1.7;
/// Standard deviations of counted accesses by which it must be above the mean, so that chance makes none in a team of a
/// thousand threads.
const SURE: f64 = 4.5;
/// Times the least work per thread of a kind that the most of another must be.
const KINDS_UNEVEN: f64 = 1.5;

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
    out.extend(counts(&teams));
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
    Some(about_threads(FixKind::Balance, what.into(), why))
}

/// As many threads as there are, in the proportion of the work of their kinds, at least one of each.
pub(super) fn proportional(work: &[u64], threads: usize) -> Vec<usize> {
    let all: u64 = work.iter().sum();
    let mut counts = vec![1; work.len()];
    for _ in work.len()..threads {
        // The next thread goes where each has most work.
        let load = |k: usize| work[k] as f64 / counts[k] as f64;
        let next = (0..work.len()).max_by(|a, b| load(*a).total_cmp(&load(*b)));
        match next {
            Some(next) if all > 0 => counts[next] += 1,
            _ => break,
        }
    }
    counts
}

fn counts(teams: &[Team]) -> Option<Fix> {
    let per_thread = || teams.iter().map(Team::mean);
    let (least, most) = (per_thread().fold(f64::INFINITY, f64::min), per_thread().fold(0.0, f64::max));
    if teams.len() < 2 || most < KINDS_UNEVEN * least || most - least < SURE * most.sqrt() {
        return None;
    }
    let work: Vec<u64> = teams.iter().map(Team::sum).collect();
    let threads = teams.iter().map(|t| t.work.len()).sum();
    let proposed = proportional(&work, threads);
    if teams.iter().zip(&proposed).all(|(team, n)| team.work.len() == *n) {
        return None;
    }
    let list = |n: &dyn Fn(usize) -> usize| {
        let each: Vec<String> = (0..teams.len()).map(|k| format!("{} {}", n(k), teams[k].name)).collect();
        each.join(", ")
    };
    let what = format!("start {} (now {})", list(&|k| proposed[k]), list(&|k| teams[k].work.len()));
    let all: u64 = work.iter().sum();
    let shares: Vec<String> =
        teams.iter().map(|t| format!("{} {:.0} %", t.name, 100.0 * t.sum() as f64 / all as f64)).collect();
    let why = format!("of the accesses, {}: in this proportion no kind waits for another", shares.join(", "));
    Some(about_threads(FixKind::ThreadCounts, what, why))
}
