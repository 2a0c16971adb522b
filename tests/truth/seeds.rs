//! Work for each of many seeds, on all cores.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs `one` for each seed, in ascending order but several at once. A panic of one of them fails the caller when all
/// threads have ended.
pub fn on_all_cores(seeds: Range<u64>, one: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(seeds.start);
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            one(seed);
        }
    };
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
}
