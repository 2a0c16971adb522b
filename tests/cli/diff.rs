//! `numamma diff`: profiles whose difference is known.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::synthetic::{self, Dice, MIB, PERIOD_NS, access, header, object, thread};
use crate::common::{Ran, Scratch, alone, compile, numamma, run, source};
use numamma::profile::file::Writer;
use numamma::profile::records::*;

fn diff(dir: &Path, args: &[&str]) -> Ran {
    let mut c = numamma(&[&["diff"], args].concat());
    run(c.current_dir(dir).env("COLUMNS", "200").env("NO_COLOR", "1"))
}

fn write(path: PathBuf, records: &[Record]) {
    let mut writer = Writer::create(&path).expect("the scratch directory is writable");
    records.iter().for_each(|r| writer.append(r).expect("the disk has room"));
}

/// A run of so many samples: 60 % of them at `grid`, the rest at `table`. `others` of 100 accesses to the grid are by
/// thread 1, and thread 0 touched all pages first.
fn app(samples: u64, others: u64, seed: u64) -> Vec<Record> {
    let names = [("grid", 0x4000_0000, 8 * MIB), ("table", 0x5000_0000, MIB)];
    let objects = (0..).zip(names).map(|(id, (name, base, size))| Object {
        module: Some(0),
        vaddr: base,
        ..object(id, ObjectKind::Global, name, base, size)
    });
    let touch = |id: u32, addr, pages| Touch { object: id, addr, pages, thread: 0, time_ns: 1 };
    let mut dice = Dice(seed);
    let accesses = (0..samples).map(|i| {
        let (id, base, size) = if dice.below(100) < 60 { (0, 0x4000_0000, 8 * MIB) } else { (1, 0x5000_0000, MIB) };
        let by = u32::from(id == 0 && dice.below(100) < others);
        access(id, by, i * PERIOD_NS, base + dice.below(size), false, true)
    });
    let module = Module { id: 0, path: "/opt/npb/bin/lu.C.x".into(), build_id: None, read_only: vec![] };
    let cpu_ns = samples * PERIOD_NS;
    vec![
        Record::Header(header()),
        Record::Modules(vec![module]),
        Record::Threads(vec![thread(0, "app", None), thread(1, "worker", None)]),
        Record::Objects(objects.collect()),
        Record::Touches(vec![touch(0, 0x4000_0000, 8 * MIB / 4096), touch(1, 0x5000_0000, MIB / 4096)]),
        Record::Accesses(accesses.collect()),
        Record::Stats(Stats {
            duration_ns: cpu_ns,
            cpu_ns,
            samples,
            resolved: samples,
            achieved: 1.0,
            ..Stats::default()
        }),
        Record::End(Ended::Exited(0)),
    ]
}

fn named<'a>(report: &'a Value, name: &str) -> &'a Value {
    let all = report["objects"].as_array().expect("a list");
    let found = all.iter().find(|o| o["name"].as_str().is_some_and(|n| n.contains(name)));
    found.unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

#[test]
fn a_change_has_an_interval_and_another_draw_is_none() {
    let dir = Scratch::new("diff-draws");
    for (file, others, seed) in [("a.prof", 80, 1), ("b.prof", 80, 2), ("c.prof", 20, 3)] {
        write(dir.join(file), &app(2000, others, seed));
    }
    let same = diff(&dir, &["a.prof", "b.prof"]).success().stdout;
    assert!(same.contains("no difference beyond chance"), "{same}");
    let json = diff(&dir, &["a.prof", "c.prof", "--json"]).success().json();
    let grid = named(&json, "grid");
    let by_others = &grid["by_others"];
    assert_eq!(
        (&grid["matched"], &by_others["sure"], &grid["cost"]["sure"]),
        (&"identity".into(), &true.into(), &false.into())
    );
    let [low, change, high] = ["low", "change", "high"].map(|key| by_others["points"][key].as_f64().expect("a number"));
    assert!(low < -0.6 && -0.6 < high && low < change && change < high && high - low < 0.1, "{by_others}");
    let text = diff(&dir, &["a.prof", "c.prof"]).success().stdout;
    assert!(
        text.contains("by others of the run") && text.contains("1 object changed") && text.contains(" *"),
        "{text}"
    );
}

#[test]
fn conditions_go_by_the_interval() {
    let dir = Scratch::new("diff-conditions");
    write(dir.join("a.prof"), &app(2000, 20, 1));
    write(dir.join("b.prof"), &app(2000, 80, 2));
    let fails = |condition: &str, status: i32| diff(&dir, &["a.prof", "b.prof", "--fail-if", condition]).ended(status);
    let said = fails("by_others > +5pp", 1).stderr;
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines.len() == 1 && lines[0].contains("'by_others > +5pp'") && lines[0].contains("95 % interval"),
        "{said}"
    );
    fails("grid:by_others > +50pp", 1);
    fails("grid:by_others > +200%", 1);
    // The estimate of the grid is close to 60 points, and the interval some 5 wide.
    assert_eq!(fails("grid:by_others > +59.9pp", 0).stderr, "");
    fails("grid:by_others < -1pp", 0);
    fails("cost > +50%", 0);
    let both = diff(&dir, &["a.prof", "b.prof", "--fail-if", "cost > +50%", "--fail-if", "grid:by_others > +1pp"]);
    assert_eq!(both.ended(1).stderr.lines().count(), 1);
    assert!(fails("speed > +5%", 2).stderr.contains("OBJECT:cost"));
    assert!(fails("nothing:cost > +5%", 2).stderr.contains("grid"));
    // Ten samples tell nothing, whatever they say.
    write(dir.join("few.prof"), &app(10, 100, 3));
    let few = diff(&dir, &["a.prof", "few.prof", "--fail-if", "table:cost > +1pp"]).success().stdout;
    assert!(few.contains("too few samples"), "{few}");
}

#[test]
fn a_side_may_be_a_directory_or_a_list() {
    let dir = Scratch::new("diff-sides");
    for side in ["old", "new"] {
        std::fs::create_dir(dir.join(side)).expect("the scratch directory is writable");
        (0..2).for_each(|rank| write(dir.join(format!("{side}/r.{rank}.prof")), &app(300, 50, rank)));
    }
    for sides in [&["old", "new"][..], &["old/r.0.prof", "old/r.1.prof", "--to", "new/r.0.prof", "new/r.1.prof"]] {
        let json = diff(&dir, &[sides, &["--json"]].concat()).success().json();
        assert_eq!((&json["before"]["samples"], &json["after"]["profiles"]), (&600.into(), &2.into()), "{json:#}");
    }
    assert!(diff(&dir, &["old"]).ended(2).stderr.contains("second profile"));
    assert!(diff(&dir, &["old", "new", "old"]).ended(2).stderr.contains("--to"));
    std::fs::write(dir.join("new/broken.prof"), "no profile").expect("the scratch directory is writable");
    assert!(diff(&dir, &["old", "new"]).ended(1).stderr.contains("left out"));
}

#[test]
fn names_of_profiles_are_text() {
    let dir = Scratch::new("diff-hostile");
    let mut records = synthetic::lu();
    for record in &mut records {
        if let Record::Objects(objects) = record {
            objects[0].name = "evil\u{1b}[31m\nnumamma: done\u{202e}".into();
        }
        if let Record::Header(header) = record {
            header.program.path = "/tmp/\u{1b}]0;title\u{7}".into();
        }
    }
    write(dir.join("evil.prof"), &records);
    write(dir.join("lu.prof"), &synthetic::lu());
    let condition = "evil:cost > +0pp";
    for args in [&["evil.prof", "lu.prof"][..], &["lu.prof", "evil.prof", "--fail-if", condition, "--json"]] {
        let ran = diff(&dir, args);
        let shown = ran.stdout + &ran.stderr;
        assert!(shown.contains("evil") && !shown.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{shown}");
        assert!(!shown.lines().any(|line| line.starts_with("numamma: done")), "{shown}");
    }
}

/// The same program with the first-touch bug and without it, in which all lines have moved by one.
#[test]
fn firsttouch_is_seen_to_be_repaired() {
    let _alone = alone();
    let dir = Scratch::new("diff-firsttouch");
    let text = std::fs::read_to_string(source("programs/firsttouch.c")).expect("a source of the tests");
    let moved = text.replacen("#include <stdio.h>", "#include <stdio.h>\n", 1);
    std::fs::create_dir(dir.join("moved")).expect("the scratch directory is writable");
    std::fs::write(dir.join("moved/firsttouch.c"), moved).expect("the scratch directory is writable");
    let flags = ["-O2", "-g", "-fopenmp"];
    let bug = compile("gcc", "programs/firsttouch.c", dir.join("app"), &flags);
    let own = dir.join("moved/firsttouch.c");
    let repaired =
        compile("gcc", own.to_str().unwrap(), dir.join("moved/app"), &[&flags[..], &["-DPARALLEL_INIT"]].concat());
    for (program, file) in [(&bug, "a.prof"), (&bug, "again.prof"), (&repaired, "b.prof")] {
        let mut c = numamma(&["profile", "-q", "-F", "1000", "-o", file, "--"]);
        run(c.current_dir(&*dir).arg(program).arg("120").env("OMP_NUM_THREADS", "4")).success();
    }
    let json = diff(&dir, &["a.prof", "b.prof", "--json", "--fail-if", "by_others < -10pp"]).ended(1).json();
    let heap = json["objects"].as_array().expect("a list").iter();
    let arrays: Vec<&Value> = heap.filter(|o| o["kind"] == "heap" && o["size_after"] == 16u64 << 20).collect();
    assert_eq!(arrays.len(), 3, "{json:#}");
    for array in arrays {
        assert_eq!(array["matched"], "other-line", "{array}");
        let line =
            |key: &str| array[key].as_str().and_then(|n| n.rsplit(':').next()?.parse::<u32>().ok()).expect("a line");
        assert_eq!(line("name"), line("old_name") + 1, "{array}");
    }
    assert_eq!(json["run"]["by_others"]["sure"], true, "{json:#}");
    assert!(json["notes"].as_array().is_some_and(|n| n.iter().any(|n| n.as_str().unwrap().contains("two builds"))));
    let again = diff(&dir, &["a.prof", "again.prof", "--fail-if", "by_others > +20pp"]).success();
    let text = diff(&dir, &["a.prof", "b.prof"]).success().stdout;
    assert!(text.contains("was main firsttouch.c:"), "{text}{}", again.stdout);
}
