//! Block-cyclic: slices per thread, repeated with a period. Candidates come from the spectra, folding decides,
//! and the period is refined until the data cannot tell two values apart.

use super::block;
use super::fold::{Fit, Folder, noise_of};
use super::limits::{LONGEST_PERIOD, MISPLACED, PERIOD_TOLERANCE, STRUCTURE_MIN, WHOLE_TOLERANCE};
use super::points::Points;
use super::spectrum;

/// Points used while candidates are only compared; the winner is refined with all.
const SCAN_POINTS: usize = 3_000;
/// Points used while the winner is refined; all of them only decide between periods that these leave open.
const REFINE_POINTS: usize = 6_000;
/// Trial periods of one local scan at most.
const SCAN_TRIALS: usize = 400;
/// Threads from which a permuted order can hide from the rank spectrum: any order of three is a rotation of the
/// thread order or of its reverse.
const PERMUTABLE_THREADS: usize = 4;

/// A fitted period with what the data leave open.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Periodic {
    /// Slices at the best period.
    pub fit: Fit,
    /// Pages around the period that fit as well, half the width of the interval.
    pub uncertainty: f64,
    /// Amplitude of the strongest line of the rank spectrum (0 when found otherwise).
    pub line: f64,
}

/// Best block-cyclic description, if there is any candidate at all. `block` is the fit without folding: its slices
/// show periods of few repeats, which are not lines of a spectrum yet. Once a candidate is `good_enough`, the search
/// for permuted orders is spared.
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

/// Share explained by the best candidate below which its neighbourhood will not explain [`STRUCTURE_MIN`] either: a
/// scan misses its period by less than half of a slice. Nor will one that costs more to describe than it explains,
/// unless the points are few.
const HOPELESS: f64 = 0.5 * STRUCTURE_MIN;

/// Slices per owner of a refined period that is not worth the last digits: 1.5 are accepted. On dense data, with so
/// many samples per page, chance majorities of single pages make many slices as long as the period is not exact.
const TOO_MANY: usize = 4;
const DENSE: f64 = 4.0;

/// What a candidate must gain at the scan's share of noise to be looked at beside one that gains 1 at its own.
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

/// Multiples and parts of a found period that are tried.
const RELATIVES: u32 = 5;
/// A part of a period must explain nearly what the period does.
const PART_STRUCTURE: f64 = 0.95;

/// The spectrum may have shown a harmonic (a multiple then describes the accesses better), and with few threads
/// twice the period fits as well as the period (a part then explains the same with fewer slices).
fn fundamental(points: &Points, folder: &mut Folder, found: Fit) -> Fit {
    let mut best = found;
    let start = best.period;
    // In thread order the rank spectrum has no line but the fundamental.
    let most = if block::order(&best.cuts, true) == block::Order::Mixed { RELATIVES } else { 1 };
    for j in 2..=most {
        let period = start * f64::from(j);
        // A period too long to be seen repeating has an empty scan.
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

/// Pages by which the last repeat shifts against the first when the period changes by one page.
fn repeats(points: &Points, period: f64) -> f64 {
    (f64::from(points.pages) / period).max(1.0)
}

/// Best fit at periods whose frequency is within `reach` resolution bins (1 / pages) of the candidate's, in steps
/// that shift the last repeat by half of a slice: at most a quarter of one is then misfolded.
fn scan(points: &Points, folder: &mut Folder, period: f64, reach: f64, least: f64) -> Option<Fit> {
    let repeats = repeats(points, period);
    let width = period * reach / repeats;
    let step = (period / (2.0 * points.threads() as f64 * repeats)).max(width / SCAN_TRIALS as f64 * 2.0);
    let fit = best_of(points, folder, grid(points, period, width, step), SCAN_NOISE, least)?;
    Some(folder.fit(points, fit.period))
}

/// Share of noise assumed while periods are compared.
const SCAN_NOISE: f64 = 0.3;

fn grid(points: &Points, center: f64, width: f64, step: f64) -> impl Iterator<Item = f64> {
    let count = (width / step).ceil() as i64;
    let longest = f64::from(points.pages) * LONGEST_PERIOD;
    // From the middle outwards: the sooner a good one is met, the sooner the others are given up.
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

/// Zooms in on the best period.
fn refine(points: &Points, folder: &mut Folder, start: &Fit) -> Fit {
    let noise = noise_of(start);
    let mut step = start.period / (4.0 * points.threads() as f64 * repeats(points, start.period));
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
    let fine = (0.5 / repeats(points, best.period)).clamp(1.0 / 16.0, 0.5);
    let reach = (step * REFINE_FACTOR).max(2.0 * fine).min(REFINE_FACTOR);
    let fit =
        best_of(points, folder, grid(points, best.period, reach, fine.max(reach / 24.0)), noise, f64::NEG_INFINITY);
    if let Some(fit) = fit.filter(|f| f.likelihood > best.likelihood) {
        best = fit;
    }
    best
}

/// Whole pages tried on each side of the best period, at most; less when so many would shift the last repeat by more
/// than a quarter of a period, where another line of the spectrum begins.
const WHOLE_TRIALS: f64 = 12.0;

/// Prefers a whole number of pages when that fits as well. `fewer` are the points that found `best`; all decide.
fn whole_pages(all: &Points, fewer: &Points, folder: &mut Folder, best: Fit) -> (Fit, f64) {
    let noise = noise_of(&best);
    let longest = f64::from(all.pages) * LONGEST_PERIOD;
    let center = best.period.round() as i64;
    let trials = (0.25 * best.period / repeats(all, best.period)).clamp(1.0, WHOLE_TRIALS) as i64;
    let mut fits: Vec<Fit> = (center - trials..=center + trials)
        .filter(|p| *p >= 2 && *p as f64 <= longest)
        .map(|p| folder.fit_with(fewer, p as f64, noise))
        .collect();
    let mut best = best;
    if fewer.list.len() < all.list.len() {
        // What these points leave open, all must decide: periods within the tolerance and a margin for their number.
        let top = fits.iter().map(|f| f.likelihood).fold(best.likelihood, f64::max);
        fits.retain(|f| f.likelihood >= top - OPEN_NATS);
        fits = fits.iter().map(|f| folder.fit_with(all, f.period, noise)).collect();
        best = folder.fit_with(all, best.period, noise);
    }
    let (fit, uncertainty) = choose(all, &fits, best);
    (folder.fit(all, fit.period), uncertainty)
}

/// Nats within which a period of the thinned points is tried with all: twice the tolerance of a fraction.
const OPEN_NATS: f64 = 2.0 * WHOLE_TOLERANCE;

/// Best of `fits` at whole pages, or `best` itself when none of them fits as well, and the uncertainty in pages.
fn choose(points: &Points, fits: &[Fit], best: Fit) -> (Fit, f64) {
    // Pages cannot show a difference that adds up to less than one page from the first repeat to the last.
    let drift = |f: &Fit| (f.period - best.period).abs() * repeats(points, best.period);
    let nearest = fits.iter().filter(|f| drift(f) < 1.0).min_by(|a, b| drift(a).total_cmp(&drift(b)));
    let best = nearest.cloned().unwrap_or(best);
    let top = fits.iter().map(|f| f.likelihood).fold(f64::NEG_INFINITY, f64::max);
    if top < best.likelihood - WHOLE_TOLERANCE {
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
    // Among periods that fit equally well, sizes made of powers of two are what programs use; else the middle.
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

/// Pages by which a period can be wrong before it misplaces [`MISPLACED`] samples: an error of one page shifts the
/// edges of the last repeat by `repeats` pages and those between by half as much on average, and half of the samples
/// there still find their owner. The likelihood alone claims more: its best period is the best of many that fit by
/// chance.
fn resolution(points: &Points, fit: &Fit) -> f64 {
    let telling = points.samples * fit.structure * fit.owners() as f64;
    MISPLACED * 4.0 * fit.period / (telling * repeats(points, fit.period)).max(1.0)
}

/// Fewer trailing zero bits than this do not make a page count round.
const ROUND_BITS: u32 = 4;
