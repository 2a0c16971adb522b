//! Parts of objects without debug information: a program that carves one block into arrays, profiled for real. The
//! truth stands at the top of its source.

use numamma_plan::check;
use serde_json::Value;

use crate::common::{Scratch, alone, compile, numamma, number, objects, run};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// Offset and size, and the classes it may have.
const ARRAYS: [(u64, u64, &[&str]); 3] = [
    (0, 2 * MIB, &["block"]),
    (2 * MIB, 3 * MIB, &["read-shared", "random"]),
    (5 * MIB, 5 * MIB / 2, &["block-cyclic"]),
];
/// Pages by which a boundary may be wrong: a run of seconds has about one independent sample on each page, so that the
/// edge is known to some pages, and to less than the smallest part in any case.
const STRAY: u64 = 16;

#[test]
fn arrays_carved_out_of_one_block_are_told_apart() {
    let _alone = alone();
    let dir = Scratch::new("truth-parts");
    let program = compile("cc", "truth/parts/carved.c", dir.join("carved"), &["-O2", "-s", "-fopenmp"]);
    let prof = dir.join("carved.prof");
    let mut command = numamma(&["profile", "-q", "-F", "1000", "-o"]);
    command.arg(&prof).arg("--").arg(&program).arg("1500");
    run(command.env("OMP_NUM_THREADS", "4").env("OMP_WAIT_POLICY", "passive")).success();

    let report = run(numamma(&["report", "--json"]).arg(&prof)).success().json();
    let mut parts: Vec<&Value> = objects(&report).iter().filter(|o| !o["parent"].is_null()).collect();
    parts.sort_by_key(|o| number(o, "offset"));
    assert_eq!(parts.len(), ARRAYS.len(), "{report:#}");
    for (part, (offset, size, kinds)) in parts.iter().zip(ARRAYS) {
        assert!(number(part, "offset").abs_diff(offset) <= STRAY * PAGE, "{offset}: {part:#}");
        assert!(number(part, "size").abs_diff(size) <= 2 * STRAY * PAGE, "{offset}: {part:#}");
        let pattern = &part["pattern"];
        assert!(kinds.contains(&pattern["kind"].as_str().expect("a class")), "{offset}: {pattern:#}");
        let parent = part["parent"].as_str().expect("a name");
        assert!(part["name"].as_str().is_some_and(|n| n.starts_with(&format!("{parent} ["))), "{part:#}");
        assert!(part["member"].is_null(), "{part:#}");
    }
    let share: f64 = objects(&report).iter().filter_map(|o| o["cost_share"].as_f64()).sum();
    assert!((share - 1.0).abs() < 1e-6, "cost shares add up to {share}");

    let text = run(numamma(&["advise", "-q", "--nodes", "4"]).arg(&prof)).success().stdout;
    let policy = check::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let ranges: Vec<_> = policy.objects.iter().filter_map(|r| r.range.as_deref()).collect();
    // Whether a slice gains by a placement depends on this machine's caches; what all read does.
    assert!(!ranges.is_empty() && policy.objects.iter().all(|r| r.member.is_none()), "{text}");

    let file = dir.join("parts.toml");
    std::fs::write(&file, &text).expect("a policy");
    let table = run(numamma(&["predict", "-q", "--json", "--nodes", "4", "--policy"]).arg(&file).arg(&prof));
    let table = table.success();
    assert!(!table.stderr.contains("no object of the profile"), "{}", table.stderr);
}
