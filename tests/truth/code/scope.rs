//! Scoped threads, made anew for every sweep, that halve a grid along its rows and along its columns.
//!
//! Truth: `along_rows` gives each thread one contiguous part (block); `along_columns` splits every row of 32 KiB over
//! the threads (block-cyclic). Initialised by the main thread. Arguments: steps, threads.

use std::sync::Barrier;

const ROWS: usize = 512;
const COLUMNS: usize = 4096;

struct Grid(*mut f64);
// SAFETY: the threads use disjoint parts of the grid between two barriers.
unsafe impl Sync for Grid {}

fn along_rows(grid: &Grid, rows: std::ops::Range<usize>) {
    // SAFETY: the caller's thread alone uses these rows.
    let part = unsafe { std::slice::from_raw_parts_mut(grid.0.add(rows.start * COLUMNS), rows.len() * COLUMNS) };
    part.iter_mut().for_each(|x| *x = *x * 0.999 + 0.001);
}

fn along_columns(grid: &Grid, columns: std::ops::Range<usize>) {
    for row in 0..ROWS {
        // SAFETY: the caller's thread alone uses these columns.
        let at = unsafe { grid.0.add(row * COLUMNS + columns.start) };
        let part = unsafe { std::slice::from_raw_parts_mut(at, columns.len()) };
        part.iter_mut().for_each(|x| *x = *x * 1.001 - 0.001);
    }
}

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|a| a.parse::<usize>().ok());
    let (steps, threads) = (args.next().unwrap_or(50), args.next().unwrap_or(4));
    let mut values: Vec<f64> = (0..ROWS * COLUMNS).map(|i| (i % 11) as f64).collect();
    let grid = Grid(values.as_mut_ptr());
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        for t in 0..threads {
            let (grid, barrier) = (&grid, &barrier);
            scope.spawn(move || {
                for _ in 0..steps {
                    along_rows(grid, ROWS * t / threads..ROWS * (t + 1) / threads);
                    barrier.wait();
                    along_columns(grid, COLUMNS * t / threads..COLUMNS * (t + 1) / threads);
                    barrier.wait();
                }
            });
        }
    });
    println!("{:.3}", values[values.len() - 1]);
}
