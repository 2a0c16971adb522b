//! Blocks that other threads free than those that allocated them.

use numamma_plan::threads::is_openmp_runtime;

use super::fix::{Fix, FixKind, Gain};
use super::places::{allocation, hottest};
use super::words::in_words;
use crate::profile::records::ObjectKind;
use crate::profile::summary::{Entry, Summary, ratio};

/// Share of the frees of a call site from which on most are by other threads.
const MOSTLY: f64 = 0.5;
/// Frees by other threads for each second of CPU time from which on they are worth a look. Such a free takes a lock of
/// another thread's arena and the lines of its free list from that thread's cache. At some 100 ns for each of three
/// lines and a lock (documented latencies between cores and sockets), 30,000 of them take a hundredth of the time.
const OFTEN: f64 = 30_000.0;
/// Bytes from which on the allocator maps a block by itself, and freeing concerns no arena: M_MMAP_THRESHOLD of
/// mallopt(3).
const MAPPED: f64 = 131_072.0;

/// A fix for each call site.
pub(super) fn fixes(summary: &Summary) -> Vec<Fix> {
    summary.entries.iter().filter_map(|entry| fix(summary, entry)).collect()
}

fn fix(summary: &Summary, entry: &Entry) -> Option<Fix> {
    let frees = entry.details.frees;
    let by_others = ratio(frees.by_others, frees.all);
    if by_others <= MOSTLY || entry.details.left_out || is_mapped(summary, entry) || is_of_openmp(summary, entry) {
        return None;
    }
    let often = frees.by_others as f64 / (summary.stats.cpu_ns as f64 / 1e9).max(f64::MIN_POSITIVE);
    if often < OFTEN {
        return None;
    }
    let name = &entry.name;
    Some(Fix {
        kind: FixKind::LocalFree,
        object: Some(name.clone()),
        share: ratio(entry.total.cost_ns, summary.total().cost_ns),
        what: format!(
            "free {} on the thread that allocated them: hand them back to it in batches, or use them again from a pool of \
             each thread",
            in_words(entry)
        ),
        why: format!(
            "{} of {} frees ({:.0} %) are by another thread than the one that allocated the block. Such a \
             free contends for the lock of that thread's arena, and the memory goes back to the arena, and so to its node: \
             that of the thread that allocates from it",
            frees.by_others,
            frees.all,
            100.0 * by_others,
        ),
        saves: None,
        gain: Gain::unpriced(format!(
            "not known: the model has no price for the locks of an allocator. There are {often:.0} such frees in each second \
             of CPU time"
        )),
        by_policy: false,
        is_hint: false,
        places: [allocation(summary, entry), hottest(summary, entry)].into_iter().flatten().collect(),
    })
}

/// Whether the blocks are large enough to be mapped one by one.
fn is_mapped(summary: &Summary, entry: &Entry) -> bool {
    entry.kind != ObjectKind::SmallHeap && summary.turnover(entry).is_none_or(|t| t.mean_size >= MAPPED)
}

/// Whether an OpenMP runtime allocates the blocks, as it does for tasks: the program has no say in who frees them.
fn is_of_openmp(summary: &Summary, entry: &Entry) -> bool {
    let caller = entry.site.as_ref().and_then(|site| site.frames.first());
    let module = caller.and_then(|frame| summary.modules.get(frame.module as usize));
    module.is_some_and(|module| is_openmp_runtime(&module.path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::tests::{entry, heap, profile};
    use crate::profile::records::FreeCount;

    #[test]
    fn blocks_of_an_openmp_runtime_are_not_for_the_program_to_free() {
        let allocated_by = |path: &str| {
            let mut blocks = heap(entry("main tasks.c:11", 2048, 5, 100, |_, _| 0), &[0x10, 0x20]);
            blocks.kind = ObjectKind::SmallHeap;
            blocks.details.frees = FreeCount { all: 150_000, by_others: 120_000 };
            let mut summary = profile(4, "never", vec![blocks]);
            summary.stats.cpu_ns = 1_000_000_000;
            summary.modules[0].path = path.into();
            fixes(&summary).len()
        };
        assert_eq!(allocated_by("/opt/app/tasks"), 1);
        assert_eq!(allocated_by("/usr/lib/x86_64-linux-gnu/libgomp.so.1.0.0"), 0);
    }
}
