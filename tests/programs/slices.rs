//! A Rust program: one large Vec, initialised by the main thread, worked on in chunks by scoped threads.
//!
//! Truth: `data` (Vec<u64>, 48 MiB): block, one contiguous chunk per thread.
//!
//! slices [iterations] [threads]
const WORDS: usize = 6 << 20;

fn work(part: &mut [u64], iterations: u64) {
    for _ in 0..iterations {
        let mut last = 1u64;
        for x in part.iter_mut() {
            *x = x.wrapping_mul(3).wrapping_add(last);
            last = *x >> 7;
        }
    }
}

fn main() {
    let arg = |n: usize, or: u64| std::env::args().nth(n).and_then(|a| a.parse().ok()).unwrap_or(or);
    let (iterations, threads) = (arg(1, 900), arg(2, 2).max(1) as usize);
    let mut data: Vec<u64> = (0..WORDS as u64).collect();
    let chunk = WORDS.div_ceil(threads);
    std::thread::scope(|s| {
        for part in data.chunks_mut(chunk) {
            s.spawn(move || work(part, iterations));
        }
    });
    println!("threads {threads}  checksum {:016x}", data.iter().fold(0u64, |a, x| a.wrapping_mul(31).wrapping_add(*x)));
}
