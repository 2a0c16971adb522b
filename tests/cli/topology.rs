//! `numamma topology` and `--target` from the command line: what one writes the other reads.

use numamma::topology::model::Source;
use numamma::topology::xml;

use super::synthetic;
use crate::common::{self, Ran, Scratch, run};

fn numamma(args: &[&str]) -> Ran {
    run(common::numamma(args))
}

#[test]
fn a_measured_machine_is_a_target() {
    let dir = Scratch::new("topology");
    let (file, profile) = (dir.join("measured.xml"), synthetic::write("target", &synthetic::lu()));
    let (file, profile) = (file.to_str().expect("plain path"), profile.to_str().expect("plain path"));
    let measured = numamma(&["topology", "--measure", "--seconds", "0.05", "--xml", "-o", file]);
    let said = measured.stderr;
    if !measured.status.success() {
        // A container that refuses mbind on a machine with several nodes: that it says so is all there is to see.
        return assert!(said.contains("mbind"), "{said}");
    }
    let shape = xml::parse(&std::fs::read_to_string(file).expect("it was written")).expect("our own file");
    let model = shape.model().expect("a machine");
    assert_eq!((model.latency_source, model.bandwidth_source), (Source::Measured, Source::Measured));
    let advice = numamma(&["advise", "--target", file, "--threads", "8", profile]);
    assert!(advice.status.success(), "{}", advice.stderr);
    let nodes = model.memory_nodes().len();
    assert_eq!(advice.stdout.contains("has one node"), nodes == 1, "{}", advice.stdout);
}

#[test]
fn the_paper_s_machine() {
    let profile = synthetic::write("paper", &synthetic::lu());
    let profile = profile.to_str().expect("plain path");
    let advice = numamma(&["advise", "-q", "--target", "pack:4 numa:2 core:6", "--threads", "48", profile]);
    let policy = advice.stdout;
    assert!(advice.status.success(), "{}", advice.stderr);
    assert!(policy.contains("topology = \"pack:4 numa:2 core:6\"") && policy.contains("[[object]]"), "{policy}");
    numamma_plan::check::parse(&policy).expect("a policy");
}

#[test]
fn json_has_latency_and_bandwidth_of_every_pair() {
    let out = numamma(&["topology", "--json"]);
    let value = out.json();
    let nodes = value["nodes"].as_array().expect("nodes").len();
    for matrix in ["latency_ns", "bandwidth"] {
        let rows = value[matrix].as_array().expect(matrix);
        assert!(rows.len() == nodes && rows.iter().all(|r| r.as_array().is_some_and(|r| r.len() == nodes)), "{value}");
    }
    assert!(["hmat", "slit", "default"].contains(&value["sources"]["latency"].as_str().expect("a word")), "{value}");
}

#[test]
fn what_cannot_be_is_refused() {
    for (args, wanted) in [
        (vec!["topology", "--seconds", "1"], "--measure"),
        (vec!["topology", "--measure", "--seconds", "0"], "must be 0.01 to 60"),
        (vec!["topology", "--measure", "--seconds", "nan"], "must be"),
        (vec!["topology", "--xml", "--json"], "cannot be used with"),
        (vec!["advise", "--target", "numa:2", "--nodes", "2"], "cannot be used with"),
    ] {
        let out = numamma(&args);
        assert_eq!(out.code(), Some(2), "{args:?}");
        assert!(out.stderr.contains(wanted), "{args:?}: {}", out.stderr);
    }
    let profile = synthetic::write("refused", &synthetic::lu());
    let profile = profile.to_str().expect("plain path");
    for (spec, wanted) in [("numa:2 gpu:1", "no level `gpu`"), ("there/is/none.xml", "No such file")] {
        let out = numamma(&["advise", "--target", spec, profile]);
        assert_eq!((out.code(), out.stdout.len()), (Some(2), 0), "{spec}");
        assert!(out.stderr.contains(wanted), "{spec}: {}", out.stderr);
    }
}
