//! Threads are roles: programs whose workers are known, from the profile to the CPUs that each thread may use in the
//! placed run, on four real nodes with two CPUs each.

use serde_json::Value;

use crate::common::lab::Lab;
use crate::common::{number, object, program, source};
use crate::ways;

const MIB: u64 = 1 << 20;
const ALL: &str = "0 1 2 3";

/// Text between `=== name` and the next marker.
fn section<'a>(text: &'a str, name: &str) -> &'a str {
    let marker = format!("=== {name}\n");
    let from = text.find(&marker).unwrap_or_else(|| panic!("no section {name} in:\n{text}")) + marker.len();
    let rest = &text[from..];
    &rest[..rest.find("\n=== ").map_or(rest.len(), |end| end + 1)]
}

/// Threads of the report that work, as (rank, workers), without repeats.
fn workers(report: &Value) -> Vec<(u64, u64)> {
    let threads = report["threads"].as_array().expect("threads");
    let works = threads.iter().filter(|t| t["works"] == true);
    let mut found: Vec<(u64, u64)> =
        works.map(|t| (t["rank"].as_u64().expect("rank"), t["workers"].as_u64().expect("workers"))).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn all_of(teams: &[u64]) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = teams.iter().flat_map(|of| (0..*of).map(|rank| (rank, *of))).collect();
    all.sort_unstable();
    all
}

#[test]
#[ignore = "long: make test-long"]
fn workers_are_bound_by_their_ranks_and_others_are_not() {
    let Some(lab) = Lab::new(4, 2) else { return };
    let names = ["pools", "crew", "nested"];
    let lab = names.iter().fold(lab.options(&["--timeout", "400"]), |lab, name| lab.add(program(name)));
    // Where threads may run depends on how the program is bound, where pages are does not: the verified runs are bound.
    let ways = ["GOMP_CPU_AFFINITY", "taskset", "OMP_PROC_BIND=spread"];
    let (lab, _) = ways::add(lab, &ways);
    let [pools, crew, nested] = ways;
    let steps = ["./run.sh", "pools", "6", pools, "crew", "90", crew, "nested", "6", nested];
    let text = lab.add(source("lab/teams/run.sh")).run(&steps).success().stdout;
    let report = |name: &str| -> Value {
        let json = section(&text, &format!("{name} report"));
        serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}\n{json}"))
    };
    for (name, teams) in [("pools", &[4][..]), ("crew", &[4, 3]), ("nested", &[8])] {
        let policy = section(&text, &format!("{name} policy"));
        assert_eq!(workers(&report(name)), all_of(teams), "{name}\n{policy}");
        assert!(policy.contains("[[team]]"), "{policy}");
        assert!(text.contains(&format!("=== {name} same\n")), "the output of {name} differs");
        // What the user binds stays as the user wants it.
        let by_user = section(&text, &format!("{name} by-user"));
        assert!(by_user.lines().skip(1).all(|line| line.ends_with(ALL)), "{by_user}");
    }
    let expect = |name: &str, lines: &[(String, &str)]| {
        let placed = section(&text, &format!("{name} placed"));
        for (thread, nodes) in lines {
            assert!(placed.contains(&format!("\n{thread}: {nodes}\n")), "{thread}: not {nodes}:\n{placed}");
        }
    };
    let node = ["0", "1", "2", "3"];
    let waits = |name: &str| (name.to_owned(), ALL);
    let mut pools = vec![waits("main"), waits("helper")];
    let mut crew = vec![waits("main"), waits("logger")];
    for (t, node) in node.iter().enumerate() {
        pools.extend([(format!("first {t}"), *node), (format!("last {t}"), *node)]);
        crew.push((format!("worker {t}"), node));
    }
    // Loader t of 3 is on CPU floor(8 t / 3).
    crew.extend((0..3).map(|t| (format!("loader {t}"), node[8 * t / 3 / 2])));
    let mut nested = vec![waits("waiter")];
    nested.extend((0..8).map(|w| (format!("worker {w}"), node[w / 2])));
    expect("pools", &pools);
    expect("crew", &crew);
    expect("nested", &nested);

    let pools_report = report("pools");
    let grid = &object(&pools_report, "grid")["pattern"];
    assert_eq!((&grid["kind"], grid["period"].as_u64()), (&Value::from("block-cyclic"), Some(4 * MIB)), "{grid}");
    assert_eq!(object(&report("crew"), "make_table")["pattern"]["kind"], "block");
    assert_eq!(object(&report("crew"), "make_input")["pattern"]["kind"], "block");
    // A third of the input on the node of each loader.
    let crew_policy = section(&text, "crew policy");
    assert!(crew_policy.contains("block = \"8MiB\", nodes = \"0,1,2\""), "{crew_policy}");
    assert_eq!(object(&report("nested"), "table")["pattern"]["kind"], "block");
    assert!(section(&text, "pools policy").contains("block = \"1MiB\""), "{}", section(&text, "pools policy"));
    for (name, placed) in [("pools", "grid"), ("crew", "make_table"), ("crew", "make_input"), ("nested", "table")] {
        let verify: Value = serde_json::from_str(section(&text, &format!("{name} verify"))).expect("verify is JSON");
        let o = object(&verify, placed);
        assert!(number(o, "pages_present") > 0 && number(o, "pages_off_plan") == 0, "{o}");
    }
}
