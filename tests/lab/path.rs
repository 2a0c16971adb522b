//! The whole path in the NUMA lab: profile, report, advise, apply, verify on real nodes, for programs with known truth.
//!
//! Bars (the issue's): classes right, periods exact to the page, every present page on plan, output identical to the
//! unplaced run.

use std::path::PathBuf;

use serde_json::Value;

use crate::common::lab;

const PAGE: u64 = 4096;
const NODES: u64 = 4;
const MIB: u64 = 1 << 20;

/// What a program's object must come out as.
struct Truth {
    /// Part of the name in the report.
    name: &'static str,
    kind: &'static str,
    /// Period in bytes.
    period: Option<u64>,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn in_lab(args: &[&str], timeout: &str) -> std::process::Output {
    let mut c = lab::command();
    c.args(["--nodes", "4", "--cpus-per-node", "2", "--timeout", timeout]).args(args);
    let out = c.output().expect("the lab script is in the tree");
    if !out.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&out.stderr));
    }
    out
}

/// Text between `=== name` and the next marker.
fn section<'a>(text: &'a str, name: &str) -> &'a str {
    let marker = format!("=== {name}\n");
    let from = text.find(&marker).unwrap_or_else(|| panic!("no section {name} in:\n{text}")) + marker.len();
    let rest = &text[from..];
    &rest[..rest.find("\n=== ").unwrap_or(rest.len())]
}

fn whole_path(program: &str, iterations: &str, truths: &[Truth], placed: &[&str]) {
    if !lab::available() {
        return;
    }
    let binary = root().join("target/programs").join(program);
    assert!(binary.exists(), "{} is not built: run `make programs`", binary.display());
    let script = root().join("tests/lab/path/path.sh");
    let out = in_lab(
        &[
            "--add",
            binary.to_str().expect("utf-8 path"),
            "--add",
            script.to_str().expect("utf-8 path"),
            "--",
            "./path.sh",
            "8",
            iterations,
            program,
        ],
        "300",
    );
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "lab exit {:?}\n{text}", out.status);
    for run in ["profiled", "placed", "verified"] {
        assert!(text.contains(&format!("=== same {run}\n")), "output of the {run} run differs\n{text}");
    }
    assert!(text.contains("=== verify-status 0\n"), "verify failed:\n{}", section(&text, "verify"));
    let report: Value = serde_json::from_str(section(&text, "report")).expect("report is JSON");
    check_classes(&report, truths, section(&text, "text"));
    let verify: Value = serde_json::from_str(section(&text, "verify")).expect("verify is JSON");
    check_pages(&verify, placed);
}

fn check_classes(report: &Value, truths: &[Truth], text: &str) {
    let objects = report["objects"].as_array().expect("objects");
    for truth in truths {
        let found = objects
            .iter()
            .find(|o| o["name"].as_str().is_some_and(|n| n.contains(truth.name)))
            .unwrap_or_else(|| panic!("no object named {} in\n{text}", truth.name));
        let pattern = &found["pattern"];
        assert_eq!(pattern["kind"], truth.kind, "{}: {pattern}\n{text}", truth.name);
        if let Some(period) = truth.period {
            let got = pattern["period"].as_u64().unwrap_or(0);
            assert_eq!(got / PAGE, period / PAGE, "{}: period {got}, truth {period}: {pattern}", truth.name);
        }
    }
}

fn check_pages(verify: &Value, placed: &[&str]) {
    let objects = verify["objects"].as_array().expect("objects");
    for name in placed {
        let o = objects
            .iter()
            .find(|o| o["name"].as_str().is_some_and(|n| n.contains(name)))
            .unwrap_or_else(|| panic!("{name} was not placed: {verify}"));
        let count = |key: &str| o[key].as_u64().unwrap_or_else(|| panic!("{key} missing in {o}"));
        assert!(count("pages_present") > 0, "{o}");
        assert_eq!(count("pages_present"), count("pages_on_plan"), "{o}");
        assert_eq!(count("pages_off_plan"), 0, "{o}");
    }
}

#[test]
fn lu_like() {
    whole_path(
        "lu",
        "25",
        &[
            Truth { name: "cvar_", kind: "block-cyclic", period: Some(16 * MIB) },
            Truth { name: "cjac_", kind: "block-cyclic", period: Some(5 * MIB) },
            Truth { name: "cexact_", kind: "small", period: None },
        ],
        &["cvar_", "cjac_"],
    );
}

#[test]
fn clustering() {
    whole_path(
        "cluster",
        "12",
        &[
            Truth { name: "alloc_block", kind: "read-shared", period: None },
            Truth { name: "alloc_points", kind: "block", period: None },
        ],
        &["alloc_block", "alloc_points"],
    );
}

/// The placement seen by a program that knows nothing of us and asks the kernel itself, against a plan written here by hand.
#[test]
fn pages_witnessed_from_outside() {
    if !lab::available() {
        return;
    }
    let dir = std::env::temp_dir().join(format!("numamma-witness-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("temporary directory");
    let policy = dir.join("witness.toml");
    std::fs::write(
        &policy,
        r#"version = 1
[program]
path = "pagenodes"
[[object]]
global = "big_global"
place = { policy = "block-cyclic", block = "640KiB", nodes = "all" }
[[object]]
global = "initialised"
place = { policy = "bind", nodes = "2" }
[[object]]
function = ["make_heap"]
place = { policy = "block-cyclic", block = "2MiB", nodes = "0-3" }
"#,
    )
    .expect("policy is written");
    let binary = root().join("target/programs/pagenodes");
    let out = in_lab(
        &[
            "--add",
            binary.to_str().expect("utf-8"),
            "--add",
            policy.to_str().expect("utf-8"),
            "--",
            "sh",
            "-c",
            "LD_PRELOAD=libnumamma-apply.so NUMAMMA_POLICY=witness.toml ./pagenodes",
        ],
        "120",
    );
    let _ = std::fs::remove_dir_all(&dir);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
    let mut seen = 0;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(first), Some(pages), Some(node)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            panic!("odd line {line}")
        };
        let (first, pages): (u64, u64) = (first.parse().expect("page"), pages.parse().expect("pages"));
        for page in first..first + pages {
            let expected = match name {
                "big_global" => page / (640 * 1024 / PAGE) % NODES,
                "initialised" => 2,
                "heap" => page / (2 * MIB / PAGE) % NODES,
                other => panic!("unknown object {other}"),
            };
            assert_eq!(node, expected.to_string(), "{name} page {page}\n{text}");
            seen += 1;
        }
    }
    assert!(seen > 8000, "only {seen} pages were shown\n{text}");
}
