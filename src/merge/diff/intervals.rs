//! Intervals of shares of samples, of their differences and of their ratios.
//!
//! A share of independent samples has the score interval of Wilson (1927), which is also right for few samples and for
//! shares of 0 and 1. The interval of a difference is made from those of the two shares as Newcombe shows ("Interval
//! estimation for the difference between independent proportions", Statistics in Medicine 17, 1998, method 10), that of
//! a ratio as Donner and Zou do ("Closed-form confidence intervals for functions of the normal mean and standard
//! deviation", Statistical Methods in Medical Research 21, 2012). The two agree: one excludes 0 where the other
//! excludes 1.
//!
//! Many figures at once need chances so small that the intervals are not right any more where samples are few. There
//! Fisher's exact test is used ("The design of experiments", 1935), which never calls chance a change too often.
//!
//! The intervals are those of the samples. How much runs of a program vary besides is not in them.

use statrs::distribution::{ContinuousCDF, Normal};
use statrs::function::factorial::ln_binomial;

/// Probability that an interval covers the true value.
pub const LEVEL: f64 = 0.95;

/// Halvings after which the end of an interval has all digits of a double.
const HALVINGS: usize = 200;
/// Chances of which a count is a share; no profile has so many samples.
const CHANCES: f64 = 1e14;
/// Largest ratio that is looked for.
const LARGEST: f64 = 1e12;

/// An estimate with the ends of its interval; the upper one of a ratio may be infinite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A share of samples, or what a number of samples is worth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Proportion {
    /// Samples that count.
    pub part: f64,
    /// All samples.
    pub of: f64,
    /// What all of them are worth: 1 for a share.
    pub worth: f64,
}

impl Proportion {
    /// A share of so many samples; none of no samples.
    pub fn share(part: f64, of: f64) -> Option<Proportion> {
        (of > 0.0).then(|| Proportion { part: part.clamp(0.0, of), of, worth: 1.0 })
    }

    /// A number of samples that are worth `each`. It varies more than a share does: as the sum of rare events
    /// (Poisson), which are a share of any number of chances that is large enough.
    pub fn count(samples: f64, each: f64) -> Proportion {
        Proportion { part: samples.clamp(0.0, CHANCES), of: CHANCES, worth: each * CHANCES }
    }

    /// The estimate.
    pub fn value(&self) -> f64 {
        self.worth * self.part / self.of
    }

    /// The interval of so many standard deviations.
    fn range(&self, z: f64) -> Range {
        let (p, n, square) = (self.part / self.of, self.of, z * z);
        let middle = (p + square / (2.0 * n)) / (1.0 + square / n);
        let half = z * (p * (1.0 - p) / n + square / (4.0 * n * n)).sqrt() / (1.0 + square / n);
        // Of none or all samples one end is exact; rounding must not move it.
        let low = if self.part <= 0.0 { 0.0 } else { (middle - half).clamp(0.0, p) };
        let high = if self.part >= self.of { 1.0 } else { (middle + half).clamp(p, 1.0) };
        Range { value: self.worth * p, low: self.worth * low, high: self.worth * high }
    }
}

/// The probability that chance makes two shares of one size differ at least so much: twice the tail of Fisher's exact
/// test.
pub fn chance(before: &Proportion, after: &Proportion) -> f64 {
    let count = |n: f64| n.round().max(0.0) as u64;
    let (a, n) = (count(before.part), count(before.of));
    let (b, m) = (count(after.part), count(after.of));
    let (hits, all) = (a + b, n + m);
    // How likely `x` of the hits are in the first sample, when all of them are dealt out by chance.
    let of = |x: u64| (ln_binomial(n, x) + ln_binomial(m, hits - x) - ln_binomial(all, hits)).exp();
    let rises = a as f64 * all as f64 > hits as f64 * n as f64;
    let (least, most) = (hits.saturating_sub(m), hits.min(n));
    let (mut x, mut sum) = (a.clamp(least, most), 0.0);
    loop {
        let term = of(x);
        sum += term;
        if term <= sum * f64::EPSILON || x == if rises { most } else { least } {
            return (2.0 * sum).min(1.0);
        }
        x = if rises { x + 1 } else { x - 1 };
    }
}

/// The standard deviations of a two-sided interval of [`LEVEL`], when `of` intervals together have it (Bonferroni).
pub fn deviations(of: usize) -> f64 {
    let beyond = (1.0 - LEVEL) / (2.0 * of.max(1) as f64);
    Normal::new(0.0, 1.0).map_or(f64::INFINITY, |normal| normal.inverse_cdf(1.0 - beyond))
}

/// `after` less `before`.
pub fn difference(before: &Proportion, after: &Proportion, z: f64) -> Range {
    let (a, b) = (before.range(z), after.range(z));
    let value = b.value - a.value;
    Range {
        value,
        low: value - (b.value - b.low).hypot(a.high - a.value),
        high: value + (b.high - b.value).hypot(a.value - a.low),
    }
}

/// `after` over `before`, less 1; none where both are 0.
pub fn relative(before: &Proportion, after: &Proportion, z: f64) -> Option<Range> {
    let (a, b) = (before.range(z), after.range(z));
    if a.value <= 0.0 && b.value <= 0.0 {
        return None;
    }
    let value = if a.value > 0.0 { b.value / a.value } else { f64::INFINITY };
    // The ends are the ratios r at which the interval of after - r x before has an end at 0.
    let below = |r: f64| b.value - r * a.value >= (b.value - b.low).hypot(r * (a.high - a.value));
    let above = |r: f64| r * a.value - b.value >= (b.high - b.value).hypot(r * (a.value - a.low));
    let low = last(value.min(LARGEST), below);
    let high = if above(LARGEST) { last(LARGEST, |r| !above(r)) } else { f64::INFINITY };
    Some(Range { value: value - 1.0, low: low - 1.0, high: high.max(value) - 1.0 })
}

/// The largest number up to `most` for which `holds`, which holds from 0 to there.
fn last(most: f64, holds: impl Fn(f64) -> bool) -> f64 {
    let (mut yes, mut no) = (0.0, most);
    for _ in 0..HALVINGS {
        let middle = (yes + no) / 2.0;
        if holds(middle) { yes = middle } else { no = middle }
    }
    yes
}

#[cfg(test)]
mod tests {
    use super::super::tests::Dice;
    use super::*;

    fn share(part: f64, of: f64) -> Proportion {
        Proportion::share(part, of).unwrap()
    }

    /// Newcombe 1998, table II, column "method 10": 56/70 - 48/80 and 9/10 - 3/10.
    #[test]
    fn differences_are_those_of_the_paper() {
        let z = deviations(1);
        for (before, after, low, high) in [
            (share(48.0, 80.0), share(56.0, 70.0), 0.0524, 0.3339),
            (share(3.0, 10.0), share(9.0, 10.0), 0.1705, 0.8090),
            (share(0.0, 29.0), share(5.0, 56.0), -0.0381, 0.1926),
            (share(0.0, 10.0), share(10.0, 10.0), 0.6075, 1.0),
        ] {
            let found = difference(&before, &after, z);
            assert!((found.low - low).abs() < 1e-4 && (found.high - high).abs() < 1e-4, "{found:?}");
        }
    }

    /// By hand: 4 of 4 and 0 of 4 is one way of 70 to deal 4 hits out, in either direction.
    #[test]
    fn chance_is_counted_exactly() {
        assert!((chance(&share(4.0, 4.0), &share(0.0, 4.0)) - 2.0 / 70.0).abs() < 1e-12);
        assert!((chance(&share(3.0, 4.0), &share(1.0, 4.0)) - 2.0 * 17.0 / 70.0).abs() < 1e-12);
        assert_eq!(chance(&share(5.0, 10.0), &share(50.0, 100.0)), 1.0);
        let millions = chance(&share(5e6, 1e7), &share(5.01e6, 1e7));
        assert!(millions > 1e-11 && millions < 1e-4, "{millions}: 4.5 standard deviations");
    }

    #[test]
    fn a_ratio_and_a_difference_agree_on_chance() {
        let mut dice = Dice(5);
        for _ in 0..500 {
            let (n, m) = (1.0 + dice.below(80) as f64, 1.0 + dice.below(80) as f64);
            let (a, b) = (share(dice.below(n as u64 + 1) as f64, n), share(dice.below(m as u64 + 1) as f64, m));
            let points = difference(&a, &b, 1.96);
            let Some(ratio) = relative(&a, &b, 1.96) else { continue };
            assert!(ratio.low <= ratio.value && ratio.value <= ratio.high, "{a:?} {b:?} {ratio:?}");
            if points.low.abs().min(points.high.abs()) > 1e-9 {
                let excludes_zero = |r: &Range| r.low > 0.0 || r.high < 0.0;
                assert_eq!(excludes_zero(&points), excludes_zero(&ratio), "{a:?} {b:?} {points:?} {ratio:?}");
            }
        }
    }

    #[test]
    fn intervals_cover_as_often_as_they_say() {
        let (mut dice, z, runs) = (Dice(7), deviations(1), 4000);
        for (p, q, n, m) in [(0.5, 0.4, 200, 300), (0.02, 0.05, 400, 400), (0.9, 0.9, 60, 500), (0.7, 0.1, 30, 40)] {
            let (mut by_points, mut by_ratio) = (0, 0);
            for _ in 0..runs {
                let (a, b) = (share(dice.hits(p, n), n as f64), share(dice.hits(q, m), m as f64));
                let points = difference(&a, &b, z);
                by_points += u32::from(points.low <= q - p && q - p <= points.high);
                let holds = |r: Range| r.low <= q / p - 1.0 && q / p - 1.0 <= r.high;
                by_ratio += u32::from(relative(&a, &b, z).is_none_or(holds));
            }
            for covered in [by_points, by_ratio] {
                let covered = f64::from(covered) / f64::from(runs);
                assert!((0.935..0.985).contains(&covered), "{p} {q} {n} {m}: {covered}");
            }
        }
    }

    /// The score interval of a Poisson count: n + z^2 / 2 +- z sqrt(n + z^2 / 4).
    #[test]
    fn counts_vary_as_rare_events_do() {
        for n in [0.0, 1.0, 100.0, 1e8] {
            let (found, z) = (Proportion::count(n, 0.5).range(1.96), 1.96f64);
            let half = z * (n + z * z / 4.0).sqrt();
            let [low, high] = [-half, half].map(|end| 0.5 * (n + z * z / 2.0 + end));
            let is_near = |a: f64, b: f64| (a - b).abs() < 1e-3 * b.abs().max(1.0);
            assert!(is_near(found.value, 0.5 * n) && is_near(found.low, low) && is_near(found.high, high), "{found:?}");
        }
    }

    #[test]
    fn shares_of_nothing_have_an_open_end() {
        let (none, some) = (share(0.0, 50.0), share(10.0, 50.0));
        assert_eq!(relative(&none, &none, 1.96), None);
        let grown = relative(&none, &some, 1.96).unwrap();
        assert!(grown.high.is_infinite() && grown.value.is_infinite() && grown.low > 0.0, "{grown:?}");
        let gone = relative(&some, &none, 1.96).unwrap();
        assert!(gone.value == -1.0 && gone.low == -1.0 && gone.high < 0.0, "{gone:?}");
        assert_eq!(Proportion::share(0.0, 0.0), None);
    }
}
