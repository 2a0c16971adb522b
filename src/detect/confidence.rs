//! How sure a verdict is: the probability that its class is right.
//!
//! A class is a side of a limit: slices that explain [`STRUCTURE_MIN`] of the accesses or not, a thread that has
//! [`PRIVATE_SHARE`] of them or not. The probability is that of the true share being on the side of the one in the
//! samples. The limits are conventions, too: what people call random does not end at one value, hence a spread of its
//! own. Verdicts far from any limit are as sure as verdicts of the kind have been on programs of known truth.

use statrs::distribution::{ContinuousCDF, Normal};
use statrs::function::beta::checked_beta_reg;

use super::limits::{EVIDENCE_NATS, PRIVATE_SHARE, STRUCTURE_MIN};

/// Probability of the class at most. Of 24,000 verdicts on simulated programs whose truth is what their loops say, 44
/// were wrong; programs that nobody simulated can be expected to do worse.
pub(crate) const SUREST: f64 = 0.99;
/// Standard deviation of the limit of structure itself. Simulated tiles, partitions and slices explained 0.55 and more
/// of their accesses, and windows that move, in which no page has a main thread, up to 0.45.
const LIMIT_SPREAD: f64 = 0.05;
/// Nats over the limit of evidence that divide the chance of a partial description by e. Of slices within six nats of
/// the limit 70 % were all of the pattern, of those within six more 90 % (3,000 simulated programs with 10 to 1,000
/// samples): with five nats the mean chance is 71 % in the former and 91 % in the latter.
const PART_NATS: f64 = 5.0;
/// Chance that a pattern is missed with just as many samples as it needs (the same programs).
const MISSED: f64 = 0.2;

/// Probability that slices, or the main threads of pages, explain more than [`STRUCTURE_MIN`] of the accesses, when
/// they explain `share` (0 to 1) of the samples with a standard error of `error`.
pub(crate) fn structured(share: f64, error: f64) -> f64 {
    // LIMIT_SPREAD is positive, so that the deviation is.
    let normal = Normal::new(STRUCTURE_MIN, error.max(0.0).hypot(LIMIT_SPREAD));
    normal.map_or(0.0, |n| n.cdf(share)).min(SUREST)
}

/// Probability that slices with this evidence are all of the pattern: a description that has just enough evidence is
/// often the part of another one for which there are too few samples (tiles that look like slices).
pub(crate) fn evident(nats: f64) -> f64 {
    1.0 - 0.5 * (-(nats - EVIDENCE_NATS).max(0.0) / PART_NATS).exp()
}

/// Chance that a pattern is missed in `samples`, `needed` of which would show slices with the noise that is allowed
/// for. The evidence grows with the samples, so that the chance falls exponentially.
pub(crate) fn missed(samples: f64, needed: f64) -> f64 {
    MISSED * (1.0 - samples / needed.max(1.0)).min(0.0).exp()
}

/// Standard error of a share of independent samples (binomial).
pub(crate) fn share_error(share: f64, samples: f64) -> f64 {
    (share * (1.0 - share) / samples.max(1.0)).max(0.0).sqrt()
}

/// Probability that nothing explains more than [`STRUCTURE_MIN`] of the accesses, when slices explain `seen` of the
/// samples.
pub(crate) fn random(seen: f64, samples: f64, needed: f64) -> f64 {
    ((1.0 - structured(seen, share_error(seen, samples))) * (1.0 - missed(samples, needed))).min(SUREST)
}

/// Probability that a thread has more than [`PRIVATE_SHARE`] of the accesses, when it has `own` of `samples`
/// independent samples. Before the samples, a private object and a shared one are equally likely, and so is every share
/// of the thread with most accesses: from [`PRIVATE_SHARE`] to all of them, or from half of them.
pub(crate) fn private(own: f64, samples: f64) -> f64 {
    let other = (samples - own).max(0.0);
    let below = |share| checked_beta_reg(own.max(0.0) + 1.0, other + 1.0, share).unwrap_or(0.0);
    let private = (1.0 - below(PRIVATE_SHARE)) / (1.0 - PRIVATE_SHARE);
    let shared = (below(PRIVATE_SHARE) - below(0.5)) / (PRIVATE_SHARE - 0.5);
    if private + shared > 0.0 { (private / (private + shared)).min(SUREST) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_at_a_limit_are_as_good_as_a_coin() {
        assert!((structured(STRUCTURE_MIN, 0.0) - 0.5).abs() < 1e-9);
        assert!((random(STRUCTURE_MIN, 1e6, 100.0) - 0.5).abs() < 1e-9);
        assert!((evident(EVIDENCE_NATS) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn more_samples_are_surer() {
        for (few, many) in
            [(private(10.0, 10.0), private(100.0, 100.0)), (random(0.0, 200.0, 100.0), random(0.0, 800.0, 100.0))]
        {
            assert!(few < many && few > 0.5 && many > 0.95, "{few} {many}");
        }
        // All of ten samples, by the mean of s^10 over the shares s of either kind.
        let mean = |from: f64, to: f64| (to.powi(11) - from.powi(11)) / 11.0 / (to - from);
        let by_hand = mean(0.9, 1.0) / (mean(0.9, 1.0) + mean(0.5, 0.9));
        assert!((private(10.0, 10.0) - by_hand).abs() < 1e-9, "{by_hand}");
    }

    #[test]
    fn figures_without_meaning_are_not_sure() {
        for p in [private(f64::NAN, 10.0), private(5.0, 0.0), structured(f64::NAN, 0.1), random(0.0, 0.0, 0.0)] {
            assert!(p.is_nan() || (0.0..=SUREST).contains(&p), "{p}");
        }
    }
}
