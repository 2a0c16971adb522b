//! Objects that begin inside of a page, with slices of a page: which thread uses a page depends on where the object
//! begins, and an allocation that a rule places begins elsewhere than in the recorded run.

use numamma_plan::machine::Thp;
use numamma_plan::plan::PAGE;

use super::cost::tests::machine;
use super::tests::{busy, entry, heap, in_sequence, numbered, profile, without_caches};
use super::*;
use crate::detect::classify_all;
use crate::profile::records::Instance;
use crate::profile::summary::{Cell, Counters, Entry, TouchRun};

const SIZE: u64 = 8 << 20;

/// The thread that uses an offset: two threads take turns, a page each.
fn user(at: u64) -> u32 {
    (at / PAGE % 2) as u32
}

/// An object whose first byte is number `ahead` of its page.
fn begins_at(ahead: u64) -> Entry {
    let mut e = in_sequence(entry("tiles", SIZE, 1000, 4000, |_, _| 0));
    let base = 0x40_0000 + ahead;
    let counters = Counters { reads: 1, ..Counters::default() };
    let cell = |at: u64| {
        let slot = (at % 61) as u16;
        Cell { instance: 0, page: ((at + ahead) / PAGE) as u32, thread: user(at), slot, counters }
    };
    e.cells = (0..SIZE).step_by(2003).map(cell).collect();
    e.cells.sort_by_key(|c| (c.page, c.thread, c.slot));
    (e.vaddr, e.total.reads) = (base, e.cells.len() as u64);
    e.seen = vec![Instance { base, size: SIZE, thread: Some(0), born_ns: 0, died_ns: None }];
    e.touches = vec![TouchRun { instance: 0, page: 0, pages: (SIZE / PAGE) as u32, thread: 0, time_ns: 0 }];
    e
}

/// The share of the bytes that the advised rule puts on the node of their user, when byte 0 is number `ahead` of a
/// page; and what the prediction says of it.
fn local(e: Entry, ahead: u64) -> (f64, f64) {
    let model = machine(&[(1, 1 << 30), (1, 1 << 30)], &[&[90.0, 180.0], &[180.0, 90.0]], &[&[82e9; 2], &[82e9; 2]]);
    let summary = profile(2, "never", numbered(vec![e, busy(2)]));
    let (patterns, target) = (classify_all(&summary), Target::of(model, 2, Thp::Never));
    let advice = advise(&summary, &patterns, &target).unwrap();
    let item = advice.items.iter().find(|i| i.name == "tiles").unwrap();
    let rule = item.rule.as_ref().unwrap_or_else(|why| panic!("{why}"));
    let pages = (SIZE - (PAGE - ahead) % PAGE) / PAGE;
    let plan = numamma_plan::plan::plan(&rule.place, rule.pattern.as_ref(), SIZE, pages, PAGE, &target.ids, 2).unwrap();
    let node = |at: u64| {
        let page = ((at + ahead) / PAGE).checked_sub(u64::from(ahead > 0))?;
        let index = plan.block_node(page).unwrap_or_else(|| panic!("{rule:#?}"));
        Some(plan.nodes[index as usize])
    };
    let own = (0..SIZE).step_by(61).filter(|at| node(*at) == Some(user(*at))).count();
    let predicted = predict(&summary, &patterns, &target, &advice, &[]).unwrap();
    let object = predicted.objects.iter().find(|o| o.name == "tiles").unwrap();
    let advised = object.policies.iter().find(|p| p.name == "advised").unwrap();
    (own as f64 / (SIZE as f64 / 61.0), advised.local_share.unwrap())
}

#[test]
fn variables_are_placed_by_the_pages_where_they_are() {
    for (ahead, least) in [(0, 0.99), (0xc0, 0.95), (1000, 0.75), (3700, 0.85), (4080, 0.99)] {
        let (placed, predicted) = local(begins_at(ahead), ahead);
        assert!(placed >= least, "{ahead}: {placed}");
        assert!((placed - predicted).abs() < 0.03, "{ahead}: {placed}, predicted {predicted}");
    }
}

#[test]
fn allocations_are_placed_by_pages_that_begin_with_them() {
    // As malloc leaves room for its own header.
    for ahead in [0, 16, 64] {
        let (placed, predicted) = local(heap(begins_at(ahead), &[0x1234]), 0);
        assert!(placed >= 0.99, "{ahead}: {placed}");
        assert!((placed - predicted).abs() < 0.03, "{ahead}: {placed}, predicted {predicted}");
    }
}

/// The share of the bytes that the advised rule puts on the node of their user, over all of a variable that begins with
/// a page and over its last sixteenth. Worker r of W is on node floor(4 r / W).
fn local_on_four(size: u64, workers: u32, user: impl Fn(u64) -> u32) -> (f64, f64, String) {
    let mut e = in_sequence(entry("rows", size, 1000, 6000, |at, _| user(at)));
    e.vaddr = 0x40_0000;
    e.touches = vec![TouchRun { instance: 0, page: 0, pages: (size / PAGE) as u32, thread: 0, time_ns: 0 }];
    let summary = profile(workers, "never", numbered(vec![e, busy(workers.into())]));
    let advice = without_caches(4, &summary);
    let item = advice.items.iter().find(|i| i.name == "rows").unwrap();
    let rule = item.rule.as_ref().unwrap_or_else(|why| panic!("{why}"));
    let (nodes, pattern) = ([0, 1, 2, 3], rule.pattern.as_ref());
    let plan = numamma_plan::plan::plan(&rule.place, pattern, size, size / PAGE, PAGE, &nodes, workers).unwrap();
    let is_local = |at: u64| {
        let index = plan.block_node(at / PAGE).unwrap_or_else(|| panic!("{rule:#?}"));
        plan.nodes[index as usize] == user(at) * 4 / workers
    };
    let share = |from: u64| {
        let all = (from..size / PAGE * PAGE).step_by(487);
        all.clone().filter(|at| is_local(*at)).count() as f64 / all.count() as f64
    };
    (share(0), share(size / 16 * 15), format!("{rule:#?}"))
}

#[test]
fn periods_that_are_no_whole_pages_are_followed_to_the_end() {
    // Columns of 19,192 bytes, four to a thread in turn: what is near an edge inside of a page is not local.
    let (whole, end, rule) = local_on_four(19_192 * 2400, 8, |at| (at / 19_192 / 4 % 8) as u32);
    assert!(whole > 0.95 && end > 0.95, "{whole} {end} {rule}");
    // The middle index of 8 planes of 18,000,000 bytes, over five threads of four nodes.
    let (whole, end, rule) = local_on_four(18_000_000 * 8, 5, |at| (at % 18_000_000 / 3_600_000) as u32);
    assert!(whole > 0.98 && end > 0.98, "{whole} {end} {rule}");
    // Rows of 41,000 bytes, and parts of 1.25 pages of them: up to a quarter lies across edges.
    let (whole, end, rule) = local_on_four(41_000 * 1000, 8, |at| (at % 41_000 / 5125) as u32);
    assert!(whole > 0.8 && end > 0.8, "{whole} {end} {rule}");
}

/// Levels of an image pyramid, allocated in one loop, each cut into as many slices as there are threads.
#[test]
fn instances_of_different_sizes_have_blocks_of_their_own() {
    const SIZES: [u64; 3] = [16 << 20, 4 << 20, 1 << 20];
    let mut e = heap(in_sequence(entry("levels", SIZES[0], 1000, 4000, |_, _| 0)), &[0x1234]);
    let counters = Counters { reads: 1, ..Counters::default() };
    e.cells.clear();
    (e.seen, e.touches) = (Vec::new(), Vec::new());
    for (instance, size) in (0..).zip(SIZES) {
        let pages = (size / PAGE) as u32;
        let cell = |k: u32| {
            let page = (u64::from(k) * 7919 % u64::from(pages)) as u32;
            Cell { instance, page, thread: page * 8 / pages, slot: (k % 61) as u16, counters }
        };
        let mut cells: Vec<Cell> = (0..1500).map(cell).collect();
        cells.sort_by_key(|c| (c.page, c.thread, c.slot));
        e.cells.extend(cells);
        let (base, born_ns) = (u64::from(instance + 1) << 32, u64::from(instance));
        e.seen.push(Instance { base, size, thread: Some(0), born_ns, died_ns: None });
        e.touches.push(TouchRun { instance, page: 0, pages, thread: 0, time_ns: 0 });
    }
    (e.total.reads, e.instances) = (e.cells.len() as u64, 3);
    let summary = profile(8, "never", numbered(vec![e, busy(8)]));
    let (patterns, advice) = (classify_all(&summary), without_caches(4, &summary));
    let item = advice.items.iter().find(|i| i.name == "levels").unwrap();
    let place = &item.rule.as_ref().unwrap_or_else(|why| panic!("{why}")).place;
    for size in SIZES {
        let plan = numamma_plan::plan::plan(place, None, size, size / PAGE, PAGE, &[0, 1, 2, 3], 8).unwrap();
        let own = (0..size / PAGE).filter(|page| plan.block_node(*page) == Some((page * 4 / (size / PAGE)) as u32));
        assert_eq!(own.count() as u64, size / PAGE, "{place:?}: {size}");
    }
    let model = machine(
        &[(2, 1 << 30); 4],
        &[
            [90.0, 180.0, 180.0, 180.0],
            [180.0, 90.0, 180.0, 180.0],
            [180.0, 180.0, 90.0, 180.0],
            [180.0, 180.0, 180.0, 90.0],
        ]
        .each_ref()
        .map(|row| &row[..]),
        &[&[82e9; 4][..]; 4],
    );
    let predicted = predict(&summary, &patterns, &Target::of(model, 8, Thp::Never), &advice, &[]).unwrap();
    let object = predicted.objects.iter().find(|o| o.name == "levels").unwrap();
    let share = |name| object.policies.iter().find(|p| p.name == name).unwrap().local_share.unwrap();
    assert!(share("advised") > 0.99 && share("advised") >= share("block-naive"), "{}", share("advised"));
}
