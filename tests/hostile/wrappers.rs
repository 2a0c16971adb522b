//! What finding the rule of an allocation costs behind functions that allocate for others and among many rules, and
//! that it is found.

use crate::common::{Policy, Scratch, compile, json_file, object, placed, plain, run};

/// Nanoseconds by which a pair behind a wrapper may cost more than one of malloc itself, beside half as much again,
/// which is more on a slow machine; a walk of the stack with a search of its names takes 170 to 380.
const MOST_MORE_NS: f64 = 60.0;

#[test]
fn what_was_decided_for_a_call_stack_is_not_searched_again() {
    let dir = Scratch::new("wrappers");
    let program = compile("c++", "hostile/stress/wrappers.cpp", dir.join("wrappers"), &["-O2", "-g"]);
    let numbers = |command| {
        let ran = run(command).success();
        let (stdout, words) = (ran.stdout.clone(), ran.messages().1.join(" "));
        assert_eq!(stdout, "damaged 0\n");
        words.split(' ').map(|n| n.parse().unwrap_or_else(|_| panic!("{}", ran.stderr))).collect::<Vec<f64>>()
    };
    let bare = numbers(plain(&program));
    for (name, key) in [
        ("all", "function = [\"?\"]"),
        ("large", "function = [\"?\"]\nsizes = \"1MiB-\""),
        ("main", "function = [\"main\"]"),
        ("deep", "function = [\"by_new\", \"deeper(int)\", \"elsewhere\"]"),
        ("line", "line = \"wrappers.cpp:1\""),
    ] {
        let policy = Policy::new().rule(key, "policy = \"interleave\"").write(&dir, &format!("{name}.toml"));
        let seen = numbers(placed(&program, &policy));
        let beyond_malloc = seen[0] - bare[0];
        for (own, bare) in seen.iter().zip(&bare).skip(1) {
            assert!(own - bare <= 1.5 * beyond_malloc.max(0.0) + MOST_MORE_NS, "{name}: {seen:?} ns, bare {bare:?}");
        }
    }
}

/// How many times as long a pair may take where a thousand rules differ in sizes as where two do. Looking at each of
/// the thousand took 600 times as long.
const MOST_TIMES: f64 = 10.0;

#[test]
fn rules_that_differ_in_sizes_are_not_looked_at_one_after_the_other() {
    let dir = Scratch::new("wrappers-sizes");
    let program = compile("cc", "hostile/stress/by_size.c", dir.join("by_size"), &["-O2", "-g"]);
    let time = |rules: usize| {
        let key = |n: usize| format!("function = [\"block\"]\nsizes = \"{}B-{}B\"", 1 + 16 * n, 16 * (n + 1));
        let policy = (0..rules).fold(Policy::new(), |p, n| p.rule(&key(n * 1000 / rules), "policy = \"interleave\""));
        let policy = policy.write(&dir, &format!("{rules}.toml"));
        let report = dir.join(format!("{rules}.json"));
        let mut command = placed(&program, &policy);
        let ran = run(command.env("NUMAMMA_REPORT", &report)).success();
        assert_eq!(ran.stdout, "damaged 0\n");
        let report = json_file(&report);
        let objects = report["objects"].as_array().expect("objects");
        assert!(objects.len() == rules && objects.iter().all(|o| o["instances"] == 500), "{rules} rules: {report}");
        let messages = ran.messages().1.join(" ");
        messages.parse().unwrap_or_else(|_| panic!("{}", ran.stderr))
    };
    let least = |rules: usize| (0..3).map(|_| time(rules)).fold(f64::INFINITY, f64::min);
    let (two, thousand): (f64, f64) = (least(2), least(1000));
    assert!(thousand <= MOST_TIMES * two.max(MOST_MORE_NS), "{thousand} ns under a thousand rules, {two} under two");
}

/// An address of `free` in a program that is not position-independent is an entry of its procedure linkage table.
#[test]
fn a_program_that_takes_the_address_of_free_has_no_free_of_its_own() {
    let dir = Scratch::new("wrappers-address");
    for (name, flags) in [("pie", &["-fpie", "-pie"][..]), ("fixed", &["-fno-pie", "-no-pie"])] {
        let flags = [flags, &["-O2", "-g"]].concat();
        let program = compile("cc", "hostile/stress/released_by_address.c", dir.join(name), &flags);
        let policy = Policy::new().rule("function = [\"block\"]", "policy = \"interleave\"").write(&dir, "block.toml");
        let report = dir.join("report.json");
        let mut command = placed(&program, &policy);
        let ran = run(command.env("NUMAMMA_REPORT", &report)).success();
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("damaged 0\n", ""), "{name}");
        let report = json_file(&report);
        let block = object(&report, "block");
        assert_eq!((&block["instances"], &block["unplaced"]), (&10.into(), &0.into()), "{name}: {block}");
    }
}
