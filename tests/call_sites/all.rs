//! Call sites of Rust, compiled with both manglings.
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

#[inline(never)]
fn exercise(cells: &mut [f64]) {
    for _ in 0..1 {
        for cell in cells.iter_mut().step_by(8) {
            *cell = std::hint::black_box(*cell * 0.5 + 1.0);
        }
    }
}

fn main() {
    use solver::Fill;
    const MIB: usize = 1 << 20;
    exercise(&mut plain(MIB));
    exercise(&mut solver::Grid::new(1.0, 2 * MIB).0);
    exercise(&mut <solver::Grid<u8> as Fill>::fill(3 * MIB));
    println!("ok");
}
