use super::super::line::Line;
use super::part_boundaries;
use crate::detect::points::uniform;
use crate::detect::{CodeAccesses, ObjectView, PageAccess, Sampling};
use crate::profile::summary::AccessFilter;

const PAGE: u64 = 4096;
const THREADS: u32 = 8;

/// How the threads use an array.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Block,
    /// Slices in this order: the thread of slice i is (5 i + 3) mod 8.
    Mixed,
    Cyclic(u32),
    /// A row of tiles: this thread and the next one have half of each 8 pages.
    Tiles(u32),
    /// A row of tiles: these two threads have half of each 8 pages.
    TilesOf(u32, u32),
    /// Columns of a matrix, each of two pages: the first one of this thread, the second one of the other. A page begins
    /// inside a column, so that one access in ten of a page is by the thread of the page before.
    Columns(u32, u32),
    Random,
    /// All read, nobody writes.
    Shared,
    One(u32),
    /// Of the pages at the end, few accesses.
    Triangle,
    /// Each page has a thread of its own.
    Irregular,
}

/// An array: its pages, samples per page, and the number of the function that uses it.
#[derive(Debug, Clone, Copy)]
struct Array {
    shape: Shape,
    pages: u32,
    density: f64,
    function: usize,
}

fn array(shape: Shape, pages: u32) -> Array {
    Array { shape, pages, density: 12.0, function: 0 }
}

struct Dice(u64);

impl Dice {
    fn unit(&mut self) -> f64 {
        uniform(&mut self.0)
    }

    fn below(&mut self, n: u32) -> u32 {
        (self.unit() * f64::from(n)) as u32
    }
}

fn user(a: &Array, page: u32, dice: &mut Dice) -> u32 {
    let slice = |at: u32, of: u32| (u64::from(at) * u64::from(THREADS) / u64::from(of)) as u32;
    match a.shape {
        Shape::Block | Shape::Triangle => slice(page, a.pages),
        Shape::Mixed => (slice(page, a.pages) * 5 + 3) % THREADS,
        Shape::Cyclic(period) => slice(page % period, period),
        Shape::Tiles(first) => first + page % 8 / 4,
        Shape::TilesOf(upper, lower) => {
            if page % 8 < 4 {
                upper
            } else {
                lower
            }
        }
        Shape::Columns(upper, lower) => {
            let before = dice.unit() < 0.1;
            [upper, lower][(page as usize + usize::from(before)) % 2]
        }
        Shape::One(thread) => thread,
        Shape::Irregular => Dice(u64::from(page + 1).wrapping_mul(0xD134_2543_DE82_EF95)).below(THREADS),
        Shape::Random | Shape::Shared => dice.below(THREADS),
    }
}

/// The arrays one behind the other in one block; `noise` is the share of the accesses by any thread.
fn block(arrays: &[Array], noise: f64, seed: u64) -> ObjectView {
    let mut dice = Dice(0x2545_F491_4F6C_DD1D ^ (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let functions = arrays.iter().map(|a| a.function + 1).max().unwrap_or(1);
    let mut by_code = vec![CodeAccesses::default(); functions];
    let mut all = Vec::new();
    let mut first = 0;
    for a in arrays {
        for _ in 0..(f64::from(a.pages) * a.density) as u32 {
            let mut page = dice.below(a.pages);
            if matches!(a.shape, Shape::Triangle) {
                page = page.min(dice.below(a.pages));
            }
            let thread = if dice.unit() < noise { dice.below(THREADS) } else { user(a, page, &mut dice) };
            let writes = if matches!(a.shape, Shape::Shared) || dice.unit() < 0.7 { 0.0 } else { 1.0 };
            let slot = 2 + dice.below(60) as u16;
            let access = PageAccess { instance: 0, page: first + page, thread, slot, reads: 1.0 - writes, writes };
            by_code[a.function].accesses.push(access);
            all.push(access);
        }
        first += a.pages;
    }
    by_code.iter_mut().enumerate().for_each(|(n, c)| c.function = format!("f{n}"));
    ObjectView {
        size: u64::from(first) * PAGE,
        skew: 0,
        page_size: PAGE,
        threads: THREADS,
        others: 0,
        instances: 1,
        cost_share: 0.5,
        hot: true,
        accesses: all,
        rows: Vec::new(),
        filter: AccessFilter::All,
        sampling: Sampling::default(),
        by_code: if functions > 1 { by_code } else { Vec::new() },
    }
}

/// The boundaries between the arrays.
fn planted(arrays: &[Array]) -> Vec<u32> {
    let ends = arrays.iter().scan(0, |at, a| {
        *at += a.pages;
        Some(*at)
    });
    let mut ends: Vec<u32> = ends.collect();
    ends.pop();
    ends
}

/// Checks the boundaries to the page, with several sets of samples.
fn check(arrays: &[Array], noise: f64) {
    for seed in 0..3 {
        let found = part_boundaries(&block(arrays, noise, seed));
        assert_eq!(found, planted(arrays), "seed {seed}, noise {noise}: {arrays:?}");
    }
}

#[test]
fn arrays_of_different_classes_are_parts() {
    use Shape::*;
    for noise in [0.0, 0.1] {
        check(&[array(Block, 800), array(Random, 500)], noise);
        check(&[array(Shared, 700), array(Block, 403)], noise);
        check(&[array(Random, 640), array(Shared, 512)], noise);
        check(&[array(One(3), 300), array(Random, 700)], noise);
        check(&[array(Block, 800), array(Cyclic(64), 1001)], noise);
        check(&[array(Block, 1024), array(Shared, 2048), array(Cyclic(128), 1536)], noise);
    }
}

#[test]
fn arrays_of_one_class_and_other_sizes_are_parts() {
    use Shape::*;
    check(&[array(Block, 800), array(Block, 500)], 0.05);
    check(&[array(Block, 1600), array(Block, 900)], 0.0);
}

/// No cut of these pays alone: both sides of each still hold several arrays.
#[test]
fn arrays_that_are_told_apart_only_together_are_parts() {
    use Shape::*;
    check(&[array(Block, 400), array(Cyclic(80), 800), array(Block, 160), array(Random, 48), array(Block, 880)], 0.1);
}

/// So few samples that the page of the boundary is one of many: only one that begins a period makes both parts local.
#[test]
fn rows_of_tiles_are_parts_that_begin_with_a_period() {
    for (rows, pages) in [(2, 16_384), (2, 10_000)] {
        let arrays: Vec<Array> =
            (0..rows).map(|row| Array { density: 0.075, ..array(Shape::Tiles(2 * row), pages) }).collect();
        for seed in 0..3 {
            let found = part_boundaries(&block(&arrays, 0.02, seed));
            let planted = planted(&arrays);
            let near = |(at, planted): (&u32, &u32)| at % 8 == 0 && at.abs_diff(*planted) <= 128;
            let all = found.len() == planted.len() && found.iter().zip(&planted).all(near);
            assert!(all, "seed {seed}: {found:?}, planted {planted:?}");
        }
    }
}

/// Four rows: any single cut leaves several rows on one side, of which the search finds no short description.
#[test]
fn rows_that_no_single_cut_tells_apart_are_parts() {
    let row = |row: u32| Array { density: 0.078, ..array(Shape::TilesOf(row, row + 4), 8192) };
    let arrays: Vec<Array> = (0..4).map(row).collect();
    for seed in 0..8 {
        let found = part_boundaries(&block(&arrays, 0.07, seed));
        let planted = planted(&arrays);
        let near = |(at, planted): (&u32, &u32)| at.abs_diff(*planted) <= 128;
        let all = found.len() == planted.len() && found.iter().zip(&planted).all(near);
        assert!(all, "seed {seed}: {found:?}, planted {planted:?}");
    }
}

/// A sample per page: also cuts in wrong places describe these columns shorter than a list of their slices does, as
/// with seeds 25 and 34.
#[test]
fn columns_of_few_samples_are_cut_where_their_threads_change() {
    let columns = |upper: u32, lower: u32| Array { density: 1.03, ..array(Shape::Columns(upper, lower), 512) };
    let arrays = [columns(0, 4), columns(1, 5), columns(2, 6), columns(3, 7)];
    let mut wrong = Vec::new();
    for seed in 20..40 {
        let found = part_boundaries(&block(&arrays, 0.002, seed));
        let near = |(at, planted): (&u32, &u32)| at.abs_diff(*planted) <= 8;
        if found.len() != 3 || !found.iter().zip(&planted(&arrays)).all(near) {
            wrong.push((seed, found));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// The slices next to such a boundary may have one owner, and then they do not show the page.
#[test]
fn arrays_of_other_periods_are_parts_up_to_a_slice() {
    use Shape::*;
    let arrays = [array(Cyclic(96), 960), array(Cyclic(40), 800)];
    for seed in 0..3 {
        let found = part_boundaries(&block(&arrays, 0.0, seed));
        assert!(found.len() == 1 && found[0].abs_diff(960) <= 96 / THREADS, "seed {seed}: {found:?}");
    }
}

#[test]
fn arrays_that_other_functions_use_are_parts() {
    use Shape::*;
    let of = |shape, pages, function| Array { function, ..array(shape, pages) };
    check(&[of(Random, 300, 0), of(Random, 450, 1)], 0.0);
    check(&[of(Block, 333, 0), of(Block, 333, 1), of(Cyclic(64), 640, 0)], 0.1);
    let eight = [Block, Random, Shared, Cyclic(32), Block, One(2), Random, Cyclic(80)];
    let eight: Vec<Array> = eight.iter().zip(0..).map(|(s, n)| of(*s, 320 + 37 * n as u32, n % 4)).collect();
    check(&eight, 0.05);
}

#[test]
fn a_part_of_sixteen_pages_is_found_and_a_smaller_one_is_not() {
    use Shape::*;
    let of = |shape, pages, function| Array { function, ..array(shape, pages) };
    check(&[of(Block, 500, 0), of(Random, 16, 1), of(Block, 700, 2)], 0.0);
    let tiny = part_boundaries(&block(&[of(Random, 500, 0), of(Random, 8, 1), of(Random, 700, 0)], 0.0, 1));
    assert!(tiny.is_empty(), "{tiny:?}");
}

#[test]
fn a_hot_page_at_a_boundary_does_not_move_it() {
    use Shape::*;
    let arrays = [array(Block, 600), array(Shared, 400)];
    for page in [599, 600] {
        let mut view = block(&arrays, 0.0, 5);
        let write = |n: u32| PageAccess {
            page,
            thread: if page < 600 { THREADS - 1 } else { n % THREADS },
            slot: (n % 60) as u16 + 2,
            instance: 0,
            reads: 1.0,
            writes: 0.0,
        };
        view.accesses.extend((0..600).map(write));
        view.accesses.sort_by_key(|a| (a.page, a.thread, a.slot));
        assert_eq!(part_boundaries(&view), [600], "page {page}");
    }
}

#[test]
fn one_array_stays_whole() {
    use Shape::*;
    let mut cut = Vec::new();
    for shape in [Block, Mixed, Cyclic(64), Cyclic(300), Cyclic(17), Random, Shared, One(1), Triangle, Irregular] {
        for (pages, density) in [(64, 100.0), (1000, 1.0), (1000, 12.0), (4000, 4.0), (20_000, 0.2)] {
            for (seed, noise) in [(1, 0.0), (2, 0.1), (3, 0.3)] {
                let view = block(&[Array { density, ..array(shape, pages) }], noise, seed);
                let found = part_boundaries(&view);
                if !found.is_empty() {
                    cut.push(format!("{shape:?} of {pages} pages, {density} samples each, noise {noise}: {found:?}"));
                }
            }
        }
    }
    assert!(cut.is_empty(), "{cut:#?}");
}

/// Work that moves gradually from one function to another along the array, as in a factorisation.
#[test]
fn code_that_changes_gradually_is_no_boundary() {
    let mut view = block(&[array(Shape::Block, 2000)], 0.0, 1);
    let mut dice = Dice(77);
    let mut by_code = vec![CodeAccesses { function: "f".into(), ..CodeAccesses::default() }; 2];
    for a in &view.accesses {
        by_code[usize::from(dice.below(2000) < a.page)].accesses.push(*a);
    }
    view.by_code = by_code;
    assert_eq!(part_boundaries(&view), [0; 0]);
}

/// A machine with other work gives some threads less of the time, and others later.
#[test]
fn threads_that_are_slowed_in_turn_hide_no_parts() {
    use crate::detect::change_points::change_points;
    let arrays = [array(Shape::Block, 800), array(Shape::Cyclic(64), 1001)];
    let mut view = block(&arrays, 0.05, 1);
    let mut dice = Dice(78);
    let is_slow = |a: &PageAccess| a.thread.is_multiple_of(2) == (a.slot < 30);
    view.accesses.retain(|a| !is_slow(a) || dice.unit() < 0.2);
    let line = Line::of(&view);
    assert!(change_points(&line.samples).len() > 1);
    assert!(!line.is_phased());
    assert_eq!(part_boundaries(&view), planted(&arrays));
}

/// From half of the run on each slice has another thread, or any.
#[test]
fn pages_that_pass_to_other_threads_are_phased() {
    for any in [false, true] {
        let mut view = block(&[array(Shape::Block, 1000)], 0.05, 1);
        let mut dice = Dice(79);
        for a in view.accesses.iter_mut().filter(|a| a.slot >= 32) {
            a.thread = if any { dice.below(THREADS) } else { (a.thread + 3) % THREADS };
        }
        assert!(Line::of(&view).is_phased(), "any: {any}");
    }
}

#[test]
fn what_cannot_be_cut_is_whole() {
    let view = block(&[array(Shape::Block, 600), array(Shape::Random, 400)], 0.0, 1);
    assert_eq!(part_boundaries(&view), [600]);
    assert!(part_boundaries(&ObjectView { hot: false, ..view.clone() }).is_empty());
    assert!(part_boundaries(&ObjectView { instances: 2, ..view.clone() }).is_empty());
    assert!(part_boundaries(&ObjectView { accesses: Vec::new(), ..view.clone() }).is_empty());
    assert!(part_boundaries(&ObjectView { size: PAGE, ..view }).is_empty());
}

#[path = "uses_tests.rs"]
mod uses;
