//! How likely threads are to move to other CPUs: the thread-migration score of NumaPerf (Zhao et al.: NumaPerf:
//! Predictive NUMA Profiling, ICS 2021).
//!
//! A thread that waits for a lock, a condition or a barrier is a possible migration: it may be woken on another CPU, on
//! another node than its memory. NumaPerf counts calls that may wait; here those count in which the thread gave its CPU
//! away, as the kernel says. A barrier that is passed by spinning moves no thread.

use std::collections::BTreeMap;

use super::lifetimes::{Stretches, length, life, shared_by};
use crate::profile::records::{Thread, Waits};
use crate::profile::summary::{Summary, ratio};

/// Waits for other threads, per thread and second, above which migration is reported (NumaPerf, section 5).
pub const MIGRATION_SCORE: f64 = 150.0;
/// Seconds that a run has at least: in a shorter one the starts and ends of threads alone would pass the threshold.
const LEAST_SECONDS: f64 = 1.0;

/// The score of a run, and what it is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Migration {
    /// Waits x parallel part / (threads x seconds).
    pub score: f64,
    /// Waits of all threads for other threads.
    pub waits: f64,
    /// Threads.
    pub threads: usize,
    /// Length of the run; of several profiles the sum.
    pub seconds: f64,
    /// Part of the run in which a process has several threads, 0 to 1.
    pub parallel: f64,
    /// Whether each thread that waits is bound to a CPU or a node, so that it stays there in spite of its waits.
    pub bound: bool,
}

impl Migration {
    /// Whether threads wait so often that they are likely to move, and may do so.
    pub fn is_reported(&self) -> bool {
        self.score > MIGRATION_SCORE && !self.bound
    }
}

/// The score; none where waits are not known (an earlier version, a kernel that does not tell) or there is one thread.
pub fn migration(summary: &Summary) -> Option<Migration> {
    let threads = summary.threads.len();
    let waits = waits_for_threads(summary);
    if threads < 2 || waits.iter().all(Option::is_none) {
        return None;
    }
    let all: f64 = waits.iter().flatten().sum();
    let seconds = summary.duration_ns() as f64 / 1e9 * f64::from(summary.profiles.max(1));
    let parallel = ratio(length(&parallel(summary)), summary.duration_ns()).min(1.0);
    let waiting = || summary.threads.iter().zip(&waits).filter(|(_, waits)| waits.is_some_and(|waits| waits >= 1.0));
    let is_bound = |thread: &Thread| thread.waits.is_some_and(|waits| waits.bound);
    Some(Migration {
        score: all * parallel / (threads as f64 * seconds.max(LEAST_SECONDS)),
        waits: all,
        threads,
        seconds,
        parallel,
        bound: waiting().all(|(thread, _)| is_bound(thread)),
    })
}

/// Waits of each thread for other threads: of all its waits as many as of those whose reason was seen, or of those of
/// all threads where none of its own was. None where nothing is known.
pub fn waits_for_threads(summary: &Summary) -> Vec<Option<f64>> {
    let seen = |waits: &Waits| waits.for_threads.saturating_add(waits.otherwise);
    let mut sum = Waits::default();
    summary.threads.iter().filter_map(|t| t.waits).for_each(|waits| sum.add(&waits));
    let of = |thread: &Thread| {
        let waits = thread.waits?;
        let part = [&waits, &sum].into_iter().find(|waits| seen(waits) > 0)?;
        Some(waits.all as f64 * ratio(part.for_threads, seen(part)))
    };
    summary.threads.iter().map(of).collect()
}

/// The time in which a process has several threads.
fn parallel(summary: &Summary) -> Stretches {
    let mut by_process: BTreeMap<u32, Stretches> = BTreeMap::new();
    for thread in &summary.threads {
        by_process.entry(thread.pid).or_default().push(life(thread, summary.duration_ns()));
    }
    shared_by(1, by_process.into_values().flat_map(|lives| shared_by(2, lives)))
}
