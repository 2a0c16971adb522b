//! Bandwidth of memory: every CPU of a node reads its own part of a buffer repeatedly for a given time.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::kernel;

/// Words between two readings of the clock: 1 MiB.
const CHUNK: usize = 1 << 17;
/// Number of independent sums, so that loads and not additions bound the speed.
const LANES: usize = 16;

/// Bytes a second that one thread on each of `cpus`, all together, read from `words` during `time`. Threads that cannot
/// be bound to their CPU are not counted; `None` when no thread can be bound.
pub fn bandwidth(words: &[u64], cpus: &[u32], time: Duration) -> Option<f64> {
    let go = AtomicBool::new(false);
    let part = (words.len() / cpus.len().max(1)).max(LANES);
    let read: Vec<Option<(u64, Duration)>> = std::thread::scope(|scope| {
        let reader = |(index, cpu): (usize, &u32)| {
            let (cpu, go) = (*cpu, &go);
            let mine = words.chunks(part).nth(index).unwrap_or(&[]);
            std::thread::Builder::new().spawn_scoped(scope, move || {
                let bound = kernel::run_on(&[cpu]).is_ok();
                // Acquire pairs with the Release store of `go`, which follows the start of all threads.
                while !go.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                    std::thread::yield_now();
                }
                bound.then(|| read_for(mine, time))
            })
        };
        let threads: Vec<_> = cpus.iter().enumerate().map(reader).collect();
        go.store(true, Ordering::Release);
        threads.into_iter().map(|t| t.ok().and_then(|t| t.join().ok()).flatten()).collect()
    });
    let read: Vec<(u64, Duration)> = read.into_iter().flatten().collect();
    let longest = read.iter().map(|(_, t)| *t).max()?.as_secs_f64();
    let bytes: u64 = read.iter().map(|(bytes, _)| bytes).sum();
    (longest > 0.0 && bytes > 0).then(|| bytes as f64 / longest)
}

fn read_for(words: &[u64], time: Duration) -> (u64, Duration) {
    let start = Instant::now();
    let mut words_read = 0u64;
    while !words.is_empty() {
        for chunk in words.chunks(CHUNK) {
            black_box(sum(chunk));
            words_read += chunk.len() as u64;
            if start.elapsed() >= time {
                return (8 * words_read, start.elapsed());
            }
        }
    }
    (0, start.elapsed())
}

fn sum(words: &[u64]) -> u64 {
    let mut lanes = [0u64; LANES];
    for group in words.chunks_exact(LANES) {
        for (lane, word) in lanes.iter_mut().zip(group) {
            *lane = lane.wrapping_add(*word);
        }
    }
    lanes.iter().fold(0, |a, b| a.wrapping_add(*b))
}
