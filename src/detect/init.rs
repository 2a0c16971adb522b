//! Serial initialisation: time slots in which one thread alone uses an object that many threads use in other slots.
//!
//! These slots do not count for the pattern. In the usual case the main thread fills every array before the parallel
//! part starts; its accesses would hide the pattern of the computation. A thread that is alone later, because it has
//! more to do than the others or was late, still does the work of all: such slots count.

use super::limits::{PRIVATE_SHARE, SERIAL_NATS, SERIAL_PHASE, SERIAL_STRAY, TAKES_PART};
use super::samples::Samples;
use super::{ObjectView, PageAccess};

/// The slots that do not count.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Serial {
    /// Rank of the only thread in these slots.
    pub thread: u32,
    /// Whether a slot does not count, by slot number.
    pub dropped: Vec<bool>,
    /// Share of the accesses in the dropped slots.
    pub share: f64,
    /// Independent samples of every slot.
    pub weights: Vec<f64>,
}

/// Table of weights by slot and thread.
struct Slots {
    threads: usize,
    weight: Vec<f64>,
    totals: Vec<f64>,
}

impl Slots {
    fn of(samples: &Samples) -> Slots {
        let slots = samples.list.iter().map(|s| usize::from(s.slot) + 1).max().unwrap_or(0);
        let threads = samples.threads();
        let mut table = Slots { threads, weight: vec![0.0; slots * threads], totals: vec![0.0; slots] };
        for s in &samples.list {
            table.weight[usize::from(s.slot) * threads + usize::from(s.thread)] += f64::from(s.weight);
            table.totals[usize::from(s.slot)] += f64::from(s.weight);
        }
        table
    }

    fn of_thread(&self, slot: usize, thread: usize) -> f64 {
        self.weight[slot * self.threads + thread]
    }

    /// The slots, among those not yet `taken`, in runs that belong to `thread` alone rather than to two threads
    /// equally, with odds of at least exp(SERIAL_NATS).
    fn serial_runs(&self, thread: usize, taken: &[bool]) -> Vec<bool> {
        let hit = ((1.0 - SERIAL_STRAY) / 0.5).ln();
        let miss = (SERIAL_STRAY / 0.5).ln();
        let score = |slot: usize| {
            let own = self.of_thread(slot, thread);
            own * hit + (self.totals[slot] - own) * miss
        };
        let mut found = taken.to_vec();
        loop {
            let (mut best, mut run) = ((0.0, 0, 0), (0.0, 0));
            for (slot, taken) in found.iter().enumerate() {
                if *taken {
                    run = (0.0, slot + 1);
                    continue;
                }
                run.0 += score(slot);
                if run.0 <= 0.0 {
                    run = (0.0, slot + 1);
                } else if run.0 > best.0 {
                    best = (run.0, run.1, slot + 1);
                }
            }
            if best.0 < SERIAL_NATS {
                break;
            }
            found[best.1..best.2].iter_mut().for_each(|f| *f = true);
        }
        found.iter().zip(taken).map(|(f, t)| *f && !t).collect()
    }

    fn sum(&self, slots: &[bool]) -> f64 {
        self.totals.iter().zip(slots).filter(|(_, s)| **s).map(|(t, _)| t).sum()
    }
}

/// Bins of a comparison of the pages that a thread uses alone with those that it uses beside the others.
const BINS: usize = 32;

/// What a thread does in its slots alone and beside the others, by page, by code, and by reads and writes.
struct Compared<'a> {
    view: &'a ObjectView,
    samples: &'a Samples,
    /// Number of the bin of each sample.
    bins: Vec<usize>,
}

impl Compared<'_> {
    fn of<'a>(view: &'a ObjectView, samples: &'a Samples) -> Compared<'a> {
        let (total, mut sum, mut bin, mut before) = (samples.total(), 0.0, 0, None);
        let bins = samples.list.iter().map(|s| {
            // All samples of a page are in one bin.
            if before.replace((s.instance, s.page)) != Some((s.instance, s.page)) {
                bin = ((sum / total.max(f64::MIN_POSITIVE) * BINS as f64) as usize).min(BINS - 1);
            }
            sum += f64::from(s.weight);
            bin
        });
        let bins = bins.collect();
        Compared { view, samples, bins }
    }

    /// Whether a thread goes on in the slots `later` with what it does beside the others: in the same pages, by the
    /// same code, with as many writes.
    fn goes_on(&self, thread: usize, dropped: &[bool], later: &[bool]) -> bool {
        let (mut pages, mut others) = (vec![[0.0; 2]; BINS], 0.0);
        for (s, bin) in self.samples.list.iter().zip(&self.bins) {
            let (slot, own) = (usize::from(s.slot), usize::from(s.thread) == thread);
            others += if own || dropped[slot] { 0.0 } else { f64::from(s.weight) };
            if own && (later[slot] || !dropped[slot]) {
                pages[*bin][usize::from(later[slot])] += f64::from(s.weight);
            }
        }
        let beside: f64 = pages.iter().map(|of| of[0]).sum();
        let equal_share = (beside + others) / self.samples.threads().max(1) as f64;
        if beside <= TAKES_PART * equal_share || is_other(&pages) {
            return false;
        }
        let rank = self.samples.ranks[thread];
        // Weights beside the others and later alone.
        let sides = |accesses: &[PageAccess], weight: &dyn Fn(&PageAccess) -> f64| {
            let mut of = [0.0; 2];
            for a in accesses.iter().filter(|a| a.thread == rank && usize::from(a.slot) < later.len()) {
                let slot = usize::from(a.slot);
                if later[slot] || !dropped[slot] {
                    of[usize::from(later[slot])] += weight(a) * self.samples.scale;
                }
            }
            of
        };
        let by_code: Vec<_> = self.view.by_code.iter().map(|part| sides(&part.accesses, &PageAccess::weight)).collect();
        // Memory that is released is written where the work only reads.
        let by_kind =
            [sides(&self.view.accesses, &|a| a.reads.into()), sides(&self.view.accesses, &|a| a.writes.into())];
        !is_other(&by_code) && !is_other(&by_kind)
    }
}

/// Whether two distributions differ by more than chance: the evidence is at least [`SERIAL_NATS`] beyond the price of
/// the free shares.
fn is_other(counts: &[[f64; 2]]) -> bool {
    let nats = |of: &dyn Fn(&[f64; 2]) -> f64| {
        let total: f64 = counts.iter().map(of).sum();
        counts.iter().map(of).filter(|n| *n > 0.0).map(|n| n * (n / total).ln()).sum::<f64>()
    };
    let all: f64 = counts.iter().flatten().sum();
    let free = counts.iter().filter(|of| of[0] + of[1] > 0.0).count().saturating_sub(1) as f64;
    let saved = nats(&|of| of[0]) + nats(&|of| of[1]) - nats(&|of| of[0] + of[1]);
    saved - 0.5 * free * all.max(1.0).ln() >= SERIAL_NATS
}

/// The slots of one thread alone, when many threads (or one other thread) use the object in the other slots.
pub(crate) fn serial_slots(view: &ObjectView, samples: &Samples) -> Option<Serial> {
    let slots = Slots::of(samples);
    let total: f64 = slots.totals.iter().sum();
    if slots.threads < 2 || total <= 0.0 {
        return None;
    }
    let none = vec![false; slots.totals.len()];
    let compared = Compared::of(view, samples);
    let mut runs: Vec<(usize, Vec<bool>, f64)> = (0..slots.threads)
        .map(|t| {
            let run = slots.serial_runs(t, &none);
            let initial = initial(&run, &slots.totals);
            let later: Vec<bool> = run.iter().zip(&initial).map(|(alone, first)| *alone && !first).collect();
            let goes_on = later.contains(&true) && compared.goes_on(t, &run, &later);
            let run = if goes_on { initial } else { run };
            let sum = slots.sum(&run);
            (t, run, sum)
        })
        .filter(|r| r.2 > 0.0)
        .collect();
    runs.sort_by(|a, b| b.2.total_cmp(&a.2));
    // The thread with most slots may be the only user of the object after another one has filled it.
    let (thread, dropped, sum) = runs.into_iter().find(|(t, run, sum)| is_serial(&slots, (*t, run, *sum), total))?;
    Some(Serial { thread: samples.ranks[thread], dropped, share: sum / total, weights: slots.totals })
}

/// Whether the runs of slots of one thread alone are initialisation, or a part of the run like it.
fn is_serial(slots: &Slots, (thread, dropped, sum): (usize, &[bool], f64), total: f64) -> bool {
    // The other slots must have more accesses than the stray ones of a private object.
    if total - sum < (1.0 - PRIVATE_SHARE) * total {
        return false;
    }
    let rest: Vec<f64> = (0..slots.threads)
        .map(|t| (0..dropped.len()).filter(|&s| !dropped[s]).map(|s| slots.of_thread(s, t)).sum())
        .collect();
    let rest_total: f64 = rest.iter().sum();
    if rest_total <= 0.0 || rest[thread] >= PRIVATE_SHARE * rest_total {
        return false;
    }
    let handed_over = rest.iter().any(|&w| w >= PRIVATE_SHARE * rest_total) && starts_with(slots, dropped);
    let alone_elsewhere: f64 =
        (0..slots.threads).filter(|&t| t != thread).map(|t| slots.sum(&slots.serial_runs(t, dropped))).sum();
    if contrast(slots, dropped, thread) < SERIAL_NATS {
        return false;
    }
    // Threads that use the object one after the other during the whole run are a pattern in time, not an
    // initialisation.
    let many = alone_elsewhere < 0.5 * rest_total;
    handed_over || many
}

/// The dropped slots at the beginning of the use of an object with these weights by slot.
fn initial(dropped: &[bool], weights: &[f64]) -> Vec<bool> {
    let first = weights.iter().position(|w| *w > 0.0).unwrap_or(0);
    let begins = dropped.get(first).is_some_and(|d| *d);
    let end = (first..dropped.len()).find(|&s| !dropped[s] && weights[s] > 0.0);
    (0..dropped.len()).map(|s| begins && end.is_none_or(|e| s < e)).collect()
}

impl Serial {
    /// The dropped slots at the beginning of the object's use. Later dropped slots may be a phase of the run.
    pub fn initial(&self) -> Vec<bool> {
        initial(&self.dropped, &self.weights)
    }

    /// The dropped slots at the end of the object's use: results are collected, or the memory is released.
    pub fn last(&self) -> Vec<bool> {
        let counts = |s: &usize| !self.dropped[*s] && self.weights[*s] > 0.0;
        let end = (0..self.dropped.len()).rfind(counts).map_or(0, |s| s + 1);
        (0..self.dropped.len()).map(|s| s >= end).collect()
    }

    /// Whether the thread uses the object alone again after initialisation, long enough for a phase.
    pub fn is_phase_later(&self) -> bool {
        let initial = self.initial();
        let outside = |s: usize| if initial[s] { 0.0 } else { self.weights[s] };
        let rest: f64 = (0..initial.len()).map(outside).sum();
        let later = |s: usize| if self.dropped[s] { outside(s) } else { 0.0 };
        let longest = (0..initial.len()).scan(0.0, |sum, s| {
            *sum = if self.dropped[s] { *sum + later(s) } else { 0.0 };
            Some(*sum)
        });
        longest.fold(0.0, f64::max) >= SERIAL_PHASE * rest
    }
}

/// Nats by which the hypothesis "other threads use the object only in the other slots" describes the slots better than
/// "other threads use the object at a constant rate", less the price of naming the runs. Even a private object with
/// stray accesses has slots without them by chance.
fn contrast(slots: &Slots, dropped: &[bool], thread: usize) -> f64 {
    let (mut alone, mut shared) = ((0.0, 0.0), (0.0, 0.0));
    for (slot, drop) in dropped.iter().enumerate() {
        let side = if *drop { &mut alone } else { &mut shared };
        side.0 += slots.of_thread(slot, thread);
        side.1 += slots.totals[slot] - slots.of_thread(slot, thread);
    }
    let likelihood = |(own, others): (f64, f64)| {
        let term = |n: f64| if n > 0.0 { n * (n / (own + others)).ln() } else { 0.0 };
        term(own) + term(others)
    };
    let both = (alone.0 + shared.0, alone.1 + shared.1);
    let edges = 1 + dropped.windows(2).filter(|w| w[0] != w[1]).count();
    likelihood(alone) + likelihood(shared) - likelihood(both) - edges as f64 * (dropped.len() as f64).ln()
}

/// Whether the first used slot of the object is dropped.
fn starts_with(slots: &Slots, dropped: &[bool]) -> bool {
    (0..dropped.len()).find(|&s| slots.totals[s] > 0.0).is_some_and(|s| dropped[s])
}

#[cfg(test)]
#[path = "init_tests.rs"]
mod tests;
