use super::*;
use crate::detect::points::uniform;
use crate::detect::{ObjectView, PageAccess, PatternKind, Sampling};
use crate::profile::records::Instance;
use crate::profile::summary::{Cell, Counters};

const PAGE: u64 = 4096;
const PAGES: u32 = 1_600;
const THREADS: u32 = 8;

/// An allocation with 16,000 accesses, those of a page by the thread that `user` says.
fn entry(user: impl Fn(u32, &mut dyn FnMut(u32) -> u32) -> u32) -> Entry {
    let mut state = 77;
    let mut below = |n: u32| (uniform(&mut state) * f64::from(n)) as u32;
    let counters = Counters { reads: 1, ..Counters::default() };
    let mut cells: Vec<Cell> = Vec::new();
    for _ in 0..16_000 {
        let page = below(PAGES);
        let thread = user(page, &mut below);
        cells.push(Cell { instance: 0, page, thread, slot: 2 + below(60) as u16, counters });
    }
    cells.sort_by_key(|c| c.page);
    let size = u64::from(PAGES) * PAGE;
    let seen = vec![Instance { base: 0x10_0000, size, ..Instance::default() }];
    Entry { kind: ObjectKind::Heap, name: "pool".into(), size, seen, cells, ..Entry::default() }
}

fn pattern(part: &Entry) -> Pattern {
    let access = |c: &Cell| PageAccess {
        instance: 0,
        page: c.page,
        thread: c.thread,
        slot: c.slot,
        reads: c.counters.reads as f32,
        writes: 0.5,
    };
    classify(&ObjectView {
        size: part.size,
        skew: 0,
        page_size: PAGE,
        threads: THREADS,
        others: 0,
        instances: 1,
        cost_share: 0.5,
        hot: true,
        accesses: part.cells.iter().map(access).collect(),
        rows: Vec::new(),
        filter: AccessFilter::All,
        sampling: Sampling::default(),
        by_code: Vec::new(),
    })
}

/// The boundaries that are left of `pages`.
fn left(entry: &Entry, pages: &[u32]) -> Vec<u64> {
    let parts = joined(entry, pages.to_vec(), PAGE, pattern).unwrap_or_default();
    parts.iter().skip(1).map(|part| part.part.as_ref().unwrap().offset / PAGE).collect()
}

#[test]
fn neighbours_of_one_pattern_are_one_part() {
    let pages: Vec<u32> = (1..16).map(|n| n * 100).collect();
    let random = entry(|_, below| below(THREADS));
    assert_eq!(left(&random, &pages), [0; 0]);
    let one = entry(|page, below| if page < 800 { 3 } else { below(THREADS) });
    assert_eq!(left(&one, &pages), [800]);
    // Slices that repeat in each 100 pages.
    let cyclic = entry(|page, _| page % 100 * THREADS / 100);
    assert_eq!(left(&cyclic, &[400, 800, 1200]), [0; 0]);
}

#[test]
fn neighbours_with_owners_of_their_own_are_parts() {
    let sliced = |page: u32, pages: u32| page % pages * THREADS / pages;
    let two = entry(|page, _| sliced(page, 800));
    assert_eq!(pattern(&two.divided(&[800], PAGE)[0]).kind, PatternKind::Block);
    assert_eq!(left(&two, &[800]), [800]);
    let users = entry(|page, _| page / 800);
    assert_eq!(left(&users, &[400, 800, 1200]), [800]);
}
