//! The whole path in the NUMA lab: profile, report, advise, apply, verify on real nodes, for programs with known truth.
//!
//! Bars (the issue's): classes right, periods exact to the page, every present page on plan, output identical to the
//! unplaced run.

use serde_json::Value;

use crate::common::lab::Lab;
use crate::common::{Policy, Scratch, compile, number, object, program, source};
use crate::ways::{self, Bound, GOMP};

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

fn lab() -> Option<Lab> {
    Some(Lab::new(4, 2)?.options(&["--timeout", "400"]))
}

/// Text between `=== name` and the next marker.
fn section<'a>(text: &'a str, name: &str) -> &'a str {
    let marker = format!("=== {name}\n");
    let from = text.find(&marker).unwrap_or_else(|| panic!("no section {name} in:\n{text}")) + marker.len();
    let rest = &text[from..];
    &rest[..rest.find("\n=== ").unwrap_or(rest.len())]
}

/// A program with the ends of its arguments, for the profile and for the other runs.
struct Case {
    name: &'static str,
    arguments: [&'static str; 2],
    truths: &'static [Truth],
    placed: &'static [&'static str],
}

/// The program is verified in each of `ways`.
fn whole_path(case: &Case, ways: &[&str]) {
    let Some(lab) = lab() else { return };
    let (lab, here) = ways::add(lab.add(program(case.name)), ways);
    let lab = lab.add(source("lab/path/path.sh")).add(source("lab/path/verified.sh"));
    let [iterations, short] = case.arguments;
    let command = [&["./path.sh", "8", iterations, short, case.name], &here[..]].concat();
    let text = lab.run(&command).success().stdout;
    assert!(text.contains("=== same placed\n"), "output of the placed run differs\n{text}");
    let report: Value = serde_json::from_str(section(&text, "report")).expect("report is JSON");
    check_classes(&report, case.truths, section(&text, "text"));
    let policy = section(&text, "policy");
    for name in case.placed {
        assert!(policy.contains(&format!("\n# {name}")), "no rule for {name}:\n{policy}\n{}", section(&text, "text"));
    }
    ways::split(&text, ways, NODES).iter().for_each(|bound| check_verified(bound, case.placed));
}

/// The output, the status, the warning that `all` was fewer than four nodes, and the pages.
fn check_verified(bound: &Bound<'_>, placed: &[&str]) {
    let warnings = usize::from(bound.nodes.len() < NODES as usize);
    let head = "same\nstatus 0\n";
    let verify = bound.said.strip_prefix(head).unwrap_or_else(|| panic!("{}: not {head}{}", bound.way, bound.said));
    let verify: Value = serde_json::from_str(verify).expect("verify is JSON");
    assert_eq!(verify["warnings"].as_array().map(Vec::len), Some(warnings), "{}: {verify:#}", bound.way);
    check_pages(&verify, placed);
}

fn check_classes(report: &Value, truths: &[Truth], text: &str) {
    for truth in truths {
        let pattern = &object(report, truth.name)["pattern"];
        assert_eq!(pattern["kind"], truth.kind, "{}: {pattern}\n{text}", truth.name);
        if let Some(period) = truth.period {
            let got = pattern["period"].as_u64().unwrap_or(0);
            assert_eq!(got / PAGE, period / PAGE, "{}: period {got}, truth {period}: {pattern}", truth.name);
        }
    }
}

fn check_pages(verify: &Value, placed: &[&str]) {
    for name in placed {
        let o = object(verify, name);
        assert!(number(o, "pages_present") > 0, "{o}");
        assert_eq!(number(o, "pages_present"), number(o, "pages_on_plan"), "{o}");
        assert_eq!(number(o, "pages_off_plan"), 0, "{o}");
    }
}

const LU: Case = Case {
    name: "lu",
    arguments: ["25", "2"],
    truths: &[
        Truth { name: "cvar_", kind: "block-cyclic", period: Some(16 * MIB) },
        Truth { name: "cjac_", kind: "block-cyclic", period: Some(5 * MIB) },
        Truth { name: "cexact_", kind: "small", period: None },
    ],
    placed: &["cvar_", "cjac_"],
};

const CLUSTER: Case = Case {
    name: "cluster",
    // Fewer, and the initialisation by one thread takes so much of the run that leaving the array alone is right.
    arguments: ["40", "2"],
    truths: &[
        Truth { name: "alloc_block", kind: "read-shared", period: None },
        Truth { name: "alloc_points", kind: "block", period: None },
    ],
    placed: &["alloc_block", "alloc_points"],
};

#[test]
#[ignore = "long: make test-long"]
fn lu_like_in_three_ways() {
    whole_path(&LU, &["OMP_PROC_BIND=true", "unbound", "mpirun-none"]);
}

#[test]
fn clustering_in_three_ways() {
    whole_path(&CLUSTER, &["OMP_PROC_BIND=spread", "unbound", "OMP_PLACES=sockets"]);
}

#[test]
#[ignore = "long: make test-ways"]
fn clustering_in_each_way() {
    whole_path(&CLUSTER, &ways::ALL);
}

#[test]
#[ignore = "long: make test-ways"]
fn lu_like_in_each_way() {
    whole_path(&LU, &ways::ALL);
}

/// The program itself asks the kernel where its pages are; the expected nodes are written here by hand.
#[test]
fn pages_witnessed_from_outside() {
    let Some(lab) = lab() else { return };
    let dir = Scratch::new("lab-witness");
    let policy = Policy::of("pagenodes")
        .rule("global = \"big_global\"", "policy = \"block-cyclic\", block = \"640KiB\", nodes = \"all\"")
        .rule("global = \"initialised\"", "policy = \"bind\", nodes = \"2\"")
        .rule("function = [\"make_heap\"]", "policy = \"block-cyclic\", block = \"2MiB\", nodes = \"0-3\"");
    let flags = [&["-O2", "-g", "-fno-optimize-sibling-calls"][..], &GOMP].concat();
    let program = compile("cc", "programs/pagenodes.c", dir.join("pagenodes"), &flags);
    let lab = lab.add(program).add(policy.write(&dir, "witness.toml"));
    let placed = ["env", "LD_PRELOAD=libnumamma-apply.so", "NUMAMMA_POLICY=witness.toml", "./pagenodes"];
    let text = ways::run(lab, &ways::ALL, &placed);
    ways::split(&text, &ways::ALL, NODES).iter().for_each(check_witness);
}

fn check_witness(bound: &Bound<'_>) {
    let mut seen = 0;
    for line in bound.said.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(first), Some(pages), Some(node)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            panic!("{}: odd line {line}", bound.way)
        };
        let (first, pages): (u64, u64) = (first.parse().expect("page"), pages.parse().expect("pages"));
        for page in first..first + pages {
            let expected = match name {
                "big_global" => bound.of_all(page / (640 * 1024 / PAGE)),
                "initialised" => 2,
                "heap" => page / (2 * MIB / PAGE) % NODES,
                other => panic!("unknown object {other}"),
            };
            assert_eq!(node, expected.to_string(), "{}: {name} page {page}\n{}", bound.way, bound.said);
            seen += 1;
        }
    }
    assert!(seen > 8000, "{}: only {seen} pages were shown\n{}", bound.way, bound.said);
}
