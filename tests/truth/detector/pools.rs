//! The bars for parts of objects without debug information: boundaries to the page, and arrays that stay whole.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use numamma::detect::part_boundaries;

use super::plan::Plan;
use super::pool_plan::Pool;
use crate::common::beside_others;
use crate::seeds::on_all_cores;

/// Boundaries that the samples show, found to the page.
const BOUNDARY_BAR: f64 = 0.95;
/// Objects of one array that are cut, and cuts inside of an array of a block.
const FALSE_BAR: f64 = 0.01;

#[derive(Default)]
struct Score {
    determined: usize,
    exact: usize,
    all: usize,
    near: usize,
    cuts: usize,
    wrong: Vec<String>,
    false_cuts: Vec<String>,
}

fn score(pools: u64, first: u64) -> Score {
    let score = Mutex::new(Score::default());
    on_all_cores(first..first + pools, |seed| {
        let (pool, mut r) = Pool::draw(seed);
        let found = part_boundaries(&pool.view(&mut r));
        let planted = pool.boundaries();
        let kinds: Vec<String> = pool
            .arrays
            .iter()
            .map(|a| format!("{} {} ({:.0} each, f{})", a.pages, a.kind, a.density, a.function))
            .collect();
        let said = format!("seed {seed} T={} noise {:.2} {kinds:?}: {found:?}", pool.threads, pool.noise);
        let near = |at: u32, page: u32| at.abs_diff(page) <= 8;
        let mut score = score.lock().expect("no panic while scoring");
        score.cuts += found.len();
        for (page, determined) in &planted {
            let exact = found.contains(page);
            score.all += 1;
            score.near += usize::from(found.iter().any(|f| near(*f, *page)));
            score.determined += usize::from(*determined);
            score.exact += usize::from(*determined && exact);
            if *determined && !exact {
                score.wrong.push(format!("{page} of {said}"));
            }
        }
        for cut in found.iter().filter(|cut| !planted.iter().any(|(page, _)| near(**cut, *page))) {
            score.false_cuts.push(format!("{cut} of {said}"));
        }
    });
    score.into_inner().expect("no panic while scoring")
}

fn boundaries_to_the_page(pools: u64, first: u64) {
    let _beside = beside_others();
    let score = score(pools, first);
    eprintln!(
        "{} of {} boundaries that the samples show are exact; of all {}, {} within 8 pages; {} cuts, {} of them false",
        score.exact,
        score.determined,
        score.all,
        score.near,
        score.cuts,
        score.false_cuts.len()
    );
    score.wrong.iter().for_each(|line| eprintln!("  missed: {line}"));
    score.false_cuts.iter().for_each(|line| eprintln!("  false: {line}"));
    assert!(score.exact as f64 >= BOUNDARY_BAR * score.determined as f64, "{} of {}", score.exact, score.determined);
    assert!(score.false_cuts.len() as f64 <= FALSE_BAR * score.cuts as f64, "{:#?}", score.false_cuts);
}

fn one_array_stays_whole(traces: u64, first: u64) {
    let _beside = beside_others();
    let cut = Mutex::new(Vec::new());
    let judged = AtomicU64::new(0);
    on_all_cores(first..first + traces, |seed| {
        let (plan, mut r) = Plan::draw(seed);
        if plan.instances > 1 {
            return;
        }
        judged.fetch_add(1, Ordering::Relaxed);
        let found = part_boundaries(&plan.view(&mut r));
        if !found.is_empty() {
            let said = format!(
                "seed {seed} {:?} T={}/{} pages={} n={} noise={:.2} period={:?} permuted={} unequal={} init={}: {found:?}",
                plan.kind,
                plan.order.len(),
                plan.threads,
                plan.pages,
                plan.samples,
                plan.noise,
                plan.period,
                plan.permuted,
                plan.unequal,
                plan.initialised
            );
            cut.lock().expect("no panic while scoring").push(said);
        }
    });
    let (cut, judged) = (cut.into_inner().expect("no panic while scoring"), judged.into_inner());
    eprintln!("{} of {judged} objects of one array are cut", cut.len());
    cut.iter().for_each(|line| eprintln!("  {line}"));
    assert!(cut.len() as f64 <= FALSE_BAR * judged as f64, "{} of {judged}: {cut:#?}", cut.len());
}

#[test]
fn boundaries_of_generated_blocks() {
    boundaries_to_the_page(60, 1);
}

#[test]
fn generated_arrays_stay_whole() {
    one_array_stays_whole(180, 1);
}

#[test]
#[ignore = "long: make test-long"]
fn boundaries_of_many_generated_blocks() {
    boundaries_to_the_page(1500, 1_000_000);
}

#[test]
#[ignore = "long: make test-long"]
fn many_generated_arrays_stay_whole() {
    one_array_stays_whole(2000, 1_000_000);
}
