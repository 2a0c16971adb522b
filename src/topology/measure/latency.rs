//! Latency of memory: a chain of dependent loads through all lines of a buffer, in an order that prefetchers do not
//! predict.
//!
//! Line x points to line (a x + c) mod n, n a power of two. With a = 1 (mod 4) and c odd this is one cycle through all
//! lines (Hull and Dobell 1962): every line is visited once before any is visited again, and each line's successor can
//! be computed alone, so threads can write parts of the chain.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// 8-byte words of a cache line of 64 bytes.
pub const LINE: usize = 8;
/// Multiplier a: Knuth's of MMIX, which is 1 mod 4.
const A: u64 = 6_364_136_223_846_793_005;
/// Increment c: Knuth's of MMIX, which is odd.
const C: u64 = 1_442_695_040_888_963_407;
/// Loads between two readings of the clock: 2 ms at 100 ns each.
const BLOCK: u32 = 20_000;
/// Smallest number of timed blocks, however long they take.
const LEAST_BLOCKS: u32 = 3;

/// Lines of the longest chain that fits in `words` words.
pub fn lines(words: usize) -> usize {
    1 << (words / LINE).max(1).ilog2()
}

/// Writes into `part`, which begins with line `first`, its lines of a chain of `lines`. Lines behind the chain are
/// written, too, so that all pages are resident.
pub fn fill(part: &mut [u64], first: usize, lines: usize) {
    for (index, line) in part.chunks_mut(LINE).enumerate() {
        let next = ((first + index) as u64).wrapping_mul(A).wrapping_add(C) & (lines as u64 - 1);
        line[0] = next * LINE as u64;
    }
}

/// Nanoseconds of one load of the chain: the minimum over the blocks that fit into `time`, because other work on the
/// machine can only make a block slower.
pub fn latency_ns(words: &[u64], time: Duration) -> f64 {
    let start = Instant::now();
    let mut at = 0usize;
    let mut best = f64::INFINITY;
    let mut blocks = 0;
    // The first block is not counted: it fills the caches of the page tables and raises the clock frequency.
    while blocks <= LEAST_BLOCKS || start.elapsed() < time {
        let begun = Instant::now();
        for _ in 0..BLOCK {
            at = words[at] as usize;
        }
        let ns = begun.elapsed().as_nanos() as f64 / f64::from(BLOCK);
        black_box(at);
        if blocks > 0 {
            best = best.min(ns);
        }
        blocks += 1;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_visits_every_line_once() {
        for bytes in [64, 4096, 100_000, 1 << 20] {
            let mut words = vec![0u64; bytes / 8];
            let n = lines(words.len());
            let half = (n / 2).max(1) * LINE;
            for (part, words) in words.chunks_mut(half).enumerate() {
                fill(words, part * half / LINE, n);
            }
            let mut at = 0;
            let mut steps = 0;
            loop {
                at = words[at] as usize;
                steps += 1;
                if at == 0 || steps > n {
                    break;
                }
            }
            assert_eq!(steps, n, "{bytes} bytes");
        }
    }
}
