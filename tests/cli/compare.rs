//! `numamma compare` on real programs: figures that hang together, failures with their reason, Ctrl-C.
//!
//! On a machine with one node every policy places alike; that interleaving interleaves is tests/lab/compare.rs.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{self, Policy, Ran, Scratch, compile, numamma, text};

fn scratch(name: &str) -> Scratch {
    Scratch::new(&format!("compare-{name}"))
}

/// `numamma compare OPTIONS -- COMMAND`, not started.
fn compare(dir: &Path, options: &[&str], command: &[&str]) -> Command {
    let mut c = numamma(&["compare"]);
    c.current_dir(dir).args(options).arg("--").args(command).stdin(Stdio::null());
    c
}

fn run(command: Command) -> (Ran, String, String) {
    let out = common::run(command);
    let (stdout, stderr) = (out.stdout.clone(), out.stderr.clone());
    (out, stdout, stderr)
}

/// tests/preloads/apply/objects.c, which has a global `zeroes` of 64 pages, and a policy for it.
fn objects(dir: &Scratch) {
    compile("cc", "preloads/apply/objects.c", dir.join("objects"), &["-O2", "-g"]);
    Policy::of("objects").rule("global = \"zeroes\"", "policy = \"interleave\"").write(dir, "p.toml");
}

#[test]
fn every_policy_is_measured_and_the_figures_hang_together() {
    let dir = scratch("figures");
    objects(&dir);
    let options = ["-n", "5", "--policies", "p.toml,interleave,block-naive", "--json", "--seed", "3"];
    let (out, _, stderr) = run(compare(&dir, &options, &["./objects", "exit"]));
    // The program ends with status 0 and prints "sum 27" whatever happens to its pages.
    assert_eq!(out.status.code(), Some(0), "{stderr}");
    let json = out.json();
    assert_eq!((&json["complete"], &json["seed"], &json["runs"]), (&true.into(), &3.into(), &5.into()));
    let policies = json["policies"].as_array().unwrap();
    let names: Vec<&str> = policies.iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["first-touch", "p.toml", "interleave", "block-naive"]);
    assert_eq!(policies[0]["speedup"], 1.0);
    for p in policies {
        let mut times: Vec<f64> = p["times"].as_array().unwrap().iter().map(|t| t.as_f64().unwrap()).collect();
        times.sort_by(f64::total_cmp);
        assert_eq!(p["n"], 5);
        assert!(times[0] > 0.0 && times[4] < 10.0, "{p}");
        assert_eq!(p["time"], times[2]);
        assert_eq!((&p["interval"]["low"], &p["interval"]["high"]), (&times[0].into(), &times[4].into()));
        let speedup = policies[0]["time"].as_f64().unwrap() / times[2];
        assert!((p["speedup"].as_f64().unwrap() - speedup).abs() < 1e-9);
        assert_eq!(p["p"].is_null(), p["name"] == "first-touch");
        assert!(p["local_share"].is_number() || p["local_share_reason"].is_string());
        assert!(p["busiest_node_share"].is_number() || p["busiest_node_share_reason"].is_string());
    }
    assert!(!stderr.contains("not found"), "{stderr}");
}

#[test]
fn the_same_seed_gives_the_same_order_and_one_node_is_said_plainly() {
    let dir = scratch("seed");
    let order = |seed: &str| {
        let options = ["-n", "6", "--policies", "first-touch,interleave", "--seed", seed];
        let (out, stdout, stderr) = run(compare(&dir, &options, &["true"]));
        assert!(out.status.success(), "{stderr}");
        assert!(stderr.contains(&format!("--seed {seed}")), "{stderr}");
        assert!(stdout.contains("interleave") && stdout.contains("median"), "{stdout}");
        let one_node = numamma_plan::machine::Machine::this().memory_nodes.len() == 1;
        assert_eq!(stderr.contains("one node with memory"), one_node, "{stderr}");
        let names =
            stderr.lines().filter(|l| l.contains("run ")).filter_map(|l| l.split(' ').nth(5).map(str::to_owned));
        names.collect::<Vec<_>>()
    };
    let (a, b) = (order("11"), order("11"));
    assert_eq!(a.len(), 12);
    assert_eq!(a, b);
    assert!((12..20).any(|s| order(&s.to_string()) != a), "seeds do not matter");
}

#[test]
fn a_slower_policy_is_seen() {
    let dir = scratch("slower");
    objects(&dir);
    // The program is slow exactly when the library is preloaded: what a costly policy looks like.
    std::fs::write(dir.join("work.sh"), "case \"$LD_PRELOAD\" in *apply*) sleep 0.5;; *) sleep 0.05;; esac\n").unwrap();
    let options = ["-n", "5", "--policies", "p.toml", "--json", "-q"];
    let (out, _, stderr) = run(compare(&dir, &options, &["sh", "work.sh"]));
    assert!(out.status.success(), "{stderr}");
    let json = out.json();
    let slow = &json["policies"][1];
    assert!(slow["verdict"].as_str().unwrap().starts_with("slower: "), "{slow}");
    assert!((slow["p"].as_f64().unwrap() - 2.0 / 252.0).abs() < 1e-9, "{slow}");
    // sh is not the program of the policy, so nothing was placed: that must be said.
    assert!(json["notes"].to_string().contains("the policy is for objects"), "{json}");
}

#[test]
fn a_failing_program_stops_with_the_reason() {
    let dir = scratch("failing");
    let options = ["-n", "2", "--policies", "first-touch,interleave"];
    let (out, stdout, stderr) = run(compare(&dir, &options, &["sh", "-c", "echo no input >&2; exit 3"]));
    assert_eq!((out.status.code(), stdout.as_str()), (Some(3), ""));
    assert!(stderr.contains("exited with status 3 under first-touch in the warm-up"), "{stderr}");
    assert!(stderr.contains("no input"), "{stderr}");
    let (out, _, stderr) = run(compare(&dir, &options, &["sh", "-c", "kill -9 $$"]));
    assert_eq!(out.status.code(), Some(137));
    assert!(stderr.contains("killed by signal 9"), "{stderr}");
    // -i lets a status pass, not a signal.
    let ignoring = ["-i", "-n", "2", "--policies", "first-touch,interleave"];
    let (out, stdout, _) = run(compare(&dir, &ignoring, &["false"]));
    assert_eq!(out.status.code(), Some(0));
    assert!(stdout.contains("too few runs"), "{stdout}");
    // What was measured before the failure is shown: this one fails at its fourth start.
    let script = "echo x >> count; test $(wc -l < count) -lt 4";
    let (out, stdout, stderr) = run(compare(&dir, &options, &["sh", "-c", script]));
    assert_eq!(out.status.code(), Some(1));
    assert!(stdout.contains("first-touch"), "{stdout}");
    assert!(stderr.contains("in run 1 of 2"), "{stderr}");
}

#[test]
fn what_cannot_be_compared_is_refused_before_the_first_run() {
    let dir = scratch("refused");
    std::fs::write(dir.join("bad.toml"), "version = 1\n[[object]]\nglobl = \"x\"\n").unwrap();
    for (policies, command, code, words) in [
        ("missing.toml", "true", 2, "there is no policy file missing.toml"),
        ("interlave", "true", 2, "did you mean interleave?"),
        ("interleaved", "true", 2, "first-touch, interleave, block-naive, advised"),
        ("bad.toml", "true", 2, "line 3"),
        ("interleave,interleave", "true", 2, "twice"),
        ("", "true", 2, "names no policy"),
        ("block-naive", "true", 2, "has no variable of at least"),
        ("interleave", "./missing", 127, "missing"),
        ("interleave", "/tmp", 126, "directory"),
    ] {
        let (out, stdout, stderr) = run(compare(&dir, &["--policies", policies], &[command]));
        assert_eq!((out.status.code(), stdout.as_str()), (Some(code), ""), "{policies}: {stderr}");
        assert!(stderr.contains(words) && !stderr.contains("warm-up"), "{policies}: {stderr}");
    }
}

#[test]
fn what_is_advised_needs_no_policy_file() {
    let dir = scratch("advised");
    compile("cc", "programs/private.c", dir.join("private"), &["-O2", "-g", "-fopenmp", "-pthread"]);
    let (out, stdout, stderr) = run(compare(&dir, &["-p", "advised", "-n", "1"], &["./private"]));
    assert_eq!((out.status.code(), stdout.as_str()), (Some(2), ""), "{stderr}");
    assert!(stderr.contains("numamma.prof: no such profile"), "{stderr}");
    let mut profile = numamma(&["profile", "-q", "--", "./private"]);
    profile.current_dir(&dir).env("OMP_NUM_THREADS", "2");
    assert!(run(profile).0.status.success());
    let (out, _, stderr) = run(compare(&dir, &["-p", "advised,interleave", "-n", "1", "--json"], &["./private"]));
    assert_eq!(out.status.code(), Some(0), "{stderr}");
    let json = out.json();
    let names: Vec<&str> = json["policies"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["first-touch", "advised", "interleave"]);
    assert!(!dir.join("advised.toml").exists(), "what is left is what the user asked for");
}

#[test]
fn differing_output_is_a_note() {
    let dir = scratch("output");
    objects(&dir);
    let options = ["-n", "2", "--policies", "first-touch,interleave"];
    let (out, _, stderr) = run(compare(&dir, &options, &["sh", "-c", "date +%N"]));
    assert!(out.status.success());
    assert!(stderr.contains("prints something else in every run"), "{stderr}");
    // The same under every run of a policy, but another than without it.
    let options = ["-n", "2", "--policies", "p.toml"];
    let (out, _, stderr) = run(compare(&dir, &options, &["sh", "-c", "echo ${NUMAMMA_POLICY:+placed}"]));
    assert!(out.status.success());
    assert!(stderr.contains("under p.toml is not that of first-touch in 3 of 3 runs"), "{stderr}");
    assert!(stderr.contains("line 1: \"\" / \"placed\""), "{stderr}");
}

#[test]
fn a_redirected_file_is_read_by_every_run() {
    let dir = scratch("stdin");
    std::fs::write(dir.join("input"), "17\n").unwrap();
    let mut c = compare(&dir, &["-n", "2", "--policies", "interleave"], &["sh", "-c", "read n && test $n = 17"]);
    c.stdin(std::fs::File::open(dir.join("input")).unwrap());
    let (out, _, stderr) = run(c);
    assert!(out.status.success(), "{stderr}");
}

#[test]
fn a_signal_stops_the_program_and_shows_what_was_measured() {
    let dir = scratch("signal");
    let command = ["sh", "-c", "echo $$ > pid; exec sleep 0.4"];
    let child = compare(&dir, &["-n", "100", "--policies", "first-touch,interleave"], &command)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    let started = Instant::now();
    // SAFETY: our own child, not waited for yet.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    let out = child.wait_with_output().unwrap();
    assert!(started.elapsed() < Duration::from_secs(3));
    assert_eq!(out.status.signal(), Some(libc::SIGTERM));
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert!(stdout.contains("first-touch") && stdout.contains("interleave"), "{stdout}");
    assert!(stderr.contains("stopped by signal 15"), "{stderr}");
    let pid: i32 = std::fs::read_to_string(dir.join("pid")).unwrap().trim().parse().unwrap();
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "the program runs on");
}
