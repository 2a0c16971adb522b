//! The budget of mappings on two real nodes: a policy of small blocks leaves the program the mappings and threads it
//! needs, and says what it did; `mode = "populate"` places the same blocks exactly without a mapping for each.

use serde_json::Value;

use crate::common::lab::Lab;
use crate::common::{Policy, Scratch, compile, objects, source};

/// vm.max_map_count of the guest, and what the program maps itself: more than half of it.
const LIMIT: u64 = 8000;
const OWN: u64 = 5000;

fn policy(mode: &str) -> Policy {
    let place = format!("policy = \"block-cyclic\", block = 4096, nodes = \"0-1\", mode = \"{mode}\"");
    ["global = \"in_bss\"", "function = [\"by_malloc\"]", "function = [\"by_mmap\"]"]
        .iter()
        .fold(Policy::of("crowd"), |policy, key| policy.rule(key, &place))
}

#[test]
fn small_blocks_leave_the_program_its_mappings() {
    let Some(mut lab) = Lab::still(2, 1) else { return };
    let dir = Scratch::new("lab-mappings");
    let crowd = compile("cc", "lab/mappings/crowd.c", dir.join("crowd"), &["-O2", "-g", "-pthread"]);
    lab = lab.options(&["--sysctl", &format!("vm.max_map_count={LIMIT}"), "--thp", "always"]);
    for mode in ["policy", "populate"] {
        lab = lab.add(policy(mode).write(&dir, &format!("{mode}.toml")));
    }
    lab = lab.add(crowd).add(source("lab/mappings/run.sh"));
    let text = lab.run(&["env", &format!("OWN={OWN}"), "./run.sh"]).success().stdout;
    let runs: Vec<&str> = text.split("=== ").skip(1).collect();
    assert_eq!(runs.len(), 3, "{text}");
    for one in runs {
        check(one);
    }
}

fn check(run: &str) {
    let (said, report) = run.split_once("--- report\n").expect("a report");
    let populate = said.starts_with("populate");
    // The program's own mappings came first: some objects find no room, which is said.
    let full = said.starts_with("policy first");
    assert_eq!(said.contains("use all"), full, "{said}");
    let end = said.lines().find(|l| l.contains(" threads")).unwrap_or_else(|| panic!("{said}"));
    assert!(end.ends_with("mappings, 0 failed, 100 threads"), "the program lost its own mappings: {said}");
    let mappings: u64 = end.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    assert!(mappings < LIMIT, "{said}");
    let ours = said.lines().filter(|l| l.starts_with("numamma: ")).collect::<Vec<_>>();
    if populate {
        assert!(ours.is_empty(), "{ours:?}");
        assert!(mappings < OWN + 300, "a mapping for each block: {said}");
        for name in ["in_bss", "by_malloc", "by_mmap"] {
            assert!(said.contains(&format!("{name}: 0 absent, 0 off\n")), "{said}");
        }
    } else {
        assert!(ours.iter().any(|l| l.contains("larger blocks") || l.contains("using blocks of")), "{said}");
        assert!(mappings > OWN + 500, "blocks as small as they may be: {said}");
    }
    let report: Value = serde_json::from_str(report).expect("JSON");
    for o in objects(&report) {
        assert_eq!(o["pages_off_plan"], 0, "{said}{o}");
        assert!(o["pages_present"].as_u64() >= Some(2047) || full && o["unplaced"] == 1, "{said}{o}");
        assert_eq!(o["block"] == 4096, populate, "{o}");
    }
}
