//! Spectra over pages: candidate periods, which folding then compares.
//!
//! Two spectra. The *rank* spectrum |FFT over pages of sum exp(2 pi i t/T)| (t = thread index of T) peaks at
//! the period when slices are in thread order, and has no other strong line. The *pair* spectrum is the
//! summed power spectrum of each thread's own page density, from the distances of same-thread pairs minus those
//! of different-thread pairs, so that hot pages common to all threads cancel; it does not depend on the order of the
//! threads, and shows every harmonic up to T.

use realfft::RealFftPlanner;
use rustfft::FftPlanner;
use rustfft::num_complex::Complex;

use super::limits::LONGEST_PERIOD;
use super::points::{Points, uniform};

/// One line of a spectrum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Line {
    /// Cycles per page, positive.
    pub frequency: f64,
    /// Amplitude over the total weight for the rank spectrum; standard deviations for the pair spectrum.
    pub strength: f64,
}

/// Lines of the rank spectrum that are folded: the true one is the strongest unless the order is permuted.
const RANK_LINES: usize = 4;
/// Weakest line of the rank spectrum that is folded: slices in thread order that explain the smallest accepted share
/// give 0.4 x 0.9 (the sinc of a slice); unequal slices and missing threads give less. The pair spectrum finds permuted
/// orders.
const WEAKEST_LINE: f64 = 0.15;
/// Lines of the pair spectrum whose sub-multiples are tried.
const PAIR_LINES: usize = 6;
/// Periods from the pair spectrum that are folded.
const PAIR_PERIODS: usize = 4;
/// Pairs in the distance histogram: enough for all permuted traces of the truth suite.
const PAIRS: f64 = 2.0e5;
/// Largest number of harmonics summed: a true period stands out with fewer, and the work grows with their square.
const MOST_HARMONICS: usize = 64;
/// Standard deviations of the summed harmonics from which a period is folded.
const PERIOD_SIGMA: f64 = 6.0;
/// Standard deviations from which a line of the pair spectrum is a candidate; the folding decides.
const PAIR_SIGMA: f64 = 4.5;

/// Forward transform in place. Plans are cached, because making a plan takes as long as using it.
fn transform(buffer: &mut [Complex<f32>]) {
    thread_local! {
        static PLANNER: std::cell::RefCell<FftPlanner<f32>> = std::cell::RefCell::new(FftPlanner::new());
    }
    let plan = PLANNER.with(|p| p.borrow_mut().plan_fft_forward(buffer.len()));
    plan.process(buffer);
}

/// Real part of the forward transform of real values, at half the work of a complex one. `None` only for buffers of
/// unequal lengths, which this function does not make.
fn cosines(values: &mut [f32]) -> Option<Vec<f32>> {
    thread_local! {
        static PLANNER: std::cell::RefCell<RealFftPlanner<f32>> = std::cell::RefCell::new(RealFftPlanner::new());
    }
    let plan = PLANNER.with(|p| p.borrow_mut().plan_fft_forward(values.len()));
    let mut spectrum = plan.make_output_vec();
    plan.process(values, &mut spectrum).ok()?;
    Some(spectrum.iter().map(|c| c.re).collect())
}

/// Largest number of pages of a spectrum, for about 64 MiB. An object with more (a sparse mapping of terabytes) has
/// several pages per bin.
const MOST_BINS: u32 = 1 << 22;

/// Pages per bin of a spectrum, as a shift: slices of less than a page cannot be placed, so the shortest period of
/// interest is a page per thread, and `per_period` bins of that show its first lines.
fn grain(points: &Points, per_period: usize) -> u32 {
    let enough = (points.threads() / per_period).max(1).ilog2();
    let most = (0..u32::BITS).find(|shift| points.pages >> shift < MOST_BINS).unwrap_or(0);
    enough.max(most)
}

/// Bins of the shortest period: for the one line of the rank spectrum, and for the harmonics of the pair spectrum.
const RANK_BINS: usize = 8;
const PAIR_BINS: usize = 32;

fn padded(pages: u32) -> usize {
    // 1.5 times zero padding keeps the loss between two bins under 20 %.
    (pages as usize * 3 / 2).max(16).next_power_of_two()
}

/// Powers of the rank spectrum from frequency 0 to half a cycle per bin.
struct Powers {
    list: Vec<f32>,
    /// Length of the transform.
    len: usize,
    /// Pages of a bin, as a power of two, and bins.
    shift: u32,
    bins: u32,
}

fn rank_powers(points: &Points) -> Powers {
    let threads = points.threads() as f64;
    let unit = |t: u16| Complex::from_polar(1.0, std::f64::consts::TAU * (f64::from(t) + 0.5) / threads);
    let mean: Complex<f64> = points.threads.iter().enumerate().map(|(i, t)| unit(i as u16) * t.share).sum();
    let shift = grain(points, RANK_BINS);
    let bins = (points.pages >> shift) + 1;
    let mut buffer = vec![Complex::<f32>::default(); padded(bins)];
    let turned: Vec<Complex<f64>> = (0..points.threads()).map(|t| unit(t as u16) - mean).collect();
    for p in &points.list {
        let z = turned[usize::from(p.thread)] * f64::from(p.weight);
        buffer[(p.page >> shift) as usize] += Complex::new(z.re as f32, z.im as f32);
    }
    transform(&mut buffer);
    let len = buffer.len();
    let power = |i: usize| buffer[i].norm_sqr().max(buffer[(len - i) % len].norm_sqr());
    Powers { list: (0..=len / 2).map(power).collect(), len, shift, bins }
}

/// Strongest lines of the rank spectrum, strongest first.
pub(crate) fn rank_lines(points: &Points) -> Vec<Line> {
    let Powers { list, len, shift, bins } = rank_powers(points);
    peaks(&list, len, bins, RANK_LINES)
        .into_iter()
        .map(|(frequency, power)| (frequency / f64::from(1u32 << shift), power))
        .map(|(frequency, power)| Line { frequency, strength: f64::from(power).sqrt() / points.samples.max(1e-9) })
        .filter(|line| line.strength >= WEAKEST_LINE)
        .collect()
}

/// Steps of the picture of a spectrum: two pixels each where it is drawn.
const STEPS: usize = 256;
/// Longest period of the picture, as a part of the object.
const LONGEST_DRAWN: f64 = 1.5;

/// The rank spectrum for a picture: strengths in equal steps of the logarithm of the period.
#[derive(Debug, Clone, PartialEq)]
pub struct Spectrum {
    /// Longest and shortest period, bytes.
    pub periods: (f64, f64),
    /// The strongest line in each step from the longest to the shortest period, 0 to 1: the share of the samples that
    /// agree on the period.
    pub strengths: Vec<f32>,
}

impl Spectrum {
    /// Of points whose pages have `unit` bytes.
    pub(crate) fn of(points: &Points, unit: u64) -> Option<Spectrum> {
        if points.threads() < 2 || points.samples <= 0.0 {
            return None;
        }
        let Powers { list, len, shift, bins } = rank_powers(points);
        // Slices in thread order that do not repeat have their line at the length of the object.
        let low = 1.0 / (LONGEST_DRAWN * f64::from(bins));
        let ratio = 0.5 / low;
        if ratio <= 1.0 {
            return None;
        }
        let frequency = |step: f64| low * ratio.powf(step / STEPS as f64);
        let strongest = |step: usize| {
            let ends = [step, step + 1].map(|at| frequency(at as f64) * len as f64);
            // Long periods have several steps to a line: the one next to the step then.
            let first = (ends[0].round() as usize).min(list.len() - 1);
            let last = (ends[1].round() as usize).clamp(first + 1, list.len());
            let most = list[first..last].iter().copied().fold(0.0, f32::max);
            most.sqrt() / points.samples as f32
        };
        let bytes = unit as f64 * f64::from(1u32 << shift);
        let strengths = (0..STEPS).map(strongest).collect();
        Some(Spectrum { periods: (bytes / low, bytes / 0.5), strengths })
    }
}

/// Candidate periods in pages from the pair spectrum, best first: for every strong line the sub-multiple (the
/// line may be any harmonic) whose own harmonics hold the most power.
pub(crate) fn pair_periods(points: &Points) -> Vec<f64> {
    let shift = grain(points, PAIR_BINS);
    let bins = (points.pages >> shift) + 1;
    let Some((powers, len)) = pair_spectrum(points, shift, bins) else { return Vec::new() };
    let (mean, sigma) = spread(&powers);
    let normal: Vec<f32> = powers.iter().map(|p| (p - mean) / sigma).collect();
    let lowest = 1.0 / (LONGEST_PERIOD * f64::from(bins));
    let mut found: Vec<(f64, f64)> = Vec::new();
    for (line, height) in peaks(&normal, len, bins, PAIR_LINES) {
        if f64::from(height) < PAIR_SIGMA {
            continue;
        }
        for j in 1..=points.threads() {
            let frequency = line / j as f64;
            if frequency < lowest {
                break;
            }
            found.push(climb(&normal, len, frequency, points.threads(), bins, 0.3 / j as f64));
        }
    }
    found.retain(|f| f.1 >= PERIOD_SIGMA);
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    // A part or multiple of the true period has at least a half of its harmonics, and so 0.7 of the sum.
    let least = found.first().map_or(0.0, |f| 0.5 * f.1);
    found.retain(|f| f.1 >= least);
    let mut periods: Vec<f64> = Vec::new();
    for (frequency, _) in found {
        let period = f64::from(1u32 << shift) / frequency;
        // Closer than a tenth of the resolution is the same candidate.
        let same = |p: &f64| (f64::from(1u32 << shift) / p - frequency).abs() * f64::from(bins) < 0.1;
        if !periods.iter().any(same) {
            periods.push(period);
        }
        if periods.len() == PAIR_PERIODS {
            break;
        }
    }
    periods
}

/// Power summed over the harmonics up to the number of threads (the envelope of slices of 1/T of a period).
fn harmonic_sum(normal: &[f32], len: usize, frequency: f64, threads: usize) -> f64 {
    let count = threads.min((0.5 / frequency) as usize).clamp(1, MOST_HARMONICS);
    let at = |h: usize| {
        let x = frequency * h as f64 * len as f64;
        let i = x as usize;
        let (a, b) = (normal.get(i).copied().unwrap_or(0.0), normal.get(i + 1).copied().unwrap_or(0.0));
        f64::from(a) + (f64::from(b) - f64::from(a)) * (x - i as f64)
    };
    (1..=count).map(at).sum::<f64>() / (count as f64).sqrt()
}

/// Best harmonic sum within `reach` bins of `frequency`, in steps that keep the highest harmonic within a quarter of a
/// bin. The j-th part of a line is known j times as well as the line.
fn climb(normal: &[f32], len: usize, frequency: f64, threads: usize, bins: u32, reach: f64) -> (f64, f64) {
    let count = threads.min((0.5 / frequency) as usize).clamp(1, MOST_HARMONICS) as f64;
    let bin = 1.0 / f64::from(bins);
    let step = 0.25 * bin / count;
    let reach = (reach * bin / step) as i64;
    (-reach..=reach)
        .map(|i| frequency + i as f64 * step)
        .filter(|f| *f > 0.0)
        .map(|f| (f, harmonic_sum(normal, len, f, threads)))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap_or((frequency, 0.0))
}

/// Spectrum of (same-thread minus different-thread) page distances.
fn pair_spectrum(points: &Points, shift: u32, bins: u32) -> Option<(Vec<f32>, usize)> {
    let threads = points.threads();
    let mut pages: Vec<Vec<u32>> = vec![Vec::new(); threads];
    for p in &points.list {
        pages[usize::from(p.thread)].push(p.page >> shift);
    }
    let keep = (2.0 * PAIRS / threads.max(1) as f64).sqrt();
    let mut state = 0x2545_F491_4F6C_DD1Du64;
    for list in &mut pages {
        let share = keep / list.len().max(1) as f64;
        if share < 1.0 {
            list.retain(|_| uniform(&mut state) < share);
        }
    }
    let len = padded(bins);
    let mut histogram = vec![0.0f32; len];
    let mut same = 0usize;
    for list in &pages {
        for (i, a) in list.iter().enumerate() {
            for b in &list[i + 1..] {
                histogram[a.abs_diff(*b) as usize] += 1.0;
            }
            same += list.len() - i - 1;
        }
    }
    if same == 0 || pages.iter().filter(|l| !l.is_empty()).count() < 2 {
        return None;
    }
    let others = different_thread_distances(&pages, same, &mut state);
    let ratio = same as f32 / others.len().max(1) as f32;
    others.iter().for_each(|d| histogram[*d as usize] -= ratio);
    Some((cosines(&mut histogram)?, len))
}

/// Distances of up to `most` random pairs of pages of different threads.
fn different_thread_distances(pages: &[Vec<u32>], most: usize, state: &mut u64) -> Vec<u32> {
    let owners: Vec<(u16, u32)> =
        pages.iter().enumerate().flat_map(|(t, list)| list.iter().map(move |p| (t as u16, *p))).collect();
    let mut distances = Vec::with_capacity(most.min(2 * PAIRS as usize));
    // Twice as many tries as pairs wanted are enough for two threads, where half of the draws differ.
    for _ in 0..(2 * most).min(2 * PAIRS as usize) {
        if distances.len() == most {
            break;
        }
        let mut pick = || owners[(uniform(state) * owners.len() as f64) as usize];
        let (a, b) = (pick(), pick());
        if a.0 != b.0 {
            distances.push(a.1.abs_diff(b.1));
        }
    }
    distances
}

/// Number of bins from which the scatter of a spectrum is estimated: the median of so many is known to half a percent.
const SPREAD_BINS: usize = 1 << 15;

fn spread(values: &[f32]) -> (f32, f32) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
    // The median of the absolute deviations, because strong lines would raise the standard deviation and hide each
    // other. With an odd stride the harmonics of periods that are powers of two are drawn as often as other bins.
    let stride = (values.len() / SPREAD_BINS) | 1;
    let mut off: Vec<f32> = values.iter().step_by(stride).map(|v| (v - mean as f32).abs()).collect();
    let middle = off.len() / 2;
    let (_, median, _) = off.select_nth_unstable_by(middle, f32::total_cmp);
    // 0.6745: the median absolute deviation of a normal distribution in standard deviations.
    (mean as f32, (*median / 0.6745).max(f32::MIN_POSITIVE))
}

/// The `most` highest local maxima above the lowest frequency of interest: (frequency, height), refined by a
/// parabola through the neighbours.
fn peaks(heights: &[f32], len: usize, pages: u32, most: usize) -> Vec<(f64, f32)> {
    let low = (len as f64 / (LONGEST_PERIOD * f64::from(pages))).ceil() as usize;
    let at = |i: usize| heights.get(i).copied().unwrap_or(0.0);
    let mut found: Vec<(usize, f32)> = Vec::with_capacity(most + 1);
    let mut least = 0.0;
    for i in low.max(1)..heights.len() {
        let h = heights[i];
        if h > least && h >= heights[i - 1] && h >= at(i + 1) {
            let place = found.partition_point(|f| f.1 >= h);
            found.insert(place, (i, h));
            found.truncate(most);
            least = if found.len() == most { found[most - 1].1 } else { 0.0 };
        }
    }
    found
        .into_iter()
        .map(|(i, h)| {
            let (a, b, c) = (f64::from(at(i - 1)), f64::from(h), f64::from(at(i + 1)));
            let bend = a - 2.0 * b + c;
            let shift = if bend < 0.0 { (0.5 * (a - c) / bend).clamp(-0.5, 0.5) } else { 0.0 };
            ((i as f64 + shift) / len as f64, h)
        })
        .collect()
}
