//! Paired measurement and its statistics.

/// Minimum, median and maximum.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    pub min: f64,
    pub median: f64,
    pub max: f64,
}

impl Spread {
    /// Of at least one figure.
    pub fn of(mut figures: Vec<f64>) -> Spread {
        figures.sort_by(f64::total_cmp);
        let n = figures.len();
        let median = if n % 2 == 1 { figures[n / 2] } else { (figures[n / 2 - 1] + figures[n / 2]) / 2.0 };
        Spread { min: figures[0], median, max: figures[n - 1] }
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

/// `met` or `MISSED`.
pub fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}
