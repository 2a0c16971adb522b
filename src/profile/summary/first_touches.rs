//! The first touches of a profile, as runs of pages of its entries.

use super::entries::Layout;
use super::extrapolate;
use super::reuse;
use super::types::{Entry, PageRange, TouchRun};
use crate::profile::ranges::Ranges;
use crate::profile::records::Touch;

/// First touches of a profile.
pub(super) struct FirstTouches {
    /// While all page faults were recorded.
    pub seen: Vec<Touch>,
    /// While one in `period` was.
    pub sampled: Vec<Touch>,
    pub period: u32,
}

impl FirstTouches {
    /// Adds them to the entries.
    pub(super) fn assign(mut self, layout: &mut Layout) {
        let between = extrapolate::between(&self.sampled, self.period);
        let mut runs: Vec<Vec<Staged>> = vec![Vec::new(); layout.entries.len()];
        let mut sampled = vec![Vec::new(); layout.entries.len()];
        assign_touches(layout, &self.seen, |index, _, run| runs[index].push(run));
        assign_touches(layout, &between, |index, entry, (behind, run)| {
            let range = PageRange { instance: run.instance, low: run.page, high: run.page + run.pages };
            entry.details.extrapolated.between.push(range);
            runs[index].push((behind, run));
        });
        assign_touches(layout, &self.sampled, |index, _, (behind, run)| {
            sampled[index].push((run.instance, run.page));
            runs[index].push((behind, run));
        });
        let page_size = 1 << layout.page_shift;
        for ((entry, runs), mut sampled) in layout.entries.iter_mut().zip(runs).zip(sampled) {
            entry.touches = merged(runs);
            sampled.sort_unstable();
            entry.extend_sampled(&sampled, self.period, page_size);
            entry.details.extrapolated.between =
                extrapolate::joined(std::mem::take(&mut entry.details.extrapolated.between));
        }
        let times = || self.sampled.iter().map(|t| t.time_ns);
        let thinned = times().min().unwrap_or(u64::MAX)..=times().max().unwrap_or(0);
        self.seen.extend(between);
        self.seen.append(&mut self.sampled);
        reuse::inherit(layout, &self.seen, thinned);
    }
}

/// A run, and how many stages of its chain follow the one that was touched.
type Staged = (u32, TouchRun);

/// Calls `add` with a run of pages for each touch, and with its entry and that one's index.
fn assign_touches(layout: &mut Layout, touches: &[Touch], mut add: impl FnMut(usize, &mut Entry, Staged)) {
    for touch in touches {
        let Some(&whole) = layout.places.get(&touch.object) else { continue };
        let Some(behind) = layout.chains.pages_behind(touch.object) else { continue };
        let division = whole.division.and_then(|d| layout.divisions.get(d as usize));
        let places = division.map_or(std::slice::from_ref(&whole), |d| &d.places);
        for place in places {
            let instance = place.instance - layout.first_instance[place.entry as usize];
            let entry = &mut layout.entries[place.entry as usize];
            let (mut low, mut high) = (touch.addr >> layout.page_shift, u64::MAX);
            let mut first_page = place.first_page;
            if division.is_some() {
                let Some(part) = entry.seen.get(instance as usize) else { continue };
                first_page = part.base >> layout.page_shift;
                high = part.base.saturating_add(part.size).div_ceil(1 << layout.page_shift);
                high = high.min(low.saturating_add(touch.pages));
                low = low.max(first_page);
            }
            let Some(page) = low.checked_sub(first_page).and_then(|p| u32::try_from(p).ok()) else { continue };
            let pages = touch.pages.min(high.saturating_sub(low));
            let pages = u32::try_from(pages).unwrap_or(u32::MAX).min(u32::MAX - page);
            let run = TouchRun { instance, page, pages, thread: touch.thread, time_ns: touch.time_ns };
            add(place.entry as usize, entry, (behind, run));
        }
    }
}

/// Sorts runs, drops pages touched before (they were returned and touched again) and joins neighbours.
fn merged(runs: Vec<Staged>) -> Vec<TouchRun> {
    let mut runs = earliest(runs);
    runs.sort_unstable_by_key(|r| (r.instance, r.page));
    let mut out: Vec<TouchRun> = Vec::with_capacity(runs.len());
    for run in runs {
        match out.last_mut() {
            Some(last)
                if (last.instance, last.page + last.pages, last.thread) == (run.instance, run.page, run.thread) =>
            {
                last.pages += run.pages;
                last.time_ns = last.time_ns.min(run.time_ns);
            }
            _ => out.push(run),
        }
    }
    out
}

/// The parts of runs that no earlier run of the same stage covers, and no run of a later stage: there realloc gave the
/// array new pages.
fn earliest(mut runs: Vec<Staged>) -> Vec<TouchRun> {
    runs.retain(|(_, r)| r.pages > 0);
    runs.sort_unstable_by_key(|(behind, r)| (*behind, r.time_ns, r.instance, r.page, r.thread));
    // Pages of all instances, each with its instance in the upper half.
    let mut covered = Ranges::default();
    let mut out = Vec::with_capacity(runs.len());
    for (_, run) in runs {
        let first = u64::from(run.instance) << 32 | u64::from(run.page);
        let new = covered.fill(first, first + u64::from(run.pages), ());
        out.extend(new.into_iter().map(|(low, high)| TouchRun { page: low as u32, pages: (high - low) as u32, ..run }));
    }
    out
}
