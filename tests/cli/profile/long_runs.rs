//! Files that are compacted while they are recorded.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use numamma::profile::file::Reader;
use numamma::profile::records::*;
use numamma::profile::summary::Summary;

use super::harness::*;

/// `steps SECONDS` under as many samples as can be taken, into a small file.
fn recorded(dir: &Path, seconds: &str) -> Command {
    let steps = compile(dir, "steps", &[]);
    let steps = steps.to_str().expect("a path in UTF-8");
    let mut c = numamma(&["profile", "-F", "4000", "--compact-at", "100K", "-o", "t.prof", "--", steps, seconds]);
    c.current_dir(dir).stdin(Stdio::null());
    c
}

fn files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("the scratch directory");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("an entry").file_name().into_string().expect("ASCII")).collect();
    names.sort();
    names
}

#[test]
fn a_compacted_profile_tells_the_same() {
    let dir = scratch("compacted");
    let record = |seconds: &str| -> Vec<Record> {
        let ran = run(&mut recorded(&dir, seconds)).success();
        assert_eq!(ran.stdout, "done\n");
        let _ = std::fs::remove_file(dir.join("t.prof.old"));
        Reader::open(&dir.join("t.prof")).expect("the profile opens").collect()
    };
    let is_compacted = |records: &[Record]| records.iter().any(|r| matches!(r, Record::Folded(_)));
    let mut records = record("6");
    if !is_compacted(&records) {
        // The thread that compacts has the lowest priority: with three others on each CPU the 20 ms that it needs take
        // 4 s.
        records = record("40");
    }
    assert!(is_compacted(&records), "6 s are more than 100 KiB");
    assert!(records.iter().any(|r| matches!(r, Record::Like(list) if !list.is_empty())), "arrays were freed");
    let summary = Summary::load(&dir.join("t.prof")).expect("it is whole");
    // The instructions that access the two arrays of the loop, which take all of the time.
    let of = |function: &str| summary.entries.iter().find(|e| e.name.starts_with(function)).expect("an array");
    let (whole, own) = (of("main steps.c"), of("work steps.c"));
    assert_eq!((whole.instances, whole.threads().len(), own.threads().len()), (1, 2, 2));
    assert!(own.instances > own.seen.len() as u64, "{} of {} instances", own.seen.len(), own.instances);
    // A thread has its half of the pages: all accesses that were summed up, and those that were not.
    let half = 1 << 10;
    let first = whole.cells.iter().find(|c| c.page < half - 1).expect("both halves are used").thread;
    assert!(whole.cells.iter().all(|c| (c.thread == first) == (c.page < half) || c.page == half), "as in the program");
    assert_eq!(files(&dir), ["steps", "t.prof"]);
}

/// Whenever the recorder is killed, the file is the old one or the new one, and nothing lies beside it.
#[test]
fn a_recorder_killed_while_it_compacts_leaves_a_whole_file() {
    let dir = scratch("compact-killed");
    for round in 0..4 {
        let mut recorder =
            recorded(&dir, "4").stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("numamma starts");
        std::thread::sleep(Duration::from_millis(2_500 + round * 211));
        recorder.kill().expect("it runs");
        recorder.wait().expect("it was killed");
        let mut reader = Reader::open(&dir.join("t.prof")).expect("the profile opens");
        let samples = reader.by_ref().filter(|r| matches!(r, Record::Accesses(_) | Record::Folded(_))).count();
        assert!(samples > 0 && reader.damage.as_ref().is_none_or(|d| d.contains("cut short")), "{:?}", reader.damage);
        assert!(files(&dir).iter().all(|name| !name.starts_with('.')), "{:?}", files(&dir));
    }
}
