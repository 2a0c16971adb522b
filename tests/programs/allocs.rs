//! Allocation-heavy: every thread builds, reads and drops maps of strings, again and again.
//!
//! Truth: no large object; the small allocations of each thread are its own.
//!
//! allocs [iterations] [threads]
use std::collections::BTreeMap;

fn work(thread: u64, iterations: u64) -> u64 {
    let mut sum = 0u64;
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ thread;
    for _ in 0..iterations {
        let mut map: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for i in 0..2000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = format!("key-{:06}", (state >> 33) % 1500);
            map.entry(key).or_default().push(i);
        }
        for (k, v) in &map {
            sum = sum.wrapping_mul(31).wrapping_add(k.len() as u64 + v.iter().sum::<u64>());
        }
    }
    sum
}

fn main() {
    let arg = |n: usize, or: u64| std::env::args().nth(n).and_then(|a| a.parse().ok()).unwrap_or(or);
    let (iterations, threads) = (arg(1, 5000), arg(2, 2));
    let sums: Vec<u64> = std::thread::scope(|s| {
        let team: Vec<_> = (0..threads).map(|t| s.spawn(move || work(t, iterations))).collect();
        team.into_iter().map(|t| t.join().unwrap_or(0)).collect()
    });
    println!("threads {threads}  checksum {:016x}", sums.iter().fold(0u64, |a, s| a.wrapping_mul(31).wrapping_add(*s)));
}
