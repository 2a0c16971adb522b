//! Made-up runs of programs whose first touches are known, sampled.

use super::*;
use crate::profile::records::Instance;

const PERIOD: u32 = 61;

/// Every [`PERIOD`]th touch of each thread, from those in the order of time: (thread, page).
fn sampled(order: &[(u32, u64)]) -> Vec<Touch> {
    let mut counts = std::collections::HashMap::<u32, u32>::new();
    let chosen = order.iter().zip(0..).filter(|&(&(thread, _), _)| {
        let count = counts.entry(thread).or_default();
        *count += 1;
        (*count).is_multiple_of(PERIOD)
    });
    chosen.map(|(&(thread, page), time_ns)| Touch { object: 1, addr: page * PAGE, pages: 1, thread, time_ns }).collect()
}

/// An object of `pages` with the sampled touches.
fn entry(pages: u64, touches: &[Touch]) -> Entry {
    let size = pages * PAGE;
    let mut entry = Entry { kind: ObjectKind::Heap, size, ..Entry::default() };
    entry.seen = vec![Instance { size, ..Instance::default() }];
    let run = |t: &Touch| TouchRun {
        instance: 0,
        page: (t.addr / PAGE) as u32,
        pages: t.pages as u32,
        thread: t.thread,
        time_ns: t.time_ns,
    };
    let between = between(touches, PERIOD);
    let range = |r: TouchRun| PageRange { instance: 0, low: r.page, high: r.page + r.pages };
    entry.details.extrapolated.between = joined(between.iter().map(|t| range(run(t))).collect());
    entry.touches = touches.iter().chain(&between).map(run).collect();
    entry.touches.sort_by_key(|r| r.page);
    let mut at: Vec<(u32, u32)> = touches.iter().map(|t| (0, (t.addr / PAGE) as u32)).collect();
    at.sort_unstable();
    entry.extend_sampled(&at, PERIOD, PAGE);
    entry
}

/// Share of the pages that each of `threads` touched first.
fn shares(entry: &Entry, threads: u32) -> Vec<f64> {
    let touchers = entry.first_touchers();
    let all: u64 = touchers.iter().map(|(_, n)| n).sum();
    let of = |thread| touchers.iter().find(|(t, _)| *t == thread).map_or(0, |(_, n)| *n);
    (0..threads).map(|t| of(t) as f64 / all as f64).collect()
}

#[test]
fn blocks_that_threads_touch_in_order_are_known_to_the_page() {
    const PAGES: u64 = 4000;
    // Four threads at the same time, each a quarter; the last one backwards.
    let page = |i: u64, t: u64| if t < 3 { t * PAGES / 4 + i } else { PAGES - 1 - i };
    let order: Vec<(u32, u64)> = (0..PAGES / 4).flat_map(|i| (0..4).map(move |t| (t as u32, page(i, t)))).collect();
    let e = entry(PAGES, &sampled(&order));
    let known: u64 = e.details.extrapolated.between.iter().map(|r| u64::from(r.high - r.low)).sum();
    assert!(known > PAGES * 8 / 10, "{known} pages");
    for run in &e.touches {
        let (low, high) = (u64::from(run.page), u64::from(run.page + run.pages) - 1);
        // Only what was extended may reach into the block of a neighbour.
        assert!(low / 1000 == high / 1000 || high - low < PAGES, "{run:?}");
    }
    assert!(shares(&e, 4).iter().all(|s| (s - 0.25).abs() < 0.02), "{:?}", shares(&e, 4));
    assert!(e.extrapolated_touches() > 0.9, "{}", e.extrapolated_touches());
}

#[test]
fn pages_dealt_out_to_threads_are_right_in_the_sum_and_no_page_is_claimed() {
    const PAGES: u64 = 100_000;
    // Thread 0 has every second page, 1 and 2 every fourth.
    let owner = |page: u64| [0, 1, 0, 2][page as usize % 4];
    let order: Vec<(u32, u64)> = (0..PAGES).map(|page| (owner(page), page)).collect();
    let e = entry(PAGES, &sampled(&order));
    assert_eq!(e.details.extrapolated.between, [], "two faults are more than {PERIOD} pages apart");
    let shares = shares(&e, 3);
    assert!((shares[0] - 0.5).abs() < 0.02 && (shares[1] - 0.25).abs() < 0.02, "{shares:?}");
    // All accesses are by the first touchers; the pages next to a sampled one may be anybody's.
    let cell = |page: u64| super::super::Cell {
        instance: 0,
        page: page as u32,
        thread: owner(page),
        slot: 0,
        counters: super::super::Counters { reads: 1, ..Default::default() },
    };
    let e = Entry { cells: (0..PAGES).map(cell).collect(), ..e };
    let by = e.by_others(None, Some);
    assert!(by.known > 1000 && by.others == 0 && by.known + by.unknown == PAGES, "{by:?}");
}

#[test]
fn what_was_seen_is_not_extended() {
    let mut e = entry(1000, &[]);
    e.touches = vec![TouchRun { instance: 0, page: 10, pages: 5, thread: 0, time_ns: 0 }];
    e.extend_sampled(&[], PERIOD, PAGE);
    assert_eq!((e.touches[0].pages, e.extrapolated_touches()), (5, 0.0));
    // Beside it a sampled page, which takes what is between them.
    e.touches.push(TouchRun { instance: 0, page: 20, pages: 1, thread: 1, time_ns: 1 });
    e.extend_sampled(&[(0, 20)], PERIOD, PAGE);
    let runs: Vec<_> = e.touches.iter().map(|r| (r.page, r.pages)).collect();
    assert_eq!(runs, [(10, 5), (15, 6 + PERIOD / 2)]);
    assert_eq!(e.details.extrapolated.around.len(), 2);
    // Faults of a thread elsewhere, and another object at the same place.
    let at = |object, page, time_ns| Touch { object, addr: page * PAGE, pages: 1, thread: 0, time_ns };
    assert_eq!(between(&[at(1, 0, 0), at(1, 30, 1), at(1, 130, 2), at(2, 190, 3)], PERIOD), []);
    assert_eq!(between(&[at(1, 100, 0), at(1, 40, 1)], PERIOD).len(), 1, "downwards");
    assert_eq!(between(&[at(1, 0, 0), at(1, u64::MAX / PAGE, 1)], 0), []);
}
