//! A full node: what is placed there and does not fit goes to other nodes. The program and its neighbour on the node
//! live, the output is the same, and the report says which pages spilled and why. With `strict = true` the kernel
//! kills.
//!
//! The guest's numa_maps is the judge of where pages are. One boot.

use serde_json::Value;

use crate::common::lab::Lab;
use crate::common::{Policy, Scratch, compile, number, objects, source};
use crate::ways::{self, GOMP};

/// What the program allocates once node 1 is full, and how it is placed there.
const RULES: [(&str, &str); 6] = [
    ("global = \"in_bss\"", "policy = \"bind\", nodes = \"1\""),
    ("function = [\"by_malloc\"]", "policy = \"bind\", nodes = \"1\""),
    ("function = [\"by_mmap\"]", "policy = \"bind\", nodes = \"1\", huge = \"want\""),
    ("function = [\"by_small\"]", "policy = \"bind\", nodes = \"1\""),
    ("function = [\"in_turn\"]", "policy = \"block-cyclic\", block = \"64KiB\", nodes = \"1-2\""),
    ("function = [\"on_two\"]", "policy = \"bind\", nodes = \"1-2\""),
];

/// An object as numa_maps of the guest showed it.
struct Shown<'a> {
    name: &'a str,
    policy: &'a str,
    /// Pages on each node.
    pages: [u64; 3],
}

impl Shown<'_> {
    fn parse(line: &str) -> Shown<'_> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |key: &str| words.iter().find_map(|w| w.strip_prefix(key)?.parse().ok()).expect("pages of a node");
        Shown { name: words[1], policy: words[2], pages: ["N0=", "N1=", "N2="].map(number) }
    }
}

fn policy(strict: &str) -> Policy {
    RULES.iter().fold(Policy::of("full"), |policy, (key, place)| {
        let strict = if place.starts_with("policy = \"bind\"") { strict } else { "" };
        policy.rule(key, &format!("{place}{strict}"))
    })
}

/// Each of `ways` in one boot.
fn what_does_not_fit_goes_elsewhere_and_nothing_dies(name: &str, ways: &[&str]) {
    let Some(lab) = Lab::still(3, 1) else { return };
    let dir = Scratch::new(name);
    let program = compile("cc", "lab/full/full.c", dir.join("full"), &[&["-O1", "-g"][..], &GOMP].concat());
    let lab = lab.options(&["--memory-per-node", "160"]).add(program).add(source("lab/full/run.sh"));
    let lab = lab.add(policy("").write(&dir, "full.toml")).add(policy(", strict = true").write(&dir, "strict.toml"));
    let text = ways::run(lab, ways, &["./run.sh"]);
    for bound in ways::split(&text, ways, 3) {
        eprintln!("{}", bound.way);
        check(bound.said);
    }
}

fn check(text: &str) {
    let scenes: Vec<&str> = text.split("=== ").skip(1).collect();
    assert_eq!(scenes.len(), 3, "{text}");
    let sum = |scene: &str| scene.lines().find(|l| l.starts_with("sum ")).map(str::to_owned);
    let bare = sum(scenes[0]).unwrap_or_else(|| panic!("{text}"));
    let (placed, strict) = (scenes[1], scenes[2]);
    assert!(placed.contains("\nstatus 0\n"), "the program, or verify, failed: {placed}");
    assert!(placed.contains("\nneighbour lives\n"), "{placed}");
    assert_eq!(sum(placed).as_deref(), Some(&*bare), "{placed}");
    check_pages(placed);
    let killed = !strict.contains("\nstatus 0\n") || strict.contains("\nneighbour is dead\n");
    assert!(killed, "a strict placement is a limit: {strict}");
}

#[test]
fn what_does_not_fit_goes_elsewhere_and_nothing_dies_in_three_ways() {
    what_does_not_fit_goes_elsewhere_and_nothing_dies("lab-full", &["unbound", "OMP_PROC_BIND=close", "mpirun-numa"]);
}

#[test]
#[ignore = "long: make test-long"]
fn what_does_not_fit_goes_elsewhere_and_nothing_dies_in_every_way() {
    what_does_not_fit_goes_elsewhere_and_nothing_dies("lab-full-all", &ways::ALL);
}

/// Compares the report of the run under `verify` with numa_maps.
fn check_pages(scene: &str) {
    let (said, report) = scene.split_once("--- report\n").expect("a report");
    let report: Value = serde_json::from_str(report).unwrap_or_else(|e| panic!("{e}: {report}"));
    let shown: Vec<Shown<'_>> = said.lines().filter(|l| l.starts_with("maps ")).map(Shown::parse).collect();
    assert_eq!(shown.len(), RULES.len() - 1, "{said}");
    let mut all = 0;
    for object in objects(&report) {
        let name = object["name"].as_str().expect("a name");
        let spilled = object["reasons"]["spilled"].as_u64().unwrap_or(0);
        assert_eq!(number(object, "pages_off_plan"), spilled, "another reason: {object}\n{said}");
        assert_eq!(object["verdict"], if spilled > 0 { "spilled" } else { "on-plan" }, "{object}");
        assert_eq!(object["full_nodes"], if spilled > 0 { "1" } else { "" }, "{object}\n{said}");
        all += spilled;
        let Some(shown) = shown.iter().find(|s| s.name == name) else {
            assert_eq!(name, "by_small", "not in numa_maps: {said}");
            continue;
        };
        let on = |node: usize| object["pages_by_node"][node.to_string()].as_u64().unwrap_or(0);
        assert_eq!([0, 1, 2].map(on), [0, 1, 2].map(|node| shown.pages[node]), "{object}\n{said}");
        match name {
            "on_two" => assert_eq!((shown.policy, shown.pages[0], spilled), ("prefer", 0, 0), "{said}"),
            // Its blocks on node 2 are on plan.
            "in_turn" => assert!(spilled > 0 && shown.pages[2] >= 256, "{object}\n{said}"),
            // What was touched first filled the rest of the node.
            _ => {
                assert!(name != "by_malloc" || shown.pages[1] > 0, "{said}");
                assert_eq!(shown.policy, "prefer", "{said}");
                assert_eq!(shown.pages[0] + shown.pages[2], spilled, "{object}\n{said}");
                assert!(spilled > 0, "the node was not full: {said}");
            }
        }
    }
    assert!(all > 4000, "{said}");
    assert_eq!(report["ok"], true);
    assert!(said.contains("pages spilled (node 1 was full)"), "{said}");
    assert!(said.contains(&format!("{all} spilled to other nodes because theirs were full")), "{said}");
}
