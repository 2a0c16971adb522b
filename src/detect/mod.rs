//! Patterns of hot objects: pure functions from page x thread counters to a verdict with its evidence.
//!
//! [`classify`] decides in this order: small, cold, private, then slices (block, block-cyclic) by [`spectrum`] and
//! [`fold`], else random when the samples would have shown slices, else unsure. Callers build an [`ObjectView`]
//! with [`view_of`]; thread ranks must be below `threads`, pages count from the object's first page.
//! Refuses nothing: views without samples are unsure, accesses outside the object are ignored.

mod block;
mod block_cyclic;
mod fold;
mod init;
pub mod limits;
mod points;
mod private;
mod random;
mod small;
mod spectrum;
mod structure;
mod view;

pub use random::samples_needed;
pub use view::{cost_shares, thread_ranks, view_of};

use crate::profile::summary::Summary;

/// Counters of one object at page granularity, as the detectors want them.
#[derive(Debug, Clone, PartialEq)]
pub struct PageAccess {
    /// Instance (0 for globals).
    pub instance: u32,
    /// Page from the object's first page.
    pub page: u32,
    /// Thread rank, 0 .. `threads`.
    pub thread: u32,
    /// Time slot.
    pub slot: u16,
    /// Weight: number of accesses.
    pub weight: f64,
}

/// One object as the detectors see it.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectView {
    /// Bytes of the object (largest instance).
    pub size: u64,
    /// Offset of the first byte in its page, bytes.
    pub skew: u64,
    /// Base page size, bytes.
    pub page_size: u64,
    /// Number of threads that take part in the run (ranks are below it).
    pub threads: u32,
    /// Instances seen.
    pub instances: u32,
    /// Share of the run's cost, 0 to 1.
    pub cost_share: f64,
    /// Accesses, any order.
    pub accesses: Vec<PageAccess>,
}

/// Name of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatternKind {
    /// One thread, or each instance by one thread.
    Private,
    /// One contiguous slice per thread.
    Block,
    /// Slices per thread, repeated with a period.
    BlockCyclic,
    /// Shared without structure.
    Random,
    /// Under a page.
    Small,
    /// Too little cost to matter.
    Cold,
    /// Hot, but with too few samples for a verdict.
    Unsure,
}

/// A contiguous part of an object (of one period of it) that one thread uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Slice {
    /// First byte, from the start of the object or period.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
    /// Rank of the thread.
    pub thread: u32,
}

/// Who uses one instance of a private object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Owner {
    /// Instance as in [`PageAccess::instance`].
    pub instance: u32,
    /// Rank of the thread.
    pub thread: u32,
}

/// A verdict.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Pattern {
    /// Kind.
    pub kind: PatternKind,
    /// Period of block-cyclic, bytes.
    pub period: Option<u64>,
    /// 0 to 1. For private, block and block-cyclic: the share of the accesses that the pattern explains, corrected
    /// for chance (0.97: all but 3 % are where the pattern says). For random: the share that no slices explain,
    /// less when samples are few. For unsure: samples over samples needed. For small and cold: 1.
    pub confidence: f64,
    /// The evidence in words and figures, one sentence.
    pub evidence: String,
    /// Slices of block and block-cyclic, in order of their place; empty otherwise.
    pub slices: Vec<Slice>,
    /// Owners of the instances of a private object; empty otherwise.
    pub owners: Vec<Owner>,
}

impl Pattern {
    fn new(kind: PatternKind, confidence: f64, evidence: String) -> Pattern {
        let confidence = if confidence.is_finite() { confidence.clamp(0.0, 1.0) } else { 0.0 };
        Pattern { kind, period: None, confidence, evidence, slices: Vec::new(), owners: Vec::new() }
    }
}

impl PatternKind {
    /// The word used in policies and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            PatternKind::Private => "private",
            PatternKind::Block => "block",
            PatternKind::BlockCyclic => "block-cyclic",
            PatternKind::Random => "random",
            PatternKind::Small => "small",
            PatternKind::Cold => "cold",
            PatternKind::Unsure => "unsure",
        }
    }
}

impl std::fmt::Display for PatternKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Classifies one object. Pure: the same view gives the same pattern.
pub fn classify(view: &ObjectView) -> Pattern {
    if let Some(pattern) = small::small(view).or_else(|| small::cold(view)) {
        return pattern;
    }
    let scale = points::independence(&view.accesses);
    let serial = init::serial_slots(&view.accesses, scale);
    let votes = |a: &&PageAccess| serial.as_ref().is_none_or(|s| !s.dropped[usize::from(a.slot)]);
    let voting: Vec<PageAccess> = view.accesses.iter().filter(votes).cloned().collect();
    let mut pattern =
        private::private(view, &voting, scale).unwrap_or_else(|| structure::structured(view, &voting, scale));
    if let Some(s) = serial.filter(|s| s.share >= 0.005) {
        pattern.evidence += &format!(
            "; {:.0} % of the accesses, by thread {} alone, look like initialisation and do not count",
            100.0 * s.share,
            s.thread
        );
    }
    pattern
}

/// Patterns of all entries of a profile, in the order of `summary.entries`.
pub fn classify_all(summary: &Summary) -> Vec<Pattern> {
    let (ranks, shares) = (thread_ranks(summary), cost_shares(summary));
    summary
        .entries
        .iter()
        .zip(shares)
        .map(|(entry, share)| classify(&view::view_with(entry, summary, &ranks, share)))
        .collect()
}
