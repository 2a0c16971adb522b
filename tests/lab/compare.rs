//! `numamma compare` on four real nodes: that each policy puts the pages where its name says.

use crate::common::lab::Lab;
use crate::common::{Policy, Scratch, compile};

/// Share of the program's pages that are not its 64 MiB: libraries, stack, the library's own data.
const REST: f64 = 0.05;

#[test]
fn pages_are_where_the_policies_say() {
    let Some(lab) = Lab::still(4, 1) else { return };
    let dir = Scratch::new("lab-compare");
    let program = compile("cc", "lab/compare/touch.c", dir.join("touch-64"), &["-O1", "-g"]);
    let half = Policy::of("touch-64").rule("global = \"state\"", "policy = \"interleave\", nodes = \"0,2\"");
    let policies = "first-touch,interleave,half.toml,block-naive";
    let out = lab.add(&program).add(half.write(&dir, "half.toml")).run(&[
        "numamma",
        "compare",
        "-n",
        "1",
        "--json",
        "--policies",
        policies,
        "--",
        "./touch-64",
    ]);
    let out = out.success();
    let (json, stdout) = (out.json(), &out.stdout);
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
