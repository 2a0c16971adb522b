//! The arithmetic of folding, grouping, and files that are damaged.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::profile::file::Writer;
use crate::profile::records::*;
use crate::topology::Topology;

mod chains;
mod compacted;
mod names;
mod parts;

const PAGE: u64 = 4096;

fn scratch() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("numamma-summary-{}-{n}.prof", std::process::id()))
}

fn write(records: &[Record]) -> PathBuf {
    let path = scratch();
    let _ = std::fs::remove_file(&path);
    let mut writer = Writer::create(&path).expect("the scratch directory is writable");
    records.iter().for_each(|r| writer.append(r).expect("the disk has room"));
    path
}

fn load(records: &[Record]) -> Summary {
    let path = write(records);
    let summary = Summary::load(&path).expect("the profile is whole");
    std::fs::remove_file(path).expect("it was written");
    summary
}

fn header() -> Record {
    Record::Header(Header {
        numamma: "0".into(),
        program: Program { path: "/bin/app".into(), argv: Vec::new(), build_id: None },
        host: String::new(),
        started_unix: 0,
        pid: 1,
        sampling: Sampling {
            sampler: "timer".into(),
            reason: String::new(),
            period_ns: 1000,
            cost_ns: 0,
            max_overhead: 0.0,
        },
        page_size: PAGE,
        thp: String::new(),
        topology: Topology::uniform(2, 4),
        allocations: true,
    })
}

fn object(id: ObjectId, kind: ObjectKind, name: &str, base: u64, size: u64) -> Object {
    Object {
        id,
        kind,
        name: name.into(),
        module: Some(0),
        vaddr: base,
        site: None,
        pid: 1,
        instance: Instance { base, size, born_ns: 0, died_ns: None, thread: None },
    }
}

pub(super) fn access(object: ObjectId, thread: ThreadId, time_ns: u64, addr: u64) -> Access {
    Access {
        time_ns,
        thread,
        cpu: 3,
        object,
        addr,
        size: 8,
        write: false,
        certainty: Certainty::Exact,
        cost_ns: 10,
        node: NODE_UNKNOWN,
        ip: Frame { module: 0, offset: 1 },
    }
}

fn stats(duration_ns: u64) -> Record {
    Record::Stats(Stats { duration_ns, ..Stats::default() })
}

fn end() -> Record {
    Record::End(Ended::Exited(0))
}

/// `n` accesses of 8 threads in bursts of 4, to 64 objects of 1024 pages.
pub(super) fn many_accesses(n: u64) -> Vec<Access> {
    let burst = |i: u64| {
        // Fibonacci hashing spreads consecutive samples over objects and pages.
        let spread = (i / 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let (object, page) = ((spread % 64) as u32, spread / 64 % 1024);
        let mut a = access(object, (i / 4 % 8) as u32, i * 10, 0x1000_0000 * u64::from(object + 1) + page * PAGE);
        a.ip.offset = u64::from(object) * 4 + i % 4;
        a
    };
    (0..n).map(burst).collect()
}

/// Writes them with the objects they need.
pub(super) fn write_many(path: &Path, accesses: &[Access]) {
    let mut writer = Writer::create(path).expect("the scratch directory is writable");
    let objects = (0..64u32)
        .map(|i| object(i, ObjectKind::Global, &format!("g{i}"), 0x1000_0000 * u64::from(i + 1), 1024 * PAGE));
    let mut put = |r: &Record| writer.append(r).expect("the disk has room");
    put(&header());
    put(&Record::Objects(objects.collect()));
    accesses.chunks(1 << 16).for_each(|c| put(&Record::Accesses(c.to_vec())));
    put(&end());
}

/// Two functions, one of them with two loops, and code that the recorder could not name.
#[test]
fn accesses_are_folded_by_function_and_loop() {
    let at = |offset| Frame { module: 0, offset };
    let by = |offset: u64, time, page: u64| Access { ip: at(offset), ..access(0, 1, time, 0x10_0000 + page * PAGE) };
    let unit = |offset, function, nest| CodeUnit { frame: at(offset), function, nest };
    let summary = load(&[
        header(),
        Record::Objects(vec![
            object(0, ObjectKind::Global, "shared", 0x10_0000, 8 * PAGE),
            object(1, ObjectKind::Global, "single", 0x20_0000, PAGE),
        ]),
        Record::Accesses(vec![
            by(0x10, 0, 0),
            by(0x18, 0, 0),
            by(0x10, 0, 1),
            by(0x50, 0, 1),
            by(0x58, 0, 1),
            by(0x90, 0, 1),
            Access { ip: at(0x10), ..access(1, 1, 0, 0x20_0000) },
        ]),
        Record::Code(vec![
            unit(0x10, 0x10, 0x10),
            unit(0x18, 0x10, 0x10),
            unit(0x50, 0x40, 0x50),
            unit(0x58, 0x40, 0x58),
        ]),
        stats(64),
        end(),
    ]);
    let named = |name: &str| summary.entries.iter().find(|e| e.name == name).expect("it was accessed");
    let parts = &named("shared").by_code;
    let counts: Vec<(u64, usize)> = parts.iter().map(|p| (p.total.accesses(), p.cells.len())).collect();
    assert_eq!(counts, [(3, 2), (1, 1), (1, 1), (1, 1)]);
    assert_eq!((parts[0].function.as_str(), parts[1].function.as_str()), ("0x10", "0x40"));
    assert!(parts[3].function.is_empty(), "the rest is last");
    let cells = &named("shared").cells;
    assert_eq!((cells.len(), cells[1].counters.accesses()), (2, 4), "the whole object's cells are not divided");
    assert!(named("single").by_code.is_empty());
}

#[test]
fn cells_count_pages_threads_and_slots() {
    // The object begins in the middle of a page, so page 0 is the page that holds its first byte.
    let base = 0x10_0800;
    let mut write_remote = access(0, 1, 640, base + PAGE);
    write_remote.write = true;
    write_remote.node = 0; // CPU 3 is on node 1
    let mut local = access(0, 0, 0, base);
    local.node = 1;
    let list = vec![local, access(0, 0, 9, base + 8), access(0, 0, 10, base), write_remote];
    let records = [
        header(),
        Record::Objects(vec![object(0, ObjectKind::Global, "g", base, 8192)]),
        Record::Accesses(list),
        stats(640),
        end(),
    ];
    let summary = load(&records);
    let entry = &summary.entries[0];
    let got: Vec<_> =
        entry.cells.iter().map(|c| (c.instance, c.page, c.thread, c.slot, c.counters.accesses())).collect();
    // Slots are 10 ns; the access at the very end is in the last.
    assert_eq!(got, [(0, 0, 0, 0, 2), (0, 0, 0, 1, 1), (0, 1, 1, 63, 1)]);
    let expected = Counters { reads: 3, writes: 1, remote: 1, placed: 2, cost_ns: 40 };
    assert_eq!(entry.total, expected);
    assert_eq!(summary.total(), expected);
    assert_eq!(entry.details.code, [(Frame { module: 0, offset: 1 }, expected)]);
}

#[test]
fn gathers_count_for_the_object_but_no_page() {
    let mut gather = access(0, 0, 5, 0x10_0000);
    gather.certainty = Certainty::ObjectOnly;
    let below = access(1, 0, 5, 0xf_0000);
    let objects =
        vec![object(0, ObjectKind::Global, "g", 0x10_0000, 8192), object(1, ObjectKind::Stack, "s", 0x20_0000, 8192)];
    let summary = load(&[header(), Record::Objects(objects), Record::Accesses(vec![gather, below]), end()]);
    let g = summary.entries.iter().find(|e| e.kind == ObjectKind::Global).expect("it was accessed");
    assert_eq!((g.cells.len(), g.total.reads, g.details.unpaged.reads), (0, 1, 1));
    assert_eq!(g.threads().len(), 1, "a thread without a page has used the object, too");
    // A stack that grew below its recorded base is counted from the lowest page seen.
    let s = summary.entries.iter().find(|e| e.kind == ObjectKind::Stack).expect("it was accessed");
    assert_eq!((s.seen[0].base, s.cells[0].page), (0xf_0000, 0));
}

#[test]
fn shares_add_up_and_order_is_by_cost() {
    let objects =
        (0..50).map(|i| object(i, ObjectKind::Global, &format!("g{i}"), 0x10_0000 * u64::from(i + 1), PAGE)).collect();
    let list = (0..50)
        .flat_map(|i| (0..=i).map(move |k| access(i, k % 4, u64::from(k), 0x10_0000 * u64::from(i + 1))))
        .collect();
    let summary = load(&[header(), Record::Objects(objects), Record::Accesses(list), stats(100), end()]);
    let sum: f64 = summary.entries.iter().map(|e| summary.cost_share(e)).sum();
    assert!((sum - 1.0).abs() < 1e-12, "{sum}");
    assert!(summary.entries.iter().zip(&summary.entries[1..]).all(|(a, b)| a.total.cost_ns >= b.total.cost_ns));
    assert!(summary.entries.iter().enumerate().all(|(i, e)| e.id as usize == i));
    assert_eq!(summary.entries[0].name, "g49");
}

fn site_records(functions: [&str; 4]) -> Vec<Record> {
    let frame = |offset| Frame { module: 0, offset };
    let libc = Frame { module: 1, offset: 7 };
    let location = |f: &str| Location { function: Some(f.into()), file: Some("/src/a.rs".into()), line: Some(3) };
    vec![
        header(),
        Record::Modules(vec![
            Module { id: 0, path: "/bin/app".into(), build_id: None, read_only: vec![] },
            Module { id: 1, path: "/lib/libc.so.6".into(), build_id: None, read_only: vec![] },
        ]),
        Record::Sites(vec![
            CallSite { id: 0, frames: vec![libc, frame(10), frame(12), frame(13)] },
            CallSite { id: 1, frames: vec![frame(11), frame(12), frame(13)] },
            CallSite { id: 2, frames: vec![libc] },
        ]),
        Record::Symbols(
            (0..).zip(functions).map(|(i, f)| Symbol { frame: frame(10 + i), locations: vec![location(f)] }).collect(),
        ),
    ]
}

#[test]
fn stacks_through_different_runtime_frames_are_one_entry() {
    let runtimes = [
        ["operator new(unsigned long)", "void std::vector<int>::_M_realloc_insert<int>(int*)", "solve(int)", "main"],
        [
            "alloc::raw_vec::RawVec<T,A>::with_capacity",
            "<alloc::vec::Vec<T> as core::clone::Clone>::clone",
            "app::solve",
            "main",
        ],
        [
            "__rust_alloc",
            "<T as alloc::vec::spec_from_elem::SpecFromElem>::from_elem",
            "<app::Grid as core::default::Default>::default",
            "main",
        ],
        ["xmalloc", "sb_memalign", "grid_alloc", "main"],
    ];
    for functions in runtimes {
        let mut records = site_records(functions);
        let objects = (0..3u32).map(|i| {
            let mut o = object(i, ObjectKind::Heap, "", 0x10_0000 * u64::from(i + 1), 8192 + u64::from(i));
            o.site = Some(i);
            o.instance.born_ns = 100 - u64::from(i);
            o
        });
        records.push(Record::Objects(objects.collect()));
        let count = |site, instances, max_size| SiteCount { site, instances, bytes: 1, peak_bytes: 1, max_size };
        records.push(Record::SiteCounts(vec![count(0, 5, 8192), count(1, 7, 9000)]));
        records.push(Record::Accesses((0..3).map(|i| access(i, i, 1, 0x10_0000 * u64::from(i + 1))).collect()));
        records.push(end());
        let summary = load(&records);
        assert_eq!(summary.entries.len(), 2, "{functions:?}");
        let entry = &summary.entries[0];
        let expected = functions[2].trim_end_matches("(int)").to_owned() + " a.rs:3";
        assert_eq!((entry.name.as_str(), entry.instances, entry.size), (expected.as_str(), 12, 9000));
        // In order of birth: object 1 was born before object 0.
        assert_eq!(entry.seen.iter().map(|i| i.base).collect::<Vec<_>>(), [0x20_0000, 0x10_0000]);
        assert_eq!(entry.cells.iter().map(|c| (c.instance, c.thread)).collect::<Vec<_>>(), [(0, 1), (1, 0)]);
        // Nothing but the runtime on the stack: named by it rather than hidden.
        assert_eq!(summary.entries[1].name, "libc.so.6+0x7");
    }
}

#[test]
fn names_are_what_the_author_wrote() {
    let cases = [
        ("_ZN4grid4cellE", "grid::cell"),
        ("cvar_", "cvar_"),
        ("__fields_MOD_rho", "fields::rho"),
        ("_ZN3app5TABLE17h0123456789abcdefE", "app::TABLE"),
        ("__MOD_", "__MOD_"),
    ];
    cases.iter().for_each(|(linkage, name)| assert_eq!(demangle(linkage), *name));
}

#[test]
fn touches_join_and_the_first_counts() {
    let touch =
        |page: u64, pages, thread, time_ns| Touch { object: 0, addr: 0x10_0000 + page * PAGE, pages, thread, time_ns };
    let list =
        vec![touch(4, 4, 0, 20), touch(0, 4, 0, 10), touch(2, 3, 1, 99), touch(8, 2, 1, 30), touch(0, 12, 2, 98)];
    let summary = load(&[
        header(),
        Record::Objects(vec![object(0, ObjectKind::Global, "g", 0x10_0000, 10 * PAGE)]),
        Record::Touches(list),
        end(),
    ]);
    let entry = &summary.entries[0];
    let runs: Vec<_> = entry.touches.iter().map(|t| (t.page, t.pages, t.thread, t.time_ns)).collect();
    assert_eq!(runs, [(0, 8, 0, 10), (8, 2, 1, 30), (10, 2, 2, 98)]);
    assert_eq!(entry.first_touchers(), [(0, 8), (1, 2), (2, 2)]);
}

/// The memory of an allocation from `base` on, between two times.
fn allocation(id: ObjectId, first_page: u64, pages: u64, born_ns: u64, died_ns: Option<u64>) -> Object {
    let instance =
        Instance { base: 0x10_0000 + first_page * PAGE, size: pages * PAGE, born_ns, died_ns, thread: Some(3) };
    Object { module: None, instance, ..object(id, ObjectKind::Heap, "", 0, 0) }
}

#[test]
fn memory_given_out_again_keeps_its_first_toucher() {
    let touch = |object, page: u64, pages, thread, time_ns| Touch {
        object,
        addr: 0x10_0000 + page * PAGE,
        pages,
        thread,
        time_ns,
    };
    let summary = load(&[
        header(),
        Record::Objects(vec![
            allocation(0, 0, 40, 0, Some(50)),
            allocation(1, 0, 64, 60, Some(70)),
            allocation(2, 2, 1, 80, None),
            allocation(3, 2, 4, 90, None),
            allocation(4, 0, 4, 30, None),
        ]),
        // Pages 2 to 5 were returned to the kernel in between.
        Record::Touches(vec![touch(0, 0, 20, 1, 10), touch(0, 20, 20, 2, 20), touch(3, 2, 4, 0, 95)]),
        Record::Accesses((0..5).map(|o| access(o, 0, 99, 0x10_0000 + 2 * PAGE)).collect()),
        end(),
    ]);
    let [entry] = &summary.entries[..] else { panic!("{} entries", summary.entries.len()) };
    let runs: Vec<_> = entry.touches.iter().map(|t| (t.instance, t.page, t.pages, t.thread)).collect();
    let born = |i: u32| entry.seen[i as usize].born_ns;
    assert_eq!([0, 1, 2, 3, 4].map(born), [0, 30, 60, 80, 90]);
    // The last 24 pages of the one of 64 were never touched: nobody's.
    let wanted =
        [(0, 0, 20, 1), (0, 20, 20, 2), (1, 0, 4, 1), (2, 0, 20, 1), (2, 20, 20, 2), (3, 0, 1, 1), (4, 0, 4, 0)];
    assert_eq!(runs, wanted);
}

#[test]
fn later_records_replace_earlier_ones() {
    let renamed = |name: &str, end_ns| {
        Record::Threads(vec![Thread { name: name.into(), end_ns, tid: 5, ..super::entries::missing_thread(0) }])
    };
    let summary = load(&[header(), renamed("a", None), stats(5), renamed("b", Some(9)), stats(7), end()]);
    assert_eq!((summary.threads[0].name.as_str(), summary.threads[0].end_ns), ("b", Some(9)));
    assert_eq!(summary.stats.duration_ns, 7);
}

/// A small profile with every kind of record.
fn small() -> Vec<Record> {
    let mut records = site_records(["operator new(unsigned long)", "std::f()", "solve", "main"]);
    let mut small = object(1, ObjectKind::SmallHeap, "", 0, 0);
    small.site = Some(0);
    records.push(Record::Objects(vec![object(0, ObjectKind::Global, "g", 0x10_0000, 8192), small]));
    records.push(Record::Threads(vec![super::entries::missing_thread(0)]));
    records.push(Record::Touches(vec![Touch { object: 0, addr: 0x10_0000, pages: 2, thread: 0, time_ns: 1 }]));
    records.push(Record::Accesses(
        (0..20).map(|i| access(i % 3, i % 5, u64::from(i), 0x10_0000 + u64::from(i))).collect(),
    ));
    records.push(Record::SiteCounts(vec![SiteCount {
        site: 0,
        instances: 2,
        bytes: 80,
        peak_bytes: 80,
        max_size: 40,
    }]));
    records.push(stats(20));
    records.push(Record::Notes(vec!["note".into()]));
    records.push(Record::Code(vec![CodeUnit { frame: Frame { module: 0, offset: 1 }, function: 0, nest: 0 }]));
    records.push(end());
    records
}

#[test]
fn a_file_cut_at_any_byte_is_read_or_refused() {
    let path = write(&small());
    let whole = std::fs::read(&path).expect("just written");
    let cut_path = scratch();
    let (mut read, mut refused) = (0, 0);
    for cut in 0..whole.len() {
        std::fs::write(&cut_path, &whole[..cut]).expect("the scratch directory is writable");
        match Summary::load(&cut_path) {
            Ok(summary) => {
                read += 1;
                assert!(!summary.notes.is_empty(), "cut at {cut}: nothing said");
                check(&summary);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(read > 100 && refused > 16, "{read} read, {refused} refused");
    let _ = std::fs::remove_file(cut_path);
    let _ = std::fs::remove_file(path);
}

/// What every reader may rely on.
fn check(summary: &Summary) {
    let mut sum = Counters::default();
    for entry in &summary.entries {
        let mut own = entry.details.unpaged;
        entry.cells.iter().for_each(|c| own.add(&c.counters));
        assert_eq!(own, entry.total);
        sum.add(&own);
        assert!(entry.cells.iter().all(|c| (c.thread as usize) < summary.threads.len()));
        assert!(entry.cells.iter().all(|c| (c.instance as usize) < entry.seen.len() && c.slot < TIME_SLOTS));
        assert!(entry.touches.iter().all(|t| (t.instance as usize) < entry.seen.len()));
        assert!(entry.cells.is_sorted_by_key(|c| (c.instance, c.page, c.thread, c.slot)));
    }
    assert_eq!(sum, summary.total());
}

/// Appends a chunk with a good checksum around any bytes.
fn forged(plain: &[u8]) -> Vec<u8> {
    let payload = lz4_flex::compress_prepend_size(plain);
    let mut chunk = b"CHNK".to_vec();
    chunk.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    chunk.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
    chunk.extend_from_slice(&payload);
    chunk
}

#[test]
fn random_chunks_never_panic() {
    forged_summaries(check);
}

/// Gives every summary that can be loaded from a profile with random damage to `examine`.
pub(crate) fn forged_summaries(examine: impl Fn(&Summary)) {
    let path = write(&small());
    let whole = std::fs::read(&path).expect("just written");
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        // xorshift64*, Vigna 2016.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    let forged_path = scratch();
    for round in 0..600 {
        let mut bytes = whole.clone();
        match round % 3 {
            // Any bytes as a record of a random kind, behind good ones.
            0 => {
                let kind = (next() % 14) as u8;
                let plain: Vec<u8> = std::iter::once(kind).chain((0..next() % 64).map(|_| next() as u8)).collect();
                bytes.extend(forged(&plain));
            }
            // A record that decodes, with one byte changed.
            1 => {
                let records = small();
                let record = &records[(next() % records.len() as u64) as usize];
                let mut plain = postcard::to_stdvec(record).expect("it encodes");
                let at = (next() % plain.len() as u64) as usize;
                plain[at] = next() as u8;
                bytes.extend(forged(&plain));
            }
            // One byte of the file changed.
            _ => {
                let at = 16 + (next() % (bytes.len() as u64 - 16)) as usize;
                bytes[at] ^= 1 << (next() % 8);
            }
        }
        std::fs::write(&forged_path, &bytes).expect("the scratch directory is writable");
        if let Ok(summary) = Summary::load(&forged_path) {
            examine(&summary);
        }
    }
    let _ = std::fs::remove_file(forged_path);
    let _ = std::fs::remove_file(path);
}

#[test]
fn ids_far_away_are_refused_without_memory() {
    let mut records = small();
    records.pop();
    let far = Thread { id: u32::MAX, ..super::entries::missing_thread(0) };
    records.push(Record::Threads(vec![far]));
    records
        .push(Record::Accesses(vec![access(u32::MAX, u32::MAX - 1, 3, 0x10_0000), access(u32::MAX, 0, 3, u64::MAX)]));
    records.push(end());
    let summary = load(&records);
    check(&summary);
    assert!(summary.threads.len() < 100);
    assert!(summary.notes.iter().any(|n| n.contains("left out")), "{:?}", summary.notes);
}

#[test]
fn what_a_waiting_thread_reads_has_no_cost() {
    let own = |thread, time_ns, offset| {
        let a = access(0, thread, time_ns, 0x1000);
        Access { ip: Frame { module: 0, offset }, ..a }
    };
    let code = |offset, address| AccessCode {
        frame: Frame { module: 0, offset },
        address,
        body: 6,
        gap: 6,
        behind: 1,
        later: 0,
    };
    let summary = load(&[
        header(),
        Record::Objects(vec![object(0, ObjectKind::Heap, "team", 0x1000, 2 * PAGE)]),
        Record::Accesses(vec![own(0, 10, 1), own(1, 20, 2), own(1, 630, 2), own(0, 640, 1)]),
        Record::AccessCode(vec![code(1, AddressKind::Counted), code(2, AddressKind::Spun)]),
        stats(640),
        end(),
    ]);
    let [team] = &summary.entries[..] else { panic!("{:?}", summary.entries) };
    assert_eq!((team.total.accesses(), team.total.cost_ns, team.details.code.len()), (2, 20, 1));
    assert!(team.cells.iter().all(|c| c.thread == 0), "{:?}", team.cells);
    let spinning = &summary.spinning;
    assert_eq!(spinning.cost_ns(), 20);
    let places: Vec<_> = spinning.cells.iter().map(|c| (c.thread, c.slot, c.counters.reads)).collect();
    assert_eq!(places, [(1, 2, 1), (1, 63, 1)]);
    assert_eq!(spinning.code.iter().map(|c| c.0.offset).collect::<Vec<_>>(), [2]);
}
