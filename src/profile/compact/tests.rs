//! A file that is compacted again and again while it is written.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;

use super::*;
use crate::profile::PAGE;
use crate::profile::file::{Reader, Writer};

const SECOND: u64 = 1_000_000_000;

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("numamma-compact-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn access(object: ObjectId, thread: ThreadId, time_ns: u64, addr: u64) -> Access {
    Access {
        time_ns,
        thread,
        cpu: 0,
        object,
        addr,
        size: 8,
        write: false,
        certainty: Certainty::Exact,
        cost_ns: 1000,
        node: 0,
        ip: Frame { module: 0, offset: 64 },
    }
}

fn heap(id: ObjectId, base: u64, born_ns: u64, died_ns: Option<u64>) -> Object {
    let instance = Instance { base, size: 16 * PAGE, born_ns, died_ns, thread: Some(0) };
    Object { id, kind: ObjectKind::Heap, site: Some(0), instance, ..Object::default() }
}

fn read(path: &Path) -> Vec<Record> {
    let mut reader = Reader::open(path).unwrap();
    let records: Vec<Record> = reader.by_ref().collect();
    assert_eq!(reader.damage, None);
    records
}

/// Accesses and their cost, over all records.
fn totals(records: &[Record]) -> (u64, u64) {
    let mut sum = (0, 0);
    for record in records {
        match record {
            Record::Accesses(list) => list.iter().for_each(|a| sum = (sum.0 + 1, sum.1 + u64::from(a.cost_ns))),
            Record::Folded(list) => list.iter().for_each(|f| sum = (sum.0 + f.reads + f.writes, sum.1 + f.cost_ns)),
            _ => {}
        }
    }
    sum
}

fn objects(records: &[Record]) -> (Vec<ObjectId>, u64) {
    let ids = records.iter().filter_map(|r| match r {
        Record::Objects(list) => Some(list.iter().map(|o| o.id)),
        _ => None,
    });
    let more = records.iter().filter_map(|r| match r {
        Record::Like(list) => Some(list.iter().map(|like| like.more).sum::<u64>()),
        _ => None,
    });
    (ids.flatten().collect(), more.sum())
}

/// One second of a program that works on one array and allocates, touches and frees others.
fn second(n: u64) -> Vec<Record> {
    let now = n * SECOND;
    let id = |k: u64| (1 + n * 100 + k) as ObjectId;
    let at = |k: u64| 0x7000_0000 + k * 64 * PAGE;
    let fresh = (0..100).map(|k| heap(id(k), at(k), now + k, Some(now + k + 1)));
    let touches = (0..100).map(|k| Touch { object: id(k), addr: at(k), pages: 16, thread: 0, time_ns: now + k });
    let accesses = (0..400).map(|k| access(0, (k % 4) as u32, now + k, 0x1000_0000 + k % 16 * PAGE));
    vec![
        Record::Objects(fresh.collect()),
        Record::Touches(touches.collect()),
        Record::Accesses(accesses.collect()),
        Record::Stats(Stats { duration_ns: now, ..Stats::default() }),
    ]
}

#[test]
fn a_file_of_hours_stays_small_and_loses_no_access() {
    const SECONDS: u64 = 2000;
    let dir = scratch("hours");
    let path = dir.join("numamma.prof");
    let mut writer = Writer::create(&path).unwrap();
    let mut compaction = Compaction::new(Some(256 << 10), 4 << 20);
    writer.append(&Record::Header(Header::default())).unwrap();
    writer.append(&Record::Objects(vec![heap(0, 0x1000_0000, 0, None)])).unwrap();
    let mut largest = (0, 0);
    for n in 0..SECONDS {
        second(n).iter().for_each(|record| writer.append(record).unwrap());
        compaction.step(&path, &mut writer, n * SECOND);
        // The thread is slower than this loop, in which a second takes no time.
        while n % 50 == 0 && compaction.is_running() {
            std::thread::sleep(Duration::from_millis(1));
            compaction.step(&path, &mut writer, n * SECOND);
        }
        let half = if n < SECONDS / 2 { &mut largest.0 } else { &mut largest.1 };
        *half = writer.written().bytes.max(*half);
    }
    compaction.cancel();
    let records = read(&path);
    assert_eq!(totals(&records), (400 * SECONDS, 400 * SECONDS * 1000));
    let (ids, more) = objects(&records);
    assert_eq!(ids.len() as u64 + more, 1 + 100 * SECONDS, "every object is there or counted");
    assert!(largest.1 < largest.0 + largest.0 / 4, "it grew from {} to {} bytes", largest.0, largest.1);
    assert_eq!(writer.written().bytes, std::fs::metadata(&path).unwrap().len());
    assert_eq!(writer.written().chunks, records.len() as u64);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1, "nothing else is left in the directory");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn what_is_recorded_meanwhile_follows_and_a_moved_file_is_left_alone() {
    let dir = scratch("meanwhile");
    let (path, moved) = (dir.join("numamma.prof"), dir.join("moved"));
    let mut writer = Writer::create(&path).unwrap();
    let mut compaction = Compaction::new(Some(1), 4 << 20);
    writer.append(&Record::Header(Header::default())).unwrap();
    let wait = |writer: &mut Writer, compaction: &mut Compaction| {
        let begun = Instant::now();
        while compaction.is_running() && begun.elapsed() < Duration::from_secs(60) {
            compaction.step(&path, writer, SECOND);
        }
        assert!(!compaction.is_running());
    };
    second(0).iter().for_each(|r| writer.append(r).unwrap());
    compaction.step(&path, &mut writer, SECOND);
    second(1).iter().for_each(|r| writer.append(r).unwrap());
    wait(&mut writer, &mut compaction);
    assert!(compaction.compacted() > 0);
    let records = read(&path);
    assert_eq!(totals(&records).0, 800);
    let parts = |of: fn(&Record) -> bool| records.iter().filter(|r| of(r)).count();
    assert_eq!((parts(|r| matches!(r, Record::Folded(_))), parts(|r| matches!(r, Record::Accesses(_)))), (1, 1));
    // The user has taken the file away; the next compaction must not bring one back under its name.
    std::fs::rename(&path, &moved).unwrap();
    second(2).iter().for_each(|r| writer.append(r).unwrap());
    compaction.step(&path, &mut writer, 2 * SECOND);
    wait(&mut writer, &mut compaction);
    second(3).iter().for_each(|r| writer.append(r).unwrap());
    assert_eq!((path.exists(), totals(&read(&moved)).0), (false, 1600));
    std::fs::remove_dir_all(dir).unwrap();
}

/// With less memory than there are cells, stretches of time are merged, then pages; the sums stay.
#[test]
fn sums_are_merged_until_they_fit() {
    let folded = |most: usize, pages: u64| {
        let mut cells = Cells::new(12, 256 * SECOND, most, None);
        let nodes = CpuNodes::of(&Topology::default());
        for n in 0..4 * pages {
            // Every page in four seconds that are far from each other.
            let time = (n / pages) * 64 * SECOND + n;
            cells.add(&nodes.fold(&access(0, 0, time, 0x1000_0000 + n % pages * PAGE)));
            cells.add(&nodes.fold(&access(1, 0, time, 0x2000_0000 + n % 4 * PAGE)));
        }
        cells.fit();
        let thinned = cells.thinned();
        (cells.into_sorted(), thinned)
    };
    let count =
        |all: &[Folded], object: ObjectId| -> u64 { all.iter().filter(|f| f.object == object).map(|f| f.reads).sum() };
    for (most, thins) in [(1 << 20, 0), (300, 1)] {
        let (all, thinned) = folded(most, 1000);
        assert!(all.len() <= most && thinned == thins, "{} cells, {thinned}", all.len());
        assert_eq!((count(&all, 0), count(&all, 1)), (4000, 4000));
        let small: FxHashSet<u64> =
            all.iter().filter(|f| f.object == 1 && !f.object_only).map(|f| f.addr >> 12).collect();
        assert_eq!(small.len(), 4, "an object of few pages keeps them");
        let paged = all.iter().filter(|f| f.object == 0 && !f.object_only).count();
        assert!(paged > most.min(1000) / 8, "{paged} pages of the large one are left");
    }
}

/// A program that works on new arrays in each step: some of them stand for all, each used by the thread that used it.
#[test]
fn many_sampled_objects_count_for_few_that_are_like_them() {
    const STEPS: u64 = 5000;
    let mut compacted = Compacted::new(STEPS * SECOND, 1 << 20, None);
    compacted.take(Record::Header(Header::default()));
    for n in 0..STEPS {
        let (now, user) = (n * SECOND, (n % 4) as ThreadId);
        let base = 0x7000_0010 + n % 7 * 64 * PAGE;
        compacted.take(Record::Objects(vec![heap(n as ObjectId, base, now, Some(now + 100))]));
        let accesses = (0..16).map(|page| access(n as ObjectId, user, now + 1 + page, base + page * PAGE));
        compacted.take(Record::Accesses(accesses.collect()));
    }
    let records = compacted.into_records();
    let (ids, more) = objects(&records);
    assert!(ids.len() <= 4 * 64, "{} objects", ids.len());
    assert_eq!((ids.len() as u64 + more, totals(&records)), (STEPS, (16 * STEPS, 16 * STEPS * 1000)));
    let kept: FxHashSet<ObjectId> = ids.into_iter().collect();
    let mut pages = FxHashSet::default();
    for folded in records.iter().filter_map(|r| if let Record::Folded(list) = r { Some(list) } else { None }).flatten()
    {
        assert!(kept.contains(&folded.object));
        assert_eq!(folded.thread, folded.object % 4, "an array is used by one thread");
        let base = 0x7000_0010 + u64::from(folded.object) % 7 * 64 * PAGE;
        assert!((base..base + 16 * PAGE).contains(&folded.addr));
        pages.insert((folded.addr >> 12) - (base >> 12));
    }
    assert_eq!(pages.len(), 16, "as many pages as one array has");
}

/// An allocation in memory that a forgotten object touched has its first toucher.
#[test]
fn the_last_touch_of_an_address_stays() {
    let touch = |object, page, pages, thread, time_ns| Touch { object, addr: page * PAGE, pages, thread, time_ns };
    let kept: FxHashSet<ObjectId> = [7].into_iter().collect();
    let all = vec![touch(1, 0, 10, 1, 10), touch(2, 4, 2, 2, 20), touch(7, 20, 4, 3, 30), touch(7, 22, 4, 4, 40)];
    let mut left = touches::left(all, &kept, (12, 1));
    left.sort_by_key(|t| (t.object, t.addr));
    let wanted = [
        touch(7, 20, 4, 3, 30),
        touch(7, 24, 2, 4, 40),
        touch(NO_OBJECT, 0, 4, 1, 10),
        touch(NO_OBJECT, 4, 2, 2, 20),
        touch(NO_OBJECT, 6, 4, 1, 10),
        touch(NO_OBJECT, 22, 4, 4, 40),
    ];
    assert_eq!(left, wanted);
}

/// Of an array that grows, the stages in between that are left out leave the calls of realloc.
#[test]
fn what_realloc_made_of_what_is_kept() {
    let stages =
        (0..100).map(|n| heap(n, 0x7000_0000 + u64::from(n) * 64 * PAGE, n.into(), (n < 99).then_some(n.into())));
    let records = vec![
        Record::Header(Header::default()),
        Record::Objects(stages.collect()),
        Record::Resized((1..100).map(|n| Resized { object: n, before: n - 1, calls: 2 }).collect()),
    ];
    let left = compacted(records, SECOND, 1000);
    let (ids, more) = objects(&left);
    assert!(ids.len() < 50 && more == 0, "a stage is no further object: {more} of {}", ids.len());
    let resized =
        left.iter().find_map(|r| if let Record::Resized(list) = r { Some(list.clone()) } else { None }).unwrap();
    assert_eq!(resized.iter().map(|r| r.object).collect::<Vec<_>>(), ids[1..]);
    assert!(resized.iter().all(|r| r.calls == 2 * u64::from(r.object - r.before)));
    assert_eq!(resized.iter().map(|r| r.calls).sum::<u64>(), 2 * 99);
}

/// The counters of a thread replace those that were written before.
#[test]
fn the_last_waits_of_a_thread_stay() {
    let waits = |thread, all| ThreadWaits { thread, waits: Waits { all, ..Waits::default() } };
    let records = vec![
        Record::ThreadWaits(vec![waits(0, 1), waits(1, 5)]),
        Record::ThreadWaits(vec![waits(0, 3)]),
        Record::Stats(Stats::default()),
    ];
    let left: Vec<_> =
        compacted(records, SECOND, 1).into_iter().filter(|r| matches!(r, Record::ThreadWaits(_))).collect();
    assert_eq!(left, [Record::ThreadWaits(vec![waits(0, 3), waits(1, 5)])]);
}
