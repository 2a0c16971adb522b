//! A copy for each node of data that all threads only read. Who makes copies of data that is still written breaks the
//! program, so it is listed only where no sign of a later writer was seen, and as certain only where all accesses were
//! counted.
//!
//! Samples do not show that nothing writes: a store does not wait for memory, so that one at the end of a row that is
//! summed up from memory all over has next to no samples. But a writer leaves other signs: a single sampled write,
//! pages that it touched first, and another array of the same size that the same instructions read, because the two
//! change their roles.

use std::collections::BTreeSet;

use super::USES;
use super::words::in_words;
use crate::profile::record::TRACE;
use crate::profile::records::{Frame, ThreadId};
use crate::profile::summary::{Counters, Entry, Summary, ratio};

/// What is to be done, why, and whether it is a guess.
pub(super) struct Copies {
    pub what: String,
    pub why: String,
    pub is_hint: bool,
}

/// The finding for an object that `evidence` shows to be read by all; none where something tells of a later writer.
pub(super) fn of(summary: &Summary, entry: &Entry, evidence: &str) -> Option<Copies> {
    let is_traced = summary.header.sampling.sampler == TRACE;
    let last_writes = Writes::of(entry, is_traced);
    let is_rewritten = || if is_traced { is_written_again(entry) } else { is_likely_rewritten(summary, entry) };
    if last_writes == Writes::After || is_rewritten() {
        return None;
    }
    let is_counted = is_traced && last_writes == Writes::Before;
    let (name, size) = (in_words(entry), entry.size);
    let cost = format!("a copy takes {size} bytes of each node");
    Some(match is_counted {
        true => Copies {
            what: format!("make a copy of {name} on each node once it is written, and let threads read the near one"),
            why: format!(
                "{evidence}; all accesses were counted, and none writes it after several threads have read it; {cost}"
            ),
            is_hint: false,
        },
        false if is_traced => Copies {
            what: if_nothing_writes(name),
            why: format!(
                "{evidence}; all accesses were counted, but too late to tell whether the last of its writes come before or \
                 after several threads read it: read the source; {cost}"
            ),
            is_hint: true,
        },
        false => Copies {
            what: if_nothing_writes(name),
            why: format!(
                "{evidence}; no sample shows a later write, but samples miss a writer that takes little time: read the \
                 source, or profile with --sampler trace, which counts all accesses; {cost}"
            ),
            is_hint: true,
        },
    })
}

fn if_nothing_writes(name: String) -> String {
    format!(
        "if the source shows that nothing writes {name} once several threads read it, make a copy of it on each node, and \
         let threads read the near one"
    )
}

/// When an object was written last, and the second thread read it first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writes {
    Before,
    /// In the same time slot. A trace counts what is between two readings of its counters, a second or more, as one
    /// time, and what ended threads have counted before what the others have: one slot behind the first shared reads is
    /// the same.
    Beside,
    /// Or that is not known.
    After,
}

impl Writes {
    fn of(entry: &Entry, is_traced: bool) -> Writes {
        let mut first_reads = std::collections::BTreeMap::<ThreadId, u16>::new();
        for cell in entry.cells.iter().filter(|c| c.counters.reads > 0) {
            let first = first_reads.entry(cell.thread).or_insert(cell.slot);
            *first = cell.slot.min(*first);
        }
        let mut slots: Vec<u16> = first_reads.into_values().collect();
        slots.sort_unstable();
        // Accesses without a page have no time.
        let Some(shared) = slots.get(1).filter(|_| entry.details.unpaged.writes == 0) else { return Writes::After };
        let written = || entry.cells.iter().filter(|c| c.counters.writes > 0).map(|c| c.slot);
        let behind: BTreeSet<u16> = written().filter(|slot| slot > shared).collect();
        match behind.len() {
            0 if written().all(|slot| slot < *shared) => Writes::Before,
            0 => Writes::Beside,
            1 if is_traced => Writes::Beside,
            _ => Writes::After,
        }
    }
}

/// Whether counted writes are more than one for each byte, or of several threads: it is not only filled.
fn is_written_again(entry: &Entry) -> bool {
    let writers = entry.threads().into_iter().filter(|(_, counters)| counters.writes > 0).count();
    writers > 1 || entry.total.writes > entry.size.saturating_mul(entry.instances.max(1))
}

/// Whether samples missed writes of it, or it seems to be one of several that change their roles.
fn is_likely_rewritten(summary: &Summary, entry: &Entry) -> bool {
    entry.instances > 1 || has_unseen_writers(entry) || summary.entries.iter().any(|other| are_twins(entry, other))
}

/// Whether several threads touched parts of it first, and of one of them no write was seen: what it writes has too few
/// samples, then and later.
fn has_unseen_writers(entry: &Entry) -> bool {
    let touchers = entry.first_touchers();
    let all: u64 = touchers.iter().map(|(_, pages)| pages).sum();
    let threads = entry.threads();
    let writes = |thread: ThreadId| threads.iter().any(|(t, counters)| *t == thread && counters.writes > 0);
    let large: Vec<ThreadId> = touchers.iter().filter(|(_, n)| ratio(*n, all) >= USES).map(|(t, _)| *t).collect();
    large.len() > 1 && !large.into_iter().all(writes)
}

/// Whether two objects of one size are read by the same instruction.
fn are_twins(entry: &Entry, other: &Entry) -> bool {
    let readers = |of: &Entry| -> Vec<Frame> {
        let often = |(_, counters): &&(Frame, Counters)| ratio(counters.reads, of.total.reads) >= USES;
        of.details.code.iter().filter(often).map(|(frame, _)| *frame).collect()
    };
    let is_other = other.id != entry.id && other.placeable();
    is_other && other.size == entry.size && readers(entry).iter().any(|frame| readers(other).contains(frame))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::records::ObjectKind;
    use crate::profile::summary::{Cell, TouchRun};

    const LOAD: Frame = Frame { module: 0, offset: 0x195ef };

    fn cell(thread: ThreadId, slot: u16, (reads, writes): (u64, u64)) -> Cell {
        Cell { instance: 0, page: 0, thread, slot, counters: Counters { reads, writes, ..Counters::default() } }
    }

    fn touched(thread: ThreadId, page: u32) -> TouchRun {
        TouchRun { instance: 0, page, pages: 100, thread, time_ns: 0 }
    }

    /// Written by thread 0 in slot 0 and read by threads 1 and 2 from slot 3 on.
    fn table(id: u32) -> Entry {
        let total = Counters { reads: 200, writes: 8, ..Counters::default() };
        let mut entry = Entry { id, kind: ObjectKind::Heap, size: 16_000_000, instances: 1, total, ..Entry::default() };
        entry.cells = vec![cell(0, 0, (0, 8)), cell(1, 3, (100, 0)), cell(2, 3, (100, 0))];
        entry.touches = vec![touched(0, 0)];
        entry.details.code = vec![(LOAD, Counters { reads: 200, ..Counters::default() })];
        entry
    }

    fn run(sampler: &str, entries: Vec<Entry>) -> Summary {
        let mut summary = crate::advise::tests::profile(3, "never", entries);
        summary.header.sampling.sampler = sampler.into();
        summary
    }

    fn is_hint(sampler: &str, entries: Vec<Entry>) -> Option<bool> {
        let summary = run(sampler, entries);
        of(&summary, &summary.entries[0], "all read it").map(|copies| copies.is_hint)
    }

    #[test]
    fn only_counted_accesses_show_that_nothing_writes() {
        assert_eq!(is_hint("timer", vec![table(0)]), Some(true));
        assert_eq!(is_hint(crate::profile::record::TRACE, vec![table(0)]), Some(false));
    }

    #[test]
    fn a_trace_of_one_reading_does_not_tell_what_was_first() {
        let mut together = table(0);
        together.cells.iter_mut().for_each(|cell| cell.slot = 63);
        assert_eq!(is_hint(TRACE, vec![together.clone()]), Some(true));
        together.cells[0].slot = 62;
        together.cells[1].slot = 61;
        together.cells[2].slot = 61;
        assert_eq!(is_hint(TRACE, vec![together.clone()]), Some(true), "counters of the main thread are read last");
        together.total.writes = 100_000_000;
        assert_eq!(is_hint(TRACE, vec![together]), None, "written again and again");
    }

    #[test]
    fn one_write_after_the_first_shared_reads_is_a_writer() {
        for sampler in ["timer", crate::profile::record::TRACE] {
            let mut late = table(0);
            late.cells.push(cell(1, 9, (0, 1)));
            assert_eq!(is_hint(sampler, vec![late]), None, "{sampler}");
        }
    }

    /// The second vector of an iteration is zero pages of the kernel until workers write it.
    #[test]
    fn threads_that_touch_it_first_without_a_sampled_write_are_unseen_writers() {
        let mut by_workers = table(0);
        by_workers.touches = vec![touched(1, 0), touched(2, 100)];
        assert_eq!(is_hint("timer", vec![by_workers.clone()]), None);
        by_workers.cells.extend([cell(1, 0, (0, 1)), cell(2, 0, (0, 1))]);
        assert_eq!(is_hint("timer", vec![by_workers]), Some(true), "their writes were seen, before it was shared");
    }

    /// x and y of a matrix-vector product, swapped after each.
    #[test]
    fn what_changes_its_role_with_another_array_is_not_copied() {
        assert_eq!(is_hint("timer", vec![table(0), table(1)]), None);
        let other_size = Entry { size: 8_000_000, ..table(1) };
        let mut other_code = table(1);
        other_code.details.code[0].0.offset += 8;
        assert_eq!(is_hint("timer", vec![table(0), other_size, other_code]), Some(true));
        assert_eq!(is_hint("timer", vec![Entry { instances: 2, ..table(0) }]), None, "both of one call site");
    }
}
