//! Why pages are off their plan: the library must find the reason that a program made, on four real nodes.

use serde_json::{Value, json};

use crate::common::lab::Lab;
use crate::common::{Policy, Scratch, compile, object, source};

/// The objects of reasons.c and their places.
const RULES: [(&str, &str); 6] = [
    ("function = [\"moved\"]", "policy = \"bind\", nodes = \"1\""),
    ("function = [\"shared\"]", "policy = \"bind\", nodes = \"1\""),
    ("function = [\"collapsed\"]", "policy = \"interleave\", nodes = \"0-3\""),
    ("function = [\"swapped\"]", "policy = \"block\", nodes = \"0-3\""),
    ("function = [\"full\"]", "policy = \"preferred\", nodes = \"3\""),
    ("global = \"overlaid\"", "policy = \"bind\", nodes = \"1\""),
];

#[test]
fn every_page_off_plan_has_its_reason() {
    let Some(lab) = Lab::still(4, 1) else { return };
    let dir = Scratch::new("lab-reasons");
    let program = compile("cc", "lab/reasons/reasons.c", dir.join("reasons"), &["-O1", "-g"]);
    let policy = RULES.iter().fold(Policy::of("reasons"), |policy, (key, place)| policy.rule(key, place));
    let lab = lab.options(&["--memory-per-node", "256"]).add(program).add(policy.write(&dir, "reasons.toml"));
    let out = lab.add(source("lab/reasons/run.sh")).run(&["./run.sh"]);
    let (stdout, stderr) = (out.stdout, out.stderr);
    let (own, report) = stdout.split_once('\n').unwrap_or_else(|| panic!("{stdout}\n{stderr}"));
    let own: Value = serde_json::from_str(own).unwrap_or_else(|e| panic!("{e}: {stdout}\n{stderr}"));
    let report: Value = serde_json::from_str(report).unwrap_or_else(|e| panic!("{e}: {report}\n{stderr}"));
    let object = |name| object(&report, name);
    assert_eq!(object("moved")["reasons"], json!({"moved": 10}), "{stderr}");
    assert_eq!(object("shared")["reasons"], json!({"shared": 20}), "{stderr}");
    // Of a huge page on one node a quarter of the small ones are where interleaving wants them.
    assert_eq!(object("collapsed")["reasons"], json!({"collapsed": 384}), "{stderr}");
    assert_eq!(own["file"], 3, "the program's file is on the node it ran on");
    assert_eq!(object("overlaid")["reasons"], json!({"file": 3}), "{stderr}");
    assert!(own["full"].as_u64() > Some(0), "{own}");
    assert_eq!(object("full")["reasons"], json!({"spilled": own["full"]}), "{stderr}");
    assert_eq!(object("full")["full_nodes"], "3", "{stderr}");
    let swapped = object("swapped");
    assert_eq!((&swapped["pages_swapped"], &swapped["pages_present"]), (&json!(8), &json!(56)), "{stderr}");
    assert_eq!(swapped["reasons"], json!({}), "{stderr}");
    for words in [
        "moved: 10 pages on another node for an unknown reason",
        "shared: 20 pages mapped by more than one process",
        "collapsed: 384 pages inside a huge page",
        "overlaid: 3 pages of a file or of shared memory",
        "full: ",
        "spilled (node 3 was full)",
        "swapped: 8 pages swapped out",
    ] {
        assert!(stderr.contains(words), "`{words}` is not in: {stderr}");
    }
}
