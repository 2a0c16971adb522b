//! `numamma compare` on four real nodes: that each policy puts the pages where its name says.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::lab;

/// Share of the program's pages that are not its 64 MiB: libraries, stack, the library's own data.
const REST: f64 = 0.05;

#[test]
fn pages_are_where_the_policies_say() {
    if !lab::available() {
        return;
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compare-lab");
    std::fs::create_dir_all(&dir).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/compare/touch.c");
    let program = dir.join("touch-64");
    let cc = Command::new("cc").args(["-O1", "-g", "-o"]).arg(&program).arg(source).status().unwrap();
    assert!(cc.success());
    let policy = dir.join("half.toml");
    let text = "version = 1\n[program]\npath = \"touch-64\"\n[[object]]\nglobal = \"state\"\n\
                place = { policy = \"interleave\", nodes = \"0,2\" }\n";
    std::fs::write(&policy, text).unwrap();
    let mut c = lab::command();
    c.args(["--nodes", "4", "--cpus-per-node", "1", "--timeout", "200", "--sysctl", "kernel.numa_balancing=0"]);
    c.arg("--add").arg(&program).arg("--add").arg(&policy).args(["--", "numamma", "compare", "-n", "1", "--json"]);
    c.args(["--policies", "first-touch,interleave,half.toml,block-naive", "--", "./touch-64"]);
    let out = c.output().expect("the lab script is in the tree");
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{stderr}");
    let json: Value = serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{e}: {stdout}\n{stderr}"));
    let busiest = |name: &str| {
        let all = json["policies"].as_array().unwrap();
        let found = all.iter().find(|p| p["name"] == name).unwrap();
        found["busiest_node_share"].as_f64().unwrap_or_else(|| panic!("{found}"))
    };
    for (name, expected) in [("first-touch", 1.0), ("interleave", 0.25), ("half.toml", 0.5), ("block-naive", 0.25)] {
        assert!((busiest(name) - expected).abs() < REST, "{name}: {}\n{stdout}", busiest(name));
    }
    // The program's own witness: it was started with the policy, and only under interleave.
    let notes = json["notes"].to_string();
    assert!(notes.contains("the output under interleave is not that of first-touch in 2 of 2 runs"), "{notes}");
    assert!(notes.contains("interleaved"), "{notes}");
    assert!(!notes.contains("under half.toml") && !notes.contains("one node"), "{notes}");
    assert!(json["policies"][1]["local_share"].is_null());
}
