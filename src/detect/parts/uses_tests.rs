//! Arrays that two loops use differently: one array stays whole, and several behind each other are told apart.

use super::*;

/// A loop over an array: which thread accesses a page.
#[derive(Debug, Clone, Copy)]
enum Use {
    Block,
    /// Slices in the order from the last thread to the first.
    Reversed,
    /// Slices that repeat every so many pages.
    Cyclic(u32),
    /// All threads alike.
    Shared,
    /// The first thread alone.
    Serial,
    /// Slices that move on by one thread in each sixth of the run.
    Wavefront,
}

/// Two loops over the pages of one array, and the share of the accesses by the second one.
#[derive(Debug, Clone, Copy)]
struct Loops {
    uses: [Use; 2],
    second: f64,
    pages: u32,
    samples: u32,
}

fn thread_of(how: Use, page: u32, pages: u32, slot: u16, threads: u32, dice: &mut Dice) -> u32 {
    let slice = |at: u32, of: u32| (u64::from(at) * u64::from(threads) / u64::from(of)) as u32;
    match how {
        Use::Block => slice(page, pages),
        Use::Reversed => threads - 1 - slice(page, pages),
        Use::Cyclic(period) => slice(page % period, period),
        Use::Shared => dice.below(threads),
        Use::Serial => 0,
        Use::Wavefront => (slice(page, pages) + u32::from(slot) / 10) % threads,
    }
}

/// The arrays one behind the other in one block; with `named` the loops are different functions.
fn used(arrays: &[Loops], threads: u32, noise: f64, named: bool, seed: u64) -> ObjectView {
    let mut dice = Dice(0x2545_F491_4F6C_DD1D ^ (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut by_code = vec![CodeAccesses { function: "f".into(), ..CodeAccesses::default() }; 2];
    let (mut all, mut first) = (Vec::new(), 0);
    for a in arrays {
        for _ in 0..a.samples {
            let (page, slot) = (dice.below(a.pages), 2 + dice.below(60) as u16);
            let code = usize::from(dice.unit() < a.second);
            let own = thread_of(a.uses[code], page, a.pages, slot, threads, &mut dice);
            let thread = if dice.unit() < noise { dice.below(threads) } else { own };
            let writes = if dice.unit() < [0.5, 0.2][code] { 1.0 } else { 0.0 };
            let access = PageAccess { instance: 0, page: first + page, thread, slot, reads: 1.0 - writes, writes };
            by_code[code].accesses.push(access);
            all.push(access);
        }
        first += a.pages;
    }
    let by_code = if named { by_code } else { Vec::new() };
    let empty = block(&[], 0.0, 0);
    ObjectView { size: u64::from(first) * PAGE, threads, accesses: all, by_code, ..empty }
}

/// Arrays of two loops with many samples; the page counts are no multiples of the threads.
fn drawn(uses: [Use; 2], seed: u64) -> (Loops, u32, f64, bool) {
    let mut dice = Dice((seed + 1).wrapping_mul(0xD134_2543_DE82_EF95));
    let pages = [500, 1111, 4003, 16_384][dice.below(4) as usize];
    let samples = [2000, 5000, 10_000, 20_000][dice.below(4) as usize];
    let threads = [4, 8, 16][dice.below(3) as usize];
    let second = [0.15, 0.3, 0.5][dice.below(3) as usize];
    let noise = [0.0, 0.02, 0.1][dice.below(3) as usize];
    (Loops { uses, second, pages, samples }, threads, noise, dice.unit() < 0.5)
}

const PAIRS: [[Use; 2]; 10] = [
    [Use::Block, Use::Cyclic(8)],
    [Use::Block, Use::Cyclic(32)],
    [Use::Block, Use::Cyclic(300)],
    [Use::Cyclic(48), Use::Block],
    [Use::Block, Use::Reversed],
    [Use::Block, Use::Shared],
    [Use::Block, Use::Serial],
    [Use::Reversed, Use::Cyclic(64)],
    [Use::Cyclic(64), Use::Cyclic(16)],
    [Use::Block, Use::Wavefront],
];

/// One array for each pair of loops and each seed: how many, and those that are cut.
fn cut_arrays(seeds: std::ops::Range<u64>) -> (usize, Vec<String>) {
    let (mut all, mut cut) = (0, Vec::new());
    for (uses, seed) in PAIRS.iter().flat_map(|uses| seeds.clone().map(move |seed| (*uses, seed))) {
        let (loops, threads, noise, named) = drawn(uses, seed);
        let found = part_boundaries(&used(&[loops], threads, noise, named, seed));
        all += 1;
        if !found.is_empty() {
            cut.push(format!("{seed} {loops:?}, {threads} threads, noise {noise}, functions {named}: {found:?}"));
        }
    }
    (all, cut)
}

/// Boundaries of blocks of two or three arrays with two loops each.
#[derive(Debug, Default)]
struct Found {
    planted: usize,
    near: usize,
    wrong: Vec<String>,
}

fn blocks_of_arrays(seeds: std::ops::Range<u64>) -> Found {
    let mut score = Found::default();
    for seed in seeds {
        let mut dice = Dice((seed + 7).wrapping_mul(0xD134_2543_DE82_EF95));
        let (_, threads, noise, named) = drawn(PAIRS[0], seed);
        let array = |_| {
            // The last pair has no owners that stay.
            let uses = PAIRS[dice.below(PAIRS.len() as u32 - 1) as usize];
            let pages = 300 + dice.below(3000);
            Loops { uses, second: 0.3, pages, samples: 4 * pages }
        };
        let arrays: Vec<Loops> = (0..2 + seed % 2).map(array).collect();
        let cuts = part_boundaries(&used(&arrays, threads, noise, named, seed));
        let ends = arrays.iter().scan(0, |at, a| {
            *at += a.pages;
            Some(*at)
        });
        let planted: Vec<u32> = ends.take(arrays.len() - 1).collect();
        let near = |a: u32, b: u32| a.abs_diff(b) <= 8;
        score.planted += planted.len();
        score.near += planted.iter().filter(|p| cuts.iter().any(|c| near(*c, **p))).count();
        let wrong = cuts.iter().filter(|c| !planted.iter().any(|p| near(**c, *p)));
        score.wrong.extend(wrong.map(|c| format!("{seed} {arrays:?}: {c} of {cuts:?}, planted {planted:?}")));
    }
    score
}

/// One array may be cut once in fifty times. Behind each other, three of four boundaries must be found: some of these
/// arrays differ in nothing but the length of their slices.
fn judge_uses(one: std::ops::Range<u64>, several: std::ops::Range<u64>) {
    let (all, cut) = cut_arrays(one);
    let found = blocks_of_arrays(several);
    eprintln!("{} of {all} arrays cut: {cut:#?}", cut.len());
    eprintln!("{} of {} boundaries, wrong cuts: {:#?}", found.near, found.planted, found.wrong);
    assert!(cut.len() * 50 <= all, "{} of {all} arrays cut", cut.len());
    assert!(found.near * 4 >= found.planted * 3, "{} of {} boundaries", found.near, found.planted);
    assert!(found.wrong.len() * 3 <= found.planted, "{} wrong cuts of {}", found.wrong.len(), found.planted);
}

#[test]
fn arrays_of_two_loops_are_whole_and_told_apart() {
    judge_uses(0..5, 0..12);
}

#[test]
#[ignore = "long: make test-long"]
fn many_arrays_of_two_loops_are_whole_and_told_apart() {
    judge_uses(0..20, 0..80);
}

/// A transform over columns and a transposition: blocks of 16 MiB for four threads, and 8 KiB in turn.
#[test]
fn a_transposed_matrix_stays_whole() {
    for (seed, samples) in (1..).zip([2000, 5000, 10_000, 20_000]) {
        for named in [false, true] {
            let loops = Loops { uses: [Use::Block, Use::Cyclic(8)], second: 0.2, pages: 16_384, samples };
            let found = part_boundaries(&used(&[loops], 4, 0.02, named, seed));
            assert!(found.is_empty(), "{samples} samples, functions {named}: {found:?}");
        }
    }
}
