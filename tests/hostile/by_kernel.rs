//! Memory of placed programs that the kernel reads and writes for them (io_uring, O_DIRECT), whose faults the program
//! serves itself (userfaultfd), and that the kernel dumps: the same output, status and contents as bare, as in
//! [`super::stress`].

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::stress::{POLICIES, compare_under, compile, scratch};
use crate::common::{Policy, Scratch, json_file, numamma, number, placed, plain, run};

/// Policies that place all: those of one place, and one with a phase that begins while the program runs.
fn prepared(name: &str) -> (Scratch, Vec<(&'static str, &'static str)>) {
    let dir = scratch(name);
    Policy::new()
        .lines("[[phase]]\nname = \"later\"\nafter = 0.04")
        .rule("function = [\"?\"]", "policy = \"interleave\"")
        .lines("phases = { later = { policy = \"block-cyclic\", block = \"16KiB\" } }")
        .write(&dir, "phases.toml");
    Policy::new().rule("function = [\"?\"]", "policy = \"block\", mode = \"populate\"").write(&dir, "populate.toml");
    let policies = POLICIES.into_iter().chain([("phases", ""), ("populate", "")]).collect();
    (dir, policies)
}

/// What the program allocates must be placed, but for what cannot be: else a test shows nothing.
fn check_placed(dir: &Scratch, program: &str, least: u64) {
    for policy in ["interleave", "phases"] {
        let report = dir.join("report.json");
        let mut command = placed(dir.join(program), dir.join(format!("{policy}.toml")));
        run(command.current_dir(dir).env("NUMAMMA_REPORT", &report)).success();
        let report = json_file(&report);
        let (all, left) = (number(&report["objects"][0], "instances"), number(&report["objects"][0], "unplaced"));
        assert!(all >= least && left <= all / 20, "{program}, {policy}: {report}");
    }
}

#[test]
fn buffers_of_io_uring() {
    let (dir, policies) = prepared("ring");
    compile(&dir, "ring.c", "ring", &[]);
    let stdout = compare_under(&dir, "exec ./ring", &policies);
    if stdout.contains("refuses") {
        return eprintln!("left out: {stdout}");
    }
    check_placed(&dir, "ring", 400);
    assert!(stdout.starts_with("24 rounds") && stdout.ends_with("failed 0, damaged 0\n"), "{stdout}");
}

#[test]
fn reads_and_writes_past_the_page_cache() {
    let (dir, policies) = prepared("direct");
    compile(&dir, "direct.c", "direct", &[]);
    let stdout = compare_under(&dir, "exec ./direct", &policies);
    if stdout.contains("refuses") {
        return eprintln!("left out: {stdout}");
    }
    check_placed(&dir, "direct", 100);
    assert_eq!(stdout, "4 threads, failed 0, damaged 0\n");
}

/// Populated arrays are left out where the program takes it that a new mapping has no pages: docs/placing.md says so.
#[test]
fn arrays_whose_faults_the_program_serves() {
    let (dir, policies) = prepared("served");
    compile(&dir, "served.c", "served", &[]);
    let without_populate: Vec<_> = policies.iter().copied().filter(|(name, _)| *name != "populate").collect();
    for (line, policies) in [("exec ./served", &without_populate), ("exec ./served given-up", &policies)] {
        let stdout = compare_under(&dir, line, policies);
        if stdout.contains("refuses") {
            return eprintln!("left out: {stdout}");
        }
        assert_eq!(stdout, "pages served 28800, failed 0, damaged 0\n", "{line}");
    }
    check_placed(&dir, "served", 40);
}

/// KiB that the library itself may add to a core dump: its data, its tables and the heaps of its own.
const LIBRARY_KIB: u64 = 4096;

/// Memory that is dumped as the program found it just before it aborted, and the file where the kernel writes one here.
/// What the bare run keeps of freed arrays is glibc's, what a placed run keeps is ours: an eighth more is let pass.
#[test]
fn a_core_dump_is_as_small_as_without_the_library() {
    let (dir, policies) = prepared("dumps");
    compile(&dir, "dumps.c", "dumps", &[]);
    let program = dir.join("dumps");
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    // A name relative to the working directory; with a pipe or a directory the dump goes elsewhere.
    let is_file = !pattern.starts_with(['|', '/', '@']);
    if !is_file {
        eprintln!("left out: the size of the file, because core dumps go to {pattern}");
    }
    let dumped = |name: &str, mut command: std::process::Command| -> Vec<u64> {
        let here = dir.join(format!("in-{name}"));
        fs::create_dir(&here).unwrap();
        let seen = run(command.current_dir(&here));
        assert_eq!((seen.stdout.as_str(), seen.shell_code()), ("aborting\n", Some(134)), "{name}: {seen:?}");
        let said = fs::read_to_string(here.join("sizes")).unwrap();
        let mut sizes: Vec<u64> = said.split_whitespace().map(|n| n.parse().unwrap()).collect();
        sizes.extend(is_file.then(|| core(&here)).flatten().into_iter().flatten());
        sizes
    };
    let line = "ulimit -c unlimited && exec \"$0\" sizes";
    let shell = |mut c: std::process::Command| {
        c.args(["-c", line]).arg(&program);
        c
    };
    let bare = dumped("bare", shell(plain("sh")));
    assert!(bare[0] > 16 << 10, "{bare:?}");
    let fits =
        |seen: &[u64]| seen.len() == bare.len() && seen.iter().zip(&bare).all(|(s, b)| *s <= b * 9 / 8 + LIBRARY_KIB);
    for (name, _) in policies {
        let seen = dumped(name, shell(placed("sh", dir.join(format!("{name}.toml")))));
        assert!(fits(&seen), "{name}: KiB in memory, of areas, and in the file {seen:?}, bare {bare:?}");
    }
    let mut profiled = numamma(&["profile", "-q", "-F", "100", "-o", "x.prof", "--", "sh"]);
    profiled.args(["-c", line]).arg(&program);
    let seen = dumped("profiled", profiled);
    assert!(fits(&seen), "profiled: KiB in memory, of areas, and in the file {seen:?}, bare {bare:?}");
}

/// KiB of the dump in a directory: on disk, and as long as it is; none where the limit of files forbids one.
fn core(dir: &Path) -> Option<[u64; 2]> {
    let mut files = fs::read_dir(dir).unwrap().flatten();
    let file = files.find(|f| f.file_name().to_string_lossy().starts_with("core"))?.metadata().unwrap();
    Some([file.blocks() / 2, file.len() >> 10])
}
