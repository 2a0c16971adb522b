//! Both sides in one process.

use super::layout::{FIRST_SHIFT, Map, Slot};
use super::reader::{Tally, Trace};
use super::writer::{Table, key, site};
use std::sync::atomic::Ordering::Relaxed;

fn taken(trace: &Trace, owner: u64) -> Table {
    let (map, fd) = trace.parts();
    Table::take(map, fd, owner, FIRST_SHIFT).unwrap()
}

fn count(map: Map, table: &Table, addr: u64, ip: u64, write: bool, by: u64) {
    table.counter(key(addr, site(map, ip, write)).unwrap()).unwrap().fetch_add(by, Relaxed);
}

fn collected(trace: &mut Trace) -> Vec<Tally> {
    let mut read = Vec::new();
    trace.collect_of(|_| true, |owner, place, count| read.push((*owner, place, count)));
    let tallies = read.iter().map(|(owner, place, count)| trace.tally(owner, *place, *count));
    let mut out: Vec<Tally> = tallies.map(|tally| Tally { since_ns: 0, ..tally }).collect();
    out.sort_by_key(|t| (t.addr, t.ip, t.write));
    out
}

#[test]
fn counts_are_read_once_each() {
    let mut trace = Trace::create(false, 1 << 20).unwrap();
    let (map, _) = trace.parts();
    let table = taken(&trace, 7 << 32 | 9);
    count(map, &table, 0x5000_1234, 0x40_1000, false, 5);
    count(map, &table, 0x5000_1ff8, 0x40_1000, false, 2);
    count(map, &table, 0x5000_1234, 0x40_1000, true, 1);
    let tally = |addr, write, count| Tally {
        pid: 7,
        tid: 9,
        addr,
        ip: 0x40_1000,
        write,
        since_ns: 0,
        until_ns: u64::MAX,
        count,
    };
    assert_eq!(collected(&mut trace), [tally(0x5000_1234, false, 7), tally(0x5000_1234, true, 1)]);
    assert_eq!(collected(&mut trace), []);
    count(map, &table, 0x5000_1000, 0x40_1000, false, 3);
    // SAFETY: no counter is used after it.
    unsafe { table.end(map) };
    assert_eq!(collected(&mut trace), [tally(0x5000_1234, false, 3)]);
    assert_eq!(map.header().bytes.load(Relaxed), 0, "the memory is given back");
    // The next thread has the same memory, empty.
    let table = taken(&trace, 7 << 32 | 10);
    assert_eq!(collected(&mut trace), []);
    count(map, &table, 0x5000_1000, 0x40_1000, false, 1);
    assert_eq!(collected(&mut trace)[0].tid, 10);
}

#[test]
fn what_a_thread_counted_before_it_took_another_table_is_older() {
    let mut trace = Trace::create(false, 1 << 20).unwrap();
    let (map, _) = trace.parts();
    let (before, after) = (taken(&trace, 7 << 32 | 9), taken(&trace, 7 << 32 | 9));
    count(map, &before, 0x5000_1000, 0x40_1000, true, 1);
    before.leave(map);
    let left = map.head(0).left_ns.load(Relaxed);
    count(map, &after, 0x5000_2000, 0x40_1000, false, 1);
    let times: Vec<u64> = collected(&mut trace).iter().map(|tally| tally.until_ns).collect();
    assert_eq!(times, [left, u64::MAX]);
    // SAFETY: no counter is used after it.
    unsafe { before.end(map) };
    assert_eq!(collected(&mut trace), []);
    count(map, &taken(&trace, 7 << 32 | 9), 0x5000_1000, 0x40_1000, true, 1);
    assert_eq!(collected(&mut trace)[0].until_ns, u64::MAX, "the next one that has the memory");
}

#[test]
fn tables_of_threads_that_ended_are_given_back() {
    let mut trace = Trace::create(false, 2 * (size_of::<Slot>() << FIRST_SHIFT) as u64).unwrap();
    let (map, fd) = trace.parts();
    let (first, _second) = (taken(&trace, 7 << 32 | 9), taken(&trace, 8 << 32 | 8));
    assert!(Table::take(map, fd, 1, FIRST_SHIFT).is_none(), "the limit");
    count(map, &first, 0x5000_1000, 0x40_1000, false, 1);
    trace.gone(7, 9, 0);
    assert_eq!(collected(&mut trace).len(), 1);
    assert!(Table::take(map, fd, 1, FIRST_SHIFT).is_none(), "a thread of this id that ended before");
    trace.gone(7, 9, u64::MAX);
    trace.gone(8, 0, u64::MAX);
    assert_eq!(collected(&mut trace), []);
    assert_eq!(map.header().bytes.load(Relaxed), 0);
}

#[test]
fn of_the_tables_in_use_only_those_of_wanted_threads_are_read() {
    let mut trace = Trace::create(false, 1 << 20).unwrap();
    let map = trace.parts().0;
    let tables: Vec<Table> = (1..=5).map(|tid| taken(&trace, 7 << 32 | tid)).collect();
    tables.iter().for_each(|table| count(map, table, 0x5000_1000, 0x40_1000, false, 1));
    let mut tables = tables.into_iter();
    // SAFETY: no counter is used after it.
    unsafe { tables.next().unwrap().end(map) };
    assert_eq!(map.header().ended.load(Relaxed), (size_of::<Slot>() << FIRST_SHIFT) as u64);
    let shifts = |fits: fn(Map, u32) -> bool| (FIRST_SHIFT..).take_while(|shift| fits(map, *shift)).count();
    assert_eq!((shifts(Table::fits), shifts(Table::will_fit)), (3, 4));
    trace.gone(7, 4, u64::MAX);
    let mut tids = Vec::new();
    trace.collect_of(|owner| owner.tid == 3, |owner, _, count| tids.push((owner.tid, count)));
    assert_eq!(tids, [(1, 1), (3, 1), (4, 1)], "ended, wanted, gone");
    assert_eq!(map.header().ended.load(Relaxed), 0, "the memory is given back");
    assert_eq!(collected(&mut trace).iter().map(|tally| tally.tid).collect::<Vec<_>>(), [2, 5]);
}

#[test]
fn of_each_slot_what_is_new_is_read_whichever_were_used_before() {
    let mut trace = Trace::create(false, 1 << 20).unwrap();
    let (map, table) = (trace.parts().0, taken(&trace, 7 << 32 | 9));
    let mut sums = std::collections::BTreeMap::<u64, u64>::new();
    for round in 1..=5_u64 {
        // Pages of earlier rounds, of which every third is used again, and new ones between them.
        let pages = (1..=200 * round).filter(|page| page % 3 == 0 || page * 7 % 5 == round % 5);
        let counted: Vec<(u64, u64)> = pages.map(|page| (page << 12, page + round)).collect();
        counted.iter().for_each(|(addr, by)| count(map, &table, *addr, 0x40_1000, true, *by));
        counted.iter().for_each(|(addr, by)| *sums.entry(*addr).or_default() += by);
        let read: Vec<(u64, u64)> = collected(&mut trace).iter().map(|tally| (tally.addr, tally.count)).collect();
        assert_eq!(read, counted, "round {round}");
    }
    let kept = trace.memory() - map.header().bytes.load(Relaxed);
    let all = (size_of::<u64>() << FIRST_SHIFT) as u64;
    let lines = super::layout::LINES_AT + super::lines::FIRST_BLOCKS * size_of::<super::lines::PageLines>();
    assert!(kept - (lines as u64) < all / 2, "{} counts are kept in {kept} bytes", sums.len());
}

#[test]
fn larger_tables_leave_room_for_the_first_ones_of_other_threads() {
    let trace = Trace::create(false, 1 << 20).unwrap();
    let (map, fd) = trace.parts();
    let take = |shift| (0..).map_while(|owner| Table::take(map, fd, owner, shift)).count();
    assert_eq!((take(FIRST_SHIFT + 2), take(FIRST_SHIFT)), (3, 4));
}

#[test]
fn a_full_table_says_so() {
    let trace = Trace::create(false, 1 << 20).unwrap();
    let (map, table) = (trace.parts().0, taken(&trace, 1));
    let of = |page: u64| table.counter(key(page << 12, site(map, 0x40_1000, false)).unwrap());
    let room = (1..).take_while(|page| of(*page).is_some()).count();
    assert_eq!(room, (1 << FIRST_SHIFT) / 16 * 14);
    assert!(table.is_full() && of(1).is_some());
    let has = |page: u64| table.has(key(page << 12, site(map, 0x40_1000, false)).unwrap());
    assert!(has(1) && has(room as u64) && !has(room as u64 + 1));
    // Accesses by more instructions count for their page.
    assert!(!trace.merged());
    let of_page = |page: u64| table.counter_of_page(map, page << 12, true);
    let pages = (1..).take_while(|page| of_page(*page).is_some()).count();
    assert_eq!((pages, trace.merged()), ((1 << FIRST_SHIFT) / 16, true));
    of_page(5).unwrap().fetch_add(3, Relaxed);
    let mut trace = trace;
    let [merged] = collected(&mut trace)[..] else { panic!() };
    assert_eq!((merged.addr, merged.ip, merged.write, merged.count), (5 << 12, 0, true, 3));
}

#[test]
fn addresses_of_no_program_have_no_key() {
    assert!(key(0xfff, 3).is_none() && key(1 << 47, 3).is_none());
    assert_eq!(key(0x7fff_ffff_f123, 0x1_ffff), Some(u64::MAX ^ 0xfff ^ 0x123));
}

#[test]
fn lines_tell_writes_to_one_word_from_writes_to_several() {
    use super::lines::{BLOCKS, FIRST_BLOCKS, take};
    let mut trace = Trace::create(false, 1 << 30).unwrap();
    let (map, _) = trace.parts();
    let block = map.lines(take(map, 7, 0x50_0001).unwrap());
    assert!(block.is_of(7, 0x50_0001) && !block.is_of(8, 0x50_0001));
    let ip = site(map, 0x40_1000, true);
    let use_by = |thread, offset, write| block.access(0x5000_1000 + offset, thread, ip, write, 1);
    // Two counters in one line: each write but the first takes it from the other thread.
    (0..10).for_each(|n| use_by(n % 2, u64::from(n % 2) * 8, true));
    // One counter: the same word.
    (0..6).for_each(|n| use_by(n % 3, 64, true));
    // Three threads have read it before a fourth writes another word of the line.
    (0..3).for_each(|thread| use_by(thread, 128, false));
    use_by(3, 132, true);
    use_by(3, 132, true);
    // Only read.
    (0..3).for_each(|thread| use_by(thread, 192, false));
    let mut lines = Vec::new();
    trace.collect_lines(&mut lines);
    let seen: Vec<_> = lines.iter().map(|l| (l.addr & 0xfff, l.other_words, l.same_word, l.words.len())).collect();
    assert_eq!(seen, [(0, 9, 0, 2), (64, 0, 5, 1), (128, 3, 0, 2), (192, 0, 0, 1)]);
    let word = lines[0].words[1];
    assert_eq!((word.word, word.writers, word.readers, word.writes, word.write_ip), (2, 0b10, 0, 5, 0x40_1000));
    lines.clear();
    trace.collect_lines(&mut lines);
    assert_eq!(lines, [], "each use is read once");
    // More memory comes when half of it is used, up to the bound.
    let more = (0..).map_while(|page| take(map, 7, page + 1)).count();
    assert_eq!(more, FIRST_BLOCKS - 1);
    (0..8).for_each(|_| {
        trace.collect_lines(&mut lines);
        (0..).map_while(|page| take(map, 7, page + 1)).for_each(drop);
    });
    assert_eq!(map.header().blocks_taken.load(Relaxed) as usize, BLOCKS);
}

/// Where four pages in a row have their counters, and what becomes of pages at distances of four.
#[test]
fn pages_in_a_row_have_one_cache_line_and_pages_at_a_distance_do_not_crowd() {
    const PAGES: u64 = 1 << (FIRST_SHIFT - 2);
    let trace = Trace::create(false, 1 << 20).unwrap();
    let map = trace.parts().0;
    let slot = |table: &Table, page: u64| {
        let counter = table.counter(key(page << 12, site(map, 0x40_1000, false)).unwrap()).unwrap();
        (std::ptr::from_ref(counter) as usize - table.slots() as usize) / size_of::<Slot>()
    };
    let table = taken(&trace, 1);
    let lines: Vec<usize> = (0x5000..0x5000 + 64).map(|page| slot(&table, page) / 4).collect();
    let together = lines.chunks(4).filter(|four| four.iter().all(|line| line == &four[0])).count();
    assert!(together >= 12, "{lines:?}");
    let apart = taken(&trace, 2);
    let mut of_line = [0_u32; 4];
    (0..PAGES).for_each(|n| of_line[slot(&apart, 0x5000 + 4 * n) % 4] += 1);
    assert!(of_line.iter().all(|n| u64::from(*n) > PAGES / 8), "{of_line:?}");
}
