//! Each policy of policies/ places objects in a program of the kind that it names.
//!
//! Nodes that only a larger machine has, and sizes of the original programs, are replaced in the text of the policy.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{Scratch, compile, json_file, number, objects, placed, root, run};

/// The policy of this name in policies/ with some parts of its text replaced.
fn shipped(dir: &Scratch, name: &str, changes: &[(&str, &str)]) -> PathBuf {
    let text = std::fs::read_to_string(root().join("policies").join(name)).unwrap();
    let changed = changes.iter().fold(text, |text, (old, new)| {
        assert!(text.contains(old), "policies/{name} has no {old}");
        text.replace(old, new)
    });
    dir.write(name, changed)
}

/// Runs `program` with `argument` under the policy: its report, and what NumaMMA wrote.
fn report(dir: &Scratch, program: &Path, argument: &str, policy: &Path) -> (Value, String) {
    let mut c = placed(program, policy);
    // As rank 0 of a job, so that rules for single ranks hold.
    let file = dir.join("report.0.json");
    c.env("NUMAMMA_REPORT", dir.join("report.json")).env("OMPI_COMM_WORLD_RANK", "0").env("OMP_NUM_THREADS", "4");
    let out = run(c.arg(argument)).success();
    (json_file(&file), out.stderr)
}

/// Every rule has an object.
fn assert_all_placed(report: &Value) {
    for object in objects(report) {
        assert!(number(object, "instances") >= 1 && number(object, "pages_planned") >= 1, "{object:#}");
        assert_eq!((number(object, "unplaced"), number(object, "pages_off_plan")), (0, 0), "{object:#}");
    }
}

#[test]
fn lu_toml_places_both_common_blocks() {
    let dir = Scratch::new("policies-lu");
    let program = compile("gfortran", "programs/lu.f90", dir.join("lu.C.x"), &["-O2", "-fopenmp"]);
    // tests/programs/lu.f90 has 56 MiB where class C of NPB has 558 MiB.
    let policy = shipped(&dir, "lu.toml", &[("size = 585105408", "size = 58720256")]);
    let (report, said) = report(&dir, &program, "1", &policy);
    assert_eq!(said, "");
    let sizes: Vec<u64> = objects(&report).iter().map(|o| number(o, "bytes") >> 20).collect();
    assert_eq!(sizes, [56, 20], "{report:#}");
    assert_all_placed(&report);
}

#[test]
fn streamcluster_toml_places_both_arrays() {
    let dir = Scratch::new("policies-streamcluster");
    let program = compile("g++", "preloads/policies/streamcluster.cpp", dir.join("streamcluster"), &["-O2"]);
    let (report, said) = report(&dir, &program, "", &shipped(&dir, "streamcluster.toml", &[]));
    assert_eq!((said.as_str(), objects(&report).len()), ("", 2));
    assert_all_placed(&report);
}

#[test]
fn words_toml_places_every_object() {
    let dir = Scratch::new("policies-words");
    let library = dir.join("libsolver.so.2");
    let flags = ["-O2", "-shared", "-fPIC", "-Wl,-soname,libsolver.so.2"];
    let library = compile("cc", "preloads/policies/solver.c", library, &flags);
    let (library, path) = (library.to_str().unwrap(), format!("-Wl,-rpath,{}", dir.display()));
    let flags = ["-O2", "-g", "-Wl,--build-id", library, &path];
    let program = compile("cc", "preloads/policies/words.c", dir.join("app"), &flags);
    let mut changes = vec![
        (r#"nodes = "0-1""#, r#"nodes = "all""#),
        (r#"nodes = "1""#, r#"nodes = "0""#),
        (r#"nodes = "2""#, r#"nodes = "0""#),
        (r#"nodes = "!0""#, r#"nodes = "all""#),
        (r#"nodes = "3,1""#, r#"nodes = "all""#),
        (r#"map = "640x0,128x3""#, r#"map = "640x0,128x0""#),
        (r#"map = "2x0,1x1,1x2,1x3""#, r#"map = "2x0,1x0,1x0,1x0""#),
    ];
    if !Path::new("/sys/kernel/mm/mempolicy/weighted_interleave").exists() {
        changes.push((r#"policy = "weighted-interleave""#, r#"policy = "interleave""#));
    }
    let (report, said) = report(&dir, &program, "", &shipped(&dir, "words.toml", &changes));
    // The build-id of the policy belongs to another build: call sites are matched by function and line.
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("build"), "{said}");
    let placed: Vec<&Value> = objects(&report).iter().filter(|o| o["policy"] != "default").collect();
    assert_eq!(placed.len() + 1, objects(&report).len());
    for object in &placed {
        assert!(number(object, "instances") >= 1, "{object:#}");
    }
    let instances = |name: &str| objects(&report).iter().find(|o| o["name"] == name).map(|o| number(o, "instances"));
    assert_eq!(instances("make_row, instances 1-4,7, sizes 1MiB-64MiB"), Some(5), "{report:#}");
    assert_eq!((instances("make_row"), instances("src/mesh.c:120")), (Some(3), Some(1)), "{report:#}");
}
