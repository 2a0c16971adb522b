//! A comparison of policies as a table and as JSON, with a verdict in words for each.

use serde::Serialize;

use super::table::{Column, fit, plain};
use super::units::{printable, wrap};
use crate::apply::compare::Sample;
use crate::apply::compare::stats::{self, ALPHA, Interval};

/// When no difference is seen, the verdict says how many runs would show a difference of this share of the time. It is
/// also the bound of what placing may cost.
const DIFFERENCE: f64 = 0.03;
/// Why there is no share of local accesses.
const NO_LOCAL: &str = "needs samples of the accesses: `numamma profile` takes them";

/// What does not depend on the runs.
#[derive(Debug, Clone, Serialize)]
pub struct Setting {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Nodes with memory of this machine.
    pub memory_nodes: usize,
    /// Timed runs of each policy, as on the command line.
    pub runs: u32,
    /// Seed of the order.
    pub seed: u64,
}

/// One policy. Times in seconds, shares from 0 to 1.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Name of the policy, or its file.
    pub name: String,
    /// Share of the accesses on the node of the accessing thread; null where it is not measured.
    pub local_share: Option<f64>,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_share_reason: Option<String>,
    /// Share of the node with most of the program's pages, in the warm-up run.
    pub busiest_node_share: Option<f64>,
    /// Why it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busiest_node_share_reason: Option<String>,
    /// Median.
    pub time: Option<f64>,
    /// Mean.
    pub mean: Option<f64>,
    /// Standard deviation of the times; null for fewer than two.
    pub deviation: Option<f64>,
    /// Median of first-touch over this one.
    pub speedup: Option<f64>,
    /// Runs.
    pub n: usize,
    /// Every time, in order.
    pub times: Vec<f64>,
    /// Confidence interval of the median.
    pub interval: Option<Interval>,
    /// Two-sided Mann-Whitney test against first-touch; null for first-touch itself.
    pub p: Option<f64>,
    /// One sentence about the difference to first-touch.
    pub verdict: String,
}

/// A comparison for scripts.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    /// What does not depend on the runs.
    #[serde(flatten)]
    pub setting: &'a Setting,
    /// All runs were made.
    pub complete: bool,
    /// What the reader must know, a line each.
    pub notes: &'a [String],
    /// A row for each.
    pub policies: &'a [Row],
}

/// A row per policy; the first sample is what the others are compared with.
pub fn rows(samples: &[Sample], memory_nodes: usize) -> Vec<Row> {
    let base = samples.first().map(|s| s.times.clone()).unwrap_or_default();
    samples.iter().enumerate().map(|(i, s)| row(s, (i > 0).then_some(&base[..]), memory_nodes)).collect()
}

fn mean(times: &[f64]) -> Option<f64> {
    (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
}

/// The sample standard deviation.
fn deviation(times: &[f64]) -> Option<f64> {
    let mean = mean(times).filter(|_| times.len() > 1)?;
    let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
    Some((squares / (times.len() - 1) as f64).sqrt())
}

fn row(sample: &Sample, base: Option<&[f64]>, memory_nodes: usize) -> Row {
    let time = stats::median(&sample.times);
    // With one node every page is on it.
    let local_share = (memory_nodes == 1).then_some(1.0);
    let reference = base.map_or(time, stats::median);
    Row {
        name: sample.name.clone(),
        local_share,
        local_share_reason: local_share.is_none().then(|| NO_LOCAL.to_owned()),
        busiest_node_share: sample.busiest.as_ref().ok().copied(),
        busiest_node_share_reason: sample.busiest.as_ref().err().cloned(),
        time,
        mean: mean(&sample.times),
        deviation: deviation(&sample.times),
        speedup: reference.zip(time).filter(|(_, t)| *t > 0.0).map(|(b, t)| b / t),
        n: sample.times.len(),
        times: sample.times.clone(),
        interval: stats::median_interval(&sample.times),
        p: base.and_then(|b| stats::mann_whitney(&sample.times, b)).map(|t| t.p),
        verdict: base.map_or_else(|| "what the others are compared with".to_owned(), |b| verdict(b, &sample.times)),
    }
}

/// Runs in which loading the apply library may weigh: it takes some milliseconds of each (docs/measurements.md).
const SHORT_S: f64 = 0.1;
/// A time is an outlier when it is so many times the median absolute deviation from the median: 3 standard deviations
/// of normal times, 1.4826 deviations each (Iglewicz and Hoaglin, 1993).
const OUTLIER: f64 = 3.0 * 1.4826;
/// Share of the median by which a time differs at least to be an outlier: less matters to nobody.
const OUTLIER_LEAST: f64 = 0.05;

/// The least number of runs that can tell a difference, where `runs` is less.
pub fn least_runs(runs: u32) -> Option<usize> {
    let least = (1..).find(|n| stats::smallest_p(*n) < ALPHA)?;
    ((runs as usize) < least).then_some(least)
}

/// What is said of a program that runs for so many seconds, if that is too short.
pub fn short(time: f64) -> Option<String> {
    (time < SHORT_S).then(|| {
        format!(
            "the program runs for {} only, so loading and starting are a large part of each time: compare a longer run",
            seconds(time)
        )
    })
}

/// What makes the times doubtful, a line each.
pub fn doubts(samples: &[Sample]) -> Vec<String> {
    let mut doubts = Vec::new();
    doubts.extend(samples.first().and_then(|s| stats::median(&s.times)).and_then(short));
    let outliers: Vec<String> = samples.iter().filter_map(outliers).collect();
    if !outliers.is_empty() {
        doubts.push(format!(
            "outliers: {}; something else ran meanwhile, or the first runs found cold caches (--warmup)",
            outliers.join(", ")
        ));
    }
    doubts
}

/// `1 of 5 runs under p.toml`.
fn outliers(sample: &Sample) -> Option<String> {
    let median = stats::median(&sample.times)?;
    let apart: Vec<f64> = sample.times.iter().map(|time| (time - median).abs()).collect();
    let bound = (OUTLIER * stats::median(&apart)?).max(OUTLIER_LEAST * median);
    let n = apart.iter().filter(|apart| **apart > bound).count();
    (n > 0).then(|| format!("{n} of {} runs under {}", apart.len(), sample.name))
}

/// One sentence about the difference between the times.
pub fn verdict(base: &[f64], times: &[f64]) -> String {
    let (Some(before), Some(now), Some(test)) =
        (stats::median(base), stats::median(times), stats::mann_whitney(times, base))
    else {
        return "not measured".to_owned();
    };
    let n = base.len().min(times.len());
    let p = if test.p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {:.3}", test.p) };
    if stats::smallest_p(n) >= ALPHA {
        let enough = least_runs(n as u32).unwrap_or(n);
        return format!("too few runs: {n} can never tell a difference from chance, -n {enough} is the least");
    }
    if test.p < ALPHA {
        let change = 100.0 * (now / before - 1.0).abs();
        // A few runs do not justify three significant digits.
        let digits = if change < 9.95 { 1 } else { 0 };
        if now > before && now < SHORT_S {
            let more = seconds(now - before);
            return format!("too short to tell: {more} more of {} ({p}), which loading may take", seconds(before));
        }
        return match now.total_cmp(&before) {
            std::cmp::Ordering::Less => format!("faster: {change:.digits$} % less time ({p})"),
            std::cmp::Ordering::Greater => format!("slower: {change:.digits$} % more time ({p})"),
            std::cmp::Ordering::Equal => format!("the same median, but not the same times ({p})"),
        };
    }
    let percent = 100.0 * DIFFERENCE;
    match stats::runs_needed(base, times, DIFFERENCE) {
        Some(needed) if needed <= n as u64 => {
            format!("no difference seen ({p}); {n} runs would show one of {percent:.0} %")
        }
        Some(needed) => {
            format!("no difference seen with {n} runs ({p}); one of {percent:.0} % would need about {needed}")
        }
        None => format!("no difference seen with {n} runs ({p})"),
    }
}

/// Seconds with four significant digits: `81.05 s`, `1.234 s`, `12.34 ms`.
pub(super) fn seconds(s: f64) -> String {
    let (value, unit) = match s {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s => (s * 1e6, "us"),
    };
    let decimals = if value < 10.0 { 3 } else { 4_usize.saturating_sub(value.log10() as usize + 1) };
    format!("{value:.decimals$} {unit}")
}

/// The table for a terminal of so many columns, or for any width.
pub fn text(rows: &[Row], columns: Option<usize>) -> String {
    let confidence = rows.iter().find_map(|r| r.interval).map_or(stats::CONFIDENCE, |i| i.confidence);
    let level = format!("{:.0} % interval", 100.0 * confidence);
    let head = ["policy", "runs", "median", &level, "mean +- deviation", "speed-up", "busiest node", "verdict"];
    let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let table = plain(&head, cells.iter().cloned(), 1..7).to_string();
    let lines: Vec<&str> = table.lines().map(str::trim_end).collect();
    match columns.filter(|columns| lines.iter().any(|line| line.chars().count() > *columns)) {
        Some(columns) => narrow(&cells, columns.max(MIN_COLUMNS)),
        None => lines.iter().map(|line| format!("{line}\n")).collect(),
    }
}

/// The cells of a row, as the table of any width has them.
fn cells(r: &Row) -> Vec<String> {
    let or_dash = |v: Option<String>| v.unwrap_or_else(|| "-".to_owned());
    vec![
        r.name.clone(),
        r.n.to_string(),
        or_dash(r.time.map(seconds)),
        or_dash(r.interval.map(|i| format!("{} .. {}", seconds(i.low), seconds(i.high)))),
        or_dash(r.mean.map(|mean| {
            let deviation = r.deviation.map_or(String::new(), |d| format!(" +- {}", seconds(d)));
            seconds(mean) + &deviation
        })),
        or_dash(r.speedup.map(|s| format!("{s:.2}x"))),
        or_dash(r.busiest_node_share.map(|s| format!("{:.0} %", 100.0 * s))),
        r.verdict.clone(),
    ]
}

/// Narrowest table; a smaller terminal wraps it.
const MIN_COLUMNS: usize = 60;
/// Narrowest column in which names of policies still differ.
const MIN_NAME: usize = 16;

/// The table in `columns` columns: those of least weight are left out and named, and verdicts stand below it.
fn narrow(cells: &[Vec<String>], columns: usize) -> String {
    const HEAD: [&str; 7] = ["policy", "runs", "median", "interval", "mean +- deviation", "speed-up", "busiest node"];
    // Importance of each column as [`Column::rank`] has it.
    const RANKS: [u8; 7] = [0, 4, 0, 3, 6, 0, 5];
    let of = |at: usize| cells.iter().map(|row| row.get(at).cloned().unwrap_or_default()).collect();
    let column = |(at, (head, rank)): (usize, (&'static str, u8))| Column::new(head, at > 0, rank, of(at));
    let (table, hidden) =
        fit(HEAD.into_iter().zip(RANKS).enumerate().map(column).collect(), columns - 1, MIN_NAME, false);
    let mut text: String = table.lines().map(|line| format!(" {line}\n")).collect();
    let mut add = |words: &str| wrap(words, columns - 1).iter().for_each(|line| text.push_str(&format!(" {line}\n")));
    if !hidden.is_empty() {
        add(&format!("hidden: {} (COLUMNS=200 shows them, or --json)", hidden.join(", ")));
    }
    cells.iter().for_each(|row| add(&format!("{}: {}", printable(&row[0]), row[7])));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &str, times: &[f64]) -> Sample {
        Sample { name: name.into(), times: times.to_vec(), busiest: Ok(0.5) }
    }

    #[test]
    fn verdicts_in_words() {
        let base = [1.00, 1.01, 0.99, 1.02, 0.98];
        assert_eq!(verdict(&base, &[0.88, 0.87, 0.89, 0.90, 0.86]), "faster: 12 % less time (p = 0.008)");
        assert_eq!(verdict(&base, &[1.05, 1.06, 1.04, 1.07, 1.055]), "slower: 5.5 % more time (p = 0.008)");
        let short = [0.0110, 0.0101, 0.0099, 0.0102, 0.0098];
        let said = verdict(&short, &short.map(|time| time + 0.0125));
        assert_eq!(said, "too short to tell: 12.50 ms more of 10.10 ms (p = 0.008), which loading may take");
        assert_eq!(verdict(&short, &short.map(|time| time / 2.0)), "faster: 50 % less time (p = 0.008)");
        let base = [1.00, 1.04, 0.96, 1.08, 0.92];
        let same = verdict(&base, &[1.02, 0.94, 1.06, 0.98, 1.0]);
        assert!(same.starts_with("no difference seen with 5 runs (p = ") && same.contains("one of 3 %"), "{same}");
        let quiet = [1.0, 1.001, 0.999, 1.002, 0.998];
        let seen = verdict(&quiet, &[1.0, 1.001, 0.999, 1.002, 0.998]);
        assert!(seen.contains("5 runs would show one of 3 %"), "{seen}");
        assert!(verdict(&[1.0; 3], &[0.5; 3]).contains("-n 4 is the least"));
        assert_eq!(verdict(&base, &[]), "not measured");
        assert_eq!(verdict(&[], &[]), "not measured");
    }

    #[test]
    fn speed_up_is_of_medians_and_first_touch_is_one() {
        let samples = [sample("first-touch", &[102.53, 102.0, 103.0]), sample("p.toml", &[81.05, 81.0, 82.0])];
        let rows = rows(&samples, 4);
        assert_eq!(rows[0].speedup, Some(1.0));
        assert!((rows[1].speedup.unwrap() - 1.265).abs() < 1e-3);
        assert_eq!((rows[1].local_share, rows[0].p), (None, None));
        let text = text(&rows, None);
        assert!(text.contains("102.5 s") && text.contains("81.05 s") && text.contains("1.27x"), "{text}");
        assert_eq!(super::rows(&samples, 1)[0].local_share, Some(1.0));
        assert!(super::rows(&[], 1).is_empty());
    }

    #[test]
    fn a_narrow_terminal_has_the_verdicts_below_the_table() {
        let samples = [sample("first-touch", &[102.53, 102.0, 103.0]), sample("p.toml", &[81.05, 81.0, 82.0])];
        for columns in [60, 80] {
            let text = text(&rows(&samples, 4), Some(columns));
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
            assert!(
                text.contains("1.27x") && text.contains(" p.toml: too few runs") && text.contains("hidden: "),
                "{text}"
            );
        }
    }

    #[test]
    fn short_and_scattered_times_are_doubted() {
        let steady = sample("first-touch", &[1.0, 1.01, 0.99, 1.0, 1.0]);
        assert!(doubts(std::slice::from_ref(&steady)).is_empty());
        let doubts = doubts(&[sample("first-touch", &[0.02, 0.021, 0.02]), sample("p", &[1.0, 1.01, 1.0, 0.99, 2.0])]);
        assert!(doubts[0].contains("20.00 ms only") && doubts[1].contains("1 of 5 runs under p"), "{doubts:?}");
        assert_eq!((least_runs(3), least_runs(4)), (Some(4), None));
        let row = &rows(&[steady], 2)[0];
        assert!(row.mean.is_some_and(|m| (m - 1.0).abs() < 1e-9), "{row:?}");
        assert!(row.deviation.is_some_and(|d| (d - 0.00707).abs() < 1e-4), "{row:?}");
    }

    #[test]
    fn times_have_four_digits() {
        assert_eq!([seconds(1.2345), seconds(0.012_345), seconds(123.456)], ["1.234 s", "12.35 ms", "123.5 s"]);
        assert_eq!([seconds(0.0), seconds(12345.6)], ["0.000 us", "12346 s"]);
    }
}
