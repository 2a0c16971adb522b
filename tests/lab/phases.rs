//! Objects move between phases, page by page on four real nodes: by a call, by an allocation, by time; with huge pages and
//! without.
//!
//! The program itself asks the kernel where its pages are, before and after, and compares with formulas of its own; the
//! library's report must agree and say what was moved. One boot.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::lab;

/// Where the objects of moved.c go, before and after.
const OBJECTS: &str = r#"
[[object]]
global = "in_bss"
place = { policy = "block", block = "2MiB" }
phases = { solve = { policy = "interleave" } }
[[object]]
global = "in_data"
place = { policy = "bind", nodes = "0" }
phases = { solve = { policy = "interleave" } }
[[object]]
function = ["by_malloc"]
place = { policy = "block", block = "2MiB" }
phases = { solve = { policy = "block-cyclic", block = "64KiB", nodes = "3,1" } }
[[object]]
function = ["later"]
place = { policy = "bind", nodes = "0" }
phases = { solve = { policy = "block-cyclic", block = "64KiB", nodes = "3,1" } }
[[object]]
function = ["by_mmap"]
place = { policy = "bind", nodes = "1" }
phases = { solve = { policy = "interleave" } }
[[object]]
function = ["stays"]
place = { policy = "block", block = "2MiB" }
[[object]]
function = ["by_small"]
place = { policy = "bind", nodes = "0" }
phases = { solve = { policy = "bind", nodes = "2" } }
"#;

/// Ways to begin the phase, and the words of the policy for it.
const WAYS: [(&str, &str); 3] =
    [("call", ""), ("allocation", "allocation = 3\nfunction = [\"begins\"]\n"), ("time", "after = 2.5\n")];

const PROGRAMS: [&str; 2] = ["moved", "kinds"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn prepare(dir: &Path) {
    std::fs::create_dir_all(dir).expect("a directory for the program");
    for program in PROGRAMS {
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-optimize-sibling-calls", "-I"])
            .arg(root().join("include"));
        let source = root().join(format!("tests/lab/phases/{program}.c"));
        let cc = cc.arg("-o").arg(dir.join(program)).arg(source).output().expect("a C compiler");
        assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr));
    }
    for (way, words) in WAYS {
        let text = format!("version = 1\n[program]\npath = \"moved\"\n[[phase]]\nname = \"solve\"\n{words}{OBJECTS}");
        std::fs::write(dir.join(format!("{way}.toml")), text).expect("the policy is written");
    }
}

/// What follows `--- name` up to the next mark.
fn part<'a>(run: &'a str, name: &str) -> &'a str {
    let (_, rest) = run.split_once(&format!("--- {name}")).unwrap_or_else(|| panic!("no {name} in:\n{run}"));
    rest.split("\n--- ").next().unwrap_or(rest)
}

fn check(name: &str, run: &str) {
    let shown = run.split("--- status").next().unwrap_or(run);
    let lines: Vec<Vec<&str>> = shown.lines().skip(1).map(|l| l.split(' ').collect()).collect();
    assert_eq!(lines.len(), 5 + 1 + 5 + 1, "{name}: {run}");
    for line in &lines {
        let [_, _, right, wrong] = line[..] else { panic!("{name}: odd line {line:?}\n{run}") };
        assert!(right.parse::<u64>().is_ok_and(|n| n > 0) && wrong == "0", "{name}: {line:?}\n{run}");
    }
    assert!(part(run, "status").starts_with(" 0\n"), "{name}: {run}");
    let (_, json) = part(run, "status").split_once('\n').expect("the report follows");
    let answer: Value = serde_json::from_str(json).expect("the answer is JSON");
    assert_eq!(answer["ok"], true, "{name}: {answer}");
    for object in answer["objects"].as_array().expect("objects") {
        assert_eq!(object["pages_present"], object["pages_on_plan"], "{name}: {object}");
        assert_ne!(object["pages_present"], 0, "{name}: {object}");
    }
    let phase = &answer["phases"][0];
    let way = name.split(' ').next_back().unwrap_or_default();
    assert_eq!((&phase["name"], &phase["how"], &phase["times"]), (&"solve".into(), &way.into(), &1.into()), "{phase}");
    assert_eq!((&phase["finished"], &phase["pages_not_moved"]), (&true.into(), &0.into()), "{name}: {phase}");
    // Half of four objects was resident, three quarters of each on other nodes than the new place wants.
    let moved = phase["pages_moved"].as_u64().expect("a number");
    assert!((1_500..10_000).contains(&moved), "{name}: {phase}");
    assert!(part(run, "stderr").contains("phase solve: began at"), "{name}: {run}");
}

/// What kinds.c prints, and that the verdict is good.
fn check_kinds(run: &str) {
    let lines: Vec<&str> = run.lines().collect();
    let wanted = ["hidden 2048 0", "populated 2048 0", "huge 8 0", "shared 2048 0", "cut 512 0", "cut 1024 0"];
    assert_eq!(lines.get(2..8), Some(&wanted[..]), "{run}");
    assert_eq!(lines.first(), Some(&"0"), "{run}");
}

#[test]
fn objects_are_where_the_phase_wants_them() {
    if !lab::available() {
        return;
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lab-phases-{}", std::process::id()));
    prepare(&dir);
    let mut c = lab::command();
    c.args(["--nodes", "4", "--cpus-per-node", "2", "--timeout", "180"]);
    PROGRAMS.iter().for_each(|program| {
        c.arg("--add").arg(dir.join(program));
    });
    c.arg("--add")
        .arg(root().join("tests/lab/phases/run.sh"))
        .arg("--add")
        .arg(root().join("tests/lab/phases/kinds.toml"));
    for (way, _) in WAYS {
        c.arg("--add").arg(dir.join(format!("{way}.toml")));
    }
    let out = c.args(["--", "./run.sh"]).output().expect("the lab script is in the tree");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
    let (text, kinds) = text.split_once("+++ kinds ").expect("the kinds come last");
    let runs: Vec<&str> = text.split("=== ").skip(1).collect();
    assert_eq!(runs.len(), 2 * WAYS.len(), "{text}");
    for run in runs {
        check(run.lines().next().unwrap_or_default(), run);
    }
    check_kinds(kinds);
    // Left behind when a check fails, to look at.
    let _ = std::fs::remove_dir_all(dir);
}
