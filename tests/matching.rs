//! Which allocation a rule means, and what the library tells about every rule, on real programs compiled here.
//!
//! The library's report says which rule took how many objects; where pages are is the lab's business.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use numamma::apply::library;
use serde_json::Value;

/// A directory for this run's programs, made once.
fn scratch() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("matching-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    })
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/matching").join(name)
}

/// Compiles tests/matching/<source> with `compiler` to <name>.
fn compile(compiler: &str, file: &str, name: &str, flags: &[&str]) -> PathBuf {
    let out = scratch().join(name);
    let cc = Command::new(compiler).arg("-o").arg(&out).arg(source(file)).args(flags).output().unwrap();
    assert!(cc.status.success(), "{compiler} {file}: {}", text(&cc.stderr));
    out
}

fn policy(name: &str, rules: &[&str]) -> PathBuf {
    let path = scratch().join(name);
    let objects: String = rules.iter().map(|rule| format!("[[object]]\n{rule}\n")).collect();
    std::fs::write(&path, format!("version = 1\n{objects}")).unwrap();
    path
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn placed(program: &Path, policy: &Path) -> Command {
    let mut c = Command::new(program);
    c.env("LD_PRELOAD", library::find("apply").unwrap()).env("NUMAMMA_POLICY", policy);
    c
}

/// Runs it and returns the objects of the report.
fn report(mut c: Command) -> (Output, Vec<Value>) {
    let file = scratch().join(format!("report-{:?}.json", std::thread::current().id()));
    // Of an earlier run of this thread, if any.
    let _ = std::fs::remove_file(&file);
    let out = c.env("NUMAMMA_REPORT", &file).output().unwrap();
    let written = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{e}: {}", text(&out.stderr)));
    let report: Value = serde_json::from_str(&written).unwrap();
    (out, report["objects"].as_array().unwrap().clone())
}

fn number(object: &Value, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_else(|| panic!("no {key} in {object}"))
}

/// Objects and KiB of every rule.
fn taken(objects: &[Value]) -> Vec<(u64, u64)> {
    objects.iter().map(|o| (number(o, "instances"), number(o, "bytes") / 1024)).collect()
}

const C: &[&str] = &["-O2", "-g", "-pthread"];

#[test]
fn rules_take_allocations_by_size_and_number() {
    let program = compile("cc", "sites.c", "sites", C);
    let place = "place = { policy = \"bind\" }";
    let of = |function: &str, more: &str| format!("function = [{function}]\n{more}\n{place}");
    let rules = [
        of("\"make\"", "sizes = \"16KiB-32KiB\""),
        of("\"make\"", "instances = \"1,7-8\""),
        of("\"make\"", "sizes = \"80KiB\""),
        of("\"make\", \"outer\"", "sizes = \"-1MiB\""),
        of("\"make\"", "instances = \"9-\""),
        of("\"grow\"", "instances = \"2\""),
        of("\"grow\"", "instances = \"1\""),
    ];
    let policy = policy("sites.toml", &rules.each_ref().map(String::as_str));
    let (out, objects) = report(placed(&program, &policy));
    assert_eq!((text(&out.stdout).as_str(), text(&out.stderr).as_str()), ("ok\n", ""));
    // make: 16, 24, 32 KiB | numbers 1, 7 and 8: 8, 56 and 64 KiB | 80 KiB | 640 KiB from outer | number 9: 72 KiB, while
    // 10 and 11 are taken by others. grow: the one that grows is number 1 for good, so the other one is number 2.
    assert_eq!(taken(&objects), [(3, 72), (3, 128), (1, 80), (1, 640), (1, 72), (1, 40), (1, 100)]);
    assert_eq!(objects[1]["name"], "make, instances 1,7-8");
    assert!(objects.iter().all(|o| number(o, "pages_off_plan") == 0 && number(o, "pages_planned") > 0), "{objects:?}");
    assert_eq!(number(&objects[6], "pages_present"), 25 * (1 + 2 + 3 + 4 + 5), "{}", objects[6]);
}

#[test]
fn threads_share_the_numbers() {
    let program = compile("cc", "sites.c", "sites_threads", C);
    let of = |list: &str| {
        format!("function = [\"make\"]\ninstances = \"{list}\"\nplace = {{ policy = \"bind\", nodes = \"0\" }}")
    };
    let policy = policy("threads.toml", &[&of("1-123"), &of("124-700"), &of("701-")]);
    let mut c = placed(&program, &policy);
    c.arg("8");
    let (out, objects) = report(c);
    assert_eq!((out.status.code(), text(&out.stderr).as_str()), (Some(0), ""));
    assert_eq!(taken(&objects), [(123, 123 * 64), (577, 577 * 64), (100, 100 * 64)]);
}

#[test]
fn a_rule_that_can_take_nothing_is_named_at_start() {
    let program = compile("cc", "sites.c", "sites_twice", C);
    let rule = "function = [\"make\"]\nplace = { policy = \"bind\" }";
    let policy = policy("twice.toml", &[rule, rule]);
    let (out, objects) = report(placed(&program, &policy));
    assert_eq!(text(&out.stdout), "ok\n");
    assert!(text(&out.stderr).contains("object 2 (make) can take no allocation: object 1"), "{}", text(&out.stderr));
    assert_eq!(taken(&objects)[1], (0, 0));
}
