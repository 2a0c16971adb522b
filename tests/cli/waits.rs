//! Waits of threads, the thread-migration score and the work of kinds, on programs that fix how often they wait.

use serde_json::Value;

use crate::common::{Scratch, alone, compile, numamma, run};

/// Rounds of waits.c.
const ROUNDS: f64 = 4_000.0;
/// Rounds of those that take turns, of some microseconds each: so many that some look finds one waiting.
const TURNS: &str = "100000";
/// Waits of the loader, of the ends of threads and for pages that a program may have beyond its own.
const FEW: f64 = 200.0;

/// The report of a run of `./program` with `arguments`.
fn profile(dir: &Scratch, program: &[&str], environment: &[(&str, &str)]) -> Value {
    let mut command = numamma(&["profile", "-q", "-F", "1000", "-o", "p.prof", "--"]);
    run(command.args(program).envs(environment.iter().copied()).current_dir(dir)).success();
    let report = run(numamma(&["report", "--json", "p.prof"]).current_dir(dir)).success().stdout;
    serde_json::from_str(&report).expect("JSON")
}

/// Kinds of the fixes for the last run, and the words of the first of that kind.
fn fix(dir: &Scratch, kind: &str) -> Option<String> {
    let list = run(numamma(&["fixes", "--nodes", "4", "--json", "p.prof"]).current_dir(dir)).success().stdout;
    let list: Value = serde_json::from_str(&list).expect("JSON");
    let found = list.as_array().expect("a list").iter().find(|fix| fix["kind"] == kind)?;
    Some(format!("{}. {}", found["what"].as_str().expect("words"), found["why"].as_str().expect("words")))
}

fn real(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

fn sum(report: &Value, field: &str) -> f64 {
    report["threads"].as_array().expect("threads").iter().filter_map(|t| t[field].as_f64()).sum()
}

fn compiled() -> Scratch {
    let dir = Scratch::new("waits");
    compile("cc", "cli/waits/waits.c", dir.join("waits"), &["-O1", "-g", "-pthread"]);
    dir
}

/// A lock and a barrier are waited for once in each round, and a program that takes turns waits at least as often. A
/// thread that is let through in the instant in which it goes to sleep does not wait.
#[test]
fn waits_are_counted_one_by_one() {
    let (_alone, dir) = (alone(), compiled());
    for (mode, rounds) in [("lock", "4000"), ("barrier", "4000"), ("condition", TURNS)] {
        let report = profile(&dir, &["./waits", mode, rounds], &[]);
        let waits = sum(&report, "waits");
        let most = if mode == "condition" { f64::INFINITY } else { ROUNDS + FEW };
        assert!((0.9 * ROUNDS..most).contains(&waits), "{mode}: {waits} {:#}", report["threads"]);
        // Main sleeps for nothing else here.
        assert!(sum(&report, "waits_for_threads") > 0.9 * waits, "{mode}: {:#}", report["threads"]);
        let score = real(&report["migration"]["score"]);
        assert!(score > real(&report["migration"]["threshold"]), "{mode}: {:#}", report["migration"]);
        let words = fix(&dir, "bind-threads").unwrap_or_else(|| panic!("{mode}: no finding"));
        assert!(words.contains(&format!("score {score:.0}")) && words.contains("numactl"), "{words}");
        let text = run(numamma(&["report", "p.prof"]).current_dir(&dir)).success().stdout;
        assert!(text.contains(&format!("migration score {score:.0}: ")) && text.contains("; above 150"), "{text}");
    }
}

/// A thread that waits for a lock beside one that sleeps for a time in each round.
#[test]
fn waits_for_threads_are_told_from_others() {
    let (_alone, dir) = (alone(), compiled());
    let report = profile(&dir, &["./waits", "both", "500"], &[]);
    let waits = sum(&report, "waits");
    assert!((900.0..1000.0 + FEW).contains(&waits), "{:#}", report["threads"]);
    let of = |n: usize| real(&report["threads"][n]["waits_for_threads"]) / real(&report["threads"][n]["waits"]);
    assert!(of(0) < 0.2 && of(1) > 0.8, "{:#}", report["threads"]);
    assert!(real(&report["threads"][1]["blocked_s"]) > 0.0);
}

#[test]
fn threads_that_do_not_wait_for_each_other_are_not_reported() {
    let (_alone, dir) = (alone(), compiled());
    for (mode, rounds, waits_are_many) in
        [("own", "5000", false), ("sleep", "5000", true), ("read", "5000", true), ("bound", TURNS, true)]
    {
        let report = profile(&dir, &["./waits", mode, rounds], &[]);
        assert_eq!(fix(&dir, "bind-threads"), None, "{mode}: {:#} {:#}", report["migration"], report["threads"]);
        assert_eq!(sum(&report, "waits") > 1000.0, waits_are_many, "{mode}: {:#}", report["threads"]);
        // Null where no look found a thread waiting.
        let bound = report["migration"]["bound_share"].as_f64().unwrap_or(0.0);
        assert_eq!(bound > 0.9, mode == "bound", "{mode}: {:#}", report["threads"]);
    }
}

/// libgomp calls futex(2) itself: no function of the C library that waits is called.
#[test]
fn barriers_of_openmp_are_counted() {
    let (_alone, dir) = (alone(), Scratch::new("team"));
    compile("cc", "cli/waits/team.c", dir.join("team"), &["-O1", "-g", "-fopenmp"]);
    let passive = || profile(&dir, &["./team", TURNS], &[("OMP_WAIT_POLICY", "passive")]);
    let report = one_of_three(passive, |report| {
        sum(report, "waits_for_threads") > 5000.0 && fix(&dir, "bind-threads").is_some()
    });
    assert!(sum(&report, "waits_for_threads") > 5000.0, "{:#}", report["threads"]);
    let words = fix(&dir, "bind-threads").expect("a finding");
    assert!(words.contains("OMP_PROC_BIND=spread OMP_PLACES=cores"), "{words}");
    // Bound as the fix says, on a machine where places are single cores.
    let report = profile(
        &dir,
        &["./team", TURNS],
        &[("OMP_WAIT_POLICY", "passive"), ("OMP_PROC_BIND", "true"), ("OMP_PLACES", "threads")],
    );
    assert!(real(&report["migration"]["bound_share"]) > 0.9, "{:#}", report["threads"]);
    assert_eq!(fix(&dir, "bind-threads"), None);
}

/// The first of three reports that is as wanted, or the last: who waits when it is looked at depends on what else runs.
fn one_of_three(report: impl Fn() -> Value, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let mut last = report();
    for _ in 1..3 {
        if is_wanted(&last) {
            break;
        }
        last = report();
    }
    last
}

/// With two threads for each CPU the runtime does not spin at barriers, whatever the program does.
#[test]
fn waits_of_openmp_teams_with_more_threads_than_cpus_are_not_judged() {
    let (_alone, dir) = (alone(), Scratch::new("crowd"));
    compile("cc", "cli/waits/team.c", dir.join("team"), &["-O1", "-g", "-fopenmp"]);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let crowded = |report: &Value| real(&report["migration"]["crowded_share"]) > 0.9;
    let report = one_of_three(
        || profile(&dir, &["./team", TURNS, &(2 * cpus).to_string()], &[]),
        |report| crowded(report) && real(&report["migration"]["score"]) > real(&report["migration"]["threshold"]),
    );
    assert!(real(&report["migration"]["score"]) > real(&report["migration"]["threshold"]), "{:#}", report["threads"]);
    assert!(real(&report["migration"]["crowded_share"]) > 0.9, "{:#}", report["migration"]);
    assert_eq!(fix(&dir, "bind-threads"), None);
    let text = run(numamma(&["fixes", "--nodes", "4", "p.prof"]).current_dir(&dir)).success().stdout;
    assert!(text.contains("could not be judged"), "{text}");
}

/// The numbers of threads that are proposed, by the function that they run.
fn kinds(report: &Value) -> Vec<(String, u64, u64)> {
    let row = |k: &Value| {
        let name = k["name"].as_str().expect("a name").split(' ').next().unwrap_or_default().to_owned();
        (name, k["threads"].as_u64().expect("a number"), k["proposed_threads"].as_u64().expect("a number"))
    };
    report["kinds"].as_array().expect("kinds").iter().map(row).collect()
}

#[test]
fn threads_are_proposed_for_the_stages_with_most_work() {
    let (_alone, dir) = (alone(), Scratch::new("stages"));
    compile("cc", "cli/waits/stages.c", dir.join("stages"), &["-O1", "-g", "-pthread"]);
    for (mode, light, heavy) in
        [("ferret", ["segment", "vectorize"], ["extract", "rank"]), ("dedup", ["segment", "extract"], ["vectorize"; 2])]
    {
        let has = |report: &Value, name: &str, fits: &dyn Fn(u64) -> bool| {
            kinds(report).iter().any(|k| k.0 == name && fits(k.2))
        };
        let report = one_of_three(
            || profile(&dir, &["./stages", mode], &[]),
            |report| {
                light.iter().all(|name| has(report, name, &|n| n < 3))
                    && heavy.iter().all(|name| has(report, name, &|n| n > 3))
            },
        );
        let kinds = kinds(&report);
        let of = |name: &str| kinds.iter().find(|k| k.0 == name).unwrap_or_else(|| panic!("{mode}: {kinds:?}"));
        let totals = kinds.iter().fold((0, 0), |(now, then), k| (now + k.1, then + k.2));
        assert_eq!(totals.0, totals.1, "{mode}: {kinds:?}");
        // Of a stage with little work a busy machine may show two threads of the three.
        assert!(light.iter().all(|name| (2..=3).contains(&of(name).1) && of(name).2 < 3), "{mode}: {kinds:?}");
        assert!(heavy.iter().all(|name| of(name).2 > 3), "{mode}: {kinds:?}");
        let words = fix(&dir, "thread-counts").unwrap_or_else(|| panic!("{mode}: no finding"));
        assert!(heavy.iter().all(|name| words.contains(&format!("{} {name}", of(name).2))), "{words}");
        let text = run(numamma(&["report", "p.prof"]).current_dir(&dir)).success().stdout;
        assert!(text.contains("Threads by kind") && text.contains("better"), "{text}");
    }
    for mode in ["even", "phases", "sleepy", "alone"] {
        let report = profile(&dir, &["./stages", mode], &[]);
        assert_eq!(fix(&dir, "thread-counts"), None, "{mode}: {:#}", report["kinds"]);
    }
}
