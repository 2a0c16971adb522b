//! Several profiles as one answer, as a user gets it: the ranks of an MPI job, and several runs of one program.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::common::{NUMAMMA, Ran, Scratch, alone, compile, needs, numamma, plain, preload, run, run_within};

fn report(dir: &Path, args: &[&str]) -> Ran {
    run(numamma(&["report"]).current_dir(dir).args(args).env("COLUMNS", "120").env("NO_COLOR", "1"))
}

fn json(dir: &Path, args: &[&str]) -> Value {
    report(dir, &[&["--json"], args].concat()).success().json()
}

fn object<'a>(report: &'a Value, name: &str) -> &'a Value {
    let all = report["objects"].as_array().expect("objects");
    let found = all.iter().find(|o| o["name"].as_str().is_some_and(|n| n.contains(name)));
    found.unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

/// Three ranks, the first of which uses a table that the others leave alone.
#[test]
fn a_rank_that_differs_is_named_and_has_its_own_advice() {
    if !needs(&["mpirun", "mpicc"], "MPI") {
        return;
    }
    let _alone = alone();
    let dir = Scratch::new("many-ranks");
    let flags = ["-O1", "-g", "-pthread", "-DMPI"];
    let program = compile("mpicc", "cli/many/ranks.c", dir.join("ranks"), &flags);
    let mut c = plain("mpirun");
    c.current_dir(&*dir).env("NUMAMMA_LIB", preload("apply").parent().unwrap());
    c.args(["--allow-run-as-root", "--oversubscribe", "-n", "3", NUMAMMA, "profile", "-q", "-F", "1000", "--"]);
    run(c.arg(&program).arg("1.0")).success();
    let all = json(&dir, &["--by", "rank", "."]);
    let profiles = all["profiles"].as_array().expect("profiles");
    assert_eq!(profiles.iter().map(|p| p["rank"].clone()).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(object(&all, "make_grid")["pattern"]["kind"], "block", "{all:#}");
    let outliers = all["outliers"].as_array().expect("outliers");
    let table = outliers.iter().find(|o| o["object"].as_str().is_some_and(|n| n.contains("make_table")));
    let table = table.unwrap_or_else(|| panic!("rank 0 differs: {outliers:#?}"));
    assert_eq!((&table["rank"], &table["differs_in"]), (&0.into(), &"share".into()), "{table}");
    assert!(outliers.iter().all(|o| o["rank"] == 0), "{outliers:#?}");
    let rows = &all["by_rank"].as_array().expect("rows")[0]["rows"];
    assert_eq!(rows.as_array().map(Vec::len), Some(3), "{rows}");
    let text = report(&dir, &["."]).success().stdout;
    assert!(text.contains("3 ranks on") && text.contains("rank 0"), "{text}");
    let table = report(&dir, &["--object", "make_table", "."]).success().stdout;
    assert!(table.contains("  profiles    3 ranks on") && table.contains("  differs     rank 0: "), "{table}");
    // One policy, which speaks of the table in rank 0 only. Whether threads wait for it long enough for a rule depends
    // on the machine; so it does for the grid, which they sweep.
    let advise = ["advise", "-q", "--nodes", "4", "-o", "policy.toml", "."];
    run(numamma(&advise).current_dir(&*dir)).success();
    let text = std::fs::read_to_string(dir.join("policy.toml")).unwrap();
    let policy = numamma_plan::check::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let rules = |function: &str| {
        let of = |f: &Option<Vec<String>>| f.iter().flatten().any(|f| f == function);
        policy.objects.iter().filter(|r| of(&r.function)).map(|r| r.ranks.clone()).collect::<Vec<_>>()
    };
    assert!(rules("make_table").iter().all(|ranks| ranks.as_deref() == Some("0")), "{text}");
    assert!(text.contains("make_table ranks.c:28 (ranks 0)") && text.contains("make_grid"), "{text}");
    // The prices of both groups.
    let predict = ["predict", "-q", "--json", "--nodes", "4", "--policy", "policy.toml", "."];
    let prices = run(numamma(&predict).current_dir(&*dir)).success().json();
    assert_eq!(prices["groups"].as_array().map(Vec::len), Some(2), "{prices:#}");
}

/// Each run alone has few samples; together they are one profile with all of them.
#[test]
fn three_runs_are_one_profile_with_all_their_samples() {
    let _alone = alone();
    let dir = Scratch::new("many-runs");
    let program = compile("gcc", "cli/many/ranks.c", dir.join("app"), &["-O1", "-g", "-pthread"]);
    let files = ["a.prof", "b.prof", "c.prof"];
    for file in files {
        let mut c = numamma(&["profile", "-q", "-F", "200", "-o", file, "--"]);
        run(c.current_dir(&*dir).arg(&program).arg("0.3")).success();
    }
    let one: Vec<Value> = files.iter().map(|f| json(&dir, &[f])).collect();
    let all = json(&dir, &files);
    let samples = |r: &Value| r["samples"]["total"].as_u64().expect("samples");
    assert_eq!(samples(&all), one.iter().map(samples).sum::<u64>());
    assert_eq!(all["profiles"].as_array().map(Vec::len), Some(3));
    let (grid, pattern) = (object(&all, "make_grid"), &object(&all, "make_grid")["pattern"]);
    assert_eq!((&pattern["kind"], &grid["instances"]), (&"block".into(), &1.into()), "{grid:#}");
    let workers = |r: &Value| r["threads"].as_array().unwrap().iter().filter(|t| t["works"] == true).count();
    assert_eq!((workers(&all), all["threads"].as_array().map(Vec::len)), (2, Some(3)), "{}", all["threads"]);
    let used = |r: &Value| object(r, "make_grid")["pattern"]["figures"]["samples"].as_f64();
    if let Some(most) = one.iter().filter_map(used).max_by(f64::total_cmp) {
        assert!(used(&all).is_some_and(|n| n > most), "{all:#} {most}");
    }
    let sure = |r: &Value| match &object(r, "make_grid")["pattern"] {
        p if p["kind"] == "block" => p["confidence"].as_f64().unwrap(),
        _ => 0.0,
    };
    let mean = one.iter().map(sure).sum::<f64>() / 3.0;
    assert!(sure(&all) >= mean - 0.01, "{} from {:?}", sure(&all), one.iter().map(sure).collect::<Vec<_>>());
    // A file of another program, a broken one and a missing one do not stop the rest.
    std::fs::write(dir.join("broken.prof"), "no profile").unwrap();
    let out = report(&dir, &[&files[..], &["broken.prof", "missing.prof", "--json"]].concat());
    assert_eq!(out.code(), Some(1), "{}", out.stderr);
    assert_eq!(samples(&serde_json::from_str(&out.stdout).expect("the report")), samples(&all));
    assert_eq!(out.stderr.lines().filter(|l| l.contains("left out")).count(), 2, "{}", out.stderr);
    let nothing = report(&dir, &["broken.prof", "missing.prof"]);
    assert_eq!((nothing.code(), nothing.stdout.as_str()), (Some(2), ""), "{}", nothing.stderr);
    // By thread, of one profile as well.
    let by = json(&dir, &["--by", "thread", "a.prof"]);
    assert!(by["by_thread"][0]["rows"].as_array().is_some_and(|r| r.len() >= 2), "{by:#}");
}

/// A pipe is none of the profiles of a directory, and one that is named is refused: nothing waits for its writer.
#[test]
fn a_pipe_is_no_profile() {
    let dir = Scratch::new("many-pipe");
    run(numamma(&["profile", "-q", "-o", "a.prof", "--", "true"]).current_dir(&*dir)).success();
    run(Command::new("mkfifo").arg(dir.join("z.prof"))).success();
    let soon = |args: &[&str]| {
        let logs = Scratch::new("many-pipe-logs");
        run_within(numamma(args).current_dir(&*dir), Duration::from_secs(60), &logs).unwrap_or_else(|e| panic!("{e}"))
    };
    for command in ["report", "advise"] {
        // The program has no samples to advise on.
        let out = soon(&[command, "."]).ended(if command == "advise" { 2 } else { 0 });
        assert!(!out.stderr.contains("z.prof"), "{}", out.stderr);
        let out = soon(&[command, "z.prof"]).ended(2);
        assert!(out.stderr.contains("z.prof: not a regular file"), "{}", out.stderr);
    }
    let out = soon(&["report", "a.prof", "z.prof"]).ended(1);
    assert!(out.stderr.contains("z.prof") && out.stderr.contains("left out"), "{}", out.stderr);
    // A link counts as the file. One that leads nowhere is said.
    symlink("a.prof", dir.join("b.prof")).expect("a link");
    symlink("nowhere", dir.join("c.prof")).expect("a link");
    let out = soon(&["report", "."]).ended(1);
    assert!(out.stderr.contains("c.prof: no such profile"), "{}", out.stderr);
    // The stdin of a shell: a file can be read again, a pipe cannot.
    let shell = |line: &str| {
        let line = line.replace("numamma", NUMAMMA);
        run(Command::new("sh").args(["-c", &line]).current_dir(&*dir))
    };
    shell("numamma report /dev/stdin < a.prof").success();
    let out = shell("cat a.prof | numamma report /dev/stdin").ended(2);
    assert!(out.stderr.contains("/dev/stdin: not a regular file") && out.stderr.contains("write it to a file"));
}

/// Runs without ranks that differ cannot be told apart by a rule: most of them have the say, and the other is named.
#[test]
fn a_run_that_differs_is_named_and_the_advice_is_for_the_others() {
    let _alone = alone();
    let dir = Scratch::new("many-other-run");
    let program = compile("gcc", "cli/many/ranks.c", dir.join("app"), &["-O1", "-g", "-pthread"]);
    for (file, rank) in [("a.prof", "1"), ("b.prof", "1"), ("c.prof", "0")] {
        let mut c = numamma(&["profile", "-q", "-F", "1000", "-o", file, "--"]);
        run(c.current_dir(&*dir).arg(&program).args(["0.5", rank])).success();
    }
    let out = run(numamma(&["advise", "--nodes", "4", "a.prof", "b.prof", "c.prof"]).current_dir(&*dir));
    let policy = numamma_plan::check::parse(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", out.stdout));
    assert!(policy.objects.iter().all(|rule| rule.ranks.is_none()), "{policy:#?}");
    assert!(
        out.stdout.contains("make_table ranks.c:28 (c.prof)") && out.stdout.contains("make_grid"),
        "{}",
        out.stdout
    );
    assert!(out.stderr.contains("otherwise than most do: c.prof. "), "{}", out.stderr);
    let all = json(&dir, &["a.prof", "b.prof", "c.prof"]);
    let outliers = all["outliers"].as_array().expect("outliers");
    assert!(outliers.iter().any(|o| o["profile"] == "c.prof" && o["differs_in"] == "share"), "{outliers:#?}");
    let notes = all["notes"].to_string();
    assert!(notes.contains("2 different lists of arguments"), "{notes}");
}
