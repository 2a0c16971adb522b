//! Allocations of rules that leave them to the program's allocator: they are its own, and cost what it takes for them.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{Policy, json_file, number, object, placed, run};
use crate::memory::Program;

/// A rule that leaves its objects alone, and one that cannot place small ones.
const LEFT: &str = "policy = \"default\"";
const BY_BLOCKS: &str = "policy = \"block\"";

/// Each has a file of its own.
fn policy(program: &Program, rules: &[(&str, &str)]) -> std::path::PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let name = format!("left-{}.toml", MADE.fetch_add(1, Ordering::Relaxed));
    let rule = |policy: Policy, (site, place): &(&str, &str)| policy.rule(&format!("function = [\"{site}\"]"), place);
    rules.iter().fold(Policy::new(), rule).write(&program.dir, &name)
}

#[test]
fn what_a_rule_leaves_alone_comes_from_the_programs_allocator() {
    let left = Program::new("left");
    let begin_at_a_page = |rules: &[(&str, &str)], how: &str| left.placed(&policy(&left, rules), how)[0];
    assert_eq!(begin_at_a_page(&[("block", LEFT)], "place"), 0.0);
    assert_eq!(begin_at_a_page(&[("block", BY_BLOCKS)], "place"), 2.0);
    assert_eq!(begin_at_a_page(&[("block", LEFT), ("?", BY_BLOCKS)], "place"), 0.0, "also where another rule fits");
    assert_eq!(begin_at_a_page(&[("?", LEFT), ("block", BY_BLOCKS)], "place"), 0.0, "the first rule takes it");
    assert_eq!(begin_at_a_page(&[("block", BY_BLOCKS)], "changed"), 1.0);
    assert_eq!(begin_at_a_page(&[("block", BY_BLOCKS), ("larger", LEFT)], "changed"), 0.0, "realloc gives it away");
}

#[test]
fn what_a_rule_leaves_alone_is_counted_for_who_asks() {
    let left = Program::new("left");
    for place in [LEFT, BY_BLOCKS] {
        let report = left.dir.join("report.json");
        let policy = policy(&left, &[("pair", place)]);
        let mut command = placed(&left.path, &policy);
        run(command.arg("pairs").env("NUMAMMA_REPORT", &report)).success();
        let found = object(&json_file(&report), "pair").clone();
        let seen = ["instances", "too_small", "unplaced"].map(|key| number(&found, key));
        assert_eq!(seen, [2_000_000, 2_000_000, 0], "{place}: {found}");
    }
}

/// Rounds in which the rules take turns: a machine that is slow for a while is so for all of them.
const ROUNDS: usize = 7;

/// Of 2,000,000 pairs of malloc and free, the least CPU time under each policy.
fn pairs<const N: usize>(left: &Program, policies: [std::path::PathBuf; N]) -> [f64; N] {
    let mut least = [f64::INFINITY; N];
    for _ in 0..ROUNDS {
        for (least, policy) in least.iter_mut().zip(&policies) {
            *least = least.min(left.placed(policy, "pairs")[0]);
        }
    }
    least
}

/// Compared with a run in which no rule fits.
#[test]
fn what_a_rule_leaves_alone_costs_what_other_allocations_do() {
    let left = Program::new("left");
    let cases = [("block", BY_BLOCKS, 1.0), ("pair", LEFT, 1.3), ("?", LEFT, 1.3), ("pair", BY_BLOCKS, 3.0)];
    let least = pairs(&left, cases.map(|(site, place, _)| policy(&left, &[(site, place)])));
    for (seen, (site, place, most)) in least.iter().zip(cases).skip(1) {
        assert!(*seen <= most * least[0], "{site} {place}: {seen} us, {} us of other allocations", least[0]);
    }
}

/// Rules for one call site that sizes tell apart are known together: the stack is not walked for each allocation.
#[test]
fn many_rules_for_one_call_site_cost_little_more_than_one() {
    let left = Program::new("left");
    let with = |count: usize| {
        let sizes = |n: usize| format!("function = [\"pair\"]\nsizes = \"{}MiB-{}MiB\"", 2 * n + 1, 2 * n + 2);
        let rules = (0..count).fold(Policy::new(), |policy, n| policy.rule(&sizes(n), "policy = \"interleave\""));
        rules.write(&left.dir, &format!("sizes-{count}.toml"))
    };
    let [one, two, many] = pairs(&left, [with(1), with(2), with(30)]);
    assert!(two <= 2.0 * one && many <= 5.0 * one, "one rule {one} us, two {two} us, 30 {many} us");
}
