//! Irregular: pages have their threads, all the time, but no formula says which. A page map can place it.
//!
//! The samples are parted in time: what an early and a late sample of the same pages agree on is affinity that lasts.
//! The statistic is the sum over pages of the product of the two halves' thread counts, each less its expectation
//! from the threads' shares. Without affinity its mean is 0 and its variance, halves being independent,
//! sum A B tr(C^2) with A and B the samples of a page and C the covariance of one draw. Chunks that are handed out
//! anew in each step agree within a moment but not between the halves, and so do not count.

use super::limits::{AFFINITY_PAIRS, AFFINITY_SIGMA, STRUCTURE_MIN};
use super::samples::{Sample, Samples};
use super::{Pattern, PatternKind, Slice};

/// Pages per place grow by this factor from level to level: affinity of larger chunks shows in fewer samples.
const LEVEL_SHIFT: u32 = 2;
/// Fewest places of a level: fewer would be slices, which have their own detectors.
const FEWEST_PLACES: u32 = 16;

/// Affinity at one size of place.
struct Level {
    /// Places are this many pages, as a power of two.
    shift: u32,
    /// Standard deviations above chance.
    sigma: f64,
    /// Share of the samples that stay with their place's thread: the root of the excess agreement.
    share: f64,
}

/// The verdict when pages have lasting affinity. `end` is the size of the object in bytes, `skew` the offset of its
/// first byte in its page.
pub(crate) fn irregular(samples: &Samples, end: u64, skew: u64) -> Option<Pattern> {
    let middle = middle_slot(samples)?;
    let mut order: Vec<(u32, u16, bool, f32)> =
        samples.list.iter().map(|s| (s.page, s.thread, s.slot >= middle, s.weight)).collect();
    if !order.is_sorted_by_key(|o| o.0) {
        order.sort_unstable_by_key(|o| o.0);
    }
    let mut best: Option<Level> = None;
    let mut shift = 0;
    while shift == 0 || samples.pages >> shift >= FEWEST_PLACES {
        if let Some(level) = Halves::of(&order, samples.threads()).level(&order, shift)
            && level.sigma >= AFFINITY_SIGMA
            && level.share >= STRUCTURE_MIN
            && best.as_ref().is_none_or(|b| level.share * level.sigma.min(LASTING) > b.share * b.sigma.min(LASTING))
        {
            best = Some(level);
        }
        shift += LEVEL_SHIFT;
    }
    let level = best?;
    let total = samples.total();
    let slices = page_map(samples, level.shift, end, skew);
    let mut owners: Vec<u32> = slices.iter().map(|s| s.thread).collect();
    owners.sort_unstable();
    owners.dedup();
    if owners.len() < 2 {
        return None;
    }
    let place = if level.shift == 0 { "page has its".into() } else { format!("{} pages have their", 1 << level.shift) };
    let evidence = format!(
        "each {place} own main thread all the time ({:.0} % of {total:.0} samples beyond chance, {:.0} sigma between the \
         halves of the run), but no block or period fits: {} runs of pages of {} threads",
        100.0 * level.share,
        level.sigma,
        slices.len(),
        owners.len()
    );
    // Near the threshold the share itself is uncertain by about its part of a sigma.
    let sure = level.share * (1.0 - 1.0 / level.sigma);
    let mut pattern = Pattern::new(PatternKind::Irregular, sure, evidence).explained(total, level.share);
    pattern.figures.nats = 0.5 * level.sigma * level.sigma;
    pattern.slices = slices;
    Some(pattern)
}

/// Standard deviations beyond which more do not make a level better.
const LASTING: f64 = 3.0 * AFFINITY_SIGMA;

/// Slot that parts the samples into halves of about equal weight; none when there is only one moment.
fn middle_slot(samples: &Samples) -> Option<u16> {
    let mut slots: Vec<f64> = Vec::new();
    for s in &samples.list {
        let slot = usize::from(s.slot);
        if slot >= slots.len() {
            slots.resize(slot + 1, 0.0);
        }
        slots[slot] += f64::from(s.weight);
    }
    let total: f64 = slots.iter().sum();
    let mut sum = 0.0;
    let mut best: Option<(f64, u16)> = None;
    for (slot, weight) in slots.iter().enumerate() {
        let off = (sum - total / 2.0).abs();
        if sum > 0.0 && sum < total && best.is_none_or(|b| off < b.0) {
            best = Some((off, slot as u16));
        }
        sum += weight;
    }
    best.map(|b| b.1)
}

/// Shares of the threads in both halves.
struct Halves {
    early: Vec<f64>,
    late: Vec<f64>,
}

impl Halves {
    fn of(order: &[(u32, u16, bool, f32)], threads: usize) -> Halves {
        let mut halves = Halves { early: vec![0.0; threads], late: vec![0.0; threads] };
        for &(_, thread, late, weight) in order {
            let half = if late { &mut halves.late } else { &mut halves.early };
            half[usize::from(thread)] += f64::from(weight);
        }
        for half in [&mut halves.early, &mut halves.late] {
            let total: f64 = half.iter().sum();
            half.iter_mut().for_each(|w| *w /= total.max(f64::MIN_POSITIVE));
        }
        halves
    }

    fn level(&self, order: &[(u32, u16, bool, f32)], shift: u32) -> Option<Level> {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
        let chance = dot(&self.early, &self.late);
        // tr(C D) of the covariances C = diag(e) - e e', D = diag(l) - l l' of one draw in each half.
        let cubic: f64 = self.early.iter().zip(&self.late).map(|(e, l)| e * l * (e + l)).sum();
        let trace = (chance - cubic + chance * chance).max(0.0);
        let (mut excess, mut pairs) = (0.0, 0.0);
        let mut early = vec![0.0; self.early.len()];
        for place in order.chunk_by(|a, b| a.0 >> shift == b.0 >> shift) {
            let (mut own, mut others, mut a, mut b) = (0.0, 0.0, 0.0, 0.0);
            for &(_, t, late, weight) in place.iter().filter(|p| !p.2) {
                debug_assert!(!late);
                early[usize::from(t)] += f64::from(weight);
                a += f64::from(weight);
                others += f64::from(weight) * self.late[usize::from(t)];
            }
            let mut mean = 0.0;
            for &(_, t, _, weight) in place.iter().filter(|p| p.2) {
                own += f64::from(weight) * early[usize::from(t)];
                b += f64::from(weight);
                mean += f64::from(weight) * self.early[usize::from(t)];
            }
            place.iter().for_each(|p| early[usize::from(p.1)] = 0.0);
            excess += own - b * others - a * mean + a * b * chance;
            pairs += a * b;
        }
        if pairs <= 0.0 || trace <= 0.0 || excess < AFFINITY_PAIRS {
            return None;
        }
        let share = (excess / pairs / (1.0 - chance).max(1e-9)).max(0.0).sqrt().min(1.0);
        Some(Level { shift, sigma: excess / (pairs * trace).sqrt(), share })
    }
}

/// Runs of places with the same main thread; places without a sample go with the run before them.
fn page_map(samples: &Samples, shift: u32, end: u64, skew: u64) -> Vec<Slice> {
    let mut sorted: Vec<(u32, u16, f32)> =
        samples.list.iter().map(|s: &Sample| (s.page >> shift, s.thread, s.weight)).collect();
    if !sorted.is_sorted_by_key(|s| s.0) {
        sorted.sort_unstable_by_key(|s| s.0);
    }
    let byte = |place: u32| ((u64::from(place) << shift).saturating_mul(samples.unit)).saturating_sub(skew).min(end);
    let mut sums = vec![0.0f32; samples.threads()];
    let mut slices: Vec<Slice> = Vec::new();
    for place in sorted.chunk_by(|a, b| a.0 == b.0) {
        place.iter().for_each(|p| sums[usize::from(p.1)] += p.2);
        let mut best = (0, 0.0f32);
        for p in place {
            let sum = std::mem::take(&mut sums[usize::from(p.1)]);
            if sum > best.1 {
                best = (p.1, sum);
            }
        }
        let thread = samples.ranks[usize::from(best.0)];
        let (start, stop) = (byte(place[0].0), byte(place[0].0 + 1));
        match slices.last_mut() {
            Some(last) if last.thread == thread => last.end = stop,
            Some(last) => {
                last.end = start;
                slices.push(Slice { start, end: stop, thread });
            }
            None => slices.push(Slice { start: 0, end: stop, thread }),
        }
    }
    slices
}
