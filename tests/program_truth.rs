//! The test programs, profiled for real on this machine: every hot object gets the class its source says.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

const NUMAMMA: &str = env!("CARGO_BIN_EXE_numamma");
const MIB: u64 = 1 << 20;
/// A class must hold at any rate; a high one gives short runs enough samples.
const RATE: &str = "1000";

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

fn report(program: &str, args: &[&str]) -> Value {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let binary = root.join("target/programs").join(program);
    assert!(binary.exists(), "{} is not built: run `make programs` (the Fortran ones need gfortran)", binary.display());
    let prof = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("truth-{program}.prof"));
    let bare = Command::new(&binary).args(args).env("OMP_NUM_THREADS", "4").output().expect("the program runs");
    let run = Command::new(NUMAMMA)
        .args(["profile", "-q", "-F", RATE, "-o"])
        .arg(&prof)
        .arg("--")
        .arg(&binary)
        .args(args)
        .env("OMP_NUM_THREADS", "4")
        .output()
        .expect("numamma runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(run.stdout, bare.stdout, "{program} prints something else when profiled");
    let json = Command::new(NUMAMMA).args(["report", "--json"]).arg(&prof).output().expect("numamma runs");
    assert!(json.status.success(), "{}", String::from_utf8_lossy(&json.stderr));
    serde_json::from_slice(&json.stdout).expect("report is JSON")
}

fn check(program: &str, args: &[&str], truths: &[Truth]) {
    let report = report(program, args);
    let objects = report["objects"].as_array().expect("objects");
    for truth in truths {
        let found = objects
            .iter()
            .find(|o| {
                o["name"].as_str().is_some_and(|n| n.contains(truth.name)) && o["size"].as_u64() >= Some(truth.size)
            })
            .unwrap_or_else(|| panic!("{program}: no {} of {} bytes in {report:#}", truth.name, truth.size));
        assert_eq!(found["pattern"]["kind"], truth.kind, "{program} {}: {found:#}", truth.name);
        if let Some(period) = truth.period {
            assert_eq!(found["pattern"]["period"], period, "{program} {}: {found:#}", truth.name);
        }
    }
    let share: f64 = objects.iter().filter_map(|o| o["cost_share"].as_f64()).sum();
    assert!((share - 1.0).abs() < 1e-6, "{program}: cost shares add up to {share}");
}

#[test]
fn lu() {
    let cyclic = |name, size, period| Truth { name, size, kind: "block-cyclic", period: Some(period) };
    let truths = [cyclic("cvar_", 56 * MIB, 16 * MIB), cyclic("cjac_", 20 * MIB, 5 * MIB), is("cexact_", 520, "small")];
    check("lu", &["100"], &truths);
}

#[test]
fn cluster() {
    check("cluster", &["150", "4"], &[is("alloc_block", 24 * MIB, "random"), is("alloc_points", 6 * MIB, "block")]);
}

#[test]
fn private() {
    check("private", &["3000", "4"], &[is("make_buffer", 4 * MIB, "private")]);
}

#[test]
fn stencil() {
    check("stencil", &["120"], &[is("stencil.f90:18", 32 * MIB, "block"), is("stencil.f90:19", 32 * MIB, "block")]);
}

#[test]
fn gather() {
    check("gather", &["120"], &[is("table", 64 * MIB, "random"), is("out", 16 * MIB, "block")]);
}

#[test]
fn linked() {
    check("linked", &["4", "4"], &[is("Tree::insert", 20 * MIB, "random")]);
}

#[test]
fn slices() {
    check("slices", &["500", "4"], &[is("slices.rs", 48 * MIB, "block")]);
}

#[test]
fn firsttouch() {
    let report = report("firsttouch", &["1500"]);
    for line in ["firsttouch.c:14", "firsttouch.c:15", "firsttouch.c:16"] {
        let o = report["objects"].as_array().and_then(|all| {
            all.iter()
                .find(|o| o["name"].as_str().is_some_and(|n| n.contains(line)) && o["size"].as_u64() >= Some(16 * MIB))
        });
        let o = o.unwrap_or_else(|| panic!("no object of {line} in {report:#}"));
        assert_eq!(o["pattern"]["kind"], "block", "{o:#}");
    }
}
