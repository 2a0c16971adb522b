//! Phases under churn, on this machine: contents, exit statuses, counts and statistics, while placed objects of every kind come
//! and go. Where pages go on real nodes: tests/lab/phases.rs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use numamma::launch::library;
use serde_json::Value;

const POLICY: &str = r#"
version = 1
[program]
path = "phases"
[[phase]]
name = "a"
[[phase]]
name = "b"
after = 0.2
[[phase]]
name = "c"
allocation = 10
function = ["by_malloc"]
[[phase]]
name = "never"
[[object]]
global = "in_bss"
place = { policy = "block" }
phases = { a = { policy = "interleave" }, b = { policy = "block-cyclic", block = 4096 } }
[[object]]
global = "plugin_state"
module = "plugin.so"
place = { policy = "block" }
phases = { a = { policy = "interleave" }, c = { policy = "bind", nodes = "0" } }
[[object]]
function = ["by_malloc"]
place = { policy = "block" }
phases = { a = { policy = "interleave" }, b = { policy = "block-cyclic", block = "16KiB" }, c = { policy = "local" } }
[[object]]
function = ["by_realloc"]
place = { policy = "default" }
phases = { a = { policy = "interleave" }, b = { policy = "default" } }
[[object]]
function = ["by_small"]
place = { policy = "interleave" }
phases = { a = { policy = "bind" }, b = { policy = "local" }, c = { policy = "preferred", nodes = "0" } }
[[object]]
function = ["by_mmap"]
place = { policy = "block" }
phases = { a = { policy = "interleave" }, b = { policy = "block-cyclic", block = 8192 }, c = { policy = "skew" } }
"#;

fn scratch() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("apply-phases-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory for the programs");
    dir
}

fn compile(source: &str, out: &Path, flags: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = root.join("tests/preloads/apply").join(source);
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-g", "-I"]).arg(root.join("include")).arg("-o").arg(out).arg(source).args(flags);
    let done = cc.output().expect("a C compiler");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn placed(program: &Path, policy: &Path) -> Command {
    let mut c = Command::new(program);
    c.env("LD_PRELOAD", library::find("apply").expect("the library is built")).env("NUMAMMA_POLICY", policy);
    c
}

fn words(out: &Output) -> (String, String) {
    (String::from_utf8_lossy(&out.stdout).into_owned(), String::from_utf8_lossy(&out.stderr).into_owned())
}

#[test]
fn nothing_is_lost_while_phases_change() {
    let dir = scratch();
    let (program, plugin, policy) = (dir.join("phases"), dir.join("plugin.so"), dir.join("phases.toml"));
    compile("phases.c", &program, &["-pthread"]);
    compile("plugin.c", &plugin, &["-shared", "-fPIC"]);
    std::fs::write(&policy, POLICY).expect("the policy is written");
    let bare = Command::new(&program).arg("0.3").arg(&plugin).output().expect("the program runs");
    assert_eq!(words(&bare), ("good\n".into(), String::new()), "without the library the header does nothing");
    let report = dir.join("report.json");
    let out = placed(&program, &policy).arg("4").arg(&plugin).env("NUMAMMA_REPORT", &report).output().expect("it runs");
    assert_eq!((out.status.code(), words(&out)), (Some(0), ("good\n".into(), String::new())));
    let report: Value = serde_json::from_slice(&std::fs::read(report).expect("a report")).expect("JSON");
    for object in report["objects"].as_array().expect("objects") {
        assert_ne!(object["instances"], 0, "{object}");
        // One node: wherever a page waits to be moved, it is there already.
        assert_eq!((&object["pages_off_plan"], &object["pages_waiting"]), (&0.into(), &0.into()), "{object}");
        assert_eq!(object["unplaced"], 0, "{object}");
    }
    let phases = report["phases"].as_array().expect("phases");
    for phase in &phases[..3] {
        assert!(phase["times"].as_u64().is_some_and(|n| n > 10), "{phase}");
        assert!(phase["worked"].as_f64().is_some_and(|s| s > 0.0), "{phase}");
        assert_eq!((&phase["how"], &phase["pages_moved"]), (&"call".into(), &0.into()), "{phase}");
    }
    assert_eq!((&phases[3]["times"], &phases[3]["begun"]), (&0.into(), &Value::Null), "{}", phases[3]);
    let _ = std::fs::remove_dir_all(dir);
}

/// Times and allocations begin phases of themselves, in a program whose main thread ends before the others, and which the
/// library must not keep alive.
#[test]
fn a_time_begins_a_phase_and_the_end_is_not_put_off() {
    let dir = scratch().join("ends");
    std::fs::create_dir_all(&dir).expect("a directory");
    let program = dir.join("ends");
    compile("ends.c", &program, &["-pthread"]);
    let policy = dir.join("ends.toml");
    let text = "version = 1\n[program]\npath = \"ends\"\n[[phase]]\nname = \"soon\"\nafter = 0.05\n[[phase]]\nname = \"third\"\n\
        allocation = 3\nfunction = [\"grab\"]\n[[phase]]\nname = \"late\"\nafter = 3600\n[[object]]\nfunction = [\"grab\"]\n\
        place = { policy = \"block\" }\nphases = { soon = { policy = \"interleave\" }, third = { policy = \"bind\" }, \
        late = { policy = \"local\" } }\n";
    std::fs::write(&policy, text).expect("the policy is written");
    for how in ["return", "pthread_exit"] {
        let report = dir.join(format!("{how}.json"));
        let mut c = placed(&program, &policy);
        c.arg(how).env("NUMAMMA_REPORT", &report).env("NUMAMMA_VERBOSE", "1");
        let began = std::time::Instant::now();
        let out = c.output().expect("it runs");
        let (stdout, stderr) = words(&out);
        assert_eq!((out.status.code(), stdout.as_str()), (Some(0), "done\n"), "{how}: {stderr}");
        assert!(began.elapsed().as_secs() < 20, "{how}: the waiting thread kept the program alive");
        assert!(stderr.contains("phase soon begins at 0.") && stderr.contains("(time)"), "{how}: {stderr}");
        assert!(stderr.contains("phase third begins") && stderr.contains("(allocation)"), "{how}: {stderr}");
        let report: Value = serde_json::from_slice(&std::fs::read(report).expect("a report")).expect("JSON");
        assert_eq!(report["objects"][0]["policy"], "bind", "{how}: the place that holds at the end: {report}");
        assert!(report["phases"][0]["begun"].as_f64().is_some_and(|s| s >= 0.05), "{how}: {report}");
        assert_eq!(report["phases"][2]["times"], 0, "{how}: {report}");
    }
    let _ = std::fs::remove_dir_all(dir);
}
