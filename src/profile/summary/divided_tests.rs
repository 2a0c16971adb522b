use super::*;
use crate::profile::records::{Instance, ObjectKind};

const PAGE: u64 = 4096;

fn cell(page: u32, thread: u32, reads: u64) -> Cell {
    let counters = Counters { reads, cost_ns: 10 * reads, ..Counters::default() };
    Cell { instance: 0, page, thread, slot: 0, counters }
}

fn pool(base: u64) -> Entry {
    let cells = vec![cell(0, 0, 3), cell(99, 1, 2), cell(100, 2, 4), cell(299, 3, 1)];
    let code = |own: Vec<Cell>| {
        let mut total = Counters::default();
        own.iter().for_each(|c| total.add(&c.counters));
        CodePart { function: "f".into(), place: String::new(), nest: None, total, cells: own }
    };
    let unpaged = Counters { reads: 5, ..Counters::default() };
    let mut total = unpaged;
    cells.iter().for_each(|c| total.add(&c.counters));
    let run = |page: u32, pages: u32, thread: u32| TouchRun { instance: 0, page, pages, thread, time_ns: 1 };
    Entry {
        kind: ObjectKind::Heap,
        name: "main pool.c:12".into(),
        size: 300 * PAGE,
        instances: 1,
        seen: vec![Instance { base, size: 300 * PAGE, ..Instance::default() }],
        by_code: vec![code(vec![cells[0], cells[2]]), code(vec![cells[1], cells[3]])],
        total,
        cells,
        touches: vec![run(0, 150, 7), run(150, 151, 8)],
        details: Details { unpaged, ..Details::default() },
        ..Entry::default()
    }
}

#[test]
fn every_counter_and_page_belongs_to_one_part() {
    let whole = pool(0x7000_0010);
    let parts = whole.divided(&[100, 128], PAGE);
    let names: Vec<&str> = parts.iter().map(|p| p.name.as_str()).collect();
    let name = |range: &str| format!("main pool.c:12 [{range}]");
    assert_eq!(names, [name("0..400 KiB"), name("400 KiB..512 KiB"), name("512 KiB..1200 KiB")]);
    let pages = |e: &Entry| e.cells.iter().map(|c| c.page).collect::<Vec<u32>>();
    assert_eq!(parts.iter().map(pages).collect::<Vec<_>>(), [vec![0, 99], vec![0], vec![171]]);
    let accesses: Vec<u64> = parts.iter().map(|p| p.total.accesses()).collect();
    assert_eq!(accesses, [5 + 5, 4, 1], "those without a page are the first part's, which has most");
    assert_eq!(parts.iter().map(|p| p.total.cost_ns).sum::<u64>(), whole.total.cost_ns);
    let touched: Vec<Vec<(u32, u32, u32)>> =
        parts.iter().map(|p| p.touches.iter().map(|t| (t.page, t.pages, t.thread)).collect()).collect();
    assert_eq!(touched, [vec![(0, 100, 7)], vec![(0, 28, 7)], vec![(0, 22, 7), (22, 151, 8)]]);
    // One function makes all accesses to the second part.
    assert_eq!(parts.iter().map(|p| p.by_code.len()).collect::<Vec<_>>(), [2, 0, 0]);
}

/// A range in a rule is rounded to the nearest page, so offsets are whole pages from a block's first byte, which malloc
/// puts behind its header, and end where pages do when the block begins in the second half of a page.
#[test]
fn offsets_name_the_pages_of_a_part() {
    for (base, low) in [(0x7000_0010, 400 << 10), (0x7000_0000, 400 << 10), (0x7000_0ff0, (400 << 10) - 0xff0)] {
        let parts = pool(base).divided(&[100], PAGE);
        let own = parts[1].part.as_ref().unwrap();
        assert_eq!((own.offset, own.parent_size, own.parent.as_str()), (low, 300 * PAGE, "main pool.c:12"));
        assert_eq!(parts[1].seen[0].base, 0x7000_0000 + 100 * PAGE, "a part begins on a page");
        assert_eq!(parts[0].size + parts[1].size, 300 * PAGE);
        assert_eq!(parts[0].seen[0].base, base);
        let placed = numamma_plan::range::ByteRange { low: own.offset, high: u64::MAX };
        assert_eq!(placed.pages_of(base, 300 * PAGE, PAGE).unwrap().0, parts[1].seen[0].base);
    }
}

#[test]
fn parts_and_several_instances_are_not_divided() {
    let whole = pool(0x7000_0000);
    let part = &whole.divided(&[100], PAGE)[0];
    assert_eq!(part.divided(&[50], PAGE).len(), 1);
    let mut twice = whole.clone();
    twice.seen.push(whole.seen[0]);
    assert_eq!(twice.divided(&[100], PAGE).len(), 1);
}

/// Rules name the variable by its address, which every part must lead to.
#[test]
fn parts_of_a_variable_know_where_it_begins() {
    for skew in [0, 192, 4000] {
        let whole = Entry { vaddr: 0x4000 + skew, ..pool(0x7000_0000 + skew) };
        let parts = whole.divided(&[100, 128], PAGE);
        let begins = parts.iter().map(|e| e.vaddr - e.part.as_ref().unwrap().offset);
        assert!(begins.clone().all(|at| at == whole.vaddr), "{:x?}", begins.collect::<Vec<_>>());
    }
}
