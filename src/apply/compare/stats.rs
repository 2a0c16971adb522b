//! Statistics of a few run times: median, its confidence interval, the Mann-Whitney U test, and how many runs a
//! small difference would need.
//!
//! Pure functions of times in seconds. Every time must be finite; empty samples give no answer instead of a panic.

use serde::Serialize;
use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, Normal};

/// Confidence that an interval must reach.
pub const CONFIDENCE: f64 = 0.95;
/// Error of the first kind at which a difference counts as seen (the usual level).
pub const ALPHA: f64 = 0.05;
/// Power for which runs are estimated (Cohen, Statistical Power Analysis for the Behavioral Sciences, 1988: 0.80).
const POWER: f64 = 0.80;
/// Efficiency of the Mann-Whitney test against the t test on normal data (Hodges and Lehmann, 1956): 3 / pi.
const EFFICIENCY: f64 = 3.0 / std::f64::consts::PI;
/// Values in both samples up to which the test is exact; beyond, the normal approximation is good to three digits.
const EXACT_UP_TO: usize = 60;
/// Rounding of sums of probabilities: two rank sums this much apart are the same.
const SAME: f64 = 1e-9;

/// An interval with its probability of covering the median.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end, seconds.
    pub low: f64,
    /// Upper end, seconds.
    pub high: f64,
    /// Probability, 0 to 1. At least [`CONFIDENCE`] from six values on; with fewer, the widest
    /// possible interval does not reach it.
    pub confidence: f64,
}

/// Ascending copy.
fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The median; none of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let v = sorted(values);
    let middle = v.len() / 2;
    let upper = *v.get(middle)?;
    Some(if v.len() % 2 == 1 { upper } else { f64::midpoint(v[middle - 1], upper) })
}

/// The narrowest interval between the k-th smallest and k-th largest value that covers the median of whatever
/// continuous distribution the values come from with at least [`CONFIDENCE`] (David and Nagaraja, Order Statistics,
/// 2003, section 7.1: the coverage is 1 - 2 P(Bin(n, 1/2) < k)). With fewer than six values: smallest to largest.
pub fn median_interval(values: &[f64]) -> Option<Interval> {
    let v = sorted(values);
    let n = v.len();
    let half = Binomial::new(0.5, n as u64).ok().filter(|_| n > 0)?;
    let coverage = |k: usize| 1.0 - 2.0 * half.cdf(k as u64 - 1);
    let k = (1..=n.div_ceil(2)).rev().find(|k| coverage(*k) >= CONFIDENCE).unwrap_or(1);
    Some(Interval { low: v[k - 1], high: v[n - k], confidence: coverage(k).max(0.0) })
}

/// The outcome of a Mann-Whitney test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Test {
    /// Pairs (a, b) with a above b, a tie being half a pair.
    pub u: f64,
    /// Probability of a U at least as far from its mean, were both samples of one distribution; two-sided.
    pub p: f64,
}

/// Mann-Whitney U test of `a` against `b` (Mann and Whitney, Annals of Mathematical Statistics 18, 1947). Exact up to
/// [`EXACT_UP_TO`] values, ties included: all ways to deal out the mid-ranks are counted; normal approximation with
/// corrections for ties and continuity beyond. None when a sample is empty.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<Test> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let (ranks, ties) = doubled_ranks(a, b);
    let (n, m) = (a.len(), b.len());
    let sum: usize = ranks[..n].iter().sum();
    let u = sum as f64 / 2.0 - (n * (n + 1)) as f64 / 2.0;
    let p = if n + m <= EXACT_UP_TO { exact(&ranks, n, sum) } else { normal(u, n, m, &ties) };
    Some(Test { u, p: p.clamp(0.0, 1.0) })
}

/// Twice the mid-rank of every value of `a`, then of `b` (doubled, ranks of ties are whole numbers), and the sizes of
/// the groups of ties.
fn doubled_ranks(a: &[f64], b: &[f64]) -> (Vec<usize>, Vec<usize>) {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|i, j| all[*i].total_cmp(&all[*j]));
    let (mut ranks, mut ties) = (vec![0; all.len()], Vec::new());
    let mut first = 0;
    while first < order.len() {
        let same = order[first..].iter().take_while(|i| all[**i] == all[order[first]]).count().max(1);
        for &i in &order[first..first + same] {
            ranks[i] = 2 * first + same + 1; // twice the mean of first + 1 .. first + same
        }
        ties.push(same);
        first += same;
    }
    (ranks, ties)
}

/// Share of all choices of `n` of the ranks whose sum is at least as far from the mean as `sum`.
fn exact(ranks: &[usize], n: usize, sum: usize) -> f64 {
    let total: usize = ranks.iter().sum();
    // ways[k][s]: choices of k ranks with sum s; f64, as C(60, 30) is beyond 53 bits but far from its end.
    let mut ways = vec![vec![0.0f64; total + 1]; n + 1];
    ways[0][0] = 1.0;
    for &r in ranks {
        for k in (1..=n).rev() {
            let (fewer, more) = ways.split_at_mut(k);
            for s in r..=total {
                more[0][s] += fewer[k - 1][s - r];
            }
        }
    }
    let mean = total as f64 * n as f64 / ranks.len() as f64;
    let far = (sum as f64 - mean).abs() - SAME;
    let all: f64 = ways[n].iter().sum();
    let beyond: f64 = ways[n].iter().enumerate().filter(|(s, _)| (*s as f64 - mean).abs() >= far).map(|(_, w)| w).sum();
    beyond / all
}

fn normal(u: f64, n: usize, m: usize, ties: &[usize]) -> f64 {
    let (n, m) = (n as f64, m as f64);
    let all = n + m;
    let tied: f64 = ties.iter().map(|t| (*t as f64).powi(3) - *t as f64).sum();
    let variance = n * m / 12.0 * (all + 1.0 - tied / (all * (all - 1.0)));
    if variance <= 0.0 {
        return 1.0; // every value is the same
    }
    let z = ((u - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    2.0 * Normal::standard().sf(z)
}

/// How many times as fast, with the interval that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SpeedUp {
    /// Hodges-Lehmann estimate.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability that the interval covers the ratio, 0 to 1; less than was asked for when there are too few runs.
    pub confidence: f64,
}

/// Ratio of the times `base` to the times `now`, as if the times of one were those of the other times a constant: the
/// median of all ratios of pairs, and the interval of the ratios that the Mann-Whitney test does not refuse at `alpha`
/// (Hodges and Lehmann, Annals of Mathematical Statistics 34, 1963). None without a time, or for times of 0.
pub fn speed_up(base: &[f64], now: &[f64], alpha: f64) -> Option<SpeedUp> {
    let mut ratios: Vec<f64> = now.iter().flat_map(|n| base.iter().map(move |b| b / n)).collect();
    ratios.sort_by(f64::total_cmp);
    if ratios.is_empty() || !ratios.iter().all(|r| r.is_finite() && *r > 0.0) {
        return None;
    }
    let below = below(base.len(), now.len());
    // The k smallest and the k largest ratios are refused.
    let refused = below.iter().take_while(|p| **p <= alpha / 2.0).count();
    let k = refused.max(1).min(ratios.len().div_ceil(2));
    let confidence = (1.0 - 2.0 * below.get(k - 1).copied().unwrap_or(1.0)).max(0.0);
    let logs: Vec<f64> = ratios.iter().map(|r| r.ln()).collect();
    let estimate = median(&logs)?.exp();
    Some(SpeedUp { estimate, low: ratios[k - 1], high: ratios[ratios.len() - k], confidence })
}

/// P(U <= u) for u from 0 on, of two samples of `n` and `m` values from one distribution, up to the middle.
fn below(n: usize, m: usize) -> Vec<f64> {
    let middle = n * m / 2;
    if n + m > EXACT_UP_TO {
        let (mean, all) = ((n * m) as f64 / 2.0, (n + m + 1) as f64);
        let deviation = ((n * m) as f64 * all / 12.0).sqrt();
        return (0..=middle).map(|u| Normal::standard().cdf((u as f64 + 0.5 - mean) / deviation)).collect();
    }
    // The number of choices of n of the ranks 1 to n + m by the sum of what each is above its least: by U.
    let mut ways = vec![vec![0.0f64; n * m + 1]; n + 1];
    ways[0][0] = 1.0;
    for rank in 0..n + m {
        for k in (1..=n.min(rank + 1)).rev() {
            let Some(above) = (rank + 1).checked_sub(k).filter(|above| *above <= m) else { continue };
            let (fewer, more) = ways.split_at_mut(k);
            for u in above..=n * m {
                more[0][u] += fewer[k - 1][u - above];
            }
        }
    }
    let all: f64 = ways[n].iter().sum();
    let mut sum = 0.0;
    let shares = ways[n].iter().take(middle + 1);
    shares
        .map(|w| {
            sum += w / all;
            sum
        })
        .collect()
}

/// Smallest p that two samples of `n` values can give: when all values of one are above all of the other, 2 / C(2n, n).
pub fn smallest_p(n: usize) -> f64 {
    let ways = (1..=n).fold(1.0, |c, i| c * (n + i) as f64 / i as f64);
    (2.0 / ways).min(1.0)
}

/// Runs of each policy with which a difference of `difference` (a share of the time, above 0) would be seen at
/// [`ALPHA`] with a power of 80 %, from the spread of the runs so far: the formula of the two-sample t test on
/// relative times, over the efficiency of the Mann-Whitney test. None with fewer than two values in a sample.
pub fn runs_needed(a: &[f64], b: &[f64], difference: f64) -> Option<u64> {
    let (va, vb) = (relative_variance(a)?, relative_variance(b)?);
    let z = Normal::standard();
    let both = z.inverse_cdf(1.0 - ALPHA / 2.0) + z.inverse_cdf(POWER);
    let runs = (va + vb) * (both / difference).powi(2) / EFFICIENCY;
    let fewest = (1..).find(|n| smallest_p(*n) < ALPHA).unwrap_or(4) as u64;
    runs.is_finite().then(|| (runs.ceil() as u64).max(fewest))
}

/// Variance over the square of the mean.
fn relative_variance(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let square: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (values.len() > 1 && mean > 0.0).then(|| square / (n - 1.0) / (mean * mean))
}

#[cfg(test)]
#[path = "stats_tests.rs"]
mod tests;
