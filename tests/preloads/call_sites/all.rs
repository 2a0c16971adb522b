//! Call sites of Rust, compiled with both manglings.
//!
//! `app [reads and writes per thread and object]`: four threads share each object after the main thread initialised it.

mod solver {
    pub struct Grid<T>(pub Vec<T>);

    pub trait Fill {
        fn fill(n: usize) -> Vec<f64>;
    }

    impl<T: Clone> Grid<T> {
        #[inline(never)]
        pub fn new(value: T, n: usize) -> Grid<T> {
            let cells = std::hint::black_box(vec![value; n / size_of::<T>()]);
            Grid(cells)
        }
    }

    impl<T> Fill for Grid<T> {
        #[inline(never)]
        fn fill(n: usize) -> Vec<f64> {
            std::hint::black_box(vec![2.0; n / 8])
        }
    }
}

#[inline(never)]
fn plain(n: usize) -> Vec<f64> {
    std::hint::black_box(vec![1.0; n / 8])
}

#[cfg(padding)]
#[inline(never)]
fn padding(accesses: usize) -> usize {
    std::hint::black_box(accesses * 3)
}

fn exercise(part: &mut [f64], accesses: usize) {
    for _ in 0..accesses / (part.len() / 8) {
        for cell in part.iter_mut().step_by(8) {
            *cell = std::hint::black_box(*cell * 0.5 + 1.0);
        }
    }
}

fn parts(cells: &mut [f64]) -> std::slice::ChunksMut<'_, f64> {
    cells.chunks_mut(cells.len() / 4)
}

fn main() {
    use solver::Fill;
    const MIB: usize = 1 << 20;
    const TURNS: usize = 32;
    let accesses = std::env::args().nth(1).map_or(0, |text| text.parse().unwrap());
    #[cfg(padding)]
    padding(accesses);
    let mut a = plain(4 * MIB);
    let mut b = solver::Grid::new(1.0, 5 * MIB).0;
    let mut c = <solver::Grid<u8> as Fill>::fill(6 * MIB);
    std::thread::scope(|scope| {
        for ((a, b), c) in parts(&mut a).zip(parts(&mut b)).zip(parts(&mut c)) {
            // In turns: samples of one object that were all taken at once would count little.
            scope.spawn(move || {
                for _ in 0..TURNS {
                    [&mut *a, b, c].into_iter().for_each(|part| exercise(part, accesses / TURNS));
                }
            });
        }
    });
    println!("ok");
}
