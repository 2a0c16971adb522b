//! Random policy files: no panic, the same result from both parsers, printable errors, plans that cover their object.
//!
//! `NUMAMMA_FUZZ_SECONDS=600 NUMAMMA_FUZZ_SEED=7 cargo test -p numamma-plan fuzz -- --ignored` runs for longer.
//! A file that fails is kept in tests/hostile/fuzz/corpus; every run tests these files first.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::policy::{ObjectRule, Policy};
use crate::{check, plan, toml_subset};

#[path = "../../../tests/hostile/fuzz/generate.rs"]
pub(crate) mod generate;

use generate::Random;

/// Seconds of the long test when no time is given.
const LONG_SECONDS: u64 = 120;
/// Files of the short test.
const FILES: usize = 40_000;
/// Runs of a plan that are checked.
const RUNS: usize = 2000;
/// Nodes of the machine that plans are made for, with gaps in the numbers.
const NODES: [u32; 4] = [0, 1, 4, 7];

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hostile/fuzz/corpus")
}

/// The shipped policies, and files that failed in an earlier run.
fn seeds() -> Vec<String> {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies");
    let files = [corpus(), shipped].into_iter().flat_map(|dir| std::fs::read_dir(dir).unwrap());
    let mut paths: Vec<PathBuf> =
        files.map(|f| f.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "toml")).collect();
    paths.sort();
    assert!(paths.len() > 5, "{paths:?}");
    paths.iter().map(|p| String::from_utf8_lossy(&std::fs::read(p).unwrap()).into_owned()).collect()
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Checks the properties that hold for any text; returns whether the text is a valid policy.
fn examine(text: &str) -> bool {
    // Policies are compared by their printed form, because NaN is not equal to NaN.
    let show = |p: &Policy| format!("{p:?}");
    let general = toml::from_str::<Policy>(text);
    if let Some(plain) = toml_subset::read::<Policy>(text) {
        assert_eq!(general.as_ref().map(show).ok(), Some(show(&plain)), "the two readers differ");
    }
    match check::parse(text) {
        Ok(policy) => {
            let again = toml::to_string(&policy).map(|t| check::parse(&t).map(|p| show(&p)));
            assert_eq!(again, Ok(Ok(show(&policy))), "a policy that cannot be written and read again");
            policy.objects.iter().for_each(|rule| plans(rule, policy.threads.as_ref().and_then(|t| t.count)));
            true
        }
        Err(error) => {
            assert!(!error.message.contains('\n') && !error.message.trim().is_empty(), "{error:?}");
            assert!((1..=text.matches('\n').count() + 1).contains(&error.line) && error.column >= 1, "{error:?}");
            false
        }
    }
}

/// Plans every placement of a rule for objects of unusual sizes.
fn plans(rule: &ObjectRule, threads: Option<u32>) {
    for place in rule.phases.values().chain([&rule.place]) {
        for pages in [0, 1, 3, 512, 100_001, 1 << 40] {
            let size = pages * 4096 - pages.min(1) * 40;
            let page_size = if pages % 2 == 0 { 2 << 20 } else { 4096 };
            let made = plan::plan(place, rule.pattern.as_ref(), size, pages, page_size, &NODES, threads.unwrap_or(4));
            let Ok(mut plan) = made else { continue };
            for coarse in [false, true] {
                if coarse {
                    plan.coarsen(100);
                    assert!(plan.run_count() <= 100);
                }
                let mut next = 0;
                for run in plan.runs().take(RUNS) {
                    assert_eq!(run.first, next, "{place:?} of {pages} pages: a gap");
                    assert!(run.pages > 0 && (run.node as usize) < plan.nodes.len(), "{place:?}: {run:?}");
                    next += run.pages;
                }
                assert!(next <= pages, "{place:?} of {pages} pages: beyond the end");
                assert!(plan.nodes.iter().all(|n| NODES.contains(n)), "{place:?}: {:?}", plan.nodes);
            }
        }
    }
}

/// Random files from `seed`: `most` of them, or until `end`.
fn fuzz(seed: u64, most: usize, end: Option<Instant>) {
    let mut random = Random(0x2545_f491_4f6c_dd1d ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut pool = seeds();
    for text in &pool {
        examine(text);
    }
    let (mut valid, mut count) = (0, 0);
    while count < most && end.is_none_or(|end| Instant::now() < end) {
        let fresh = generate::policy(&mut random);
        let text = match random.below(3) {
            0 => fresh,
            1 => generate::mutate(&mut random, &fresh, &pool[count % pool.len()]),
            _ => generate::mutate(&mut random, &pool[count % pool.len()], &fresh),
        };
        match std::panic::catch_unwind(|| examine(&text)) {
            Ok(is_policy) => {
                valid += usize::from(is_policy);
                // A few accepted files are mutated again.
                if is_policy && pool.len() < 200 && random.once_in(50) {
                    pool.push(text);
                }
            }
            Err(why) => {
                let name = corpus().join(format!("failed-{seed}-{count}.toml"));
                std::fs::write(&name, &text).unwrap();
                eprintln!("kept in {}:\n{text}", name.display());
                std::panic::resume_unwind(why);
            }
        }
        count += 1;
    }
    eprintln!("{count} files, {valid} of them policies");
    assert!(valid > count / 10, "only {valid} of {count} are policies: the test says little");
}

#[test]
fn fuzz_policy_files() {
    fuzz(1, FILES, None);
}

/// `NUMAMMA_FUZZ_SECONDS` and `NUMAMMA_FUZZ_SEED` set the duration and the seed.
#[test]
#[ignore = "long: make test-long"]
fn fuzz_policy_files_for_minutes() {
    let seconds = variable("NUMAMMA_FUZZ_SECONDS").unwrap_or(LONG_SECONDS);
    let end = Instant::now() + Duration::from_secs(seconds);
    fuzz(variable("NUMAMMA_FUZZ_SEED").unwrap_or(2), usize::MAX, Some(end));
}
