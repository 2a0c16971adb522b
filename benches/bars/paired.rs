//! Paired measurement and its statistics.

/// Minimum, median and maximum, and how well the median is known.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    pub min: f64,
    pub median: f64,
    pub max: f64,
    /// 95 % interval of the median, by order statistics (no distribution is assumed).
    pub interval: (f64, f64),
}

impl Spread {
    /// Of at least one figure.
    pub fn of(mut figures: Vec<f64>) -> Spread {
        figures.sort_by(f64::total_cmp);
        let n = figures.len();
        let median = if n % 2 == 1 { figures[n / 2] } else { (figures[n / 2 - 1] + figures[n / 2]) / 2.0 };
        // Ranks n/2 -+ 0.98 sqrt(n): the normal approximation of the binomial (Conover, Practical Nonparametric
        // Statistics, 3.2).
        let reach = 0.98 * (n as f64).sqrt();
        let low = ((n as f64 / 2.0 - reach).floor().max(0.0)) as usize;
        let high = ((n as f64 / 2.0 + reach).ceil() as usize).clamp(1, n) - 1;
        Spread { min: figures[0], median, max: figures[n - 1], interval: (figures[low], figures[high]) }
    }
}

/// Runs `a` and `b` in turn, `n` counted pairs after one that is not counted; the order alternates.
pub fn pairs<T>(
    n: usize,
    mut a: impl FnMut() -> Result<T, String>,
    mut b: impl FnMut() -> Result<T, String>,
) -> Result<Vec<(T, T)>, String> {
    a()?;
    b()?;
    (0..n)
        .map(|i| {
            if i % 2 == 0 {
                let first = a()?;
                Ok((first, b()?))
            } else {
                let second = b()?;
                Ok((a()?, second))
            }
        })
        .collect()
}

/// Whether a bar from above is met, as far as the noise lets us say.
pub fn within(spread: &Spread, bar: f64) -> &'static str {
    match spread {
        s if s.interval.1 <= bar => "met",
        s if s.interval.0 > bar => "MISSED",
        s if s.median <= bar => "met, within the noise",
        _ => "missed, within the noise",
    }
}

/// `met` or `MISSED`.
pub fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}
