//! `numamma compare` on four real nodes: that each policy puts the pages where its name says.

use serde_json::Value;

use crate::common::lab::Lab;
use crate::common::{Policy, Scratch, compile};
use crate::ways::{self, Bound, GOMP};

/// Share of the program's pages that are not its 64 MiB: libraries, stack, the library's own data.
const REST: f64 = 0.05;

/// Each of `ways` in one boot.
fn pages_are_where_the_policies_say(name: &str, ways: &[&str]) {
    let Some(lab) = Lab::still(4, 1) else { return };
    let dir = Scratch::new(name);
    let program = compile("cc", "lab/compare/touch.c", dir.join("touch-64"), &[&["-O1", "-g"][..], &GOMP].concat());
    let half = Policy::of("touch-64").rule("global = \"state\"", "policy = \"interleave\", nodes = \"0,2\"");
    let policies = "first-touch,interleave,half.toml,block-naive";
    let lab = lab.add(&program).add(half.write(&dir, "half.toml"));
    let command = ["numamma", "compare", "-n", "1", "--json", "--policies", policies, "--", "./touch-64"];
    let text = ways::run(lab, ways, &command);
    ways::split(&text, ways, 4).iter().for_each(check);
}

fn check(bound: &Bound<'_>) {
    let (way, stdout) = (bound.way, bound.said);
    let json: Value = serde_json::from_str(stdout).unwrap_or_else(|e| panic!("{way}: {e}: {stdout}"));
    let busiest = |name: &str| {
        let all = json["policies"].as_array().unwrap();
        let found = all.iter().find(|p| p["name"] == name).unwrap();
        found["busiest_node_share"].as_f64().unwrap_or_else(|| panic!("{way}: {found}"))
    };
    // `interleave` is numactl's, over all nodes with memory; `all` of a policy is what the process was given.
    let even = 1.0 / bound.nodes.len() as f64;
    for (name, expected) in [("first-touch", 1.0), ("interleave", 0.25), ("half.toml", 0.5), ("block-naive", even)] {
        assert!((busiest(name) - expected).abs() < REST, "{way}: {name}: {}\n{stdout}", busiest(name));
    }
    // The program's own witness: it was started with the policy, and only under interleave.
    let notes = json["notes"].to_string();
    assert!(notes.contains("the output under interleave is not that of first-touch in 2 of 2 runs"), "{way}: {notes}");
    assert!(notes.contains("interleaved"), "{way}: {notes}");
    assert!(!notes.contains("under half.toml") && !notes.contains("one node"), "{way}: {notes}");
    assert!(json["policies"][1]["local_share"].is_null(), "{way}: {stdout}");
}

#[test]
fn pages_are_where_the_policies_say_in_two_ways() {
    pages_are_where_the_policies_say("lab-compare-short", &["unbound", "GOMP_CPU_AFFINITY"]);
}

#[test]
#[ignore = "long: make test-long"]
fn pages_are_where_the_policies_say_in_three_ways() {
    pages_are_where_the_policies_say("lab-compare", &["unbound", "GOMP_CPU_AFFINITY", "node"]);
}

#[test]
#[ignore = "long: make test-ways"]
fn pages_are_where_the_policies_say_in_each_way() {
    pages_are_where_the_policies_say("lab-compare-all", &ways::ALL);
}
