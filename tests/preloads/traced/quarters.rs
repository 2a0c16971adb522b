// Truth: as quarters.c.
use std::hint::black_box;
use std::sync::Barrier;

const PAGES: usize = 64;
const WORDS: usize = PAGES * 512;
const ROUNDS: u64 = 7;
const THREADS: usize = 4;

unsafe extern "C" {
    fn aligned_alloc(alignment: usize, bytes: usize) -> *mut u64;
}

fn main() {
    // Rust's own would write the zeroes.
    let data = unsafe { std::slice::from_raw_parts_mut(aligned_alloc(4096, WORDS * 8), WORDS) };
    let all_are_there = &Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for quarter in data.chunks_mut(WORDS / THREADS) {
            scope.spawn(move || {
                all_are_there.wait();
                for round in 0..ROUNDS {
                    for word in quarter.iter_mut() {
                        *word += round + 1;
                    }
                    black_box(quarter.as_mut_ptr());
                }
            });
        }
    });
}
