// Truth: as quarters.c.
use std::alloc::{Layout, alloc_zeroed};
use std::hint::black_box;
use std::sync::Barrier;

const PAGES: usize = 64;
const WORDS: usize = PAGES * 512;
const ROUNDS: u64 = 7;
const THREADS: usize = 4;

fn main() {
    let layout = Layout::from_size_align(WORDS * 8, 4096).unwrap();
    let data = unsafe { std::slice::from_raw_parts_mut(alloc_zeroed(layout).cast::<u64>(), WORDS) };
    let all_are_there = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for quarter in data.chunks_mut(WORDS / THREADS) {
            scope.spawn(|| {
                all_are_there.wait();
                for round in 0..ROUNDS {
                    for word in quarter.iter_mut() {
                        *word += round + 1;
                    }
                    black_box(&quarter);
                }
            });
        }
    });
}
