//! The test programs, profiled for real on this machine: every hot object gets the class its source says.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

const NUMAMMA: &str = env!("CARGO_BIN_EXE_numamma");
const MIB: u64 = 1 << 20;
/// A class must hold at any rate; a high one gives short runs enough samples.
const RATE: &str = "1000";

/// Threads to run with: fewer, as many and more than this machine's cores, which is what servers see.
const THREADS: [u32; 4] = [2, 4, 8, 16];

/// An object: part of its name, or the size that tells it from the others; its class; its period in bytes.
struct Truth {
    name: &'static str,
    size: u64,
    kind: &'static str,
    period: Option<u64>,
}

const fn is(name: &'static str, size: u64, kind: &'static str) -> Truth {
    Truth { name, size, kind, period: None }
}

/// Profiles a program with `threads` threads and returns the report. `bare` is what it prints by itself.
fn report(program: &str, args: &[String], threads: u32, bare: &mut Option<Vec<u8>>) -> Value {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let binary = root.join("target/programs").join(program);
    assert!(binary.exists(), "{} is not built: run `make programs` (the Fortran ones need gfortran)", binary.display());
    let prof = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("truth-{program}-{threads}.prof"));
    let omp = ("OMP_NUM_THREADS", threads.to_string());
    let run = Command::new(NUMAMMA)
        .args(["profile", "-q", "-F", RATE, "-o"])
        .arg(&prof)
        .arg("--")
        .arg(&binary)
        .args(args)
        .env(omp.0, &omp.1)
        .output()
        .expect("numamma runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    // Once per program is enough to see that profiling changes nothing.
    if bare.is_none() {
        let alone = Command::new(&binary).args(args).env(omp.0, &omp.1).output().expect("the program runs");
        assert_eq!(run.stdout, alone.stdout, "{program} prints something else when profiled");
        *bare = Some(alone.stdout);
    }
    let json = Command::new(NUMAMMA).args(["report", "--json"]).arg(&prof).output().expect("numamma runs");
    assert!(json.status.success(), "{}", String::from_utf8_lossy(&json.stderr));
    serde_json::from_slice(&json.stdout).expect("report is JSON")
}

/// Checks a program at every number of threads. `args` makes its arguments for a number of threads.
fn check(program: &str, args: impl Fn(u32) -> Vec<String>, truths: &[Truth]) {
    // One program at a time: eight of them on two cores starve the recorder, and that is another test's matter.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut bare = None;
    let mut wrong = Vec::new();
    for threads in THREADS {
        let report = report(program, &args(threads), threads, &mut bare);
        let objects = report["objects"].as_array().expect("objects");
        for truth in truths {
            let found = objects
                .iter()
                .find(|o| {
                    o["name"].as_str().is_some_and(|n| n.contains(truth.name)) && o["size"].as_u64() >= Some(truth.size)
                })
                .unwrap_or_else(|| panic!("{program}: no {} of {} bytes in {report:#}", truth.name, truth.size));
            let pattern = &found["pattern"];
            let right = pattern["kind"] == truth.kind
                && truth.period.is_none_or(|period| near(pattern["period"].as_u64(), period));
            if !right {
                wrong.push(format!("{program} with {threads} threads, {}: {pattern:#}", truth.name));
            }
        }
        let share: f64 = objects.iter().filter_map(|o| o["cost_share"].as_f64()).sum();
        assert!((share - 1.0).abs() < 1e-6, "{program}: cost shares add up to {share}");
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Within 1 %: a short run of 16 threads does not always tell a period from one a page longer, and says so ("+- 1 pages").
fn near(found: Option<u64>, period: u64) -> bool {
    found.is_some_and(|found| found.abs_diff(period) * 100 <= period)
}

/// The same arguments whatever the number of threads.
fn fixed(args: &'static [&'static str]) -> impl Fn(u32) -> Vec<String> {
    move |_| args.iter().map(|a| (*a).to_owned()).collect()
}

/// Iterations, then the number of threads.
fn with_threads(iterations: u32) -> impl Fn(u32) -> Vec<String> {
    move |threads| vec![iterations.to_string(), threads.to_string()]
}

#[test]
fn lu() {
    let cyclic = |name, size, period| Truth { name, size, kind: "block-cyclic", period: Some(period) };
    let truths = [cyclic("cvar_", 56 * MIB, 16 * MIB), cyclic("cjac_", 20 * MIB, 5 * MIB), is("cexact_", 520, "small")];
    check("lu", fixed(&["80"]), &truths);
}

#[test]
fn cluster() {
    let truths = [is("alloc_block", 24 * MIB, "read-shared"), is("alloc_points", 6 * MIB, "block")];
    check("cluster", with_threads(60), &truths);
}

#[test]
fn private() {
    // Every thread does all iterations.
    let args = |threads: u32| vec![(4000 / threads).to_string(), threads.to_string()];
    check("private", args, &[is("make_buffer", 4 * MIB, "private")]);
}

#[test]
fn stencil() {
    let truths = [is("stencil.f90:18", 32 * MIB, "block"), is("stencil.f90:19", 32 * MIB, "block")];
    check("stencil", fixed(&["120"]), &truths);
}

#[test]
fn gather() {
    check("gather", fixed(&["120"]), &[is("table", 64 * MIB, "read-shared"), is("out", 16 * MIB, "block")]);
}

#[test]
fn linked() {
    let args = |threads: u32| vec![16u32.div_ceil(threads).to_string(), threads.to_string()];
    // Of 20 MiB; on a loaded machine a part of its many allocations is lost, and the report says so.
    check("linked", args, &[is("Tree::insert", 5 * MIB, "read-shared")]);
}

#[test]
fn slices() {
    check("slices", with_threads(500), &[is("slices.rs", 48 * MIB, "block")]);
}

#[test]
fn firsttouch() {
    let lines = ["firsttouch.c:14", "firsttouch.c:15", "firsttouch.c:16"];
    check("firsttouch", fixed(&["900"]), &lines.map(|line| is(line, 16 * MIB, "block")));
}
