//! The kernel's passes over the memory of a process, with which its NUMA balancing learns who uses a page.

use crate::profile::summary::Entry;

/// Time before the first pass: `numa_balancing_scan_delay_ms` (this and the next three: defaults in
/// kernel/sched/fair.c, described in Documentation/admin-guide/sysctl/kernel.rst).
const SCAN_DELAY_NS: f64 = 1e9;
/// Shortest time of a pass: `numa_balancing_scan_period_min_ms`, divided by the windows and multiplied by them again in
/// `task_scan_min`.
const SCAN_PERIOD_MIN_NS: f64 = 1e9;
/// Longest: `numa_balancing_scan_period_max_ms`.
const SCAN_PERIOD_MAX_NS: f64 = 60e9;
/// Bytes that are looked at in one go: `numa_balancing_scan_size_mb`.
const SCAN_SIZE: f64 = (256 << 20) as f64;
/// Most bytes a second (MAX_SCAN_WINDOW in kernel/sched/fair.c).
const MAX_SCAN_WINDOW: f64 = (2560u64 << 20) as f64;
/// Parts of a slice for which the state of the pages is computed: pages move within seconds, and a slice may last
/// longer.
const STEPS: usize = 8;

/// The passes of the kernel over the memory of the run.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::advise) struct Scan {
    /// By slice: passes since the start of the run, at the middle of each part.
    passes: Vec<[f64; STEPS]>,
}

impl Scan {
    /// `bytes` are scanned; `threads` are the threads whose faults are counted together and `shared` is the part of the
    /// faults before which another thread used the page. `walls_ns` are the lengths of the slices.
    pub fn new(bytes: f64, threads: u32, shared: f64, walls_ns: impl Iterator<Item = f64>) -> Scan {
        let windows = (bytes / SCAN_SIZE).max(1.0);
        let least = SCAN_PERIOD_MIN_NS.max(windows * SCAN_SIZE / MAX_SCAN_WINDOW * 1e9);
        // `task_scan_start`: the period of threads that share memory grows with their number and what they share.
        let period = (least * (f64::from(threads) * shared).max(1.0)).min(SCAN_PERIOD_MAX_NS.max(least));
        let mut now = 0.0;
        let passes = walls_ns.map(|wall| {
            let from = now;
            now += wall;
            let at = |step: usize| from + wall * (step as f64 + 0.5) / STEPS as f64;
            std::array::from_fn(|step| ((at(step) - SCAN_DELAY_NS) / period).max(0.0))
        });
        Scan { passes: passes.collect() }
    }

    /// Part of a slice's time in which a page is still where it was touched first; `again` is the probability that two
    /// faults in a row are of one node.
    pub fn stays(&self, slice: usize, again: f64) -> f64 {
        let Some(passes) = self.passes.get(slice) else { return 1.0 };
        let stays = |passes: &f64| (1.0 - again).powi(*passes as i32) * (1.0 - again * passes.fract());
        passes.iter().map(stays).sum::<f64>() / STEPS as f64
    }
}

/// Part of the accesses to pages before which another thread used the page, from the cells of entries; pairs of
/// neighbouring cells are taken for uses of one page.
pub(super) fn shared_part<'e>(entries: impl Iterator<Item = &'e Entry>) -> f64 {
    let (mut all, mut shared) = (0.0, 0.0);
    for entry in entries.filter(|e| !e.cells.is_empty()) {
        let pairs = entry.cells.windows(2).filter(|p| p[0].instance == p[1].instance && p[1].page - p[0].page <= 1);
        let (n, other) =
            pairs.fold((0.0, 0.0), |(n, o), p| (n + 1.0, o + f64::from(u8::from(p[0].thread != p[1].thread))));
        let pages = entry.size as f64 * entry.instances.max(1) as f64;
        all += pages;
        shared += if n > 0.0 { pages * other / n } else { 0.0 };
    }
    if all > 0.0 { shared / all } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 GiB is 4 windows of 256 MiB: one every 250 ms.
    #[test]
    fn passes_of_the_documented_rates() {
        let passes = |bytes: f64, threads, shared, seconds: f64| {
            let scan = Scan::new(bytes, threads, shared, [seconds * 1e9].into_iter());
            scan.passes[0][STEPS - 1]
        };
        let at = |seconds: f64| seconds * (1.0 - 0.5 / STEPS as f64);
        let gib = f64::from(1u32 << 30);
        assert_eq!(passes(gib, 8, 0.0, 0.9), 0.0, "not before a second is over");
        assert!((passes(gib, 8, 0.0, 16.0) - (at(16.0) - 1.0)).abs() < 1e-9, "a pass a second");
        assert!((passes(25.0 * gib, 8, 0.0, 16.0) - (at(16.0) - 1.0) / 10.0).abs() < 1e-9, "at most 2,560 MiB/s");
        assert!((passes(gib, 8, 0.5, 16.0) - (at(16.0) - 1.0) / 4.0).abs() < 1e-9, "eight threads share half");
        assert!((passes(gib, 900, 1.0, 61.0) - (at(61.0) - 1.0) / 60.0).abs() < 1e-9, "at least one a minute");
    }

    #[test]
    fn a_page_of_one_user_moves_in_a_pass_and_a_shared_one_in_several() {
        let scan = |seconds: f64| Scan::new(1.0, 1, 0.0, [1.0, seconds].map(|s| s * 1e9).into_iter());
        assert_eq!(scan(100.0).stays(0, 1.0), 1.0);
        assert!(
            (scan(1.0).stays(1, 1.0) - 0.5).abs() < 1e-9,
            "in the first pass the kernel comes by half of the pages"
        );
        assert!(scan(100.0).stays(1, 1.0) < 0.01);
        // Four users: 4 / 16 a pass, so four passes in the mean.
        assert!((scan(4000.0).stays(1, 0.25) * 4000.0 - 3.5).abs() < 3.6);
        assert!(scan(4000.0).stays(1, 0.25) > 0.0);
    }
}
