//! Objects move between phases, page by page on four real nodes: by a call, by an allocation, by time; with huge
//! pages and without.
//!
//! The program itself asks the kernel where its pages are, before and after, and compares with formulas of its own; the
//! library's report must agree and say what was moved. One boot.

use serde_json::Value;

use crate::common::lab::Lab;
use crate::common::{Policy, Scratch, compile, objects, root, source};
use crate::ways::{self, Bound, GOMP};

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
    [("call", ""), ("allocation", "allocation = 3\nfunction = [\"begins\"]\n"), ("time", "after = 6\n")];

const PROGRAMS: [&str; 2] = ["moved", "kinds"];

/// What follows `--- name` up to the next mark.
fn part<'a>(run: &'a str, name: &str) -> &'a str {
    let (_, rest) = run.split_once(&format!("--- {name}")).unwrap_or_else(|| panic!("no {name} in:\n{run}"));
    rest.split("\n--- ").next().unwrap_or(rest)
}

fn check(bound: &Bound<'_>) {
    let run = bound.said;
    let (shown, how) = (run.split("--- status").next().unwrap_or(run), run.lines().next().unwrap_or_default());
    let name = &format!("{} {how}", bound.way);
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
    for object in objects(&answer) {
        assert_eq!(object["pages_present"], object["pages_on_plan"], "{name}: {object}");
        assert_ne!(object["pages_present"], 0, "{name}: {object}");
    }
    let phase = &answer["phases"][0];
    let way = name.split(' ').next_back().unwrap_or_default();
    assert_eq!((&phase["name"], &phase["how"], &phase["times"]), (&"solve".into(), &way.into(), &1.into()), "{phase}");
    assert_eq!((&phase["finished"], &phase["pages_not_moved"]), (&true.into(), &0.into()), "{name}: {phase}");
    // Half of four objects was resident, three quarters of each on other nodes than the new place wants. Where all is
    // one node only one of these moves, and the small objects.
    let least = if bound.nodes.len() == 4 { 1_500 } else { 700 };
    let moved = phase["pages_moved"].as_u64().expect("a number");
    assert!((least..10_000).contains(&moved), "{name}: {phase}");
    assert!(part(run, "stderr").contains("phase solve: began at"), "{name}: {run}");
}

/// What kinds.c prints, and that the verdict is good.
fn check_kinds(run: &str) {
    let lines: Vec<&str> = run.lines().collect();
    let wanted = ["hidden 2048 0", "populated 2048 0", "huge 8 0", "shared 2048 0", "cut 512 0", "cut 1024 0"];
    assert_eq!(lines.get(2..8), Some(&wanted[..]), "{run}");
    assert_eq!(lines.first(), Some(&"0"), "{run}");
}

/// In each of `ways`, with the next way to begin the phase.
fn objects_are_where_the_phase_wants_them(name: &str, ways: &[&str]) {
    let Some(mut lab) = Lab::new(4, 2) else { return };
    let dir = Scratch::new(name);
    let include = format!("-I{}", root().join("include").display());
    let flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-optimize-sibling-calls", &include];
    let flags = [&flags[..], &GOMP].concat();
    for program in PROGRAMS {
        lab = lab.add(compile("cc", &format!("lab/phases/{program}.c"), dir.join(program), &flags));
    }
    for (way, words) in WAYS {
        let policy = Policy::of("moved").lines(&format!("[[phase]]\nname = \"solve\"\n{words}{OBJECTS}"));
        lab = lab.add(policy.write(&dir, &format!("{way}.toml")));
    }
    let (lab, here) = ways::add(lab.options(&["--timeout", "400"]), ways);
    let files = ["run.sh", "verified.sh", "kinds.toml"];
    let lab = files.iter().fold(lab, |lab, file| lab.add(source(&format!("lab/phases/{file}"))));
    let text = lab.run(&[&["./run.sh"], &here[..]].concat()).success().stdout;
    let (text, kinds) = text.split_once("+++ kinds ").expect("the kinds come last");
    ways::split(text, ways, 4).iter().for_each(check);
    check_kinds(kinds);
}

/// Each way to begin the phase with huge pages and without.
#[test]
fn objects_are_where_the_phase_wants_them_in_two_ways() {
    objects_are_where_the_phase_wants_them("lab-phases-short", &["unbound", "OMP_PROC_BIND=close"]);
}

#[test]
#[ignore = "long: make test-long"]
fn objects_are_where_the_phase_wants_them_in_six_ways() {
    let ways = ["unbound", "OMP_PROC_BIND=close", "mpirun-numa", "OMP_PLACES=cores", "node", "GOMP_CPU_AFFINITY"];
    objects_are_where_the_phase_wants_them("lab-phases", &ways);
}

#[test]
#[ignore = "long: make test-ways"]
fn objects_are_where_the_phase_wants_them_in_each_way() {
    objects_are_where_the_phase_wants_them("lab-phases-all", &ways::ALL);
}
