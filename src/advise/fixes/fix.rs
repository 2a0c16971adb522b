//! One change of the source, and what it is expected to bring.

use serde::Serialize;

use super::super::PolicyPrice;

/// Speed-up from which it is not written as 1.00x.
pub(super) const PAYS: f64 = 1.005;

/// What kind of change a fix is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FixKind {
    /// Initialise the data by the threads that use it.
    ParallelFirstTouch,
    /// Spread its pages over the nodes.
    Interleave,
    /// A copy for each node.
    Duplicate,
    /// Keep threads on their nodes.
    BindThreads,
    /// Data that several threads write in cache lines of their own.
    Pad,
    /// A variable for each thread in place of one that all write.
    PerThread,
    /// Divide the work evenly.
    Balance,
    /// As many threads of each kind as its work needs.
    ThreadCounts,
    /// Huge pages.
    HugePages,
    /// Free blocks on the thread that allocated them.
    LocalFree,
}

impl FixKind {
    /// All of them, in the order of [`FixKind`].
    pub const ALL: [FixKind; 10] = [
        FixKind::ParallelFirstTouch,
        FixKind::Interleave,
        FixKind::Duplicate,
        FixKind::BindThreads,
        FixKind::Pad,
        FixKind::PerThread,
        FixKind::Balance,
        FixKind::ThreadCounts,
        FixKind::HugePages,
        FixKind::LocalFree,
    ];

    /// The name in JSON and SARIF.
    pub fn id(self) -> &'static str {
        match self {
            FixKind::ParallelFirstTouch => "parallel-first-touch",
            FixKind::Interleave => "interleave",
            FixKind::Duplicate => "duplicate",
            FixKind::BindThreads => "bind-threads",
            FixKind::Pad => "pad",
            FixKind::PerThread => "per-thread",
            FixKind::Balance => "balance",
            FixKind::ThreadCounts => "thread-counts",
            FixKind::HugePages => "huge-pages",
            FixKind::LocalFree => "local-free",
        }
    }

    /// What it is, in one sentence.
    pub fn about(self) -> &'static str {
        match self {
            FixKind::ParallelFirstTouch => {
                "One thread initialises data that many use, so that all of it lies on one node."
            }
            FixKind::Interleave => "Data that all threads use lies on one node, whose memory controller they share.",
            FixKind::Duplicate => "Data that all threads only read could be near to each of them.",
            FixKind::BindThreads => {
                "Threads may move away from the node of their data, where they wait for others often."
            }
            FixKind::Pad => "Threads write different data in one cache line, and take it from each other.",
            FixKind::PerThread => "Threads write the same data, and take its cache line from each other.",
            FixKind::Balance => "Some threads of a team have more work than others, which wait for them.",
            FixKind::ThreadCounts => "Threads of one kind have more work each than those of another.",
            FixKind::HugePages => "Accesses at random to much memory miss the TLB with small pages.",
            FixKind::LocalFree => "Threads free blocks that others allocated, which go back to the arenas of these.",
        }
    }
}

/// A place in the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// What it is for the fix: `allocation`, `initialisation`, `use`; of a shared cache line `read` or `write`; of
    /// threads what they run, `start`, or where they are created, `creation`.
    pub role: &'static str,
    /// Function; empty when unknown.
    pub function: String,
    /// Source file, as in the debug information; none without any.
    pub file: Option<String>,
    /// Line.
    pub line: Option<u32>,
}

/// What a fix is expected to bring.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Gain {
    /// Estimated speed-up of the whole run on the target when nothing else is changed, over what the target does by
    /// default. None where the model has no price for the change.
    pub speedup: Option<f64>,
    /// Lower end of its range: the samples leave it open within this range with a probability of 95 %. None where they
    /// set no lower end.
    pub low: Option<f64>,
    /// Upper end, in the same way.
    pub high: Option<f64>,
    /// Without a speed-up why there is none, and what is known instead; else empty.
    pub note: String,
}

impl Gain {
    /// Of a change that the model has no price for.
    pub(super) fn unpriced(note: impl Into<String>) -> Gain {
        Gain { note: note.into(), ..Gain::default() }
    }

    /// Whether the whole range is below 1.
    pub(super) fn is_loss(&self) -> bool {
        self.speedup.is_some_and(|speedup| self.high.unwrap_or(speedup) < 1.0)
    }

    /// Whether it is written as 1.00x, or less.
    pub(super) fn is_nothing(&self) -> bool {
        self.speedup.is_some_and(|speedup| speedup < PAYS)
    }

    /// That of a policy.
    pub(super) fn of(price: &PolicyPrice) -> Gain {
        Gain { speedup: Some(price.speedup), low: price.low, high: price.high, note: String::new() }
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fix {
    /// Kind.
    pub kind: FixKind,
    /// Object; none where it is about threads.
    pub object: Option<String>,
    /// Share of the object in the run's cost, 0 to 1; of threads 0.
    pub share: f64,
    /// What to change.
    pub what: String,
    /// What was seen.
    pub why: String,
    /// Part of the running time that it is predicted to save, 0 to 1: what the speed-up of `gain` leaves of it. None
    /// without one.
    pub saves: Option<f64>,
    /// What it is expected to bring on the target.
    pub gain: Gain,
    /// A policy does the same in each run, without a change of the source.
    pub by_policy: bool,
    /// It is a guess from what samples at pages can show.
    pub is_hint: bool,
    /// Where, the place to change first.
    pub places: Vec<Place>,
}

impl Fix {
    /// Of this kind, `what` and why, with what is known of the gain.
    pub(super) fn about_threads(kind: FixKind, (what, why): (String, String), gain: String) -> Fix {
        Fix {
            kind,
            object: None,
            share: 0.0,
            what,
            why,
            saves: None,
            gain: Gain::unpriced(gain),
            by_policy: false,
            is_hint: true,
            places: Vec::new(),
        }
    }
}
