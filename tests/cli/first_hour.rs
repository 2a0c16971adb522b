//! What a newcomer types in the first hour, beside the plain path of the README: wrappers, terminals of 60 columns, other
//! programs than the policy's, the help behind the words.

use crate::common::{Policy, Ran, Scratch, compile, numamma, run};
use crate::synthetic;

/// objects.c, a policy for a variable of it and a script that starts it.
fn objects(name: &str) -> Scratch {
    let dir = Scratch::new(&format!("first-hour-{name}"));
    compile("cc", "preloads/apply/objects.c", dir.join("objects"), &["-O2", "-g"]);
    Policy::of("objects").rule("global = \"zeroes\"", "policy = \"interleave\"").write(&dir, "p.toml");
    dir.write_mode("start.sh", "#!/bin/sh\n./objects exit\n./objects exit\ntrue\n", 0o755);
    dir
}

fn typed(dir: &Scratch, args: &[&str]) -> Ran {
    run(numamma(args).current_dir(dir))
}

#[test]
fn verify_finds_the_program_behind_a_script() {
    let dir = objects("script");
    let out = typed(&dir, &["verify", "-p", "p.toml", "--json", "--", "./start.sh"]).success();
    assert!(!out.stderr.contains("the policy is for"), "a script is no mistake: {}", out.stderr);
    assert!(out.stderr.contains("on plan"), "{}", out.stderr);
    let json: serde_json::Value = serde_json::from_str(&out.stdout[out.stdout.find('{').unwrap()..]).unwrap();
    assert_eq!((&json["processes"], &json["objects"][0]["instances"]), (&2.into(), &2.into()), "{json}");
}

#[test]
fn a_policy_for_another_program_is_named() {
    let dir = objects("other");
    std::fs::copy("/bin/true", dir.join("heat")).expect("the scratch directory is writable");
    let other = typed(&dir, &["verify", "-p", "p.toml", "--", "./heat"]).ended(1).stderr;
    assert!(other.contains("./heat is not the policy's program (objects)"), "{other}");
    let idle = typed(&dir, &["verify", "-p", "p.toml", "--", "sh", "-c", "true"]).ended(1).stderr;
    assert!(idle.contains("start a program named objects"), "{idle}");
}

#[test]
fn a_policy_that_places_nothing_is_said() {
    let dir = objects("nothing");
    Policy::new().write(&dir, "none.toml");
    let said = typed(&dir, &["run", "-p", "none.toml", "--", "./objects", "exit"]).success().stderr;
    assert!(said.contains("none.toml places no object"), "{said}");
    let said = typed(&dir, &["run", "-p", "p.toml", "--", "./objects", "exit"]).success().stderr;
    assert!(!said.contains("places no object"), "{said}");
}

#[test]
fn tables_fit_a_terminal_of_60_columns() {
    let dir = objects("narrow");
    for args in [&["doctor"][..], &["verify", "-p", "p.toml", "--", "./objects", "exit"]] {
        let out = run(numamma(args).current_dir(&dir).env("COLUMNS", "60"));
        let text = if args[0] == "doctor" { &out.stdout } else { &out.stderr };
        // Commands and paths are for copying.
        let prose = text.lines().filter(|line| !line.contains('/') && !line.contains("enable:"));
        let wide: Vec<&str> = prose.filter(|line| line.chars().count() > 60).collect();
        assert!(wide.is_empty(), "{args:?}: {wide:?}");
    }
    let out =
        run(numamma(&["verify", "-p", "p.toml", "--", "./objects", "exit"]).current_dir(&dir).env("COLUMNS", "60"));
    assert!(
        out.stderr.contains("zeroes") && out.stderr.contains("on plan") && out.stderr.contains("hidden: "),
        "{}",
        out.stderr
    );
}

#[test]
fn the_help_explains_every_column() {
    let dir = objects("columns");
    let profile = synthetic::write("first-hour-columns", &synthetic::lu());
    let profile = profile.to_str().unwrap();
    let help = |command: &str| typed(&dir, &[command, "--help"]).success().stdout;
    let report = |columns: &str| {
        run(numamma(&["report", profile, "--nodes", "2"]).current_dir(&dir).env("COLUMNS", columns)).success().stdout
    };
    for (help, table) in [
        (help("report"), report("300")),
        (help("verify"), typed(&dir, &["verify", "-p", "p.toml", "--", "./objects", "exit"]).stderr),
    ] {
        let explained = help.split("Columns").nth(1).expect("a glossary");
        let lines: Vec<&str> = table.lines().collect();
        let rule = |line: &str| line.trim_start().starts_with("-----");
        let heads = lines.windows(2).filter(|two| rule(two[1]) || two[0].starts_with(" object ")).map(|two| two[0]);
        let heads: Vec<&str> = heads.flat_map(|head| head.trim().split("  ")).map(str::trim).collect();
        assert!(heads.len() > 5, "{table}");
        for head in heads.into_iter().filter(|head| !head.is_empty()) {
            assert!(explained.contains(head), "{head} is not explained: {explained}");
        }
    }
}

#[test]
fn a_shortened_name_and_a_number_name_an_object() {
    let dir = Scratch::new("first-hour-names");
    let profile = synthetic::write("first-hour-names", &synthetic::lu());
    let profile = profile.to_str().unwrap();
    let title = |name: &str| {
        let out = typed(&dir, &["report", profile, "--object", name]).success().stdout;
        out.lines().next().unwrap_or_default().to_owned()
    };
    assert!(title("#0").starts_with("cvar_"), "{}", title("#0"));
    assert_eq!(title("exchange_..ge.cpp:41"), title("exchange_"), "as a table of 100 columns shows it");
}

#[test]
fn the_report_can_follow_the_recording() {
    let dir = objects("report");
    let out = typed(&dir, &["profile", "-q", "--report", "--", "./objects", "exit"]).success();
    assert!(out.stdout.contains("Where the samples went") && out.stdout.contains("verdict"), "{}", out.stdout);
}

#[test]
fn runs_that_can_tell_nothing_are_said_first() {
    let dir = objects("few");
    let args =
        ["compare", "-n", "3", "--warmup", "2", "--export-json", "c.json", "-p", "p.toml", "--", "./objects", "exit"];
    let out = typed(&dir, &args).success();
    let at = |words: &str| out.stderr.find(words).unwrap_or_else(|| panic!("{words}: {}", out.stderr));
    assert!(at("3 runs of each policy can never tell") < at("warm-up: first-touch"));
    assert!(at("-n 4 is the least") < at("warm-up: first-touch"));
    assert_eq!(out.stderr.matches("warm-up: ").count(), 4, "{}", out.stderr);
    let json = std::fs::read_to_string(dir.join("c.json")).expect("the exported file");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(json["policies"][1]["mean"].is_f64() && json["policies"][1]["deviation"].is_f64(), "{json}");
    let four = typed(&dir, &["compare", "-n", "4", "-p", "p.toml", "--", "./objects", "exit"]).success().stderr;
    assert!(!four.contains("can never tell"), "{four}");
}
