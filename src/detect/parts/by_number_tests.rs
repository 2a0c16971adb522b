use super::*;
use crate::detect::points::uniform;
use crate::detect::{ObjectView, PageAccess, Row, Sampling};

const PAGE: u64 = 4096;
const PAGES: u32 = 600;
const THREADS: u32 = 8;

/// How the threads use an instance.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    Block,
    /// In this period.
    Cyclic(u32),
    Random,
    One(u32),
}

fn below(state: &mut u64, n: u32) -> u32 {
    (uniform(state) * f64::from(n)) as u32
}

/// Instances of a call site with `samples` each; `noise` is the share of the accesses by any thread.
fn instances(shapes: &[Shape], samples: u32, noise: f64, seed: u64) -> ObjectView {
    let mut state = 0x2545_F491_4F6C_DD1D ^ (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut accesses = Vec::new();
    for (instance, shape) in (0..).zip(shapes) {
        for _ in 0..samples {
            let page = below(&mut state, PAGES);
            let user = match shape {
                Shape::Block => page * THREADS / PAGES,
                Shape::Cyclic(period) => page % period * THREADS / period,
                Shape::Random => below(&mut state, THREADS),
                Shape::One(thread) => *thread,
            };
            let thread = if uniform(&mut state) < noise { below(&mut state, THREADS) } else { user };
            let writes = if uniform(&mut state) < 0.3 { 1.0 } else { 0.0 };
            let slot = 2 + below(&mut state, 60) as u16;
            accesses.push(PageAccess { instance, page, thread, slot, reads: 1.0 - writes, writes });
        }
    }
    ObjectView {
        size: u64::from(PAGES) * PAGE,
        skew: 0,
        page_size: PAGE,
        threads: THREADS,
        others: 0,
        instances: shapes.len() as u32,
        cost_share: 0.5,
        hot: true,
        accesses,
        rows: vec![Row { size: u64::from(PAGES) * PAGE, allocator: Some(0) }; shapes.len()],
        filter: AccessFilter::All,
        sampling: Sampling::default(),
        by_code: Vec::new(),
    }
}

/// The groups with several sets of samples.
fn check(shapes: &[Shape], samples: u32, noise: f64, wanted: Option<&[&[u32]]>) {
    for seed in 0..3 {
        let found = groups(&Line::of(&instances(shapes, samples, noise, seed)), shapes.len() as u32);
        let wanted = wanted.map(|groups| groups.iter().map(|g| g.to_vec()).collect::<Vec<_>>());
        assert_eq!(found, wanted, "seed {seed}, {samples} samples, noise {noise}: {shapes:?}");
    }
}

#[test]
fn instances_that_are_used_in_different_ways_are_groups() {
    use Shape::*;
    for noise in [0.0, 0.1, 0.3] {
        check(&[Block, Random], 1_500, noise, Some(&[&[0], &[1]]));
        check(&[Random, Cyclic(64)], 1_500, noise, Some(&[&[0], &[1]]));
        check(&[Block, Random, Block, One(3)], 1_500, noise, Some(&[&[0, 2], &[1], &[3]]));
    }
}

#[test]
fn instances_that_are_used_alike_are_one_group() {
    use Shape::*;
    for noise in [0.0, 0.1, 0.3] {
        for shape in [Block, Random, Cyclic(64)] {
            check(&[shape; 2], 1_500, noise, None);
            check(&[shape; 7], 400, noise, None);
            check(&[shape; 40], 60, noise, None);
        }
    }
}

/// A loop allocates two matrices again in each of its steps.
#[test]
fn many_instances_are_groups_where_their_uses_take_turns() {
    use Shape::*;
    let two: Vec<Shape> = [Block, Random].into_iter().cycle().take(60).collect();
    let evens: Vec<u32> = (0..60).step_by(2).collect();
    let odds: Vec<u32> = (1..60).step_by(2).collect();
    check(&two, 100, 0.1, Some(&[&evens, &odds]));
    let three: Vec<Shape> = [Random, Random, Cyclic(64)].into_iter().cycle().take(31).collect();
    let last: Vec<u32> = (2..31).step_by(3).collect();
    let others: Vec<u32> = (0..31).filter(|i| i % 3 != 2).collect();
    check(&three, 150, 0.1, Some(&[&others, &last]));
}

#[test]
fn few_samples_tell_nothing() {
    use Shape::*;
    check(&[Block, Random], 30, 0.1, None);
}
