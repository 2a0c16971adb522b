//! Profiles that no run of a healthy program gives: a sensible answer or a clear reason, never a panic, and never a
//! policy that apply would refuse.

use std::path::{Path, PathBuf};

use numamma::profile::records::*;

use crate::common::{numamma, run};

use super::synthetic::{self, Dice, MIB, PAGE, access, header, object, thread};

/// Every target that a line of the issue names. The short forms take the first and the last two.
const TARGETS: [&[&str]; 6] = [
    &[],
    &["--nodes", "1"],
    &["--nodes", "64"],
    &["--nodes", "64", "--threads", "3"],
    &["--nodes", "2", "--threads", "4000000"],
    &["--target", "pack:4 numa:2 core:6"],
];

/// The short and the long form of a test have files of their own, for both may run at once.
fn write(name: &str, records: &[Record]) -> PathBuf {
    let test = std::thread::current().name().unwrap_or_default().replace("::", "-");
    synthetic::write(&format!("{test}-{name}"), records)
}

/// Runs `report` and `advise` for every target, or for three; the advice must be a policy or a reason.
fn survives(name: &str, prof: &Path, every: bool) {
    let [first, .., many_threads, synthetic] = TARGETS;
    let few = [first, many_threads, synthetic];
    survives_for(name, prof, if every { &TARGETS } else { &few });
}

fn survives_for(name: &str, prof: &Path, targets: &[&[&str]]) {
    let numamma = |args: &[&str]| {
        let out = run(numamma(args).arg(prof));
        let (stderr, code) = (&out.stderr, out.code());
        assert!(matches!(code, Some(0 | 2)), "{name}: {args:?} ended with {:?}\n{stderr}", out.status);
        assert!(!stderr.contains("panicked"), "{name}: {args:?}\n{stderr}");
        assert!(code == Some(0) || stderr.starts_with("numamma: "), "{name}: {args:?}: no reason\n{stderr}");
        (code == Some(0), out.stdout)
    };
    numamma(&["report"]);
    let (fine, text) = numamma(&["report", "--json"]);
    assert!(!fine || serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{name}: {text}");
    for target in targets {
        let (fine, text) = numamma(&[&["advise", "-q"], *target].concat());
        if fine {
            let policy = numamma_plan::check::parse(&text);
            assert!(policy.is_ok(), "{name} {target:?}: {policy:?}\n{text}");
        }
    }
}

/// `threads` threads that use one array of `pages` pages in slices, `samples` accesses.
fn sliced(threads: u32, pages: u64, samples: u64) -> Vec<Record> {
    let mut dice = Dice(threads.into());
    let base = 0x4000_0000;
    let accesses = (0..samples).map(|i| {
        let t = (i % u64::from(threads.max(1))) as u32;
        let slice = (pages * PAGE / u64::from(threads.max(1))).max(8);
        access(0, t, i * 1_000_000, base + u64::from(t) * slice + dice.below(slice), i % 3 == 0, true)
    });
    vec![
        Record::Header(header()),
        Record::Modules(vec![Module { id: 0, path: "/opt/x".into(), build_id: None, read_only: vec![] }]),
        Record::Threads((0..threads).map(|t| thread(t, "x", None)).collect()),
        Record::Objects(vec![Object {
            module: Some(0),
            vaddr: 0x4000,
            ..object(0, ObjectKind::Global, "a", base, pages * PAGE)
        }]),
        Record::Accesses(accesses.collect()),
        Record::Stats(Stats {
            duration_ns: 20_000_000_000,
            samples,
            resolved: samples,
            achieved: 1.0,
            ..Stats::default()
        }),
        Record::End(Ended::Exited(0)),
    ]
}

fn numbers_of_threads(every: bool) {
    survives("no-record-but-header", &write("header", &[Record::Header(header())]), every);
    survives("no-threads", &write("no-threads", &sliced(0, 1000, 0)), every);
    // Accesses by threads that no record names.
    let mut nameless = sliced(4, 1000, 1000);
    nameless.remove(2);
    survives("nameless threads", &write("nameless", &nameless), every);
    survives("one", &write("one", &sliced(1, 1000, 2000)), every);
    survives("few samples", &write("few", &sliced(8, 100_000, 5)), every);
    survives("many threads", &write("many-threads", &sliced(5000, 20_000, 20_000)), every);
}

#[test]
fn threads_none_one_and_very_many() {
    numbers_of_threads(false);
}

#[test]
#[ignore = "long: make test-long"]
fn threads_none_one_and_very_many_for_every_target() {
    numbers_of_threads(true);
}

fn odd_numbers(every: bool) {
    let mut zero = sliced(4, 1000, 2000);
    zero[5] = Record::Stats(Stats::default());
    if let Record::Accesses(list) = &mut zero[4] {
        list.iter_mut().for_each(|a| a.time_ns = 0);
    }
    if let Record::Threads(list) = &mut zero[2] {
        list.iter_mut().for_each(|t| (t.start_ns, t.end_ns) = (0, Some(0)));
    }
    survives("zero duration", &write("zero", &zero), every);
    let mut absurd = sliced(4, 1000, 2000);
    if let Record::Objects(list) = &mut absurd[3] {
        // Sizes from 4 TiB on are another matter: the detector's spectrum is as long as the object has pages.
        (list[0].instance.base, list[0].instance.size) = (u64::MAX - 10, 64 << 30);
    }
    if let Record::Accesses(list) = &mut absurd[4] {
        for (i, a) in list.iter_mut().enumerate() {
            (a.addr, a.cpu, a.cost_ns) = (u64::MAX - i as u64, u16::MAX, u32::MAX);
            (a.time_ns, a.node) = (u64::MAX, 200);
        }
    }
    absurd[5] = Record::Stats(Stats { duration_ns: u64::MAX, achieved: f64::NAN, ..Stats::default() });
    survives("absurd", &write("absurd", &absurd), every);
    let mut empty_machine = sliced(4, 1000, 2000);
    let bare = Header {
        topology: numamma::topology::Topology::default(),
        page_size: 0,
        sampling: Sampling { period_ns: 0, ..header().sampling },
        ..header()
    };
    empty_machine[0] = Record::Header(bare);
    survives("a machine without nodes", &write("no-nodes", &empty_machine), every);
    let mut nowhere = sliced(4, 1000, 2000);
    if let Record::Accesses(list) = &mut nowhere[4] {
        list.iter_mut().for_each(|a| (a.object, a.thread) = (77, 99));
    }
    survives("ids that nobody defined", &write("nowhere", &nowhere), every);
}

#[test]
fn no_duration_and_absurd_numbers() {
    odd_numbers(false);
}

#[test]
#[ignore = "long: make test-long"]
fn no_duration_and_absurd_numbers_for_every_target() {
    odd_numbers(true);
}

fn tiny_objects(objects: u32) {
    let mut records = sliced(4, 64, 1000);
    let heap = |i: u32| Object {
        site: Some(i % 1000),
        ..object(1 + i, ObjectKind::Heap, "", 0x7f00_0000_0000 + u64::from(i) * 8192, 4096)
    };
    let sites = (0..1000).map(|id| CallSite { id, frames: vec![Frame { module: 0, offset: 0x1000 + u64::from(id) }] });
    records.insert(3, Record::Sites(sites.collect()));
    let all: Vec<Object> = (0..objects).map(heap).collect();
    records.insert(5, Record::Objects(all));
    let touched = (0..objects)
        .map(|i| access(1 + i, i % 4, u64::from(i) * 10_000, 0x7f00_0000_0000 + u64::from(i) * 8192 + 64, false, true));
    records.insert(6, Record::Accesses(touched.collect()));
    let prof = write(&format!("{objects}-objects"), &records);
    // The largest file alone takes some seconds to read: one target will do.
    survives_for("many objects", &prof, &TARGETS[2..3]);
    let _ = std::fs::remove_file(prof);
}

#[test]
fn a_hundred_thousand_tiny_objects() {
    tiny_objects(100_000);
}

#[test]
#[ignore = "long: make test-long"]
fn a_million_tiny_objects() {
    tiny_objects(1_000_000);
}

fn damaged(every: bool) {
    let prof = write("whole", &sliced(4, 4 * MIB / PAGE, 3000));
    let bytes = std::fs::read(&prof).unwrap();
    let mut dice = Dice(5);
    let short = prof.with_extension("short");
    for length in [0, 1, 7, 8, 9, 16, 40, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&short, &bytes[..length.min(bytes.len())]).unwrap();
        survives(&format!("cut at {length} of {}", bytes.len()), &short, every);
    }
    for _ in 0..12 {
        let mut turned = bytes.clone();
        turned[dice.below(bytes.len() as u64) as usize] ^= 1 << dice.below(8);
        std::fs::write(&short, &turned).unwrap();
        survives("a bit turned", &short, every);
    }
}

#[test]
fn truncated_anywhere_and_bits_turned() {
    damaged(false);
}

#[test]
#[ignore = "long: make test-long"]
fn truncated_anywhere_and_bits_turned_for_every_target() {
    damaged(true);
}
