//! Why pages are off their plan: the library must find the reason that a program made, on four real nodes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::lab;

/// The objects of reasons.c and their places.
const RULES: [(&str, &str); 6] = [
    ("function = [\"moved\"]", "policy = \"bind\", nodes = \"1\""),
    ("function = [\"shared\"]", "policy = \"bind\", nodes = \"1\""),
    ("function = [\"gathered\"]", "policy = \"interleave\", nodes = \"0-3\""),
    ("function = [\"swapped\"]", "policy = \"block\", nodes = \"0-3\""),
    ("function = [\"full\"]", "policy = \"preferred\", nodes = \"3\""),
    ("global = \"overlaid\"", "policy = \"bind\", nodes = \"1\""),
];

#[test]
fn every_page_off_plan_has_its_reason() {
    if !lab::available() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/reasons");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-reasons");
    std::fs::create_dir_all(&dir).unwrap();
    let program = dir.join("reasons");
    let cc = Command::new("cc").args(["-O1", "-g", "-o"]).arg(&program).arg(root.join("reasons.c")).status().unwrap();
    assert!(cc.success());
    let rules: String =
        RULES.iter().map(|(name, place)| format!("[[object]]\n{name}\nplace = {{ {place} }}\n")).collect();
    let policy = dir.join("reasons.toml");
    std::fs::write(&policy, format!("version = 1\n[program]\npath = \"reasons\"\n{rules}")).unwrap();
    let script = dir.join("run.sh");
    std::fs::copy(root.join("run.sh"), &script).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut c = lab::command();
    c.args(["--nodes", "4", "--cpus-per-node", "1", "--memory-per-node", "256", "--timeout", "200"]);
    c.args(["--sysctl", "kernel.numa_balancing=0"]);
    c.arg("--add").arg(&program).arg("--add").arg(&policy).arg("--add").arg(&script).args(["--", "./run.sh"]);
    let out = c.output().expect("the lab script is in the tree");
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let (own, report) = stdout.split_once('\n').unwrap_or_else(|| panic!("{stdout}\n{stderr}"));
    let own: Value = serde_json::from_str(own).unwrap_or_else(|e| panic!("{e}: {stdout}\n{stderr}"));
    let report: Value = serde_json::from_str(report).unwrap_or_else(|e| panic!("{e}: {report}\n{stderr}"));
    let object = |name: &str| {
        let all = report["objects"].as_array().unwrap();
        all.iter().find(|o| o["name"] == name).unwrap_or_else(|| panic!("{name}: {report}"))
    };
    assert_eq!(object("moved")["reasons"], json!({"moved": 10}), "{stderr}");
    assert_eq!(object("shared")["reasons"], json!({"shared": 20}), "{stderr}");
    // Of a huge page on one node a quarter of the small ones are where interleaving wants them.
    assert_eq!(object("gathered")["reasons"], json!({"gathered": 384}), "{stderr}");
    assert_eq!(own["file"], 3, "the program's file is on the node it ran on");
    assert_eq!(object("overlaid")["reasons"], json!({"file": 3}), "{stderr}");
    assert!(own["full"].as_u64() > Some(0), "{own}");
    assert_eq!(object("full")["reasons"], json!({"full": own["full"]}), "{stderr}");
    let swapped = object("swapped");
    assert_eq!((&swapped["pages_swapped"], &swapped["pages_present"]), (&json!(8), &json!(56)), "{stderr}");
    assert_eq!(swapped["reasons"], json!({}), "{stderr}");
    for words in [
        "moved: 10 pages elsewhere without a visible reason",
        "shared: 20 pages mapped by more than one process",
        "gathered: 384 pages inside a huge page",
        "overlaid: 3 pages of a file or of shared memory",
        "full: ",
        "planned on a node with next to no free memory",
        "swapped: 8 pages swapped out",
    ] {
        assert!(stderr.contains(words), "`{words}` is not in: {stderr}");
    }
}
