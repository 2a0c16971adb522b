//! The apply library and the commands around it, on real programs compiled here.
//!
//! On a machine with one node every placement lands on node 0, so these tests check everything but the node:
//! contents, alignment, counts, messages, exit statuses. Page by page on four nodes: tests/lab.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use numamma::launch::library;

use crate::common::lab;

const NUMAMMA: &str = env!("CARGO_BIN_EXE_numamma");

/// A directory for this run's programs, made once.
fn scratch() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("apply-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    })
}

/// Compiles tests/preloads/apply/<source>.c to <name>.
fn compile(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let out = scratch().join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preloads/apply").join(format!("{source}.c"));
    let cc = Command::new("cc").args(["-O2", "-g", "-o"]).arg(&out).arg(source).args(flags).output().unwrap();
    assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr));
    out
}

fn policy(name: &str, text: &str) -> PathBuf {
    let path = scratch().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn preload() -> PathBuf {
    // The library's own search starts at the running executable, which here is the test.
    library::find("apply").unwrap()
}

fn plain(program: &Path, args: &[&str]) -> Command {
    let mut c = Command::new(program);
    c.args(args).env_remove("LD_PRELOAD");
    c
}

fn placed(program: &Path, args: &[&str], policy: &Path) -> Command {
    let mut c = plain(program, args);
    c.env("LD_PRELOAD", preload()).env("NUMAMMA_POLICY", policy);
    c
}

fn numamma(args: &[&str]) -> Command {
    let mut c = Command::new(NUMAMMA);
    c.args(args).env("NUMAMMA_LIB", preload().parent().unwrap()).env_remove("LD_PRELOAD");
    c
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(mut c: Command) -> Output {
    c.output().unwrap()
}

/// Places every object of objects.c.
const OBJECTS: &str = r#"
version = 1
[program]
path = "objects"
[[object]]
global = "zeroes"
place = { policy = "block" }
[[object]]
global = "initialised"
place = { policy = "interleave" }
[[object]]
global = "relocated"
place = { policy = "block-cyclic", block = 4096 }
[[object]]
global = "local_state"
place = { policy = "bind", nodes = "0" }
[[object]]
global = "tiny"
place = { policy = "bind" }
[[object]]
function = ["make_grid"]
place = { policy = "block" }
[[object]]
function = ["grow_grid"]
place = { policy = "interleave" }
[[object]]
function = ["make_zeroed", "main"]
place = { policy = "local" }
[[object]]
function = ["make_aligned"]
place = { policy = "bind" }
[[object]]
function = ["make_map"]
place = { policy = "block" }
"#;

#[test]
fn verify_counts_what_the_program_touched() {
    let program = compile("objects", "objects", &[]);
    let policy = policy("objects.toml", OBJECTS);
    let json = scratch().join("objects.json");
    let args = ["verify", "-p", policy.to_str().unwrap(), "-o", json.to_str().unwrap(), "--"];
    for how in ["exit", "_exit", "_Exit", "quick_exit", "fork"] {
        let mut c = numamma(&args);
        c.arg(&program).arg(how);
        let out = run(c);
        let expected = if ["exit", "fork"].contains(&how) { 0 } else { 7 };
        assert_eq!(out.status.code(), Some(expected), "{how}: {}", text(&out.stderr));
        assert_eq!(text(&out.stdout), "sum 27\n");
        let answer: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert_eq!(answer["exit_status"], expected);
        assert_eq!(answer["ok"], true);
        let object = |name: &str| {
            let all = answer["objects"].as_array().unwrap();
            all.iter().find(|o| o["name"] == name).unwrap_or_else(|| panic!("{name} is missing")).clone()
        };
        // Pages that are wholly inside; the objects need not begin on a page.
        let whole = |o: &serde_json::Value, pages: u64| {
            let planned = o["pages_planned"].as_u64().unwrap();
            assert!(planned == pages || planned == pages - 1, "{o}");
        };
        whole(&object("zeroes"), 64);
        let present = object("zeroes")["pages_present"].as_u64().unwrap();
        assert!((39..=41).contains(&present), "40 pages were touched, {present} counted");
        whole(&object("initialised"), 16);
        assert_eq!(object("initialised")["pages_present"], object("initialised")["pages_planned"]);
        whole(&object("relocated"), 4);
        assert_eq!(object("tiny")["pages_planned"], 0);
        assert_eq!(object("make_zeroed")["pages_present"], 768);
        assert_eq!(object("make_aligned")["pages_present"], 10);
        assert_eq!(object("make_map")["pages_present"], 25);
        assert_eq!(object("make_map")["pages_planned"], 50);
        // 100 pages, and a hundred times 5; the child of `fork` makes one more and it must not count.
        assert_eq!(object("make_grid")["pages_planned"], 600);
        for o in answer["objects"].as_array().unwrap() {
            assert_eq!(o["pages_off_plan"], 0, "{o}");
            assert_eq!(o["pages_on_plan"], o["pages_present"], "{o}");
        }
    }
}

#[test]
fn a_program_that_dies_is_not_verified() {
    let program = compile("objects", "objects_dies", &[]);
    let policy = policy("dies.toml", &OBJECTS.replace("\"objects\"", "\"objects_dies\""));
    let mut c = numamma(&["verify", "-p", policy.to_str().unwrap(), "--json", "--"]);
    c.arg(&program).arg("abort");
    let out = run(c);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("killed by signal 6"), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("\"exit_status\": 134"), "{}", text(&out.stdout));
}

#[test]
fn an_object_that_is_missing_is_named_and_fails_verify() {
    let program = compile("objects", "objects_missing", &[]);
    let policy =
        policy("missing.toml", "version = 1\n[[object]]\nglobal = \"no_such_thing\"\nplace = { policy = \"bind\" }\n");
    let out = run(placed(&program, &[], &policy));
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(text(&out.stderr), "numamma: not found, so not placed: no_such_thing\n");
    let mut c = numamma(&["verify", "-p", policy.to_str().unwrap(), "--"]);
    c.arg(&program);
    let out = run(c);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("NOT FOUND"), "{}", text(&out.stderr));
}

#[test]
fn placed_output_is_identical_and_run_is_plain_ld_preload() {
    let program = compile("objects", "objects_same", &[]);
    let policy = policy("same.toml", &OBJECTS.replace("\"objects\"", "\"objects_same\""));
    let (before, after) = (run(plain(&program, &[])), run(placed(&program, &[], &policy)));
    assert_eq!((before.status, &before.stdout, &before.stderr), (after.status, &after.stdout, &after.stderr));
    let mut c = numamma(&["run", "-p", policy.to_str().unwrap()]);
    c.arg(&program).arg("abort");
    let out = run(c);
    assert_eq!(out.status.signal(), Some(6), "run is the program itself");
    assert_eq!(text(&out.stdout), "sum 27\n");
}

#[test]
fn threads_share_placed_objects() {
    let program = compile("threads", "threads", &["-pthread"]);
    for bind in ["none", "compact", "scatter"] {
        let policy = policy(
            &format!("threads-{bind}.toml"),
            &format!(
                "version = 1\n[program]\npath = \"threads\"\n[threads]\nbind = \"{bind}\"\n[[object]]\nfunction = [\"make\"]\nplace = {{ policy = \"local\" }}\n"
            ),
        );
        let mut c = numamma(&["verify", "-p", policy.to_str().unwrap(), "--json", "-q", "--"]);
        c.arg(&program);
        let out = run(c);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        assert!(text(&out.stdout).starts_with("ok\n"));
        assert!(text(&out.stdout).contains("\"instances\": 8000"), "{}", text(&out.stdout));
    }
}

#[test]
fn libraries_opened_later_are_placed_too() {
    let library = compile("plugin", "libplugin.so", &["-shared", "-fPIC"]);
    // Found by the program's own RUNPATH, which the loader looks up by who calls dlopen.
    let runpath = format!("-Wl,--enable-new-dtags,-rpath,{}", scratch().display());
    let program = compile("opens", "opens", &["-ldl", &runpath]);
    let policy = policy(
        "opens.toml",
        "version = 1\n[program]\npath = \"opens\"\n[[object]]\nglobal = \"plugin_state\"\nmodule = \"libplugin.so\"\nplace = { policy = \"block\" }\n[[object]]\nfunction = [\"plugin_make\"]\nplace = { policy = \"bind\" }\n",
    );
    // By path: placed before dlopen returns. By bare name: the loader must still see who calls.
    for name in [library.to_str().unwrap(), "libplugin.so"] {
        let mut c = numamma(&["verify", "-p", policy.to_str().unwrap(), "--"]);
        c.arg(&program).arg(name);
        let out = run(c);
        assert_eq!(out.status.code(), Some(0), "{name}: {}", text(&out.stderr));
        assert_eq!(text(&out.stderr).matches("on plan").count(), 3, "{}", text(&out.stderr));
    }
}

#[test]
fn bad_policies_give_one_line_and_an_unplaced_run() {
    let program = compile("objects", "objects_bad", &[]);
    let object = |place: &str| format!("version = 1\n[[object]]\nglobal = \"zeroes\"\nplace = {{ {place} }}\n");
    let cases = [
        ("word.toml", object("policy = \"blok\""), "`blok`"),
        ("nodes.toml", object("policy = \"bind\", nodes = \"0-1023\""), "node 1 does not exist"),
        ("syntax.toml", "version = 1\n[[object]\n".to_owned(), "line 2"),
    ];
    for (name, content, says) in cases {
        let policy = policy(name, &content);
        let out = run(placed(&program, &[], &policy));
        assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(0), "sum 27\n"));
        let line = text(&out.stderr);
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(line.contains(says) && line.contains(name), "{line}");
        let mut strict = placed(&program, &[], &policy);
        strict.env("NUMAMMA_STRICT", "1");
        let out = run(strict);
        assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(78), ""));
        let mut c = numamma(&["run", "-p", policy.to_str().unwrap(), "--"]);
        c.arg(&program);
        let out = run(c);
        assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(2), ""));
        assert!(text(&out.stderr).contains(says), "{}", text(&out.stderr));
    }
    let out = run(placed(&program, &[], Path::new("/nonexistent/policy.toml")));
    assert_eq!((out.status.code(), text(&out.stderr).lines().count()), (Some(0), 1));
}

#[test]
fn a_container_that_refuses_mbind_gets_one_line_and_an_unplaced_run() {
    let program = compile("objects", "objects_refused", &[]);
    let refuse = compile("refuse", "refuse", &[]);
    let policy = policy("refused-mbind.toml", &OBJECTS.replace("\"objects\"", "\"objects_refused\""));
    let mut c = placed(&refuse, &[program.to_str().unwrap()], &policy);
    let out = run(c);
    assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(0), "sum 27\n"), "{}", text(&out.stderr));
    assert_eq!(text(&out.stderr).lines().count(), 1, "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("not permitted"), "{}", text(&out.stderr));
    c = placed(&refuse, &[program.to_str().unwrap()], &policy);
    c.env("NUMAMMA_STRICT", "1");
    assert_eq!(run(c).status.code(), Some(78));
    c = numamma(&["verify", "-p", policy.to_str().unwrap(), "--"]);
    c.arg(&refuse).arg(&program);
    let out = run(c);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("nothing was placed"), "{}", text(&out.stderr));
}

#[test]
fn placing_every_allocation_changes_no_output() {
    let every =
        policy("every.toml", "version = 1\n[[object]]\nfunction = [\"?\"]\nplace = { policy = \"interleave\" }\n");
    let outcome = |c: Command| {
        let out = run(c);
        (out.status.code(), text(&out.stdout))
    };
    let script = ["-c", "seq 1 50000 | sort -r | head -3; for i in 1 2; do (echo $i | cat); done; exit 5"];
    assert_eq!(outcome(placed(Path::new("/bin/sh"), &script, &every)), outcome(plain(Path::new("/bin/sh"), &script)));
}

#[test]
fn other_programs_are_left_alone_in_silence() {
    let policy = policy("other.toml", OBJECTS);
    let out = run(placed(Path::new("/bin/sh"), &["-c", "echo hello; exit 3"], &policy));
    assert_eq!(out.status.code(), Some(3));
    assert_eq!((text(&out.stdout).as_str(), text(&out.stderr).as_str()), ("hello\n", ""));
    let mut c = placed(Path::new("/bin/true"), &[], &policy);
    c.env("NUMAMMA_VERBOSE", "1");
    assert!(text(&run(c).stderr).contains("not the program of the policy"));
}

#[test]
fn another_build_is_matched_by_name_with_one_warning() {
    let program = compile("objects", "objects_build", &[]);
    let policy = policy(
        "build.toml",
        "version = 1\n[program]\npath = \"objects_build\"\nbuild-id = \"00\"\n[[object]]\nglobal = \"zeroes\"\naddress = 1\nplace = { policy = \"block\" }\n[[object]]\ncallsite = [\"objects_build+0x1\"]\nfunction = [\"make_grid\"]\nplace = { policy = \"block\" }\n",
    );
    let mut c = numamma(&["verify", "-q", "-p", policy.to_str().unwrap(), "--"]);
    c.arg(&program);
    let out = run(c);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(text(&out.stderr).lines().count(), 1, "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("another build"));
}

#[test]
fn what_cannot_be_preloaded_is_refused_with_the_reason() {
    let policy = policy("refused.toml", OBJECTS);
    let refused = |program: &Path, status: i32, says: &str| {
        for command in ["run", "verify"] {
            let mut c = numamma(&[command, "-p", policy.to_str().unwrap(), "--"]);
            c.arg(program);
            let out = run(c);
            assert_eq!(out.status.code(), Some(status), "{}: {}", program.display(), text(&out.stderr));
            assert!(text(&out.stderr).contains(says), "{}", text(&out.stderr));
            assert_eq!(text(&out.stdout), "");
        }
    };
    refused(&compile("objects", "objects_static", &["-static"]), 126, "statically linked");
    refused(Path::new("/nonexistent/app"), 127, "no such file");
    refused(Path::new("numamma-no-such-command"), 127, "not found in PATH");
    refused(scratch(), 126, "is a directory");
    let setuid = compile("objects", "objects_setuid", &[]);
    std::fs::set_permissions(&setuid, std::fs::Permissions::from_mode(0o4755)).unwrap();
    refused(&setuid, 126, "is setuid");
    let file = |name: &str, content: &[u8], mode: u32| {
        let path = scratch().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    refused(&file("plain.txt", b"hello", 0o644), 126, "not executable");
    refused(&file("no-shebang", b"echo hello\n", 0o755), 126, "#!");
    refused(&file("lost", b"#!/nonexistent/interpreter\n", 0o755), 126, "/nonexistent/interpreter");
    let mut foreign = std::fs::read(&setuid).unwrap();
    foreign[18] = 183; // EM_AARCH64
    refused(&file("foreign", &foreign, 0o755), 126, "another architecture");
    foreign[4] = 1; // ELFCLASS32
    refused(&file("narrow", &foreign, 0o755), 126, "32-bit");
}

#[test]
fn scripts_run_and_their_programs_are_placed() {
    let program = compile("objects", "objects_script", &[]);
    let policy = policy("script.toml", &OBJECTS.replace("\"objects\"", "\"objects_script\""));
    let script = scratch().join("script");
    std::fs::write(&script, format!("#!/bin/sh\n{} \"$@\"\necho done\n", program.display())).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut c = numamma(&["verify", "-p", policy.to_str().unwrap(), "--"]);
    c.arg(&script);
    let out = run(c);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(text(&out.stdout), "sum 27\ndone\n");
}

#[test]
fn the_example_policies_are_valid() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies");
    let mut count = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue; // the schema
        }
        let policy = numamma_plan::check::parse(&std::fs::read_to_string(&path).unwrap());
        assert!(policy.is_ok_and(|p| !p.objects.is_empty()), "{}", path.display());
        count += 1;
    }
    assert!(count >= 3);
}

/// Block size of an object of placed.c by the formulas of the design, written down again on purpose: the
/// library must not be its own judge. `None`: not a block distribution.
fn block_of(name: &str, size: u64, huge: bool) -> Option<u64> {
    const PAGE: u64 = 4096;
    let in_use = if huge { 2 << 20 } else { PAGE };
    let up = |value: u64, unit: u64| value.div_ceil(unit) * unit;
    Some(match name {
        "block_naive" => up(size.div_ceil(4), PAGE),
        "small_blocks" => 12 << 10,
        "big_blocks" => up((5_u64 << 20).div_ceil(4), in_use),
        "odd_blocks" => 640 << 10,
        "pointers" => PAGE,
        "ordered" => up(size.div_ceil(2), PAGE),
        "heap_blocks" | "heap_grown" => up(size.div_ceil(4), in_use),
        "mapped" | "mapped_grown" => 16 << 10,
        _ => return None,
    })
}

/// Checks one line of placed.c: name, address, size, node of each page.
fn check_line(line: &str, huge: bool) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let (name, size) = (words[0], words[2].parse::<u64>().unwrap());
    let nodes: Vec<u64> = words[3..].iter().map(|n| n.parse().unwrap_or(99)).collect();
    if let Some(block) = block_of(name, size, huge) {
        let list: &[u64] = if name == "ordered" { &[3, 1] } else { &[0, 1, 2, 3] };
        for (i, &node) in nodes.iter().enumerate() {
            let expected = list[(i as u64 * 4096 / block) as usize % list.len()];
            assert_eq!(node, expected, "page {i} of {name}");
        }
    } else if let Some((_, node)) = name.split_once('@') {
        assert!(nodes.iter().all(|n| n.to_string() == node), "{line}");
    } else {
        let among = if name == "heap_turns" { 1..4 } else { 0..4 };
        for node in among.clone() {
            let share = nodes.iter().filter(|&&n| n == node).count() as u64 * (among.end - among.start);
            // Huge pages are dealt out whole, so the shares of a small object may differ by one of them.
            let slack = 4 * if huge && size >= 2 << 20 { 513 } else { 1 };
            assert!(share.abs_diff(nodes.len() as u64) <= slack, "node {node} of {name}");
        }
        assert!(nodes.iter().all(|n| among.contains(n)), "{name}");
    }
    name.to_owned()
}

#[test]
fn four_nodes_hold_every_page_where_the_policy_says() {
    if !lab::available() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = compile("placed", "placed", &["-pthread"]);
    for thp in ["always", "never"] {
        let out = lab::command()
            .args(["--nodes", "4", "--cpus-per-node", "2", "--thp", thp, "--add"])
            .arg(&program)
            .arg("--add")
            .arg(root.join("tests/preloads/apply/placed.toml"))
            .args(["--", "numamma", "verify", "-p", "placed.toml", "--", "./placed", "8"])
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        let names: Vec<String> = text(&out.stdout).lines().map(|l| check_line(l, thp == "always")).collect();
        assert_eq!(names.len(), 14 + 8, "{names:?}");
    }
}

/// Ten million random calls on four threads under policies of every kind; the program checks every promise of C.
#[test]
fn ten_million_allocator_calls_keep_every_promise() {
    let program = compile("churn", "churn", &["-pthread"]);
    // With mappings for small objects, and the slower ones where every object has its own: calls of each thread.
    let places = [
        (r#"policy = "interleave""#, 1_000_000),
        (r#"policy = "local""#, 1_000_000),
        (r#"policy = "block-cyclic", block = "8KiB""#, 200_000),
        (r#"policy = "random", seed = 3"#, 150_000),
        (r#"policy = "bind", nodes = "all", huge = "split""#, 150_000),
    ];
    for (seed, (place, per_thread)) in places.into_iter().enumerate() {
        let rules = ["malloc", "calloc", "realloc", "memalign"]
            .map(|f| format!("[[object]]\nfunction = [\"matched_{f}\"]\nplace = {{ {place} }}\n"));
        let policy = policy(&format!("churn-{seed}.toml"), &format!("version = 1\n{}", rules.concat()));
        let report = scratch().join(format!("churn-{seed}.json"));
        let mut c = placed(&program, &[&per_thread.to_string(), "4", &seed.to_string()], &policy);
        c.env("NUMAMMA_REPORT", &report);
        let out = run(c);
        assert_eq!((out.status.code(), text(&out.stderr).as_str()), (Some(0), ""), "{place}: {}", text(&out.stdout));
        assert_eq!(text(&out.stdout), format!("{} operations\n", 4 * per_thread));
        let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
        for object in report["objects"].as_array().unwrap() {
            assert!(object["instances"].as_u64() > Some(10_000), "{place}: {object}");
            assert_eq!(object["pages_off_plan"], 0, "{place}: {object}");
        }
    }
}
