//! Irregular: each page keeps its main threads during the whole run, but no formula gives them. A page map can place
//! such an object.
//!
//! The samples are divided by time into an early and a late half ([`super::affinity`]). Chunks that are assigned to
//! other threads in each step agree within a short time but not between the halves, and so do not count.

use super::affinity::{Halves, Level};
use super::confidence;
use super::limits::{AFFINITY_PAIRS, AFFINITY_SIGMA, STRUCTURE_MIN};
use super::page_map::page_map;
use super::pattern::fitting;
use super::samples::Samples;
use super::{Pattern, PatternKind};

/// Growth of the page groups from level to level, as a power of two: affinity of larger chunks shows in fewer samples.
const LEVEL_SHIFT: u32 = 2;
/// Fewest page groups of a level: fewer would be slices, which have their own detectors.
const FEWEST_PLACES: u32 = 16;

/// The pattern of an object whose page affinity lasts. `end` is the size of the object in bytes, `skew` the offset of
/// its first byte in its page.
pub(crate) fn irregular(samples: &Samples, end: u64, skew: u64) -> Option<Pattern> {
    let middle = middle_slot(samples)?;
    let halves = Halves::of(samples, |slot| slot >= middle);
    let mut best: Option<Level> = None;
    let mut shift = 0;
    while shift == 0 || samples.pages >> shift >= FEWEST_PLACES {
        let value = |l: &Level| l.share * l.sigma.min(LASTING);
        if let Some(level) = halves.level(shift)
            && level.sigma >= AFFINITY_SIGMA
            && level.excess >= AFFINITY_PAIRS
            && level.share >= STRUCTURE_MIN
        {
            // Larger groups mix more owners: once that outweighs their larger number of samples, it does so at all
            // further levels.
            if best.as_ref().is_some_and(|b| value(b) >= value(&level)) {
                break;
            }
            best = Some(level);
        }
        shift += LEVEL_SHIFT;
    }
    let level = best?;
    let total = samples.total();
    let slices = page_map(samples, 1.0 - level.share, end, skew);
    let mut owners: Vec<u32> = slices.iter().map(|s| s.thread).collect();
    owners.sort_unstable();
    owners.dedup();
    if owners.len() < 2 {
        return None;
    }
    let place = if level.shift == 0 { "page has a".into() } else { format!("{} pages have a", 1 << level.shift) };
    let evidence = format!(
        "each {place} main thread that stays the same ({}; the halves of the run agree by {:.0} sigma), but no block or period fits: {} runs of pages of {} threads",
        fitting(level.share, total),
        level.sigma,
        slices.len(),
        owners.len()
    );
    // The share has a relative error of about one sigma.
    let sure = confidence::structured(level.share, level.share / level.sigma);
    let mut pattern = Pattern::new(PatternKind::Irregular, sure, evidence).explained(total, level.share);
    pattern.figures.nats = 0.5 * level.sigma * level.sigma;
    pattern.slices = slices;
    Some(pattern)
}

/// Standard deviations above which a level's value does not increase.
const LASTING: f64 = 3.0 * AFFINITY_SIGMA;

/// Slot that divides the samples into halves of about equal weight; none when all samples are in one slot.
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
