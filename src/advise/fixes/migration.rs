//! Threads that are likely to move to other CPUs.

use super::{Fix, FixKind, about_threads, is_bound_by_policy};
use crate::advise::Advice;
use crate::detect::{MIGRATION_SCORE, migration, roles};
use crate::profile::summary::Summary;

/// The fix for threads that wait for each other so often that they are likely to be woken on another CPU.
pub(super) fn fix(summary: &Summary, advice: &Advice) -> Option<Fix> {
    let found = migration(summary).filter(|found| found.is_reported())?;
    let changes: u64 = summary.threads.iter().map(|t| t.migrations).sum();
    let what = if roles(summary).kinds.iter().any(|kind| kind.openmp) {
        "start it with OMP_PROC_BIND=spread OMP_PLACES=cores, so that each thread stays on the node of its data"
    } else {
        "bind the threads in turn to the CPUs of each node (pthread_setaffinity_np as they start), or the program to one \
         node with numactl --cpunodebind --membind or taskset if that has CPUs for all"
    };
    let why = format!(
        "thread-migration score {:.0}, reported above {MIGRATION_SCORE}: {} threads wait {:.0} times for locks, conditions, \
         barriers or each other's end in {:.1} s, {:.0} % of it parallel, and each time may be woken on another CPU, away \
         from their memory; samples saw {changes} changes of CPU",
        found.score,
        found.threads,
        found.waits,
        found.seconds,
        100.0 * found.parallel,
    );
    let by_policy = is_bound_by_policy(advice);
    Some(Fix { by_policy, is_hint: false, ..about_threads(FixKind::BindThreads, what.into(), why) })
}
