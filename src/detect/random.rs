//! Random: shared, without structure. This is concluded only from enough samples to find slices if there were any.

use super::confidence;
use super::limits::{DESIGN_NOISE, EVIDENCE_NATS, HIGHEST_RATE, NEEDED_MARGIN};
use super::{Figures, Pattern, PatternKind, Sampling};

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

/// The pattern when no slices were found: random or unsure. `structure` is the share that the best slices explain.
pub(crate) fn random_or_unsure(samples: f64, threads: usize, structure: f64, sampling: &Sampling) -> Pattern {
    let needed = samples_needed(threads);
    // The sum of no floats is -0.0, which would be printed with its sign.
    let samples = samples + 0.0;
    let figures = Figures { samples, needed, explained: structure, residual: 1.0 - structure, ..Figures::default() };
    if samples < needed {
        let evidence = format!(
            "{samples:.0} independent samples by {threads} threads, about {needed:.0} needed: {}",
            remedy(needed / samples, sampling)
        );
        return Pattern { figures, ..Pattern::new(PatternKind::Unsure, samples / needed, evidence) };
    }
    let evidence = format!("each of the {threads} threads that use it uses all of it ({samples:.0} samples)");
    let sure = confidence::random(structure, samples, needed);
    Pattern { figures, ..Pattern::new(PatternKind::Random, sure, evidence) }
}

/// How to get `factor` times the samples: a longer run, or a higher rate where the recorder accepts it.
fn remedy(factor: f64, sampling: &Sampling) -> String {
    let factor = 1.1 * factor;
    if !factor.is_finite() {
        return "run longer or raise -F".into();
    }
    let digits = usize::from(factor < 2.95);
    let longer = match sampling.duration_s * factor {
        s if s > 0.0 => format!("run about {factor:.digits$} times as long ({s:.0} s)"),
        _ => format!("run about {factor:.digits$} times as long"),
    };
    let rate = (sampling.rate_hz * factor).ceil();
    if rate > 0.0 && rate <= HIGHEST_RATE { format!("{longer} or sample with -F {rate:.0}") } else { longer }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sample_is_printed_without_a_sign() {
        let none = random_or_unsure(std::iter::empty::<f64>().sum(), 2, 0.0, &Sampling::default());
        assert!(none.evidence.starts_with("0 independent samples"), "{}", none.evidence);
    }
}
