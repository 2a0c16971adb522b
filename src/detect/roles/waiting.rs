//! Creators of a team that do not work beside it: they wait until it ends.

use std::collections::BTreeSet;

use crate::profile::record::TRACE;
use crate::profile::records::{Thread, ThreadId, Waits};
use crate::profile::summary::{CodePart, Summary};

use super::is_idle;
use super::kinds::Kinds;
use crate::detect::lifetimes::life;

/// Whether `creators` (places) only wait while the team works: its places and its number of workers.
pub(super) fn only_waits(
    summary: &Summary,
    kinds: &Kinds,
    creators: &[usize],
    (own, workers): (&[usize], usize),
) -> bool {
    let threads = |places: &[usize]| -> Vec<&Thread> {
        let ids = places.iter().flat_map(|p| &kinds.places[*p].threads);
        ids.filter_map(|t| summary.threads.get(*t as usize)).collect()
    };
    let (team, creators) = (threads(own), threads(creators));
    let is_traced = summary.header.sampling.sampler == TRACE;
    has_no_samples(&team, &creators, workers) || is_traced && is_blocked(summary, &team, &creators, workers)
}

/// Whether creators have no sample at all, although their workers have enough each that a thread that works would have
/// some: samples of CPU time, which there are also of work in little memory and in little time.
fn has_no_samples(team: &[&Thread], creators: &[&Thread], workers: usize) -> bool {
    let of = |threads: &[&Thread]| threads.iter().map(|t| t.samples).sum::<u64>();
    of(creators) == 0 && is_idle(0.0, of(team) as f64 / workers.max(1) as f64, workers + 1)
}

/// Whether creators of a traced team, whose counts do not tell when they worked, could hardly run beside it: the kernel
/// says that they were blocked. False where that is not known.
fn is_blocked(summary: &Summary, team: &[&Thread], creators: &[&Thread], workers: usize) -> bool {
    let could_run = |waits: &Waits| waits.seen_ns.saturating_sub(waits.blocked_ns) as f64;
    let lives = || team.iter().map(|t| life(t, summary.duration_ns()));
    let span = (lives().map(|(from, _)| from).min().unwrap_or(0), lives().map(|(_, to)| to).max().unwrap_or(0));
    let has_own_code = runs_other_code(summary, team, creators, workers);
    let beside = |creator: &&Thread| {
        let waits = creator.waits.filter(|waits| waits.seen_ns > 0)?;
        let (from, to) = life(creator, summary.duration_ns());
        let outside = (to - from).saturating_sub(to.min(span.1).saturating_sub(from.max(span.0)));
        // One that waits for threads does so while there are some, as does one that has no part of their work: it looks
        // at their progress from time to time. Another one may have read files before.
        let waits_for_team = waits.for_threads >= waits.otherwise || has_own_code;
        let before = if waits_for_team { outside as f64 } else { 0.0 };
        Some((could_run(&waits) - before).max(0.0))
    };
    let known: Option<Vec<f64>> = creators.iter().map(beside).collect();
    let of_team: f64 = team.iter().filter_map(|t| t.waits).map(|waits| could_run(&waits)).sum();
    let mean = of_team / workers.max(1) as f64;
    known.is_some_and(|own| mean > 0.0 && is_idle(own.iter().sum(), mean, workers + 1))
}

/// Whether creators make next to no accesses by the loops and functions in which the team accesses the same object.
/// False where no code of the team is known.
fn runs_other_code(summary: &Summary, team: &[&Thread], creators: &[&Thread], workers: usize) -> bool {
    let ids = |threads: &[&Thread]| threads.iter().map(|t| t.id).collect::<BTreeSet<ThreadId>>();
    let (team, creators) = (ids(team), ids(creators));
    let of = |ids: &BTreeSet<ThreadId>, part: &CodePart| -> u64 {
        part.cells.iter().filter(|cell| ids.contains(&cell.thread)).map(|cell| cell.counters.accesses()).sum()
    };
    let parts = summary.entries.iter().flat_map(|entry| &entry.by_code).filter(|part| part.nest.is_some());
    let sums = parts.map(|part| (of(&team, part), of(&creators, part))).filter(|(team, _)| *team > 0);
    let (of_team, of_creators) = sums.fold((0, 0), |all, part| (all.0 + part.0, all.1 + part.1));
    of_team > 0 && is_idle(of_creators as f64, of_team as f64 / workers.max(1) as f64, workers + 1)
}
