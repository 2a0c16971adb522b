//! The budget of mappings on two real nodes: a policy of small blocks leaves the program the mappings and threads it
//! needs, and says what it did; `mode = "populate"` places the same blocks exactly without a mapping for each. Placed
//! mappings are resized and moved as without a placement, and the budget counts them whatever becomes of them.

use serde_json::Value;

use crate::common::lab::Lab;
use crate::common::{Policy, Scratch, compile, objects, source};
use crate::ways::{self, Bound, GOMP};

/// vm.max_map_count of the guest, and what the program maps itself: more than half of it.
const LIMIT: u64 = 8000;
const OWN: u64 = 5000;

fn policy(mode: &str) -> Policy {
    let place = format!("policy = \"block-cyclic\", block = 4096, nodes = \"0-1\", mode = \"{mode}\"");
    ["global = \"in_bss\"", "function = [\"by_malloc\"]", "function = [\"by_mmap\"]"]
        .iter()
        .fold(Policy::of("crowd"), |policy, key| policy.rule(key, &place))
}

fn small_blocks_leave_the_program_its_mappings(name: &str, ways: &[&str]) {
    let Some(mut lab) = Lab::still(2, 1) else { return };
    let dir = Scratch::new(name);
    let flags = [&["-O2", "-g", "-pthread"][..], &GOMP].concat();
    let crowd = compile("cc", "lab/mappings/crowd.c", dir.join("crowd"), &flags);
    lab = lab.options(&["--sysctl", &format!("vm.max_map_count={LIMIT}"), "--thp", "always"]);
    for mode in ["policy", "populate"] {
        lab = lab.add(policy(mode).write(&dir, &format!("{mode}.toml")));
    }
    lab = lab.add(crowd).add(source("lab/mappings/run.sh"));
    let text = ways::run(lab, ways, &["env", &format!("OWN={OWN}"), "./run.sh"]);
    for Bound { way, said, .. } in ways::split(&text, ways, 2) {
        let runs: Vec<&str> = said.split("=== ").skip(1).collect();
        assert_eq!(runs.len(), 3, "{way}: {said}");
        for one in runs {
            eprintln!("{way}");
            check(one);
        }
    }
}

#[test]
fn small_blocks_leave_the_program_its_mappings_in_three_ways() {
    small_blocks_leave_the_program_its_mappings("lab-mappings", &["unbound", "OMP_PROC_BIND=spread", "mpirun-core"]);
}

#[test]
#[ignore = "long: make test-long"]
fn small_blocks_leave_the_program_its_mappings_in_every_way() {
    small_blocks_leave_the_program_its_mappings("lab-mappings-all", &ways::ALL);
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

/// vm.max_map_count for the program of random calls; placed objects may use a quarter.
const CHURN_LIMIT: u64 = 8000;
/// Blocks of its last object: nearly the whole budget, so that a leak of a tenth of it enlarges them.
const LAST: u64 = CHURN_LIMIT / 4 * 9 / 10;
/// Lines of maps that the library itself may need: its code and data, tables, and what divides the program's own.
const LIBRARY: u64 = 80;
/// Mappings of the freed memory that the library keeps: 1 MiB (LIMIT_LOWEST in `objects/released.rs`, the arrays are
/// smaller) in blocks of a page.
const KEPT: u64 = 256;

fn placed_mappings_move_and_change_as_without_a_placement(name: &str, ways: &[&str]) {
    let Some(mut lab) = Lab::still(2, 1) else { return };
    let dir = Scratch::new(name);
    for name in ["moved", "churn"] {
        let source = format!("lab/mappings/{name}.c");
        let flags = [&["-O1", "-g", "-Wall", "-Wextra", "-Werror"][..], &GOMP].concat();
        lab = lab.add(compile("cc", &source, dir.join(name), &flags));
    }
    let rules = |keys: &[&str], block: &str| {
        let place = format!("policy = \"block-cyclic\", block = \"{block}\", nodes = \"0-1\"");
        let add = |policy: Policy, key: &&str| policy.rule(&format!("function = [\"{key}\"]"), &place);
        keys.iter().fold(Policy::new(), add)
    };
    lab = lab.add(rules(&["matched"], "16KiB").write(&dir, "moved.toml"));
    lab = lab.add(rules(&["by_mmap", "by_malloc", "last"], "4KiB").write(&dir, "churn.toml"));
    lab = lab.options(&["--sysctl", &format!("vm.max_map_count={CHURN_LIMIT}")]);
    lab = lab.add(source("lab/mappings/moved.sh"));
    let text = ways::run(lab, ways, &["env", &format!("LAST={LAST}"), "./moved.sh"]);
    for bound in ways::split(&text, ways, 2) {
        eprintln!("{}", bound.way);
        check_moved(bound.said);
    }
}

#[test]
fn placed_mappings_move_and_change_as_without_a_placement_in_three_ways() {
    placed_mappings_move_and_change_as_without_a_placement("lab-moved", &["unbound", "OMP_PLACES=cores", "node"]);
}

#[test]
#[ignore = "long: make test-ways"]
fn placed_mappings_move_and_change_as_without_a_placement_in_each_way() {
    placed_mappings_move_and_change_as_without_a_placement("lab-moved-all", &ways::ALL);
}

fn check_moved(text: &str) {
    let parts: Vec<&str> = text.split("=== ").skip(1).collect();
    let part = |name: &str| *parts.iter().find(|p| p.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    let after = |name: &str| part(name).split_once('\n').expect("a line").1;

    let bare = after("moved bare");
    assert!(bare.contains("locked, grown: 192 pages | rw-p") && !bare.contains("DAMAGED"), "{bare}");
    assert_eq!(after("moved placed"), bare);
    let report: Value = serde_json::from_str(after("moved report")).expect("JSON");
    let object = &objects(&report)[0];
    assert!(object["pages_off_plan"] == 0 && object["pages_on_plan"].as_u64() > Some(5000), "{object}");

    let [bare, placed] = ["churn bare", "churn placed"].map(|name| {
        let text = after(name);
        assert!(text.contains("damaged 0 failed 0\n"), "{text}");
        let numbers = text.lines().find_map(|l| l.strip_prefix("most ")).expect("a line");
        let (most, end) = numbers.split_once(" end ").expect("two numbers");
        [most, end].map(|n| n.parse::<u64>().expect("a number"))
    });
    assert!(placed[0] <= bare[0] + CHURN_LIMIT / 4 + LIBRARY && placed[0] > bare[0] + 500, "{bare:?} {placed:?}");
    assert!(placed[1] <= bare[1] + LIBRARY + KEPT, "{bare:?} {placed:?}");
    let report: Value = serde_json::from_str(after("churn report")).expect("JSON");
    let last = objects(&report).iter().find(|o| o["name"] == "last").expect("a rule of the policy");
    assert!(last["block"] == 4096 && last["unplaced"] == 0, "mappings of the budget are lost: {last}");
}
