//! Advice about call sites that allocate again and again.

use numamma_plan::policy::PolicyKind;

use super::tests::{Random, entry, heap, profile};
use super::*;
use crate::detect::classify_all;
use crate::profile::records::Instance;
use crate::profile::summary::{Cell, Counters, Entry, TouchRun};
use crate::topology::Topology;

const PAGE: u64 = 4096;
const THREADS: u32 = 8;
/// Instances in the profile.
const SEEN: u32 = 40;
const RUN_NS: u64 = 1_000_000_000;

/// A call site with `count` allocations in a run of a second, each alive for `life_ns`; the instance with a number has
/// a size and was allocated by a thread, and `user` says who makes an access to it.
fn site(
    count: u64,
    life_ns: u64,
    size: impl Fn(u32) -> u64,
    allocator: impl Fn(u32) -> u32,
    user: impl Fn(u32, &mut Random) -> u32,
) -> Entry {
    let seen = |i: u32| {
        let born_ns = u64::from(i) * RUN_NS / u64::from(SEEN);
        let died_ns = Some(born_ns + life_ns);
        Instance {
            base: (PAGE + PAGE * u64::from(i)) << 20,
            size: size(i),
            thread: Some(allocator(i)),
            born_ns,
            died_ns,
        }
    };
    let mut r = Random(7);
    let one = Counters { reads: 1, ..Counters::default() };
    let mut cells: Vec<Cell> = (0..4000u32)
        .map(|k| {
            let instance = k % SEEN;
            let slot = (instance * 64 / SEEN) as u16;
            let page = r.below(size(instance) / PAGE) as u32;
            Cell { instance, page, thread: user(instance, &mut r), slot, counters: one }
        })
        .collect();
    cells.sort_by_key(|c| (c.instance, c.page, c.thread));
    let largest = (0..SEEN).map(&size).max().unwrap();
    let total = Counters { reads: 4000, cost_ns: u64::from(THREADS) * RUN_NS, ..Counters::default() };
    let seen = (0..SEEN).map(seen).collect();
    Entry { size: largest, instances: count, seen, cells, total, ..heap(entry("site", PAGE, 1, 0, |_, _| 0), &[0x10]) }
}

/// With all pages of every instance touched first by a thread.
fn touched(e: Entry, by: impl Fn(u32) -> u32) -> Entry {
    let run = |(i, seen): (u32, &Instance)| {
        let pages = (seen.size / PAGE) as u32;
        TouchRun { instance: i, page: 0, pages, thread: by(i), time_ns: seen.born_ns }
    };
    let touches = (0..).zip(&e.seen).map(run).collect();
    Entry { touches, ..e }
}

/// The policy of the site's rule, or why there is none.
fn advice(e: Entry) -> Result<PolicyKind, String> {
    let mut summary = profile(THREADS, "never", vec![e]);
    summary.stats.duration_ns = RUN_NS;
    let target = Target::new(Some(4), None, &Topology::uniform(1, 2), THREADS, &summary.header.thp);
    let advice = advise(&summary, &classify_all(&summary), &target).unwrap();
    let item = advice.items.into_iter().find(|i| i.name == "site").unwrap();
    item.rule.map(|rule| rule.place.policy)
}

#[test]
fn what_a_thread_allocates_uses_and_frees_is_left_alone() {
    let own = |life_ns| site(100_000, life_ns, |_| 2 * PAGE, |i| i % THREADS, |i, _| i % THREADS);
    let why = advice(own(20_000)).unwrap_err();
    assert!(why.contains("100000 allocations (100000 a second)") && why.contains("about 20 us, too short"), "{why}");
    let why = advice(touched(own(5_000_000), |i| i % THREADS)).unwrap_err();
    assert!(why.contains("about 5.0 ms, on memory that this thread touched first"), "{why}");
    let why = advice(own(5_000_000)).unwrap_err();
    assert!(
        why.contains("first touch is as good"),
        "memory that was freed before is taken for the thread's own: {why}"
    );
}

#[test]
fn buffers_that_are_handed_over_are_not_private() {
    let e = site(1000, 20_000, |_| 16 * PAGE, |_| 0, |i, r| if r.below(2) == 0 { 0 } else { 1 + i % (THREADS - 1) });
    let said = advice(touched(e, |_| 0));
    assert!(!said.as_ref().is_err_and(|why| why.contains("used by the thread that allocates it")), "{said:?}");
    assert_ne!(said, Ok(PolicyKind::Local));
}

/// All threads use what main allocates and fills: worth placing where its memory comes again, not where every
/// allocation has to be mapped anew and that takes longer than it saves.
#[test]
fn the_cost_of_placing_is_in_the_price() {
    let shared = |count, size: &dyn Fn(u32) -> u64| {
        touched(site(count, 400_000, size, |_| 0, |_, r| r.below(THREADS.into()) as u32), |_| 0)
    };
    assert_eq!(advice(shared(2000, &|_| 256 * PAGE)), Ok(PolicyKind::Interleave), "the same size each time");
    let other_sizes = |i| (256 + u64::from(i)) * PAGE;
    assert_eq!(advice(shared(u64::from(SEEN), &other_sizes)), Ok(PolicyKind::Interleave), "few allocations");
    let why = advice(shared(2000, &other_sizes)).unwrap_err();
    assert!(
        why.contains("it is allocated 2000 times, 2000 times a second")
            && why.contains("placing every allocation would take"),
        "{why}"
    );
}

/// The same arrays, all allocated in the first tenth of the run: nothing is allocated so many times a second.
#[test]
fn allocations_at_once_are_not_called_a_rate() {
    let other_sizes = |i| (256 + u64::from(i)) * PAGE;
    let mut e = site(2000, 400_000, other_sizes, |_| 0, |_, r| r.below(THREADS.into()) as u32);
    for seen in &mut e.seen {
        seen.born_ns /= 10;
        seen.died_ns = Some(seen.born_ns + 400_000);
    }
    let why = advice(touched(e, |_| 0)).unwrap_err();
    assert!(why.contains("it is allocated 2000 times within 97.5 ms: placing every allocation"), "{why}");
}

/// An object that is allocated once and first touched where it is used, but for a few pages, so that placing it would
/// take more than it saves: but it gains nothing anyway.
#[test]
fn what_is_allocated_once_is_left_alone_for_what_it_gains() {
    const SIZE: u64 = 64 << 20;
    let pages = (SIZE / PAGE) as u32;
    let part = |page: u32| page / (pages / THREADS);
    let mut e = heap(entry("site", SIZE, 50, 8000, |at, _| part((at / PAGE) as u32)), &[0x10]);
    // The first page of the second part is the first thread's.
    let run = |page: u32, pages: u32, thread| TouchRun { instance: 0, page, pages, thread, time_ns: 0 };
    e.touches = (0..THREADS).map(|t| run(t * (pages / THREADS), pages / THREADS, t)).collect();
    e.touches[0].pages += 32;
    (e.touches[1].page, e.touches[1].pages) = (e.touches[1].page + 32, e.touches[1].pages - 32);
    let why = advice(e).unwrap_err();
    assert!(why.contains("first touch is as good") && !why.contains("allocated"), "{why}");
}
