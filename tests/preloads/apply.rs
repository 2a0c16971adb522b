//! The apply library and the commands around it, on real programs compiled here.
//!
//! On a machine with one node every placement lands on node 0, so these tests check everything but the node:
//! contents, alignment, counts, messages, exit statuses. Page by page on four nodes: tests/lab/placed.rs.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::common::{self, Policy, Ran, Scratch, alone, json_file, numamma, object, objects, placed, plain, root, run};

/// A directory for the programs of these tests, made once.
fn scratch() -> &'static Scratch {
    static DIR: OnceLock<Scratch> = OnceLock::new();
    DIR.get_or_init(|| Scratch::new("apply"))
}

/// Compiles tests/preloads/apply/<source>.c to <name>.
fn compile(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let flags = [&["-O2", "-g"], flags].concat();
    common::compile("cc", &format!("preloads/apply/{source}.c"), scratch().join(name), &flags)
}

fn policy(name: &str, text: &str) -> PathBuf {
    scratch().write(name, text)
}

/// Runs `numamma COMMAND -p POLICY OPTIONS -- PROGRAM ARGS`.
fn under(command: &str, policy: &Path, options: &[&str], program: &Path, args: &[&str]) -> Ran {
    run(numamma(&[command, "-p"]).arg(policy).args(options).arg("--").arg(program).args(args))
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
    for how in ["exit", "_exit", "_Exit", "quick_exit", "fork"] {
        let out = under("verify", &policy, &["-o", json.to_str().unwrap()], &program, &[how]);
        let expected = if ["exit", "fork"].contains(&how) { 0 } else { 7 };
        assert_eq!(out.code(), Some(expected), "{how}: {}", out.stderr);
        assert_eq!(out.stdout, "sum 27\n");
        let answer = json_file(&json);
        assert_eq!(answer["exit_status"], expected);
        assert_eq!(answer["ok"], true);
        let object = |name| object(&answer, name);
        // Pages that are wholly inside; the objects need not begin on a page.
        let whole = |o: &serde_json::Value, pages: u64| {
            let planned = o["pages_planned"].as_u64().unwrap();
            assert!(planned == pages || planned == pages - 1, "{o}");
        };
        whole(object("zeroes"), 64);
        let present = object("zeroes")["pages_present"].as_u64().unwrap();
        assert!((39..=41).contains(&present), "40 pages were touched, {present} counted");
        whole(object("initialised"), 16);
        assert_eq!(object("initialised")["pages_present"], object("initialised")["pages_planned"]);
        whole(object("relocated"), 4);
        assert_eq!(object("tiny")["pages_planned"], 0);
        assert_eq!(object("make_zeroed")["pages_present"], 768);
        assert_eq!(object("make_aligned")["pages_present"], 10);
        assert_eq!(object("make_map")["pages_present"], 25);
        assert_eq!(object("make_map")["pages_planned"], 50);
        // 100 pages, and a hundred times 5; the child of `fork` makes one more and it must not count.
        assert_eq!(object("make_grid")["pages_planned"], 600);
        for o in objects(&answer) {
            assert_eq!(o["pages_off_plan"], 0, "{o}");
            assert_eq!(o["pages_on_plan"], o["pages_present"], "{o}");
        }
    }
}

#[test]
fn a_program_that_dies_is_not_verified() {
    let program = compile("objects", "objects_dies", &[]);
    let policy = policy("dies.toml", &OBJECTS.replace("\"objects\"", "\"objects_dies\""));
    let out = under("verify", &policy, &["--json"], &program, &["abort"]);
    assert_eq!(out.signal(), Some(libc::SIGABRT));
    assert!(out.stderr.contains("killed by signal 6"), "{}", out.stderr);
    assert!(out.stdout.contains("\"exit_status\": 134"), "{}", out.stdout);
}

#[test]
fn an_object_that_is_missing_is_named_and_fails_verify() {
    let program = compile("objects", "objects_missing", &[]);
    let policy =
        policy("missing.toml", "version = 1\n[[object]]\nglobal = \"no_such_thing\"\nplace = { policy = \"bind\" }\n");
    let out = run(placed(&program, &policy));
    assert_eq!(out.code(), Some(0));
    assert_eq!(out.stderr, "numamma: not found, so not placed: no_such_thing\n");
    let out = under("verify", &policy, &[], &program, &[]);
    assert_eq!(out.code(), Some(1));
    assert!(out.stderr.contains("NOT FOUND"), "{}", out.stderr);
}

#[test]
fn placed_output_is_identical_and_run_is_plain_ld_preload() {
    let program = compile("objects", "objects_same", &[]);
    let policy = policy("same.toml", &OBJECTS.replace("\"objects\"", "\"objects_same\""));
    let (before, after) = (run(plain(&program)), run(placed(&program, &policy)));
    assert_eq!((before.status, &before.stdout, &before.stderr), (after.status, &after.stdout, &after.stderr));
    let out = under("run", &policy, &[], &program, &["abort"]);
    assert_eq!(out.signal(), Some(6), "run is the program itself");
    assert_eq!(out.stdout, "sum 27\n");
}

#[test]
fn threads_share_placed_objects() {
    let program = compile("threads", "threads", &["-pthread"]);
    for bind in ["none", "compact", "scatter"] {
        let policy = Policy::of("threads")
            .lines(&format!("[threads]\nbind = \"{bind}\""))
            .rule("function = [\"make\"]", "policy = \"local\"")
            .write(scratch(), &format!("threads-{bind}.toml"));
        let out = under("verify", &policy, &["--json", "-q"], &program, &[]);
        assert_eq!(out.code(), Some(0), "{}", out.stderr);
        assert!(out.stdout.starts_with("ok\n"));
        assert!(out.stdout.contains("\"instances\": 8000"), "{}", out.stdout);
    }
}

#[test]
fn libraries_opened_later_are_placed_too() {
    let library = compile("plugin", "libplugin.so", &["-shared", "-fPIC"]);
    // Found by the program's own RUNPATH, which the loader takes from the module that calls dlopen.
    let runpath = format!("-Wl,--enable-new-dtags,-rpath,{}", scratch().display());
    let program = compile("opens", "opens", &["-ldl", &runpath]);
    let policy = Policy::of("opens")
        .rule("global = \"plugin_state\"\nmodule = \"libplugin.so\"", "policy = \"block\"")
        .rule("function = [\"plugin_make\"]", "policy = \"bind\"")
        .write(scratch(), "opens.toml");
    // By path: placed before dlopen returns. By bare name: the loader must still see the caller.
    for name in [library.to_str().unwrap(), "libplugin.so"] {
        let out = under("verify", &policy, &[], &program, &[name]);
        assert_eq!(out.code(), Some(0), "{name}: {}", out.stderr);
        assert_eq!(out.stderr.matches("on plan").count(), 3, "{}", out.stderr);
    }
}

#[test]
fn bad_policies_give_one_line_and_an_unplaced_run() {
    let program = compile("objects", "objects_bad", &[]);
    let object = |place: &str| format!("version = 1\n[[object]]\nglobal = \"zeroes\"\nplace = {{ {place} }}\n");
    let cases = [
        ("word.toml", object("policy = \"blok\""), "`blok`"),
        ("nodes.toml", object("policy = \"bind\", nodes = \"0-1023\""), "node 1 does not exist"),
        ("map.toml", object("policy = \"map\", map = \"1x0,1x1\""), "node 1 does not exist"),
        ("syntax.toml", "version = 1\n[[object]\n".to_owned(), "line 2"),
    ];
    for (name, content, says) in cases {
        let policy = policy(name, &content);
        let out = run(placed(&program, &policy));
        assert_eq!((out.code(), out.stdout.as_str()), (Some(0), "sum 27\n"));
        let line = out.stderr;
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(line.contains(says) && line.contains(name), "{line}");
        let out = run(placed(&program, &policy).env("NUMAMMA_STRICT", "1"));
        assert_eq!((out.code(), out.stdout.as_str()), (Some(78), ""));
        let out = under("run", &policy, &[], &program, &[]);
        assert_eq!((out.code(), out.stdout.as_str()), (Some(2), ""));
        assert!(out.stderr.contains(says), "{}", out.stderr);
    }
    let out = run(placed(&program, "/nonexistent/policy.toml"));
    assert_eq!((out.code(), out.stderr.lines().count()), (Some(0), 1));
}

#[test]
fn a_container_that_refuses_mbind_gets_one_line_and_an_unplaced_run() {
    let program = compile("objects", "objects_refused", &[]);
    let refuse = compile("refuse", "refuse", &[]);
    let policy = policy("refused-mbind.toml", &OBJECTS.replace("\"objects\"", "\"objects_refused\""));
    let out = run(placed(&refuse, &policy).arg(&program));
    assert_eq!((out.code(), out.stdout.as_str()), (Some(0), "sum 27\n"), "{}", out.stderr);
    assert_eq!(out.stderr.lines().count(), 1, "{}", out.stderr);
    assert!(out.stderr.contains("not permitted"), "{}", out.stderr);
    run(placed(&refuse, &policy).arg(&program).env("NUMAMMA_STRICT", "1")).ended(78);
    let out = under("verify", &policy, &[], &refuse, &[program.to_str().unwrap()]);
    assert_eq!(out.code(), Some(1));
    assert!(out.stderr.contains("nothing was placed"), "{}", out.stderr);
}

#[test]
fn placing_every_allocation_changes_no_output() {
    let every = Policy::new().rule("function = [\"?\"]", "policy = \"interleave\"").write(scratch(), "every.toml");
    let script = ["-c", "seq 1 50000 | sort -r | head -3; for i in 1 2; do (echo $i | cat); done; exit 5"];
    let (bare, placed) = (run(plain("/bin/sh").args(script)), run(placed("/bin/sh", &every).args(script)));
    assert_eq!((placed.code(), placed.stdout), (bare.code(), bare.stdout));
}

#[test]
fn other_programs_are_left_alone_in_silence() {
    let policy = policy("other.toml", OBJECTS);
    let out = run(placed("/bin/sh", &policy).args(["-c", "echo hello; exit 3"]));
    assert_eq!(out.code(), Some(3));
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("hello\n", ""));
    let out = run(placed("/bin/true", &policy).env("NUMAMMA_VERBOSE", "1"));
    assert!(out.stderr.contains("not the program of the policy"));
}

#[test]
fn another_build_is_matched_by_name_with_one_warning() {
    let program = compile("objects", "objects_build", &[]);
    let policy = Policy::of("objects_build")
        .lines("build-id = \"00\"")
        .rule("global = \"zeroes\"\naddress = 1", "policy = \"block\"")
        .rule("callsite = [\"objects_build+0x1\"]\nfunction = [\"make_grid\"]", "policy = \"block\"")
        .write(scratch(), "build.toml");
    let out = under("verify", &policy, &["-q"], &program, &[]);
    assert_eq!(out.code(), Some(0), "{}", out.stderr);
    assert_eq!(out.stderr.lines().count(), 1, "{}", out.stderr);
    assert!(out.stderr.contains("another build"));
}

#[test]
fn what_cannot_be_preloaded_is_refused_with_the_reason() {
    let policy = policy("refused.toml", OBJECTS);
    let refused_by = |policy: &Path, program: &Path, status: i32, says: &str| {
        for command in ["run", "verify"] {
            let out = under(command, policy, &[], program, &[]);
            assert_eq!(out.code(), Some(status), "{}: {}", program.display(), out.stderr);
            assert!(out.stderr.contains(says), "{}", out.stderr);
            assert_eq!(out.stdout, "");
        }
    };
    let of_static =
        Policy::of("objects_static").rule("global = \"zeroes\"", "policy = \"block\"").write(scratch(), "static.toml");
    refused_by(&of_static, &compile("objects", "objects_static", &["-static"]), 126, "statically linked");
    let refused = |program: &Path, status: i32, says: &str| refused_by(&policy, program, status, says);
    refused(Path::new("/nonexistent/app"), 127, "no such file");
    refused(Path::new("numamma-no-such-command"), 127, "not found in PATH");
    refused(scratch(), 126, "is a directory");
    let setuid = compile("objects", "objects_setuid", &[]);
    let setuid = scratch().write_mode("setuid", std::fs::read(&setuid).unwrap(), 0o4755);
    refused(&setuid, 126, "is setuid");
    let file = |name: &str, content: &[u8], mode: u32| scratch().write_mode(name, content, mode);
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
    let script = format!("#!/bin/sh\n{} \"$@\"\necho done\n", program.display());
    let script = scratch().write_mode("script", script, 0o755);
    let out = under("verify", &policy, &[], &script, &[]);
    assert_eq!(out.code(), Some(0), "{}", out.stderr);
    assert_eq!(out.stdout, "sum 27\ndone\n");
}

#[test]
fn the_example_policies_are_valid() {
    let dir = root().join("policies");
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

/// Random calls on four threads under policies of every kind; the program checks every promise of C. `part` of 10
/// million.
fn allocator_calls_keep_every_promise(part: u64) {
    let _alone = alone();
    let program = compile("churn", &format!("churn-{part}"), &["-pthread"]);
    // With mappings for small objects, and the slower ones where every object has its own: calls of each thread.
    let places = [
        (r#"policy = "interleave""#, 1_000_000),
        (r#"policy = "local""#, 1_000_000),
        (r#"policy = "block-cyclic", block = "8KiB""#, 200_000),
        (r#"policy = "random", seed = 3"#, 150_000),
        (r#"policy = "bind", nodes = "all", huge = "split""#, 150_000),
    ];
    for (seed, (place, per_thread)) in places.into_iter().enumerate() {
        let per_thread = per_thread / part;
        let rules = ["malloc", "calloc", "realloc", "memalign"].map(|f| format!("function = [\"matched_{f}\"]"));
        let policy = rules.iter().fold(Policy::new(), |policy, key| policy.rule(key, place));
        let policy = policy.write(scratch(), &format!("churn-{part}-{seed}.toml"));
        let report = scratch().join(format!("churn-{part}-{seed}.json"));
        let mut c = placed(&program, &policy);
        c.args([per_thread.to_string(), "4".into(), seed.to_string()]).env("NUMAMMA_REPORT", &report);
        let out = run(c);
        assert_eq!((out.code(), out.stderr.as_str()), (Some(0), ""), "{place}: {}", out.stdout);
        assert_eq!(out.stdout, format!("{} operations\n", 4 * per_thread));
        for object in objects(&json_file(&report)) {
            assert!(object["instances"].as_u64() > Some(10_000 / part), "{place}: {object}");
            assert_eq!(object["pages_off_plan"], 0, "{place}: {object}");
        }
    }
}

#[test]
fn a_million_allocator_calls_keep_every_promise() {
    allocator_calls_keep_every_promise(10);
}

/// The same calls where each allocation has parts with places of their own, and bytes between them that have none.
#[test]
fn allocations_in_parts_keep_every_promise() {
    let _alone = alone();
    let program = compile("churn", "churn-parts", &["-pthread"]);
    let parts = [
        ("0-6000", r#"policy = "bind", nodes = "all", strict = true"#),
        ("6000-20KiB", r#"policy = "block-cyclic", block = "4KiB""#),
        ("32KiB-40KiB", r#"policy = "interleave", huge = "split""#),
        ("48KiB-", r#"policy = "random", seed = 3, mode = "populate""#),
    ];
    let functions = ["malloc", "calloc", "realloc", "memalign"];
    let policy = functions.iter().fold(Policy::new(), |policy, function| {
        parts.iter().fold(policy, |policy, (range, place)| {
            policy.rule(&format!("function = [\"matched_{function}\"]\nrange = \"{range}\""), place)
        })
    });
    let policy = policy.write(scratch(), "churn-parts.toml");
    let report = scratch().join("churn-parts.json");
    let mut c = placed(&program, &policy);
    c.args(["15000", "4", "7"]).env("NUMAMMA_REPORT", &report);
    let out = run(c);
    assert_eq!((out.code(), out.stderr.as_str()), (Some(0), ""), "{}", out.stdout);
    assert_eq!(out.stdout, "60000 operations\n");
    let report = json_file(&report);
    assert_eq!(objects(&report).len(), functions.len() * parts.len());
    for object in objects(&report) {
        assert!(object["instances"].as_u64() > Some(1_000), "{object}");
        assert_eq!(object["pages_off_plan"], 0, "{object}");
    }
    // The program does nothing else, so after some 8,000 pages no more are placed for a while.
    let placed: u64 = objects(&report).iter().filter_map(|o| o["pages_present"].as_u64()).sum();
    assert!(placed > 2_000, "{report}");
}

#[test]
#[ignore = "long: make test-long"]
fn ten_million_allocator_calls_keep_every_promise() {
    allocator_calls_keep_every_promise(1);
}
