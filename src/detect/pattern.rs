//! The result of the detectors for one object: the kind of pattern, the parts that each thread uses, and the evidence.

use super::limits::ACCESSES_PER_SAMPLE;

/// `worker 3`, or what stands for a thread that is none of the `workers`. Threads have other numbers, their ids.
pub(crate) fn thread_name(rank: u32, workers: u32) -> String {
    if rank < workers { format!("worker {rank}") } else { "a thread outside the team".into() }
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
    /// Shared without structure, and written only before many threads read it.
    ReadShared,
    /// Each page keeps its main threads during the whole run, but no formula gives them.
    Irregular,
    /// Patterns at different times that need different placements.
    Phased,
    /// Functions that use it differently, each with a pattern of its own.
    Mixed,
    /// Smaller than a page.
    Small,
    /// Too small a share of the cost for a placement to matter.
    Cold,
    /// Hot, but with too few samples for a pattern.
    Unsure,
}

impl PatternKind {
    /// The words for people.
    pub fn words(self) -> &'static str {
        if self == PatternKind::Unsure { "too few samples" } else { self.as_str() }
    }

    /// The word used in policies and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            PatternKind::Private => "private",
            PatternKind::Block => "block",
            PatternKind::BlockCyclic => "block-cyclic",
            PatternKind::Random => "random",
            PatternKind::ReadShared => "read-shared",
            PatternKind::Irregular => "irregular",
            PatternKind::Phased => "phased",
            PatternKind::Mixed => "mixed",
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

/// The thread that uses one instance of a private object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Owner {
    /// Instance as in [`super::PageAccess::instance`].
    pub instance: u32,
    /// Rank of the thread.
    pub thread: u32,
}

/// A part of the run in which an object has one pattern.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Segment {
    /// First time slot.
    pub first_slot: u16,
    /// First time slot after it.
    pub end_slot: u16,
    /// Start, seconds from the start of the run (0 when the length of the run is unknown).
    pub start_s: f64,
    /// End, seconds.
    pub end_s: f64,
    /// Share of the object's accesses, 0 to 1.
    pub share: f64,
    /// Whether this part is initialisation, which does not count for the pattern of the run.
    pub initialisation: bool,
    /// The pattern in this part of the run.
    pub pattern: Box<Pattern>,
}

/// The pattern of the accesses that one function makes.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct CodePattern {
    /// Name of the function, with `file:line` where loops of one function differ.
    pub function: String,
    /// Share of the object's accesses that count, 0 to 1.
    pub share: f64,
    /// Their pattern.
    pub pattern: Box<Pattern>,
}

/// The figures behind a pattern. A figure without a meaning for the kind is 0.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize)]
pub struct Figures {
    /// Independent samples that counted.
    pub samples: f64,
    /// Samples with which slices would be found in any order and with 40 % noise.
    pub needed: f64,
    /// Share of the samples that the pattern explains, corrected for chance, 0 to 1.
    pub explained: f64,
    /// Share of the samples outside their own thread's slice after folding, not corrected for chance.
    pub residual: f64,
    /// Log-likelihood ratio to "shared without structure" less the description length, nats.
    pub nats: f64,
    /// Upper bound of the probability of this ratio by chance: exp(-nats).
    pub significance: f64,
    /// Amplitude of the spectrum at the period, 0 to 1.
    pub peak: f64,
    /// Amplitude that the highest line would have without structure.
    pub noise: f64,
}

/// The pattern of one object.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Pattern {
    /// Kind.
    pub kind: PatternKind,
    /// Period of block-cyclic, bytes.
    pub period: Option<u64>,
    /// Probability that the kind is right, 0 to 1, by the number of samples and the distance from the limits between
    /// the kinds. For phased and mixed: the mean over the parts. For unsure: samples over samples needed. For small
    /// and cold: 1. The share of the accesses that the pattern explains is [`Figures::explained`].
    pub confidence: f64,
    /// The evidence in words and figures, one sentence.
    pub evidence: String,
    /// Slices of block and block-cyclic, in order of their offset; for irregular the page map as runs of pages with one
    /// main thread; empty otherwise.
    pub slices: Vec<Slice>,
    /// Owners of the instances of a private object, or of rows that form a block or block-cyclic group, for which the
    /// slices tell the owners of the rows without samples; empty otherwise.
    pub owners: Vec<Owner>,
    /// Number of instances that are classified as one object in allocation order (rows of a matrix). Period and slices
    /// then extend over the pages of all instances.
    pub group: Option<u32>,
    /// Parts of the run with different patterns, initialisation included; empty when the pattern does not change.
    pub segments: Vec<Segment>,
    /// The functions of a mixed object (or of a phased one whose functions disagree), highest share first; empty when
    /// they agree.
    pub by_code: Vec<CodePattern>,
    /// The pattern of the whole run of a phased object, on which one placement for all phases is based; of a mixed
    /// object, the one of all functions together.
    pub whole: Option<Box<Pattern>>,
    /// For irregular: the formula that describes most of it, although not enough to be its pattern.
    #[serde(skip)]
    pub nearest: Option<Box<Pattern>>,
    /// The figures behind the pattern.
    pub figures: Figures,
}

impl Pattern {
    /// A pattern without slices and owners. A confidence that is not finite counts as 0.
    pub fn new(kind: PatternKind, confidence: f64, evidence: String) -> Pattern {
        let confidence = if confidence.is_finite() { confidence.clamp(0.0, 1.0) } else { 0.0 };
        Pattern {
            kind,
            period: None,
            confidence,
            evidence,
            slices: Vec::new(),
            owners: Vec::new(),
            group: None,
            segments: Vec::new(),
            by_code: Vec::new(),
            whole: None,
            nearest: None,
            figures: Figures::default(),
        }
    }

    /// `block-cyclic 5242880`: kind and period in bytes, in units where they are whole.
    pub(crate) fn summary(&self) -> String {
        let period = |bytes: u64| period_text(bytes as f64 / 4096.0, bytes);
        self.period.map_or_else(|| self.kind.to_string(), |p| format!("{} {}", self.kind, period(p)))
    }

    /// Sets the number of samples and the share explained.
    pub(crate) fn explained(mut self, samples: f64, share: f64) -> Pattern {
        self.figures = Figures { samples, explained: share, residual: 1.0 - share, ..self.figures };
        self
    }

    /// Says accesses in its words, where each was counted: what detectors take for an independent sample is several of
    /// them.
    pub(super) fn say_accesses(&mut self) {
        self.evidence = in_accesses(&self.evidence);
        if let Some(whole) = &mut self.whole {
            whole.say_accesses();
        }
    }

    /// The pattern on which one placement for the whole run is based: for a phased object, that of all phases together.
    pub fn overall(&self) -> &Pattern {
        self.whole.as_deref().unwrap_or(self)
    }
}

/// Words about samples as ones about accesses, of which each sample is [`ACCESSES_PER_SAMPLE`].
fn in_accesses(words: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    for word in words.split(' ') {
        let of_samples = word.strip_prefix("samples").filter(|rest| !rest.starts_with(char::is_alphanumeric));
        if let Some(rest) = of_samples {
            // `90 independent samples`, `(4313483 samples)`
            let before = if out.last().is_some_and(|last| last == "independent") { 2 } else { 1 };
            if let Some(number) = out.len().checked_sub(before).and_then(|at| out.get_mut(at)) {
                let digits = number.trim_start_matches('(');
                if let Ok(samples) = digits.parse::<f64>() {
                    *number = number.replace(digits, &rounded(samples * ACCESSES_PER_SAMPLE));
                }
            }
            out.push(format!("accesses{rest}"));
        } else {
            out.push(word.to_owned());
        }
    }
    out.join(" ")
}

/// A count of which the last digits are not known: `21.6 million`.
fn rounded(count: f64) -> String {
    if count < 1e6 { format!("{count:.0}") } else { format!("{:.1} million", count / 1e6) }
}

/// How many of the samples a pattern explains beyond chance: `fits all 2072 samples`.
pub(super) fn fitting(share: f64, samples: f64) -> String {
    match (100.0 * share).round() {
        100.0 => format!("fits all {samples:.0} samples"),
        percent => format!("fits {percent:.0} % of {samples:.0} samples beyond chance"),
    }
}

/// A period for messages: a size when it is a whole number of KiB, MiB or GiB, else pages.
pub(crate) fn period_text(pages: f64, bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if pages.fract() == 0.0 && bytes >> shift << shift == bytes && bytes >> shift > 0 {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{pages:.2} pages")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_accesses_are_called_so() {
        let said = |words: &str| in_accesses(words);
        assert_eq!(said("uses all of it (4313483 samples)"), "uses all of it (21.6 million accesses)");
        assert_eq!(said("fits 98 % of 200 samples beyond chance"), "fits 98 % of 1000 accesses beyond chance");
        assert_eq!(said("58 independent samples by 5 threads"), "290 independent accesses by 5 threads");
        assert_eq!(said("no samples, sampled"), "no accesses, sampled");
    }
}
