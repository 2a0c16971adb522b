//! First touches of the time in which only some page faults were recorded.
//!
//! A fault that was sampled stands for [`EventCounts::fault_period`] faults of its thread on its CPU. Two kinds of
//! pages are concluded from them, and both are said to be extrapolated:
//!
//! - Between two successive faults of a thread that lie about as many pages apart as there were faults between them,
//!   the thread has touched the pages one after the other. Each of them has a known first toucher.
//! - Other pages near a sampled one were touched by an unknown thread. They count for the thread of the sampled page,
//!   so that the shares of first touchers are those of the faults; which of them a thread touched is not known, so no
//!   access is held to be to a page of another thread or its own for them.
//!
//! [`EventCounts::fault_period`]: crate::profile::records::EventCounts::fault_period

use super::types::{Entry, PageRange, TouchRun};
use crate::profile::PAGE;
use crate::profile::records::{ObjectKind, Touch};

/// Part of the faults between two sampled ones that may have been elsewhere (stack, other objects) or on another CPU
/// when a thread touches pages in order.
const ELSEWHERE: f64 = 0.125;

/// First touches of the pages between successive sampled faults of a thread.
pub(super) fn between(sampled: &[Touch], period: u32) -> Vec<Touch> {
    let mut order: Vec<&Touch> = sampled.iter().collect();
    order.sort_by_key(|t| (t.thread, t.time_ns));
    let pairs = order.windows(2).filter(|w| w[0].thread == w[1].thread && w[0].object == w[1].object);
    let most = u64::from(period);
    let least = (f64::from(period) * (1.0 - ELSEWHERE)).ceil() as u64;
    pairs
        .filter_map(|w| {
            let (low, high) = (w[0].addr.min(w[1].addr), w[0].addr.max(w[1].addr));
            let apart = (high - low) / PAGE;
            // The earlier of two touches of a page counts; an object that was touched at the same place again has none.
            let fits = (least.max(2)..=most).contains(&apart);
            fits.then(|| Touch { addr: low + PAGE, pages: apart - 1, ..*w[0] })
        })
        .collect()
}

impl Entry {
    /// Extends the runs at the pages in `sampled` over pages without a first touch: halfway to the next one there,
    /// up to any other, and no further than half of the faults that each stands for. Runs ascend, and do so after it.
    pub(super) fn extend_sampled(&mut self, sampled: &[(u32, u32)], period: u32, page_size: u64) {
        let contiguous = [ObjectKind::Heap, ObjectKind::Global, ObjectKind::Mapping, ObjectKind::Section];
        if sampled.is_empty() || !contiguous.contains(&self.kind) {
            return;
        }
        let reach = period / 2;
        let known = std::mem::take(&mut self.touches);
        let is_sampled = |instance, page| sampled.binary_search(&(instance, page)).is_ok();
        let begins = |run: &TouchRun| is_sampled(run.instance, run.page);
        let ends = |run: &TouchRun| is_sampled(run.instance, run.page + run.pages - 1);
        for (i, run) in known.iter().enumerate() {
            let end = run.page + run.pages;
            let before = i.checked_sub(1).and_then(|i| known.get(i)).filter(|o| o.instance == run.instance);
            let after = known.get(i + 1).filter(|o| o.instance == run.instance);
            let gap = run.page.saturating_sub(before.map_or(0, |o| o.page + o.pages));
            let down = if before.is_some_and(ends) { gap / 2 } else { gap };
            let down = if begins(run) { down.min(reach) } else { 0 };
            let gap = after.map_or(self.pages_of(run.instance, page_size), |o| o.page).saturating_sub(end);
            let up = if after.is_some_and(begins) { gap - gap / 2 } else { gap };
            let up = if ends(run) { up.min(reach) } else { 0 };
            let around = [(run.page - down, run.page), (end, end + up)].into_iter().filter(|(low, high)| low < high);
            let around = around.map(|(low, high)| PageRange { instance: run.instance, low, high });
            self.details.extrapolated.around.extend(around);
            self.touches.push(TouchRun { page: run.page - down, pages: run.pages + down + up, ..*run });
        }
    }

    fn pages_of(&self, instance: u32, page_size: u64) -> u32 {
        let Some(seen) = self.seen.get(instance as usize) else { return 0 };
        let skew = seen.base % page_size;
        u32::try_from((skew + seen.size).div_ceil(page_size)).unwrap_or(u32::MAX)
    }

    /// Share of the pages with a first toucher of which that is extrapolated, 0 to 1.
    pub fn extrapolated_touches(&self) -> f64 {
        let all: u64 = self.touches.iter().map(|run| u64::from(run.pages)).sum();
        let of = |ranges: &[PageRange]| ranges.iter().map(|r| u64::from(r.high - r.low)).sum::<u64>();
        let concluded = of(&self.details.extrapolated.between) + of(&self.details.extrapolated.around);
        super::ratio(concluded.min(all), all)
    }
}

/// The pages in `ranges`, ascending and disjoint.
pub(super) fn joined(mut ranges: Vec<PageRange>) -> Vec<PageRange> {
    ranges.sort_unstable_by_key(|r| (r.instance, r.low));
    let mut out: Vec<PageRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut() {
            Some(last) if last.instance == range.instance && range.low <= last.high => {
                last.high = last.high.max(range.high);
            }
            _ => out.push(range),
        }
    }
    out
}

#[cfg(test)]
#[path = "extrapolate_tests.rs"]
mod tests;
