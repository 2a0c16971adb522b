//! Why pages are off their plan: the library must find the reason that a program made, on four real nodes.

use serde_json::{Value, json};

use crate::common::lab::Lab;
use crate::common::{Policy, Scratch, compile, object, source};
use crate::ways::{self, Bound, GOMP};

/// The objects of reasons.c and their places.
const RULES: [(&str, &str); 6] = [
    ("function = [\"moved\"]", "policy = \"bind\", nodes = \"1\""),
    ("function = [\"shared\"]", "policy = \"bind\", nodes = \"1\""),
    ("function = [\"collapsed\"]", "policy = \"interleave\", nodes = \"0-3\""),
    ("function = [\"swapped\"]", "policy = \"block\", nodes = \"0-3\""),
    ("function = [\"full\"]", "policy = \"preferred\", nodes = \"3\""),
    ("global = \"overlaid\"", "policy = \"bind\", nodes = \"1\""),
];

/// Each of `ways` in one boot.
fn every_page_off_plan_has_its_reason(name: &str, ways: &[&str]) {
    let Some(lab) = Lab::still(4, 1) else { return };
    let dir = Scratch::new(name);
    let flags = [&["-O1", "-g"][..], &GOMP].concat();
    let program = compile("cc", "lab/reasons/reasons.c", dir.join("reasons"), &flags);
    let policy = RULES.iter().fold(Policy::of("reasons"), |policy, (key, place)| policy.rule(key, place));
    let lab = lab.options(&["--memory-per-node", "256"]).add(program).add(policy.write(&dir, "reasons.toml"));
    let text = ways::run(lab.add(source("lab/reasons/run.sh")), ways, &["./run.sh"]);
    ways::split(&text, ways, 4).iter().for_each(check);
}

fn check(bound: &Bound<'_>) {
    let (way, said) = (bound.way, bound.said);
    let (own, rest) = said.split_once('\n').unwrap_or_else(|| panic!("{way}: {said}"));
    let (report, words) = rest.split_once("--- words\n").unwrap_or_else(|| panic!("{way}: {said}"));
    let own: Value = serde_json::from_str(own).unwrap_or_else(|e| panic!("{way}: {e}: {said}"));
    let report: Value = serde_json::from_str(report).unwrap_or_else(|e| panic!("{way}: {e}: {said}"));
    let object = |name| object(&report, name);
    assert_eq!(object("moved")["reasons"], json!({"moved": 10}), "{way}: {words}");
    assert_eq!(object("shared")["reasons"], json!({"shared": 20}), "{way}: {words}");
    // Of a huge page on one node a quarter of the small ones are where interleaving wants them.
    assert_eq!(object("collapsed")["reasons"], json!({"collapsed": 384}), "{way}: {words}");
    // The program's file is on the node it ran on, and on plan if that is node 1.
    let of_file = own["file"].as_u64().unwrap_or_else(|| panic!("{way}: {own}"));
    assert!(bound.home().is_none_or(|home| of_file == if home == 1 { 0 } else { 3 }), "{way}: {own}");
    let reasons = if of_file > 0 { json!({"file": of_file}) } else { json!({}) };
    assert_eq!(object("overlaid")["reasons"], reasons, "{way}: {words}");
    assert!(own["full"].as_u64() > Some(0), "{way}: {own}");
    assert_eq!(object("full")["reasons"], json!({"spilled": own["full"]}), "{way}: {words}");
    assert_eq!(object("full")["full_nodes"], "3", "{way}: {words}");
    let swapped = object("swapped");
    assert_eq!((&swapped["pages_swapped"], &swapped["pages_present"]), (&json!(8), &json!(56)), "{way}: {words}");
    assert_eq!(swapped["reasons"], json!({}), "{way}: {words}");
    let file = format!("overlaid: {of_file} page");
    for sentence in [
        "moved: 10 pages on another node for an unknown reason",
        "shared: 20 pages mapped by more than one process",
        "collapsed: 384 pages inside a huge page",
        if of_file > 0 { &file } else { "" },
        "full: ",
        "spilled (node 3 was full)",
        "swapped: 8 pages swapped out",
    ] {
        assert!(words.contains(sentence), "{way}: `{sentence}` is not in: {words}");
    }
    assert!(of_file != 3 || words.contains("overlaid: 3 pages of a file or of shared memory"), "{way}: {words}");
}

#[test]
fn every_page_off_plan_has_its_reason_in_three_ways() {
    every_page_off_plan_has_its_reason("lab-reasons", &["unbound", "OMP_PLACES=sockets", "mpirun-numa"]);
}

#[test]
#[ignore = "long: make test-long"]
fn every_page_off_plan_has_its_reason_in_every_way() {
    every_page_off_plan_has_its_reason("lab-reasons-all", &ways::ALL);
}
