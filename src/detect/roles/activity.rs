//! Who works when: accesses of every thread in every time slot, and the slots that are the compute phase.

use crate::profile::record::TRACE;
use crate::profile::records::{ObjectKind, ThreadId};
use crate::profile::summary::{Entry, Summary, TIME_SLOTS};

use crate::detect::limits::{ACCESSES_PER_SAMPLE, HOT_SHARE};

/// Threads at a time below which a time slot is serial: halfway between one and two.
pub(crate) const SERIAL: f64 = 1.5;

const SLOTS: usize = TIME_SLOTS as usize;

/// Independent samples by thread and time slot.
pub(super) struct Activity {
    by_thread: Vec<[f32; SLOTS]>,
    /// Whether a time slot belongs to the compute phase: several threads run at a time. All slots where none does.
    pub compute: [bool; SLOTS],
    /// Length of a slot, ns; none where accesses have no time.
    slot_ns: Option<u64>,
}

impl Activity {
    pub fn of(summary: &Summary) -> Activity {
        let (large, all) = (counted(summary, |e| is_large(summary, e)), counted(summary, |_| true));
        let sum = |rows: &[[f32; SLOTS]]| rows.iter().flatten().map(|w| f64::from(*w)).sum::<f64>();
        // Where small objects are the data, the few samples of large ones are of the allocator's own.
        let by_thread = if sum(&large) < HOT_SHARE * sum(&all) || sum(&large) <= 0.0 { all } else { large };
        // The counts of a traced thread all come when it ends: when it worked they do not tell.
        if summary.header.sampling.sampler == TRACE {
            return Activity { by_thread, compute: [true; SLOTS], slot_ns: None };
        }
        let compute = compute_phase(&by_thread);
        let slot_ns = Some((summary.duration_ns() / u64::from(TIME_SLOTS)).max(1));
        Activity { by_thread, compute, slot_ns }
    }

    /// Samples of a thread in the slots that pass.
    pub fn of_thread(&self, thread: ThreadId, slots: &[bool; SLOTS]) -> f64 {
        let Some(row) = self.by_thread.get(thread as usize) else { return 0.0 };
        row.iter().zip(slots).filter(|(_, s)| **s).map(|(w, _)| f64::from(*w)).sum()
    }

    /// The slots of the compute phase that lie wholly between two times; all of its slots where none does.
    pub fn compute_within(&self, start_ns: u64, end_ns: u64) -> [bool; SLOTS] {
        let Some(slot_ns) = self.slot_ns else { return self.compute };
        let inside = |slot: usize| {
            let from = slot as u64 * slot_ns;
            start_ns <= from && from + slot_ns <= end_ns
        };
        let mut found = self.compute;
        found.iter_mut().enumerate().for_each(|(slot, on)| *on &= inside(slot));
        if found.contains(&true) { found } else { self.compute }
    }
}

/// Whether accesses to an object are work: a thread that spins on a lock, waits in a library or formats text has
/// accesses to its stack, to single pages and to constants of program files only.
pub(super) fn is_large(summary: &Summary, entry: &Entry) -> bool {
    let large = entry.kind != ObjectKind::SmallHeap && entry.size > summary.header.page_size.max(1);
    large && entry.placeable() && !entry.is_read_only(&summary.modules)
}

fn counted(summary: &Summary, wanted: impl Fn(&&Entry) -> bool) -> Vec<[f32; SLOTS]> {
    let mut rows = vec![[0.0; SLOTS]; summary.threads.len()];
    for cell in summary.entries.iter().filter(wanted).flat_map(|e| &e.cells) {
        let row = rows.get_mut(cell.thread as usize).and_then(|row| row.get_mut(usize::from(cell.slot)));
        if let Some(sum) = row {
            *sum += (cell.counters.accesses() as f64 / ACCESSES_PER_SAMPLE) as f32;
        }
    }
    rows
}

fn compute_phase(by_thread: &[[f32; SLOTS]]) -> [bool; SLOTS] {
    let mut found = [false; SLOTS];
    for (slot, on) in found.iter_mut().enumerate() {
        // In accesses, as `at_a_time` wants counts of whole events.
        let counts = by_thread.iter().map(|row| f64::from(row[slot]) * ACCESSES_PER_SAMPLE);
        let (n, squares) = counts.fold((0.0, 0.0), |(n, s), c| (n + c, s + c * c));
        *on = n > 0.0 && at_a_time(n, squares, by_thread.len()) >= SERIAL;
    }
    if found.contains(&true) { found } else { [true; SLOTS] }
}

/// Threads that share `n` accesses evenly, from the sum of the squares of their counts (inverse Simpson index, without
/// the bias of small counts).
pub fn at_a_time(n: f64, squares: f64, threads: usize) -> f64 {
    let pairs = n * (n - 1.0);
    let same = if pairs > 0.0 { (squares - n) / pairs } else { 1.0 };
    (1.0 / same.max(f64::MIN_POSITIVE)).clamp(1.0, threads.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_at_a_time_do_not_depend_on_the_number_of_samples() {
        assert_eq!(at_a_time(8.0, 32.0, 4), (56.0f64 / 24.0).min(4.0));
        assert_eq!(at_a_time(4.0, 4.0, 4), 4.0, "one access each says all of them");
        assert_eq!(at_a_time(10.0, 100.0, 4), 1.0);
        assert_eq!(at_a_time(0.0, 0.0, 4), 1.0);
    }
}
