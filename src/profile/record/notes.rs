//! The notes of a recording: what is missing in it, why, and what to do about that.

use numamma_kernel::sys::PAGE;

use crate::profile::perf::session::{FAULT_PAGES, Session};
use crate::profile::records::{EventCounts, Stats};

/// Share of the samples in children that are not followed from which a note says so: with a shell or a launcher around
/// the real program nearly all samples fall there, with a `system("date")` nearly none.
const NOTED_CHILD_SHARE: f64 = 0.1;

/// The profile preload never attached.
pub const NOT_PRELOADED: &str = "the program did not load libnumamma-profile.so (statically linked, or it cleared \
     LD_PRELOAD): no heap call sites";

/// First touches that this recording cannot have.
pub fn first_touch(session: Option<&Session>) -> Option<String> {
    match session {
        None => {
            Some("perf events are refused here: no samples and no first touches; mappings were read from /proc".into())
        }
        Some(s) if !s.kernel_faults => Some(
            "pages first touched inside system calls (read() into a fresh buffer) are not seen as first touches: \
             kernel.perf_event_paranoid is above 1"
                .into(),
        ),
        Some(_) => None,
    }
}

/// Notes about events lost in full buffers: each kind makes another part of the report incomplete.
pub fn lost(stats: &Stats, session: Option<&Session>) -> Vec<String> {
    let mut notes = Vec::new();
    let EventCounts { mappings_lost, starts_lost, .. } = stats.events;
    if mappings_lost > 0 {
        notes.push(format!(
            "{mappings_lost} records of mappings and threads were lost, {starts_lost} of them starts of threads, \
             because the program makes them faster than the recorder could read them: accesses may be charged to what \
             lay at their address before"
        ));
    }
    if stats.lost > 0 {
        notes.push(format!(
            "{} samples were lost, because the program was sampled faster than the recorder could read: sample slower \
             with -F",
            stats.lost
        ));
    }
    if stats.faults_lost > 0 {
        let small = session.map_or(0, Session::fault_buffer) < FAULT_PAGES * PAGE;
        let what_to_do = if small {
            "the buffer is small because of the locked-memory limit: raise `ulimit -l` or kernel.perf_event_mlock_kb"
        } else {
            "the program touched memory faster than the recorder could read the faults"
        };
        notes.push(format!(
            "{} page faults were lost, so first touchers are incomplete; {what_to_do}",
            stats.faults_lost
        ));
    }
    if stats.alloc_lost > 0 {
        notes.push(format!(
            "{} allocation events were lost, small ones and frees first: counts of allocations are too low, and small \
             objects may be charged to the wrong call site",
            stats.alloc_lost
        ));
    }
    notes
}

/// Page faults of which only some were recorded.
pub fn faults_thinned(stats: &Stats) -> Option<String> {
    let counts = &stats.events;
    let share = |ns: u64| 100.0 * (ns as f64 / stats.duration_ns.max(1) as f64).min(1.0);
    (counts.thinned_ns > 0).then(|| {
        format!(
            "the program touches new memory so fast that in {:.0}% of the run only one page fault in {} was recorded, \
             and in {:.0}% none, to keep the overhead down: {} faults were seen then, and first touchers are \
             extrapolated from them (for what share of an object is said with it) or unknown",
            share(counts.thinned_ns - counts.unseen_ns.min(counts.thinned_ns)),
            counts.fault_period,
            share(counts.unseen_ns),
            counts.faults_sampled
        )
    })
}

/// Allocations that were not tracked: all small ones but one in `factor`, and large ones beyond the quota of their call
/// site; `left_out` together.
pub fn thinned(factor: u32, left_out: u64) -> Option<String> {
    (factor > 1).then(|| {
        format!(
            "the program allocates so often that only one in {factor} of its small allocations (under a page) was \
             tracked, and of the large ones the first of each call site in each tenth of a second, to keep the \
             overhead down: {left_out} were left out, which the counts of the tracked ones stand for, and accesses to \
             them are charged to the heap as a whole"
        )
    })
}

/// Memory was short.
pub fn memory(limit: u64) -> String {
    format!(
        "the recording reached its limit of {} MiB of memory, so allocations were thinned and may be lost; raise it \
         with --max-memory",
        limit >> 20
    )
}

/// Child processes that are not followed: their number, and their share of all samples (0 to 1).
pub fn children(share: f64, count: u64) -> Option<String> {
    if share >= NOTED_CHILD_SHARE {
        return Some(format!(
            "{:.0}% of the samples fell into child processes, which are not part of this profile: record them with \
             `numamma profile --follow`",
            100.0 * share
        ));
    }
    let (processes, they) = if count == 1 { ("process", "it") } else { ("processes", "them") };
    (count > 0).then(|| format!("the program started {count} {processes}, not recorded; --follow records {they}, too"))
}
