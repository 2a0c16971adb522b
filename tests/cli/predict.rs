//! `numamma predict` as a user runs it, on a profile written by the recorder's own writer.

use std::path::Path;

use serde_json::Value;

use super::synthetic::{lu, scratch, write};
use crate::common::{self, Ran, run};

fn numamma(args: &[&str], files: &[&Path]) -> Ran {
    run(common::numamma(args).args(files).env("COLUMNS", "100").env("NO_COLOR", "1"))
}

fn time(table: &Value, name: &str) -> f64 {
    let policies = table["policies"].as_array().expect("policies");
    let found = policies.iter().find(|p| p["name"] == name).unwrap_or_else(|| panic!("no {name} in {table:#}"));
    found["time"].as_f64().expect("a time")
}

#[test]
fn the_advice_and_its_file_have_one_price() {
    let prof = write("predict", &lu());
    let policy = scratch("predict-policy");
    let target = ["--target", "numa:4 core:2"];
    let out = numamma(&["advise", "-q", target[0], target[1], "-o"], &[&policy, &prof]);
    assert!(out.status.success(), "{}", out.stderr);
    let out = numamma(&["predict", "-q", "--json", target[0], target[1], "--policy"], &[&policy, &prof]);
    let table = out.success().json();
    let names: Vec<&str> = table["policies"].as_array().unwrap().iter().filter_map(|p| p["name"].as_str()).collect();
    let file = policy.to_string_lossy();
    let both = ["first-touch", "first-touch, balanced"];
    assert_eq!(names, [both[0], both[1], "interleave", "block-naive", "advised", &file, "best possible"]);
    assert_eq!(table["baseline"], both[1], "kernels with several nodes balance by default");
    assert_eq!(time(&table, both[1]), 1.0);
    assert!((time(&table, "advised") - time(&table, &file)).abs() < 1e-12, "{table:#}");
    assert!(time(&table, "advised") < time(&table, "interleave"), "{table:#}");
    assert!(time(&table, "best possible") <= time(&table, "advised"), "{table:#}");
    let first = &table["policies"][0];
    assert!((0.0..=1.0).contains(&first["local_share"].as_f64().unwrap()));
    assert!((0.25..=1.0).contains(&first["busiest_node_share"].as_f64().unwrap()));
    assert_eq!(table["policies"][1]["speedup"], 1.0);
    for policy in table["policies"].as_array().unwrap() {
        let of = |key: &str| policy[key].as_f64().unwrap_or_else(|| panic!("{key}: {policy:#}"));
        assert!(0.0 < of("low") && of("low") <= of("speedup") && of("speedup") <= of("high"), "{policy:#}");
        assert!(policy["name"] != "advised" || of("low") < of("high"), "{policy:#}");
    }
}

#[test]
fn people_get_a_table_and_what_it_rests_on() {
    let prof = write("predict-text", &lu());
    let out = numamma(&["predict", "-q", "--nodes", "4", "--threads", "8", "--objects"], &[&prof]);
    assert!(out.status.success(), "{}", out.stderr);
    let shown = out.stdout;
    for words in ["first-touch", "advised", "best possible", "speed-up", "cvar_", "latency: ", "bandwidth", "assumed: "]
    {
        assert!(shown.contains(words), "no {words} in\n{shown}");
    }
    assert!(shown.lines().all(|l| l.chars().count() <= 100), "{shown}");
    let advised = shown.lines().find(|l| l.starts_with("advised")).unwrap_or_else(|| panic!("{shown}"));
    // Here both ends round to the middle.
    let (_, speedup) = advised.rsplit_once(' ').unwrap_or_else(|| panic!("{shown}"));
    assert!(speedup.trim_end_matches('x').parse::<f64>().is_ok_and(|times| times > 1.0), "{advised}");
}

#[test]
fn what_cannot_be_used_is_refused_with_the_reason() {
    let prof = write("predict-refuse", &lu());
    let refused = |args: &[&str], words: &[&str]| {
        let out = numamma(args, &[&prof]);
        assert_eq!(out.code(), Some(2), "{args:?}: {}", out.stderr);
        let said = out.stderr;
        assert!(words.iter().all(|w| said.contains(w)) && said.lines().count() < 12, "{args:?}: {said}");
        assert!(out.stdout.is_empty());
    };
    refused(&["predict", "--policy", "/nonexistent/p.toml"], &["/nonexistent/p.toml", "--policy"]);
    refused(&["predict", "--target", "pack:x"], &["pack:x"]);
    refused(&["predict", "--nodes", "0"], &["--nodes"]);
    let policy = scratch("predict-nodes");
    std::fs::write(
        &policy,
        "version = 1\n[[object]]\nglobal = \"cvar_\"\nplace = { policy = \"bind\", nodes = \"5\" }\n",
    )
    .unwrap();
    refused(
        &["predict", "--nodes", "4", "--policy", &policy.to_string_lossy()],
        &["cvar_", "node 5", "--target", "numamma advise"],
    );
    let mut empty = lu();
    empty.retain(|r| !matches!(r, numamma::profile::records::Record::Accesses(_)));
    let empty = write("predict-empty", &empty);
    let out = numamma(&["predict", "--nodes", "4"], &[&empty]);
    assert_eq!(out.code(), Some(2));
    assert!(out.stderr.contains("no memory accesses"), "{}", out.stderr);
}
