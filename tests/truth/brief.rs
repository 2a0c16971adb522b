//! Advice about what is allocated in every step of a program: profiled for real, as text of the policy.
//!
//! What a thread allocates, uses and frees is left alone; what all threads share, and what another thread touched
//! first, is placed although it is allocated again and again.

use std::path::Path;

use crate::common::{Scratch, alone, compile, numamma, run};

const THREADS: &str = "4";
/// Short runs need many samples.
const RATE: &str = "2000";

/// Profiles `program` and returns the policy for four nodes.
fn advised(dir: &Scratch, program: &Path, args: &[&str]) -> String {
    let prof = dir.join("brief.prof");
    run(numamma(&["profile", "-q", "-F", RATE, "-o"]).arg(&prof).arg("--").arg(program).args(args)).success();
    run(numamma(&["advise", "-q", "--nodes", "4"]).arg(&prof)).success().stdout
}

/// The `place` of the rule whose innermost function is `function`; none when there is no such rule.
fn place<'a>(policy: &'a str, function: &str) -> Option<&'a str> {
    let rules = policy.split("[[object]]").skip(1);
    let mut rules =
        rules.filter(|r| r.contains(&format!("function = [\"{function}\"")) || r.contains(&format!("# {function} ")));
    rules.next().map(|rule| rule.lines().find(|l| l.starts_with("place = ")).expect("a rule has a place"))
}

struct Case {
    what: &'static str,
    steps: &'static str,
    bytes: &'static str,
    /// Whether a placement is right.
    placed: bool,
}

const fn case(what: &'static str, steps: &'static str, bytes: &'static str, placed: bool) -> Case {
    Case { what, steps, bytes, placed }
}

fn check(cases: &[Case]) {
    let _alone = alone();
    let dir = Scratch::new(&format!("truth-brief-{}", cases[0].what));
    let program = compile("cc", "truth/brief/brief.c", dir.join("brief"), &["-O2", "-g", "-pthread"]);
    for case in cases {
        let policy = advised(&dir, &program, &[case.what, THREADS, case.steps, case.bytes]);
        let place = place(&policy, case.what);
        assert_eq!(place.is_some(), case.placed, "{} of {} bytes: {policy}", case.what, case.bytes);
        assert!(policy.contains(&format!("{} brief.c:", case.what)), "the object is not in the advice: {policy}");
    }
}

#[test]
fn scratch_memory_of_a_thread_is_left_alone() {
    check(&[
        case("scratch", "6000", "8192", false),
        case("scratch", "200", "262144", false),
        case("scratch", "14", "4194304", false),
        case("growth", "12", "262144", false),
    ]);
}

#[test]
fn memory_of_other_threads_is_placed() {
    check(&[case("shared", "60", "16777216", true), case("kept", "320", "4194304", true)]);
}

/// Buffers that one thread allocates and others use belong on no single node: not on that of the allocating thread.
#[test]
fn handed_on_buffers_are_not_local() {
    let _alone = alone();
    let dir = Scratch::new("truth-brief-pool");
    let program = compile("cc", "truth/brief/brief.c", dir.join("brief"), &["-O2", "-g", "-pthread"]);
    let policy = advised(&dir, &program, &["pool", THREADS, "3000", "65536"]);
    assert!(!place(&policy, "pool").is_some_and(|place| place.contains("local")), "{policy}");
}

#[test]
fn vectors_of_a_thread_are_left_alone() {
    let _alone = alone();
    let dir = Scratch::new("truth-brief-vectors");
    let program = compile("c++", "truth/brief/vectors.cpp", dir.join("vectors"), &["-O2", "-g", "-pthread"]);
    let policy = advised(&dir, &program, &[THREADS, "800", "8192"]);
    assert!(!policy.contains("[[object]]"), "{policy}");
    assert!(policy.contains("vectors.cpp:"), "{policy}");
}
