//! What the report says of profiles made here, against golden files. `NUMAMMA_BLESS=1 cargo test --test
//! cli report` writes them anew; read the difference before committing it.

use std::path::PathBuf;
use std::process::Stdio;

use super::synthetic::*;
use crate::common::{self, Ran, run, source};
use numamma::detect::{Pattern, PatternKind};
use numamma::profile::records::*;
use numamma::profile::summary::Summary;
use numamma::report::sample_account::{self, Row};
use numamma::report::{AccessFilter, Options, Sort, View, find_object, json, object_details, overview};

fn golden(name: &str, actual: &str) {
    let path = source("golden").join(name);
    if std::env::var_os("NUMAMMA_BLESS").is_some() {
        std::fs::write(&path, actual).expect("golden files are writable");
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == actual,
        "{} differs (NUMAMMA_BLESS=1 accepts it)\n--- expected\n{expected}\n--- actual\n{actual}",
        path.display()
    );
}

fn options(width: usize) -> Options {
    Options {
        sort: Sort::Cost,
        top: Some(15),
        access: AccessFilter::All,
        width,
        height: 20,
        color: false,
        profile: None,
    }
}

/// Verdicts as a detector would give them, so that these files do not change with its thresholds.
fn verdicts(summary: &Summary) -> Vec<Pattern> {
    let of = |kind, period: Option<u64>, confidence, evidence: &str| Pattern {
        period,
        ..Pattern::new(kind, confidence, evidence.into())
    };
    let verdict = |name: &str| match name {
        "cvar_" => {
            of(PatternKind::BlockCyclic, Some(16 * MIB), 0.97, "every 16 MiB is split over the threads in order")
        }
        "grid::cell" => of(PatternKind::Random, None, 0.9, "all threads use all pages"),
        n if n.starts_with("ssor") => of(PatternKind::Private, None, 0.99, "each instance is used by one thread"),
        _ => of(PatternKind::Cold, None, 0.5, "too little cost to matter"),
    };
    summary.entries.iter().map(|e| verdict(&e.name)).collect()
}

fn load(name: &str, records: &[Record]) -> Summary {
    Summary::load(&write(name, records)).expect("the profile is whole")
}

/// A thread's first sample comes a whole period after its start.
#[test]
fn threads_that_end_before_they_are_sampled_are_in_the_verdict() {
    let mut records = lu();
    let tasks = (100..5100).map(|t| Thread {
        start_ns: u64::from(t) * PERIOD_NS,
        end_ns: Some(u64::from(t) * PERIOD_NS + 2 * PERIOD_NS),
        ..thread(t, "task", None)
    });
    records.insert(4, Record::Threads(tasks.collect()));
    let text = |name: &str, records: &[Record]| {
        let summary = load(name, records);
        overview::render(&View::new(&summary, &verdicts(&summary), &options(400)))
    };
    let said = text("short-threads", &records);
    assert!(said.contains("5,000 threads lived for") && said.contains("sample faster (-F 4000)"), "{said}");
    assert!(!text("long-threads", &lu()).contains("lived for"), "threads of 20 s are sampled throughout");
}

#[test]
fn overview_at_usual_widths() {
    let summary = load("overview", &lu());
    let patterns = verdicts(&summary);
    for width in [80, 100, 140, 200] {
        let options = options(width);
        let text = overview::render(&View::new(&summary, &patterns, &options));
        golden(&format!("lu-{width}.txt"), &text);
        let longest = text.lines().map(|l| l.chars().count()).max().unwrap_or(0);
        assert!(longest <= width, "a line of {longest} characters at width {width}:\n{text}");
    }
}

#[test]
fn every_sample_is_in_one_row() {
    let summary = load("account", &lu());
    for access in [AccessFilter::All, AccessFilter::Read, AccessFilter::Write] {
        for top in [None, Some(1), Some(3)] {
            let options = Options { top, access, ..options(100) };
            let (total, rows) = sample_account::of(&View::new(&summary, &[], &options));
            assert_eq!(total, 5050 + 50);
            let sum = |share: fn(&Row) -> f64| rows.iter().map(share).sum::<f64>();
            assert!((sum(|r| r.samples) - 1.0).abs() < 1e-9, "{rows:?}");
            assert!((sum(|r| r.cost.unwrap_or(0.0)) - 1.0).abs() < 1e-9, "{rows:?}");
        }
    }
}

#[test]
fn overview_of_writes_only_and_everything() {
    let summary = load("writes", &lu());
    let options = Options { access: AccessFilter::Write, sort: Sort::Accesses, top: None, ..options(120) };
    golden("lu-writes.txt", &overview::render(&View::new(&summary, &[], &options)));
}

#[test]
fn one_object() {
    let summary = load("object", &lu());
    let patterns = verdicts(&summary);
    let options = options(100);
    let view = View::new(&summary, &patterns, &options);
    for (wanted, file) in [("cvar", "lu-cvar.txt"), ("ssor", "lu-ssor.txt")] {
        let entry = find_object::entry(&summary, wanted).expect("it is there once");
        let text = object_details::render(&view, entry);
        golden(file, &text);
        assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    }
    let colored = Options { color: true, ..options.clone() };
    let view = View::new(&summary, &patterns, &colored);
    let entry = find_object::entry(&summary, "cvar_").expect("it is there once");
    golden("lu-cvar-color.txt", &object_details::render(&view, entry));
}

#[test]
fn json_of_everything() {
    let summary = load("json", &lu());
    let patterns = verdicts(&summary);
    let options = Options { top: None, ..options(100) };
    let value = json::render(&View::new(&summary, &patterns, &options), None);
    golden("lu.json", &format!("{value:#}\n"));
    for key in ["program", "sampler", "duration_s", "overhead", "samples", "threads", "objects"] {
        assert!(!value[key].is_null(), "{key}");
    }
    for key in ["total", "resolved", "lost", "stack", "unknown"] {
        assert!(value["samples"][key].is_u64(), "{key}");
    }
    let sum =
        |key: &str| -> f64 { value["objects"].as_array().into_iter().flatten().filter_map(|o| o[key].as_f64()).sum() };
    assert!((sum("share") - 1.0).abs() < 1e-9);
    assert!((sum("cost_share") - 1.0).abs() < 1e-9);
}

/// Cuts the last chunk in two.
fn damaged() -> PathBuf {
    let records = lu();
    let path = write("damaged", &records[..8]);
    let bytes = std::fs::read(&path).expect("just written");
    std::fs::write(&path, &bytes[..bytes.len() - 100]).expect("the scratch directory is writable");
    path
}

#[test]
fn damaged_profile_reports_what_is_there() {
    let path = damaged();
    let summary = Summary::load(&path).expect("the header is there");
    let options = options(100);
    let text = overview::render(&View::new(&summary, &[], &options));
    // What follows names the file, whose place differs from machine to machine.
    golden("damaged.txt", text.split("note").next().unwrap_or(""));
    assert!(text.contains("cut short"), "{text}");
}

fn numamma(args: &[&str]) -> Ran {
    run(common::numamma(args).env_remove("COLUMNS").stdin(Stdio::null()))
}

fn stderr_of(args: &[&str], code: i32) -> String {
    numamma(args).ended(code).stderr
}

#[test]
fn refusals_say_what_to_do() {
    let missing = scratch("missing");
    assert!(stderr_of(&["report", &missing.display().to_string()], 2).contains("numamma profile -- ./app"));
    let cases: [(&str, &[u8], &str); 5] = [
        ("empty", b"", "no header"),
        ("foreign", b"PERFILE2 and more", "not a numamma profile"),
        ("newer", b"NUMAMMA\x01\x09\0\0\0\0\0\0\0", "profile format 9"),
        ("only-magic", b"NUMAMMA\x01", "no header"),
        ("only-header", b"NUMAMMA\x01\x02\0\0\0\0\0\0\0", "no header"),
    ];
    for (name, bytes, expected) in cases {
        let path = scratch(name);
        std::fs::write(&path, bytes).expect("the scratch directory is writable");
        let message = stderr_of(&["report", &path.display().to_string()], 2);
        assert!(message.contains(expected), "{name}: {message}");
    }
}

#[test]
fn unknown_and_ambiguous_objects_list_names() {
    let path = write("names", &lu()).display().to_string();
    let unknown = stderr_of(&["report", &path, "--object", "cvra_"], 2);
    assert!(
        unknown.contains("did you mean") && unknown.lines().nth(1).is_some_and(|l| l.contains("cvar_")),
        "{unknown}"
    );
    let ambiguous = stderr_of(&["report", &path, "--object", ".cpp"], 2);
    assert!(ambiguous.contains("ssor") && ambiguous.contains("exchange"), "{ambiguous}");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let path = write("pipe", &lu());
    let mut child = common::numamma(&["report", &path.display().to_string(), "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command was built");
    drop(child.stdout.take());
    let out = child.wait_with_output().expect("it ends");
    assert!(out.status.success() && out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn colours_only_when_asked() {
    let path = write("colours", &lu()).display().to_string();
    let has_escape = |args: &[&str]| numamma(args).stdout.contains('\u{1b}');
    assert!(!has_escape(&["report", &path]));
    assert!(has_escape(&["report", &path, "--color", "always"]));
    assert!(!has_escape(&["report", &path, "--color", "never"]));
    assert!(!has_escape(&["report", &path, "--json", "--color", "always"]));
}
