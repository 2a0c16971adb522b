//! Everything that is printed of a profile, a prediction, a check or a comparison: terminal text and JSON.
//!
//! Every function here is pure: nothing reads the environment or the terminal. [`overview`] is the overview,
//! [`object_details`] one object in detail, [`json`] the same facts for scripts, [`html`] a page to keep and
//! pass on, [`export`] formats of other tools.

use crate::detect::{Pattern, PatternKind, Roles, roles};
use crate::profile::records::{ObjectKind, ThreadId};
use crate::profile::summary::{ByOthers, Counters, Entry, Summary};

pub use crate::profile::summary::AccessFilter;

pub mod advice;
pub mod bins;
pub mod checks;
pub mod comparison;
pub mod difference;
pub mod difference_json;
pub mod export;
pub mod find_object;
pub mod fixes;
pub mod glossary;
pub mod hardware;
pub mod html;
pub mod json;
pub mod live;
pub mod matrix;
pub mod object_details;
pub mod overview;
pub mod plot;
pub mod prediction;
pub mod processes;
mod run_verdict;
pub mod sample_account;
mod shared_lines;
mod style;
mod table;
mod thread_table;
pub mod tuning;
pub mod units;
pub mod verification;

#[cfg(test)]
mod tests;

/// Order of the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// CPU time at accesses to the object.
    Cost,
    /// Number of accesses seen.
    Accesses,
}

/// How a report is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Order of the objects.
    pub sort: Sort,
    /// Objects shown at most; none shows every object that was accessed.
    pub top: Option<usize>,
    /// Which accesses count.
    pub access: AccessFilter,
    /// Columns of the terminal.
    pub width: usize,
    /// Rows a matrix may take.
    pub height: usize,
    /// The terminal shows escape sequences and block characters.
    pub color: bool,
    /// Words that name the profiles in the commands that are suggested; none when it is the default one.
    pub profile: Option<String>,
}

/// Objects shown by default: the whole report then fits on a screen.
pub const DEFAULT_TOP: usize = 15;

/// A summary with what is derived from it once.
#[derive(Debug)]
pub struct View<'a> {
    /// The profile.
    pub summary: &'a Summary,
    /// Verdicts, one per entry in the same order; shorter when there are none.
    pub patterns: &'a [Pattern],
    /// How to write it.
    pub options: &'a Options,
    /// Counters of all entries.
    pub total: Counters,
    /// The roles of the threads.
    pub roles: Roles,
    /// Remote shares on another machine.
    pub predicted: Option<Predicted>,
    /// The profiles that the summary is made of; none for one that is shown by itself.
    pub processes: Option<processes::Processes<'a>>,
}

/// What would be remote on a target machine under first touch.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicted {
    /// Name of the target's model.
    pub target: String,
    /// Of each entry's accesses, 0 to 1, in the order of the summary; none where nothing is predicted.
    pub remote_shares: Vec<Option<f64>>,
}

impl<'a> View<'a> {
    /// Prepares a report.
    pub fn new(summary: &'a Summary, patterns: &'a [Pattern], options: &'a Options) -> View<'a> {
        let (total, roles) = (summary.total(), roles(summary));
        View { summary, patterns, options, total, roles, predicted: None, processes: None }
    }

    /// Verdict of an entry.
    pub fn pattern(&self, entry: &Entry) -> Option<&'a Pattern> {
        self.patterns.get(entry.id as usize)
    }

    /// Accesses to an entry of all threads, or of one, by the first toucher of their page. Successive threads of one
    /// slot, as in a pool that is made anew for every step, count as one.
    pub fn by_others(&self, entry: &Entry, of: Option<ThreadId>) -> ByOthers {
        entry.by_others(of, |thread| self.roles.place(thread))
    }

    /// Remote share of what was seen with a known node; none on a machine with one node, where nothing can be remote.
    pub fn remote_share(&self, c: &Counters) -> Option<f64> {
        let several = self.summary.header.topology.nodes.len() > 1;
        (several && c.placed > 0).then(|| c.remote as f64 / c.placed as f64)
    }

    /// Share of an entry's accesses that would be remote on the target.
    pub fn predicted_remote(&self, entry: &Entry) -> Option<f64> {
        self.predicted.as_ref()?.remote_shares.get(entry.id as usize).copied().flatten()
    }

    /// Accesses of an entry that pass the filter.
    pub fn accesses(&self, entry: &Entry) -> u64 {
        self.options.access.count(&entry.total)
    }

    /// Share of all accesses that pass the filter.
    pub fn share(&self, entry: &Entry) -> f64 {
        crate::profile::summary::ratio(self.accesses(entry), self.options.access.count(&self.total))
    }

    /// Share of all charged CPU time.
    pub fn cost_share(&self, entry: &Entry) -> f64 {
        crate::profile::summary::ratio(entry.total.cost_ns, self.total.cost_ns)
    }

    /// What the recording cost the program, as shares of the CPU time that it would have used alone. None when the cost
    /// of a sample was not measured.
    pub fn overhead_shares(&self) -> Option<Overhead> {
        let (h, s) = (&self.summary.header, &self.summary.stats);
        if h.sampling.cost_ns == 0 || s.cpu_ns == 0 {
            return None;
        }
        // Samples that did not come would have fallen into the tracking as often as the others.
        let period =
            h.sampling.period_ns as f64 / if s.achieved > 0.0 { s.achieved.clamp(LEAST_ACHIEVED, 1.0) } else { 1.0 };
        let (samples, tracking) = (s.samples as f64 * h.sampling.cost_ns as f64, s.own as f64 * period);
        let (faults, mappings) = match s.events.kernel {
            Some(kernel) => (kernel.faults_ns as f64, kernel.mappings_ns as f64),
            // A profile of before tells of those that were recorded only.
            None => ((s.faults + s.faults_lost) as f64 * s.events.fault_ns as f64, 0.0),
        };
        let alone = (s.cpu_ns as f64 - samples - tracking - faults - mappings).max(s.cpu_ns as f64 * LEAST_ALONE);
        let recorder = s.recorder_cpu_ns as f64;
        let [samples, tracking, faults, mappings, recorder] =
            [samples, tracking, faults, mappings, recorder].map(|part| part / alone);
        Some(Overhead { samples, tracking, faults, mappings, recorder })
    }

    /// What the program itself spent of [`View::overhead_shares`].
    pub fn overhead_share(&self) -> Option<f64> {
        self.overhead_shares().map(|o| o.of_program())
    }

    /// Entries that were accessed and are not left out, in the order of [`Options::sort`].
    pub fn ranked(&self) -> Vec<&'a Entry> {
        let wanted = |e: &&Entry| self.accesses(e) > 0 && !e.details.left_out;
        let mut list: Vec<&Entry> = self.summary.entries.iter().filter(wanted).collect();
        if self.options.sort == Sort::Accesses {
            list.sort_by_key(|e| (std::cmp::Reverse(self.accesses(e)), e.id));
        }
        list
    }

    /// The objects of the table: what can be placed, up to the limit.
    pub fn shown(&self) -> Vec<&'a Entry> {
        let objects = self.ranked().into_iter().filter(|e| e.placeable());
        objects.take(self.options.top.unwrap_or(usize::MAX)).collect()
    }
}

/// What the recording cost the program, as shares of its CPU time alone.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Overhead {
    /// The samples.
    pub samples: f64,
    /// The tracking of allocations, by the samples that fell into it.
    pub tracking: f64,
    /// All page faults, recorded or not: the kernel's events make each take longer.
    pub faults: f64,
    /// The records of mappings.
    pub mappings: f64,
    /// What the recorder used, on whichever CPU.
    pub recorder: f64,
}

impl Overhead {
    /// What the program itself spent.
    pub fn of_program(&self) -> f64 {
        self.samples + self.tracking + self.faults + self.mappings
    }
}

/// Least part of the expected samples, and of the program's own CPU time, that the figures of the overhead assume.
const LEAST_ACHIEVED: f64 = 0.1;
/// See [`LEAST_ACHIEVED`].
const LEAST_ALONE: f64 = 0.01;

/// Share of accesses to pages that another thread touched first, as a table shows it: `?` where that is not known for
/// most of them.
fn by_others_words(by: &ByOthers) -> String {
    by.known_to_most().map_or("?".into(), units::percent)
}

/// Remote share as a table shows it: `-` on a machine with one node, where nothing can be remote.
fn remote_words(view: &View, counters: &Counters) -> String {
    let none = if view.summary.header.topology.nodes.len() == 1 { "-" } else { "?" };
    view.remote_share(counters).map_or(none.into(), units::percent)
}

/// Name of a pattern in tables; JSON and policies have those of [`PatternKind`].
pub fn pattern_words(kind: PatternKind) -> &'static str {
    kind.words()
}

/// Word for a kind in tables.
pub fn kind_word(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Global => "global",
        ObjectKind::Section => "section",
        ObjectKind::Heap => "heap",
        ObjectKind::SmallHeap => "small heap",
        ObjectKind::Mapping => "mapping",
        ObjectKind::Stack => "stack",
        ObjectKind::Tls => "tls",
        ObjectKind::Unknown => "unknown",
    }
}
