//! `by others` and the predicted remote share: what would be remote, also where the machine has one node.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::common::{Scratch, alone, compile, numamma, run};

/// What `numamma report` says of the memory that the processes of `quarters` share, recorded behind what comes
/// `before`.
fn quarters(dir: &Scratch, program: &Path, what: &str, before: &[&str]) -> Value {
    let profile = dir.join(format!("{what}.prof")).display().to_string();
    let options = ["profile", "-F", "1000", "-o", &profile];
    let follow: &[&str] = if before.is_empty() { &["--follow", "--"] } else { &["--"] };
    let command = [&options[..], follow, before, &[program.to_str().unwrap(), what, "0.5"]].concat();
    let ran = run(&mut numamma(&command));
    assert_eq!(ran.code(), Some(0), "{ran:?}");
    let json: Value =
        serde_json::from_str(&run(&mut numamma(&["report", "--json", "--nodes", "4", &profile])).stdout).expect("JSON");
    let shared = |o: &&Value| o["size"].as_u64() == Some(32 << 20);
    let all: Vec<&Value> = json["objects"].as_array().expect("a list").iter().filter(shared).collect();
    assert_eq!(all.len(), 1, "{what}: one object: {json}");
    assert_eq!(all[0]["instances"], 1, "{what}: of all processes: {}", all[0]);
    all[0].clone()
}

/// Each of four processes works on its quarter of memory that the parent filled, or that nobody did.
#[test]
fn memory_that_processes_share_is_one_object_with_one_first_touch_of_each_page() {
    let _alone = alone();
    let dir = Scratch::new("quarters");
    let program = compile("gcc", "cli/by_others/quarters.c", dir.join("app"), &["-O1", "-g"]);
    for (what, before) in [("filled", &[][..]), ("named", &[]), ("own", &[]), ("named", &["env", "X=1"])] {
        let object = quarters(&dir, &program, what, before);
        let share = |key: &str| object[key].as_f64().unwrap_or_else(|| panic!("{key}: {object}"));
        assert_eq!(object["pattern"]["kind"], "block", "{what}: {object}");
        assert!(share("by_others_known") > 0.9, "{what}: {object}");
        let touchers = object["first_touch"].as_array().expect("a list");
        if what == "own" {
            assert!(share("by_others_share") < 0.02, "{what}: {object}");
            assert_eq!(touchers.len(), 4, "{what}: {object}");
            assert!(touchers.iter().all(|t| (t["share"].as_f64().unwrap() - 0.25).abs() < 0.02), "{object}");
            continue;
        }
        assert!(share("by_others_share") > 0.95, "{what}: {object}");
        assert_eq!((touchers.len(), &touchers[0]["thread"]), (1, &0.into()), "{what}: {object}");
    }
    let profile = dir.join("named.prof").display().to_string();
    let policy = run(&mut numamma(&["advise", "--nodes", "4", &profile])).stdout;
    // Whether the kernel's NUMA balancing does as well depends on how long the run took.
    // The parent is the fifth where a sample saw it fill the memory.
    let shared = ["4 processes share it", "5 processes share it"].iter().any(|words| policy.contains(words));
    assert!(shared && !policy.contains("policy = \"block"), "{policy}");
}

/// In the program the main thread touches everything first and four threads sweep the two large arrays.
#[test]
fn pages_touched_by_main_and_used_by_others_are_shown_on_any_machine() {
    let _alone = alone();
    let dir = Scratch::new("by-others");
    let program = compile("gcc", "cli/names/wrapped.c", dir.join("app"), &["-O1", "-g", "-pthread", "-DROUNDS=400"]);
    let profile = dir.join("app.prof").display().to_string();
    let ran = run(&mut numamma(&["profile", "-F", "1000", "-o", &profile, "--", program.to_str().unwrap()]));
    assert_eq!(ran.code(), Some(0), "{ran:?}");
    let report = |more: &[&str]| run(&mut numamma(&[&["report", profile.as_str()], more].concat())).stdout;
    let json: Value = serde_json::from_str(&report(&["--json", "--nodes", "4"])).expect("JSON");
    let all = json["objects"].as_array().expect("a list");
    let heap = |bytes: u64| all.iter().find(|o| o["kind"] == "heap" && o["size"].as_u64() == Some(bytes));
    let hot = heap(32 << 20).expect("the array that is swept");
    let share = |key: &str| hot[key].as_f64().unwrap_or_else(|| panic!("{key}: {hot}"));
    // Four hundred sweeps by others, each of a read and a write, beside one write by main.
    let (by_others, sweeps) = (share("by_others_share"), 800.0 / 801.0);
    assert!((by_others - sweeps).abs() < 0.1 && share("by_others_known") > 0.9, "{hot}");
    // All pages are on the node of main, where the first of the four sweeps. They have equal work, of which a busy
    // machine may sample one more than another.
    let numbers = |key: &str| hot[key].as_array().expect("a list").iter().map(|n| n.as_u64().expect("a number"));
    let by_thread: BTreeMap<u64, u64> = numbers("threads").zip(numbers("thread_accesses")).collect();
    let local: u64 = by_thread.iter().filter(|(thread, _)| **thread <= 1).map(|(_, accesses)| accesses).sum();
    let remote = 1.0 - local as f64 / by_thread.values().sum::<u64>() as f64;
    let predicted = share("predicted_remote_share");
    assert!((predicted - remote).abs() < 0.01 && (0.5..0.95).contains(&remote), "{predicted} and {remote}: {hot}");
    // Only main uses this one. A run may not show it, or show so little that nothing is predicted for it.
    if let Some(cold) = heap(8 << 20).filter(|o| !o["by_others_share"].is_null()) {
        assert_eq!(cold["by_others_share"], 0.0, "{cold}");
        assert!(cold["predicted_remote_share"].as_f64().is_none_or(|share| share == 0.0), "{cold}");
    }
    assert!(json["predicted_for"].is_string(), "{}", json["predicted_for"]);
    if json["nodes"].as_array().map(Vec::len) == Some(1) {
        assert!(hot["remote_share"].is_null(), "nothing can be remote: {hot}");
    }
    let text = report(&[]);
    assert!(text.contains("by others"), "{text}");
    let detail = report(&["--object", hot["name"].as_str().expect("a name")]);
    assert!(detail.contains("pages that another thread touched first"), "{detail}");
}
