//! Block-cyclic: slices per thread, repeated with a period. The spectra give candidate periods, folding compares them,
//! and the best period is refined to the resolution of the data.

use super::block;
use super::fold::{Fit, Folder, noise_of};
use super::limits::{LONGEST_PERIOD, MISPLACED, PERIOD_TOLERANCE, STRUCTURE_MIN, WHOLE_TOLERANCE};
use super::points::Points;
use super::{row_edges, spectrum};

/// Points used to compare candidates; the best candidate is refined with more.
const SCAN_POINTS: usize = 3_000;
/// Points used to refine the best candidate; all points are used only for the periods that these cannot tell apart.
const REFINE_POINTS: usize = 6_000;
/// Largest number of trial periods of one local scan.
const SCAN_TRIALS: usize = 400;
/// Fewest threads for which the rank spectrum can miss a permuted order: any order of three threads is a rotation of
/// the thread order or of its reverse.
const PERMUTABLE_THREADS: usize = 4;

/// A fitted period with its uncertainty.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Periodic {
    /// Slices at the best period.
    pub fit: Fit,
    /// Half the width of the interval of periods that fit as well, pages.
    pub uncertainty: f64,
    /// Amplitude of the strongest line of the rank spectrum; 0 without a line.
    pub line: f64,
}

/// Best block-cyclic description; none without a candidate period. `block` is the fit without folding: its slices show
/// periods that repeat too few times for a line in a spectrum. The search for permuted orders ends as soon as a
/// candidate is `good_enough`.
pub(crate) fn find(
    points: &Points,
    folder: &mut Folder,
    block: &Fit,
    good_enough: impl Fn(&Fit) -> bool,
) -> Option<Periodic> {
    let thin = points.thinned(SCAN_POINTS);
    let lines = spectrum::rank_lines(points);
    let mut best: Option<Fit> = None;
    if block.gain > 0.0
        && let Some(period) = usual_distance(block)
    {
        best = scan(&thin, folder, period, SCAN_REACH, f64::NEG_INFINITY);
    }
    for line in &lines {
        // Cramer-Rao bound of a frequency from n samples of amplitude a over N pages, times four.
        let sigma = 0.4 / (points.samples.max(1.0).sqrt() * line.strength.max(0.05));
        let fit = scan(&thin, folder, 1.0 / line.frequency, (4.0 * sigma).clamp(0.05, 0.6), rival(best.as_ref()));
        keep_better(&mut best, fit);
    }
    let strength = lines.first().map_or(0.0, |l| l.strength);
    if points.threads() >= PERMUTABLE_THREADS && !best.as_ref().is_some_and(&good_enough) {
        for period in spectrum::pair_periods(points) {
            let fit = scan(&thin, folder, period, 0.1, rival(best.as_ref()));
            keep_better(&mut best, fit);
            if best.as_ref().is_some_and(&good_enough) {
                break;
            }
        }
    }
    let best = best.filter(|b| b.structure >= HOPELESS && (b.gain > 0.0 || thin.list.len() == points.list.len()))?;
    let best = fundamental(&thin, folder, best);
    let fewer = points.thinned(REFINE_POINTS);
    let best = refine(&fewer, folder, &best);
    if points.samples < DENSE * f64::from(points.pages) && best.cuts.len() > TOO_MANY * best.owners() {
        return None;
    }
    let (fit, uncertainty) = whole_pages(points, &fewer, folder, best);
    Some(Periodic { fit, uncertainty, line: strength })
}

/// Share explained by the best candidate below which no refined period explains [`STRUCTURE_MIN`]: a scan misses the
/// period by less than half of a slice. A candidate that costs more to describe than it explains is dropped, too,
/// unless the points are few.
const HOPELESS: f64 = 0.5 * STRUCTURE_MIN;

/// Slices per owner above which a refined period is dropped without the final search; 1.5 are accepted in the end.
const TOO_MANY: usize = 4;
/// Samples per page from which [`TOO_MANY`] does not apply: with many samples per page, pages get a
/// wrong owner by chance, which makes many slices, until the period is exact.
const DENSE: f64 = 4.0;

/// Part of the best candidate's gain that another candidate must reach in the scan to be compared with it: the scan
/// assumes [`SCAN_NOISE`], while the best candidate's gain was computed with its own share of noise.
const RIVAL: f64 = 0.7;

fn rival(best: Option<&Fit>) -> f64 {
    best.filter(|b| b.gain > 0.0).map_or(f64::NEG_INFINITY, |b| RIVAL * b.gain)
}

/// Resolution bins around a period read off slices.
const SCAN_REACH: f64 = 0.3;

/// Median distance from one slice of a thread to its next.
fn usual_distance(block: &Fit) -> Option<f64> {
    let mut last: std::collections::HashMap<u16, u32> = std::collections::HashMap::new();
    let mut distances: Vec<u32> =
        block.cuts.iter().filter_map(|c| last.insert(c.thread, c.first).map(|before| c.first - before)).collect();
    distances.sort_unstable();
    distances.get(distances.len() / 2).map(|d| f64::from(*d)).filter(|d| *d >= 2.0)
}

/// Largest factor of the multiples and fractions of a found period that are tried.
const RELATIVES: u32 = 5;
/// Part of the share that a period explains that a fraction of the period must explain to replace it.
const PART_STRUCTURE: f64 = 0.95;

/// Replaces the found period by a multiple or a fraction that describes the accesses better. The spectrum may have
/// shown a harmonic, whose multiple is the period; with few threads, twice the period fits as well as the period,
/// which needs fewer slices.
fn fundamental(points: &Points, folder: &mut Folder, found: Fit) -> Fit {
    let mut best = found;
    let start = best.period;
    // In thread order the rank spectrum has no line but the fundamental.
    let most = if block::order(&best.cuts, true) == block::Order::Mixed { RELATIVES } else { 1 };
    for j in 2..=most {
        let period = start * f64::from(j);
        // `scan` finds nothing for a period that is too long to repeat inside the object.
        if let Some(fit) = scan(points, folder, period, 0.1, rival(Some(&best))).filter(|f| f.gain > best.gain) {
            best = fit;
        }
    }
    let start = best.period;
    for j in (2..=RELATIVES).rev().filter(|j| best.cuts.len() >= best.owners() * *j as usize) {
        let period = start / f64::from(j);
        if period >= 2.0 {
            let explains = |f: &Fit| f.structure >= PART_STRUCTURE * best.structure && f.owners() >= 2;
            if let Some(fit) = scan(points, folder, period, 0.1 / f64::from(j), f64::NEG_INFINITY).filter(explains) {
                return fit;
            }
        }
    }
    best
}

fn keep_better(best: &mut Option<Fit>, fit: Option<Fit>) {
    if let Some(fit) = fit
        && best.as_ref().is_none_or(|b| fit.gain > b.gain)
    {
        *best = Some(fit);
    }
}

/// Best fit at periods whose frequency is within `reach` resolution bins (1 / pages) of the candidate's, in steps
/// that shift the last repeat by half of a slice: at most a quarter of a slice is then folded onto a wrong place.
fn scan(points: &Points, folder: &mut Folder, period: f64, reach: f64, least: f64) -> Option<Fit> {
    let repeats = points.repeats(period);
    let width = period * reach / repeats;
    let step = (period / (2.0 * points.threads() as f64 * repeats)).max(width / SCAN_TRIALS as f64 * 2.0);
    let fit = best_of(points, folder, grid(points, period, width, step), SCAN_NOISE, least)?;
    Some(folder.fit(points, fit.period))
}

/// Share of noise assumed while periods are compared.
const SCAN_NOISE: f64 = 0.3;

fn grid(points: &Points, center: f64, width: f64, step: f64) -> impl Iterator<Item = f64> {
    let count = (width / step).ceil() as i64;
    let longest = points.used() * LONGEST_PERIOD;
    // From the middle outwards: the earlier a good period is tried, the earlier the trials of others end.
    let offset = |i: i64| if i % 2 == 0 { i / 2 } else { -(i / 2) - 1 };
    (0..=2 * count).map(move |i| center + offset(i) as f64 * step).filter(move |p| *p >= 2.0 && *p <= longest)
}

fn best_of(
    points: &Points,
    folder: &mut Folder,
    periods: impl Iterator<Item = f64>,
    noise: f64,
    least: f64,
) -> Option<Fit> {
    let mut best: Option<Fit> = None;
    for p in periods {
        let least = best.as_ref().map_or(least, |b| b.gain);
        keep_better(&mut best, folder.fit_beating(points, p, noise, least));
    }
    best
}

/// Trial periods on each side in one round of refinement, and the factor by which the step shrinks.
const REFINE_TRIALS: f64 = 3.0;
const REFINE_FACTOR: f64 = 4.0;
/// Step in pages from which whole pages are tried one by one.
const WHOLE_PAGES: f64 = 1.0;

/// Searches around the best period in ever smaller steps.
fn refine(points: &Points, folder: &mut Folder, start: &Fit) -> Fit {
    let noise = noise_of(start);
    let mut step = start.period / (4.0 * points.threads() as f64 * points.repeats(start.period));
    let mut best = folder.fit_with(points, start.period, noise);
    while step > WHOLE_PAGES {
        let fit =
            best_of(points, folder, grid(points, best.period, REFINE_TRIALS * step, step), noise, f64::NEG_INFINITY);
        if let Some(fit) = fit.filter(|f| f.likelihood > best.likelihood) {
            best = fit;
        }
        step /= REFINE_FACTOR;
    }
    // Between whole pages: a shift of the last repeat by half a page is the finest the data can show.
    let fine = (0.5 / points.repeats(best.period)).clamp(1.0 / 16.0, 0.5);
    let reach = (step * REFINE_FACTOR).max(2.0 * fine).min(REFINE_FACTOR);
    let fit =
        best_of(points, folder, grid(points, best.period, reach, fine.max(reach / 24.0)), noise, f64::NEG_INFINITY);
    if let Some(fit) = fit.filter(|f| f.likelihood > best.likelihood) {
        best = fit;
    }
    best
}

/// Largest number of whole pages tried on each side of the best period. Fewer are tried when so many would shift the
/// last repeat by more than a quarter of a period, where another line of the spectrum begins.
const WHOLE_TRIALS: f64 = 12.0;

/// The best period, replaced by a whole number of pages where that fits as well, and its uncertainty in pages. `fewer`
/// are the points with which `best` was found.
fn whole_pages(all: &Points, fewer: &Points, folder: &mut Folder, best: Fit) -> (Fit, f64) {
    let noise = noise_of(&best);
    let longest = f64::from(all.pages) * LONGEST_PERIOD;
    let center = best.period.round() as i64;
    let trials = (0.25 * best.period / all.repeats(best.period)).clamp(1.0, WHOLE_TRIALS) as i64;
    let mut fits: Vec<Fit> = (center - trials..=center + trials)
        .filter(|p| *p >= 2 && *p as f64 <= longest)
        .map(|p| folder.fit_with(fewer, p as f64, noise))
        .collect();
    let mut best = best;
    if fewer.list.len() < all.list.len() {
        // All points decide between the whole periods that fit the thinned points within the tolerance and a margin.
        let top = fits.iter().map(|f| f.likelihood).fold(f64::NEG_INFINITY, f64::max);
        fits.retain(|f| f.likelihood >= top - OPEN_NATS);
        fits = fits.iter().map(|f| folder.fit_with(all, f.period, noise)).collect();
        best = folder.fit_with(all, best.period, noise);
    }
    let (fit, uncertainty) = choose(all, &fits, best);
    let fit = folder.fit(all, fit.period);
    row_edges::rows(all, folder, &fit).unwrap_or((fit, uncertainty))
}

/// Loss of log-likelihood (nats) on the thinned points up to which a period is tried with all points: twice
/// [`WHOLE_TOLERANCE`].
const OPEN_NATS: f64 = 2.0 * WHOLE_TOLERANCE;

/// Best of `fits` at whole pages, or `best` itself when none of them fits as well, and the uncertainty in pages.
fn choose(points: &Points, fits: &[Fit], best: Fit) -> (Fit, f64) {
    // Pages hardly show a difference that adds up to less than one page from the first repeat to the last.
    let drift = |f: &Fit| (f.period - best.period).abs() * points.repeats(best.period);
    let tolerance = WHOLE_TOLERANCE + fractional_luck(points, &best);
    let as_good = |f: &&Fit| drift(f) < MOST_DRIFT && f.likelihood >= best.likelihood - tolerance;
    let nearest = fits.iter().filter(as_good).min_by(|a, b| drift(a).total_cmp(&drift(b)));
    let best = nearest.cloned().unwrap_or(best);
    let top = fits.iter().map(|f| f.likelihood).fold(f64::NEG_INFINITY, f64::max);
    // By the length of the whole description: slices that only a fractional period has may fit by chance, and are paid
    // for. Drift does not count here, because the samples say what it costs.
    let shortest = fits.iter().map(|f| f.gain).fold(f64::NEG_INFINITY, f64::max);
    if top < best.likelihood - WHOLE_TOLERANCE && shortest < best.gain - WHOLE_TOLERANCE {
        return (best, 0.0);
    }
    let blur = resolution(points, &best);
    let fits_as_well = |f: &&Fit| {
        let near = (f.period - best.period).abs() <= blur;
        f.likelihood >= top - if near { WHOLE_TOLERANCE } else { PERIOD_TOLERANCE }
    };
    let open: Vec<&Fit> = fits.iter().filter(fits_as_well).collect();
    let (Some(first), Some(last)) = (open.first(), open.last()) else { return (best, 0.5) };
    let uncertainty = ((last.period - first.period) / 2.0).max(blur);
    let middle = (last.period + first.period) / 2.0;
    // Among periods that fit equally well, multiples of powers of two come first because programs use them; then the
    // period in the middle.
    let rank = |f: &&&Fit| ((f.period as u64).trailing_zeros().max(ROUND_BITS), -(f.period - middle).abs());
    let chosen = open.iter().max_by(|a, b| {
        let (a, b) = (rank(a), rank(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    match chosen {
        Some(fit) => ((*fit).clone(), uncertainty),
        None => (best, uncertainty),
    }
}

/// Pages of drift over the whole object up to which a whole number of pages may stand for a fractional period. A
/// difference of less than one page moves no edge to another page; where luck moves the best period, it moves it by
/// about as much.
const MOST_DRIFT: f64 = 1.5;

/// Nats that a fractional period gains by chance over the whole one it is close to. Each of its edges has as many more
/// places as parts of a page are distinguished. And an edge inside a page leaves a page with samples of two threads in
/// every repeat: a period that drifts divides these repeats at the best place. The samples are then a random walk of
/// steps of half the gain of a sample up or down, and the expected largest distance of such a walk is sqrt(pi / 2)
/// standard deviations.
fn fractional_luck(points: &Points, fit: &Fit) -> f64 {
    let noise = noise_of(fit);
    let gain = (1.0 + (1.0 - noise) / noise * points.threads() as f64).ln();
    let walk = 0.5 * gain * (std::f64::consts::FRAC_PI_2 * points.samples / fit.period).sqrt();
    fit.cuts.len() as f64 * (f64::from(fit.parts).ln() + walk)
}

/// Pages by which a period can be wrong before it misplaces [`MISPLACED`] samples: an error of one page shifts the
/// edges of the last repeat by `repeats` pages and those between by half as much on average, and half of the samples
/// there still find their owner. The likelihood alone would give a smaller error than the true one, because its
/// best period is the best of many that fit by chance.
fn resolution(points: &Points, fit: &Fit) -> f64 {
    let edge_samples = points.samples * fit.structure * fit.owners() as f64;
    MISPLACED * 4.0 * fit.period / (edge_samples * points.repeats(fit.period)).max(1.0)
}

/// Trailing zero bits up to which a page count is not a rounder number than others.
const ROUND_BITS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::fold::Cut;
    use crate::detect::points::{Participant, Point};

    /// 2,048 pages split over 4 threads, nine times, as samples of one run showed them: a part of a page more fits
    /// better by 16 nats, with one slice more, for which 7 are paid.
    #[test]
    fn a_fractional_period_pays_for_the_slices_that_only_it_has() {
        let share = Participant { rank: 0, weight: 1277.0, share: 0.25 };
        let ends = [0, 9 * 2048 - 1].map(|page| Point { page, thread: 0, weight: 1.0 });
        let points = Points { pages: 9 * 2048, list: ends.to_vec(), threads: vec![share; 4], samples: 5106.0 };
        let fit = |period: f64, likelihood: f64, gain: f64, cuts: u16| {
            let cut = |k: u16| Cut {
                thread: k % 4,
                first: u32::from(k) * 400,
                last: u32::from(k) * 400 + 399,
                matched: 1000.0,
            };
            Fit { period, likelihood, gain, structure: 0.98, cuts: (0..cuts).map(cut).collect(), parts: 1 }
        };
        let whole = [fit(2047.0, 6853.0, 6816.0, 6), fit(2048.0, 6974.0, 6944.0, 5), fit(2049.0, 6932.0, 6895.0, 6)];
        assert_eq!(choose(&points, &whole, fit(2048.3, 6990.0, 6953.0, 6)).0.period, 2048.0);
        assert_eq!(choose(&points, &whole, fit(2048.3, 6990.0, 6960.0, 5)).0.period, 2048.3, "without more slices");
    }
}
