//! The `fault` sampler: the profile preload makes pages fault and tells which thread used them, or the kernel does so
//! for its NUMA balancing. Here is what the recorder asks of the preload, and what is said of both.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use numamma_channel::faults::{Faults, LIMITED, REFUSED, WORKS};
use numamma_channel::reader::Channel;

/// Name of the sampler.
pub const FAULT: &str = "fault";

/// What the note says first where the preload made no page fault.
const NO_WINDOW: &str = "no window of the fault sampler began";
/// What it says first where the preload did not come so far.
const NOT_BEGUN: &str = "the fault sampler did not begin";

const MILLION: f64 = 1e6;

/// Who makes pages fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultsBy {
    /// The profile preload, which moves them away in windows (userfaultfd), no more often than once in this time.
    Moving(Duration),
    /// The kernel, which makes some pages after the other inaccessible for its NUMA balancing (hint faults,
    /// `task_numa_work` in kernel/sched/fair.c).
    Balancing,
}

/// Asks for the sampler: pages are armed no more often than once in `interval`, and threads wait for their faults no
/// longer than the part `max_overhead` of the time.
pub fn want(channel: &Channel, interval: Duration, max_overhead: f64) {
    let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1);
    channel.want_faults(interval_ns, (max_overhead * MILLION) as u32);
}

/// What is to be said of hint faults when the program has ended and `uses` were seen.
pub fn note_of_balancing(uses: u64) -> String {
    match uses {
        0 => "no page faulted for NUMA balancing: the kernel looks at a process when it has run for a second, and only at \
              memory without a policy of its own; use --sampler timer for short programs"
            .to_owned(),
        _ => format!("fault sampler: {uses} uses of pages that the kernel made fault for NUMA balancing"),
    }
}

/// Whether a note says that no page was made to fault.
pub fn has_no_window(notes: &[String]) -> bool {
    notes.iter().any(|note| note.starts_with(NO_WINDOW) || note.starts_with(NOT_BEGUN))
}

/// What is to be said of the sampler when the program has ended.
pub fn note(faults: &Faults) -> String {
    let count = |cell: &std::sync::atomic::AtomicU64| cell.load(Relaxed);
    let windows = count(&faults.windows);
    match faults.state.load(Acquire) {
        REFUSED => {
            let errno = faults.errno.load(Relaxed);
            let why = match i32::try_from(errno).ok().filter(|errno| *errno != 0) {
                Some(errno) => std::io::Error::from_raw_os_error(errno).to_string(),
                None => "it runs in another process namespace".to_owned(),
            };
            format!("the fault sampler could not work in the program: {why}; `numamma doctor` says what it needs")
        }
        LIMITED => {
            "the fault sampler did not work: its room for pages could take address space that the program needs; \
                    lift the limit (ulimit -v unlimited, ulimit -d unlimited, sysctl vm.overcommit_memory=0)"
                .to_owned()
        }
        WORKS if windows == 0 => {
            format!(
                "{NO_WINDOW}: the program is too short for --interval, or locks what it maps from then on (mlockall with \
                 MCL_FUTURE)"
            )
        }
        WORKS => {
            let unarmed = match count(&faults.unarmed) {
                0 => String::new(),
                n => format!(
                    "; {n} times a page could not be armed, as a child or a device shares it or it is locked (mlock)"
                ),
            };
            format!(
                "fault sampler: {}, about {:.0} pages made to fault in each; threads waited some {:.1} ms in each: while \
                 pages were made to fault, for their faults, and while the sampler waited for a CPU{unarmed}",
                if windows == 1 { "1 window".to_owned() } else { format!("{windows} windows") },
                count(&faults.armed) as f64 / windows as f64,
                count(&faults.waited_ns) as f64 / windows as f64 / MILLION
            )
        }
        _ => format!("{NOT_BEGUN}: the program ended before it, or loads no preload library"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_counts_windows_and_says_what_threads_waited_for() {
        let faults = Faults {
            interval_ns: 1.into(),
            budget_ppm: 0.into(),
            state: WORKS.into(),
            errno: 0.into(),
            windows: 1.into(),
            armed: 300.into(),
            unarmed: 0.into(),
            waited_ns: 2_500_000.into(),
        };
        let said = note(&faults);
        assert!(
            said.starts_with(
                "fault sampler: 1 window, about 300 pages made to fault in each; threads waited some 2.5 ms"
            )
        );
        faults.windows.store(2, Relaxed);
        assert!(note(&faults).contains(" 2 windows, about 150 pages") && !has_no_window(&[note(&faults)]));
        faults.windows.store(0, Relaxed);
        assert!(has_no_window(&[note(&faults)]));
        faults.state.store(0, Relaxed);
        assert!(has_no_window(&[note(&faults)]));
    }
}
