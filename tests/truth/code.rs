//! Patterns by code: programs in which two loops use one array differently, profiled for real. The truth of every
//! function stands at the top of its source.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{Scratch, alone, compile, numamma, objects, run};

/// Short runs need many samples.
const RATE: &str = "1000";
const THREADS: &str = "4";
const KIB: u64 = 1 << 10;

/// What the source says about one function: a part of its name, its class and its period.
type Function = (&'static str, &'static str, Option<u64>);

/// A program, and the array in question with the functions that use it. Without functions it is not mixed.
struct Case {
    source: &'static str,
    args: &'static [&'static str],
    object: &'static str,
    functions: &'static [Function],
}

const CASES: &[Case] = &[
    Case {
        source: "planes.c",
        args: &["600"],
        object: "u",
        functions: &[("slabs", "block", None), ("rows", "block-cyclic", Some(256 * KIB))],
    },
    Case {
        source: "planes.f90",
        args: &["600"],
        object: "field::u",
        functions: &[("planes.f90:4", "block", None), ("planes.f90:5", "block-cyclic", Some(256 * KIB))],
    },
    Case {
        source: "adi.c",
        args: &["320", THREADS],
        object: "main adi.c",
        functions: &[("along_rows", "block", None), ("along_columns", "block-cyclic", Some(32 * KIB))],
    },
    Case {
        source: "solver.c",
        args: &["240"],
        object: "p",
        functions: &[("product", "random", None), ("update", "block", None)],
    },
    Case {
        source: "scope.rs",
        args: &["320", THREADS],
        object: "scope::main",
        functions: &[("along_rows", "block", None), ("along_columns", "block-cyclic", Some(32 * KIB))],
    },
    Case { source: "pointer.c", args: &["600"], object: "v", functions: &[] },
];

/// Compiles one of the programs; none where its compiler is missing.
fn built(dir: &Path, source: &str, level: &str) -> Option<PathBuf> {
    let source_path = format!("truth/code/{source}");
    let out = dir.join(source.replace('.', "-"));
    let modules = dir.display().to_string();
    let level_of_rust = format!("opt-level={}", level.trim_start_matches("-O"));
    let (compiler, flags) = match source.rsplit_once('.')?.1 {
        "f90" => ("gfortran", vec![level, "-g", "-fopenmp", "-J", &modules]),
        "rs" => ("rustc", vec!["--edition", "2024", "-g", "-C", &level_of_rust]),
        _ => ("cc", vec![level, "-g", "-fopenmp", "-pthread"]),
    };
    if std::process::Command::new(compiler).arg("--version").output().is_err() {
        eprintln!("{compiler} is not installed: {source} is left out");
        return None;
    }
    Some(compile(compiler, &source_path, out, &flags))
}

fn profile(dir: &Path, program: &Path, args: &[&str]) -> PathBuf {
    let prof = dir.join("code.prof");
    let mut command = numamma(&["profile", "-q", "-F", RATE, "-o"]);
    command.arg(&prof).arg("--").arg(program).args(args);
    // Threads that spin in barriers take the CPUs from those that work.
    run(command.env("OMP_NUM_THREADS", THREADS).env("OMP_WAIT_POLICY", "passive")).success();
    prof
}

fn found<'a>(report: &'a Value, name: &str) -> &'a Value {
    let named = |o: &&Value| o["name"].as_str().is_some_and(|n| n == name || n.starts_with(&format!("{name}:")));
    let starts = |o: &&Value| o["name"].as_str().is_some_and(|n| n.starts_with(name));
    let objects = objects(report);
    let found = objects.iter().find(named).or_else(|| objects.iter().find(starts));
    found.unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

fn check(case: &Case, level: &str) {
    let _alone = alone();
    let dir = Scratch::new(&format!("truth-code-{}{level}", case.source));
    let Some(program) = built(&dir, case.source, level) else { return };
    let prof = profile(&dir, &program, case.args);
    let report = run(numamma(&["report", "--json"]).arg(&prof)).success().json();
    let object = found(&report, case.object);
    let pattern = &object["pattern"];
    if case.functions.is_empty() {
        assert_ne!(pattern["kind"], "mixed", "{pattern:#}");
        assert!(pattern["by_code"].is_null() && pattern["figures"]["explained"].as_f64() < Some(0.7), "{pattern:#}");
        return;
    }
    assert_eq!(pattern["kind"], "mixed", "{}: {pattern:#}", case.source);
    let rows = pattern["by_code"].as_array().expect("the functions of a mixed object");
    for (function, kind, period) in case.functions {
        let row = rows.iter().find(|r| r["function"].as_str().is_some_and(|f| f.contains(function)));
        let row = row.unwrap_or_else(|| panic!("{}: no {function} in {pattern:#}", case.source));
        assert_eq!((&row["kind"], row["period"].as_u64()), (&Value::from(*kind), *period), "{function}: {row:#}");
    }
    let shares: f64 = rows.iter().filter_map(|r| r["share"].as_f64()).sum();
    assert!((0.95..1.0001).contains(&shares), "{}: shares add up to {shares}", case.source);
    let name = object["name"].as_str().expect("a name");
    let text = run(numamma(&["report", "--object", name]).arg(&prof)).success().stdout;
    assert!(case.functions.iter().all(|f| text.contains(f.0)) && text.contains("mixed"), "{text}");
}

/// Arrays that all loops use alike are not mixed.
///
/// `b` stays in the caches: with a quarter of the steps its samples are just as many as telling a class takes.
fn check_dense(level: &str) {
    let _alone = alone();
    let dir = Scratch::new(&format!("truth-code-dense{level}"));
    let Some(program) = built(&dir, "dense.c", level) else { return };
    let report = run(numamma(&["report", "--json"]).arg(profile(&dir, &program, &["16"]))).success().json();
    for (name, kind, period) in
        [("a", "block", None), ("b", "read-shared", None), ("c", "block", None), ("d", "block-cyclic", Some(32 * KIB))]
    {
        let pattern = &found(&report, name)["pattern"];
        let (got, at) = (&pattern["kind"], pattern["period"].as_u64());
        // A short run may leave a cold array without a class of its own.
        let left_out = got == "cold" || got == "unsure";
        assert!(left_out || (got == kind && at == period), "{name}: {pattern:#}");
    }
}

#[test]
fn functions_that_disagree_are_told_apart() {
    CASES.iter().for_each(|case| check(case, "-O2"));
}

/// The lanes of vector gathers, by the indices in the program's memory.
#[test]
fn gathered_tables_are_known_by_page() {
    if !std::arch::is_x86_feature_detected!("avx2") {
        crate::common::skipped("no AVX2 here, so no vector gathers");
        return;
    }
    let _alone = alone();
    let dir = Scratch::new("truth-code-gathered");
    let flags = ["-O3", "-g", "-mavx2", "-mtune=haswell", "-fopenmp"];
    let program = compile("cc", "truth/code/gathered.c", dir.join("gathered"), &flags);
    let report = run(numamma(&["report", "--json"]).arg(profile(&dir, &program, &["40"]))).success().json();
    let table = found(&report, "table");
    assert_eq!(table["pattern"]["kind"], "block", "{table:#}");
    assert!(table["cost_share"].as_f64() > Some(0.3), "{table:#}");
}

#[test]
fn functions_that_agree_are_one_pattern() {
    check_dense("-O2");
}

#[test]
#[ignore = "long: make test-long"]
fn functions_that_disagree_are_told_apart_when_loops_are_vectorised() {
    CASES.iter().for_each(|case| check(case, "-O3"));
    check_dense("-O3");
}

/// Without symbols and debug information the functions are those of the call frame information.
#[test]
fn functions_without_symbols_are_told_apart() {
    let _alone = alone();
    let dir = Scratch::new("truth-code-stripped");
    let program = compile("cc", "truth/code/planes.c", dir.join("stripped"), &["-O2", "-s", "-fopenmp"]);
    let report = run(numamma(&["report", "--json"]).arg(profile(&dir, &program, &["150"]))).success().json();
    let objects = objects(&report);
    let pattern = &objects.first().expect("an object")["pattern"];
    assert_eq!(pattern["kind"], "mixed", "{pattern:#}");
    let kinds: Vec<&Value> = pattern["by_code"].as_array().expect("functions").iter().map(|r| &r["kind"]).collect();
    assert!(kinds.contains(&&Value::from("block")) && kinds.contains(&&Value::from("block-cyclic")), "{pattern:#}");
}

/// The placement of a mixed object is priced over all functions, and the policy names them.
#[test]
fn a_mixed_object_gets_a_placement() {
    let _alone = alone();
    let dir = Scratch::new("truth-code-advice");
    let Some(program) = built(&dir, "planes.c", "-O2") else { return };
    // A placement is only advised where the samples are enough to say that it pays: a second or more of CPU time.
    let prof = profile(&dir, &program, &["2000"]);
    let policy = run(numamma(&["advise", "-q", "--nodes", "4"]).arg(&prof)).success().stdout;
    assert!(policy.contains("kind = \"mixed\"") && policy.contains("slabs") && policy.contains("rows"), "{policy}");
    let place = policy.lines().find(|l| l.starts_with("place = ")).expect("a rule");
    assert!(place.contains("\"block\"") || place.contains("\"block-cyclic\""), "{policy}");
}
