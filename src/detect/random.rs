//! Random: shared, without structure. It can only be said when slices, had there been any, would have been found.

use super::limits::{DESIGN_NOISE, EVIDENCE_NATS, NEEDED_MARGIN};
use super::{Pattern, PatternKind};

/// Independent samples with which slices of `threads` threads are found in any order and with
/// [`DESIGN_NOISE`]: every sample yields on average
/// `(1 - q + q/T) ln(1 + (1 - q) T / q) + ln q` nats, every slice costs about ln n to describe.
pub fn samples_needed(threads: usize) -> f64 {
    let (t, q) = (threads.max(2) as f64, DESIGN_NOISE);
    let per_sample = (1.0 - q + q / t) * (1.0 + (1.0 - q) * t / q).ln() + q.ln();
    let mut n = 100.0f64;
    // The fixed point is reached in a few rounds: n appears under a logarithm.
    for _ in 0..8 {
        n = NEEDED_MARGIN * (t * n.ln() + EVIDENCE_NATS) / per_sample;
    }
    n.ceil()
}

/// The verdict when no slices were found: random or unsure. `structure` is what the best slices explain, `note`
/// says what was seen.
pub(crate) fn random_or_unsure(samples: f64, threads: usize, structure: f64, note: Option<String>) -> Pattern {
    let needed = samples_needed(threads);
    if samples < needed {
        let evidence = format!(
            "{samples:.0} independent samples by {threads} threads, about {needed:.0} needed: run longer or raise -F"
        );
        return Pattern::new(PatternKind::Unsure, samples / needed, evidence);
    }
    let evidence = note.unwrap_or_else(|| {
        format!("{threads} threads share it without structure: no slices explain {samples:.0} samples")
    });
    let confidence = (1.0 - structure) * (1.0 - 0.5 * needed / samples);
    Pattern::new(PatternKind::Random, confidence, evidence)
}
