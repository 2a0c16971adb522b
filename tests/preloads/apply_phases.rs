//! Phases under churn, on this machine: contents, exit statuses, counts and statistics, while placed objects of every
//! kind come and go. Where pages go on real nodes: tests/lab/phases.rs.

use std::path::PathBuf;

use serde_json::Value;

use crate::common::{self, Policy, Scratch, alone, json_file, number, objects, placed, plain, root, run};

const POLICY: &str = r#"
version = 1
[program]
path = "phases"
[[phase]]
name = "a"
[[phase]]
name = "b"
after = 0.2
[[phase]]
name = "c"
allocation = 10
function = ["by_malloc"]
[[phase]]
name = "never"
[[object]]
global = "in_bss"
place = { policy = "block" }
phases = { a = { policy = "interleave" }, b = { policy = "block-cyclic", block = 4096 } }
[[object]]
global = "plugin_state"
module = "plugin.so"
place = { policy = "block" }
phases = { a = { policy = "interleave" }, c = { policy = "bind", nodes = "0" } }
[[object]]
function = ["by_malloc"]
place = { policy = "block" }
phases = { a = { policy = "interleave" }, b = { policy = "block-cyclic", block = "16KiB" }, c = { policy = "local" } }
[[object]]
function = ["by_realloc"]
place = { policy = "default" }
phases = { a = { policy = "interleave" }, b = { policy = "default" } }
[[object]]
function = ["by_small"]
place = { policy = "interleave" }
phases = { a = { policy = "bind" }, b = { policy = "local" }, c = { policy = "preferred", nodes = "0" } }
[[object]]
function = ["by_mmap"]
place = { policy = "block" }
phases = { a = { policy = "interleave" }, b = { policy = "block-cyclic", block = 8192 }, c = { policy = "skew" } }
"#;

/// Compiles a file of tests/preloads/apply with the header that tells of phases.
fn compile(source: &str, out: PathBuf, flags: &[&str]) -> PathBuf {
    let include = format!("-I{}", root().join("include").display());
    common::compile("cc", &format!("preloads/apply/{source}"), out, &[&["-O2", "-g", &include], flags].concat())
}

#[test]
fn nothing_is_lost_while_phases_change() {
    let _alone = alone();
    let dir = Scratch::new("apply-phases");
    let program = compile("phases.c", dir.join("phases"), &["-pthread"]);
    let plugin = compile("plugin.c", dir.join("plugin.so"), &["-shared", "-fPIC"]);
    let policy = dir.write("phases.toml", POLICY);
    let bare = run(plain(&program).arg("0.3").arg(&plugin));
    let said = (bare.stdout.as_str(), bare.stderr.as_str());
    assert_eq!(said, ("good\n", ""), "without the library the header does nothing");
    let report = dir.join("report.json");
    let out = run(placed(&program, &policy).arg("4").arg(&plugin).env("NUMAMMA_REPORT", &report));
    assert_eq!((out.code(), out.stdout.as_str(), out.stderr.as_str()), (Some(0), "good\n", ""));
    let report = json_file(&report);
    for object in objects(&report) {
        assert_ne!(object["instances"], 0, "{object}");
        // One node: wherever a page waits to be moved, it is there already.
        assert_eq!((&object["pages_off_plan"], &object["pages_waiting"]), (&0.into(), &0.into()), "{object}");
        // Much of what the program allocates is freed at once, again and again. What realloc makes smaller and larger
        // stays where it is meanwhile.
        assert_eq!(object["unplaced"], object["too_brief"], "{object}");
        let placed = number(object, "instances") - number(object, "unplaced");
        assert!(placed > if object["too_brief"] == 0 { 0 } else { 30 }, "{object}");
    }
    let phases = report["phases"].as_array().expect("phases");
    for phase in &phases[..3] {
        assert!(phase["times"].as_u64().is_some_and(|n| n > 10), "{phase}");
        assert!(phase["worked"].as_f64().is_some_and(|s| s > 0.0), "{phase}");
        assert_eq!((&phase["how"], &phase["pages_moved"]), (&"call".into(), &0.into()), "{phase}");
    }
    assert_eq!((&phases[3]["times"], &phases[3]["begun"]), (&0.into(), &Value::Null), "{}", phases[3]);
}

/// Times and allocations begin phases of themselves, in a program whose main thread ends before the others, and which
/// the library must not keep alive.
#[test]
fn a_time_begins_a_phase_and_the_end_is_not_put_off() {
    let dir = Scratch::new("apply-phases-ends");
    let program = compile("ends.c", dir.join("ends"), &["-pthread"]);
    let policy = Policy::of("ends")
        .lines("[[phase]]\nname = \"soon\"\nafter = 0.05")
        .lines("[[phase]]\nname = \"third\"\nallocation = 3\nfunction = [\"grab\"]")
        .lines("[[phase]]\nname = \"late\"\nafter = 3600")
        .rule("function = [\"grab\"]", "policy = \"block\"")
        .lines(
            "phases = { soon = { policy = \"interleave\" }, third = { policy = \"bind\" }, late = { policy = \"local\" } }",
        )
        .write(&dir, "ends.toml");
    for how in ["return", "pthread_exit"] {
        let report = dir.join(format!("{how}.json"));
        let mut c = placed(&program, &policy);
        c.arg(how).env("NUMAMMA_REPORT", &report).env("NUMAMMA_VERBOSE", "1");
        let began = std::time::Instant::now();
        let out = run(c);
        let stderr = &out.stderr;
        assert_eq!((out.code(), out.stdout.as_str()), (Some(0), "done\n"), "{how}: {stderr}");
        assert!(began.elapsed().as_secs() < 20, "{how}: the waiting thread kept the program alive");
        assert!(stderr.contains("phase soon begins at 0.") && stderr.contains("(time)"), "{how}: {stderr}");
        assert!(stderr.contains("phase third begins") && stderr.contains("(allocation)"), "{how}: {stderr}");
        let report = json_file(&report);
        assert_eq!(report["objects"][0]["policy"], "bind", "{how}: the place that holds at the end: {report}");
        assert!(report["phases"][0]["begun"].as_f64().is_some_and(|s| s >= 0.05), "{how}: {report}");
        assert_eq!(report["phases"][2]["times"], 0, "{how}: {report}");
    }
}

/// The thread that waits for the time of a phase is the last one of the process: the status must not become its own.
#[test]
fn the_status_is_that_of_the_program_although_its_threads_end_before_the_librarys() {
    let dir = Scratch::new("apply-phases-status");
    let program = compile("threads_end.c", dir.join("threads_end"), &["-pthread"]);
    let policy = Policy::of("threads_end")
        .lines("[[phase]]\nname = \"soon\"\nafter = 0.05")
        .lines("[[phase]]\nname = \"late\"\nafter = 3600")
        .rule("function = [\"grab\"]", "policy = \"block\"")
        .lines("phases = { soon = { policy = \"interleave\" }, late = { policy = \"local\" } }")
        .write(&dir, "threads_end.toml");
    let ways = ["raw", "raw-late", "raw-outlived", "exit-handler", "handler-3", "killed", "seccomp", "seccomp-strict"];
    for how in ways {
        let bare = run(plain(&program).arg(how));
        let out = run(placed(&program, &policy).arg(how));
        assert_eq!(
            (out.shell_code(), &out.stdout, &out.stderr),
            (bare.shell_code(), &bare.stdout, &bare.stderr),
            "{how}"
        );
        let alone = [("raw", 7), ("seccomp", 128 + libc::SIGSYS), ("seccomp-strict", 128 + libc::SIGKILL)];
        if let Some((_, code)) = alone.iter().find(|(name, _)| *name == how) {
            assert_eq!(bare.shell_code(), Some(*code), "{how}");
        }
    }
}

/// A sandbox that counts its threads finds its own, as long as nothing is there that a phase could move.
#[test]
fn there_is_no_other_thread_before_an_object_that_a_phase_could_move() {
    let _alone = alone();
    let dir = Scratch::new("apply-phases-single");
    let program = compile("single.c", dir.join("single"), &[]);
    let policy = Policy::of("single")
        .lines("[[phase]]\nname = \"now\"\nafter = 0")
        .lines("[[phase]]\nname = \"soon\"\nafter = 0.02")
        .lines("[[phase]]\nname = \"late\"\nafter = 3600")
        .rule("function = [\"grab\"]", "policy = \"block\"")
        .lines("phases = { now = { policy = \"bind\" }, soon = { policy = \"interleave\" }, late = { policy = \"local\" } }")
        .write(&dir, "single.toml");
    assert_eq!(run(plain(&program).arg("grab")).stdout, "1 1 1 1\n");
    let placed = |arguments: &[&str]| {
        let report = dir.join("report.json");
        let out = run(placed(&program, &policy).args(arguments).env("NUMAMMA_REPORT", &report));
        let none = if arguments.is_empty() { "numamma: not found, so not placed: grab\n" } else { "" };
        assert_eq!((out.code(), out.stderr.as_str()), (Some(0), none));
        (out.stdout, json_file(&report))
    };
    let (counted, report) = placed(&[]);
    assert_eq!((counted.as_str(), &report["objects"][0]["instances"]), ("1 1 1\n", &0.into()), "{report}");
    // The time of the phases came before their first object: the thread comes with that, and begins them.
    let (counted, report) = placed(&["grab"]);
    let object = &report["objects"][0];
    assert_eq!(
        (counted.as_str(), &object["instances"], &object["policy"]),
        ("1 1 1 2\n", &1.into(), &"interleave".into())
    );
}

/// Each allocation at the call site that a phase counts, before and after it has begun the phase, takes as few system
/// calls as any other.
#[test]
fn allocations_that_a_phase_counts_take_no_system_calls() {
    let dir = Scratch::new("apply-phases-counted");
    let program = compile("counted.c", dir.join("counted"), &["-Wall", "-Wextra", "-Werror"]);
    for (number, times) in [(500, 1), (1500, 1), (2000, 1), (2001, 0)] {
        let policy = Policy::of("counted")
            .lines(&format!("[[phase]]\nname = \"counted\"\nallocation = {number}\nfunction = [\"grab\"]"))
            .rule("function = [\"grab\"]", "policy = \"interleave\"")
            .lines("phases = { counted = { policy = \"bind\" } }")
            .write(&dir, "counted.toml");
        let report = dir.join("report.json");
        let out = run(placed(&program, &policy).args(["1000", "1000"]).env("NUMAMMA_REPORT", &report)).success();
        let calls: u32 = out.stdout.trim().parse().expect("a number");
        // A page of small objects, and the beginning of a phase, take some.
        assert!(calls < 100, "{number}: {calls}");
        let report = json_file(&report);
        let phase = &report["phases"][0];
        assert_eq!((number, &phase["times"]), (number, &times.into()), "{report}");
        assert_eq!(objects(&report)[0]["instances"], 2000, "{report}");
    }
}
