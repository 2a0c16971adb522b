//! `numamma fixes` on programs whose findings are known, and on ones that have none.

use serde_json::Value;

use crate::common::{Scratch, compile, numamma, root, run};

/// Modes of findings.c, and the kinds of fixes for each. Threads that are bound need no place to change.
const FINDINGS: [(&str, &[&str]); 8] = [
    ("first", &["parallel-first-touch", "bind-threads"]),
    ("own", &[]),
    ("read", &["interleave", "duplicate", "huge-pages"]),
    ("uneven", &["balance"]),
    ("stages", &["thread-counts"]),
    ("ending", &[]),
    ("counters", &["pad"]),
    ("apart", &[]),
];

/// Whether the kernel gives huge pages unasked, so that there is nothing to ask for.
fn has_huge_pages() -> bool {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    setting.contains("[always]")
}

/// Line of `text` in findings.c.
fn line(text: &str) -> u64 {
    let source = std::fs::read_to_string(root().join("tests/cli/fixes/findings.c")).expect("a source of the tests");
    1 + source.lines().position(|l| l.contains(text)).unwrap_or_else(|| panic!("no {text}")) as u64
}

fn fixes(dir: &Scratch, mode: &str, more: &[&str]) -> String {
    let ran = run(numamma(&["fixes", "--nodes", "4"]).args(more).arg(format!("{mode}.prof")).current_dir(dir));
    ran.success().stdout
}

#[test]
fn known_findings_are_found_and_no_others() {
    let dir = Scratch::new("fixes");
    compile("cc", "cli/fixes/findings.c", dir.join("findings"), &["-O1", "-g", "-pthread"]);
    for (mode, wanted) in FINDINGS {
        let is_wanted = |kind: &&&str| **kind != "huge-pages" || !has_huge_pages();
        let wanted: Vec<&str> = wanted.iter().filter(is_wanted).copied().collect();
        let found = recorded_until(&dir, mode, &wanted);
        let text = fixes(&dir, mode, &[]);
        assert!(wanted.iter().all(|kind| text.contains(kind)), "{text}");
        assert_eq!(text.contains("Nothing to change"), wanted.is_empty(), "{text}");
        found.as_array().expect("a list").iter().for_each(|fix| check_gain(fix, &text));
    }
    let found: Value = serde_json::from_str(&fixes(&dir, "first", &["--json"])).expect("JSON");
    let places = found[0]["places"].as_array().expect("places");
    let at = |role: &str| places.iter().find(|p| p["role"] == role).unwrap_or_else(|| panic!("no {role}: {found:#}"));
    assert_eq!(
        (&at("allocation")["line"], &at("allocation")["function"]),
        (&line("grid = malloc").into(), &"main".into())
    );
    assert_eq!(
        (&at("use")["function"], &at("use")["line"]),
        (&"sweep".into(), &line("sum += ++from").into()),
        "{found:#}"
    );
    assert_eq!(at("initialisation")["function"], "fill", "{found:#}");
    assert!(found[0]["saves"].as_f64() > Some(0.02) && found[0]["by_policy"] == true, "{found:#}");
    check_sarif(&serde_json::from_str(&fixes(&dir, "first", &["--sarif"])).expect("JSON"));
    the_only_change_gains_what_the_policy_is_predicted_to(&dir, &found[0]["gain"]);
}

/// The fixes of a run. Other work on the machine changes how long threads run and wait: up to three runs are recorded
/// until they are those that are wanted.
fn recorded_until(dir: &Scratch, mode: &str, wanted: &[&str]) -> Value {
    let prof = format!("{mode}.prof");
    for run_number in 1.. {
        let record = ["profile", "-q", "-F", "1000", "-o", &prof, "--", "./findings", mode];
        run(numamma(&record).current_dir(dir)).success();
        let found: Value = serde_json::from_str(&fixes(dir, mode, &["--json"])).expect("JSON");
        let kinds: Vec<&str> = found.as_array().expect("a list").iter().filter_map(|f| f["kind"].as_str()).collect();
        // Threads that wait for a cache line get on at different speeds.
        let kinds: Vec<&str> = kinds.into_iter().filter(|kind| mode != "counters" || *kind != "balance").collect();
        // The loop that touches the memory first takes a few samples, or none.
        let is_seen = mode != "first" || found.to_string().contains("\"initialisation\"");
        if kinds == wanted && is_seen {
            return found;
        }
        eprintln!("{mode}, run {run_number}: {kinds:?} instead of {wanted:?}");
        assert!(run_number < 3, "{mode}: {found:#}");
    }
    unreachable!("the loop ends by itself")
}

/// Modes of frees.c, whether the frees of its blocks are all by another thread or none, and whether that is to change.
/// `resized` frees none of the first blocks, and the others where they were allocated.
const FREES: [(&str, bool, bool); 4] =
    [("other", true, true), ("own", false, false), ("resized", false, false), ("large", true, false)];

#[test]
fn blocks_that_other_threads_free_are_found_and_no_others() {
    let dir = Scratch::new("frees");
    compile("cc", "cli/fixes/frees.c", dir.join("frees"), &["-O1", "-g", "-pthread"]);
    for (mode, by_others, is_found) in FREES {
        let prof = format!("{mode}.prof");
        let record = ["profile", "-q", "-F", "1000", "-o", &prof, "--", "./frees", mode];
        run(numamma(&record).current_dir(&dir)).success();
        let report = run(numamma(&["report", "--json", &prof]).current_dir(&dir)).success().stdout;
        let report: Value = serde_json::from_str(&report).expect("JSON");
        let objects = report["objects"].as_array().expect("objects");
        // Blocks that realloc makes are of another call site; those before them are used too little to be seen each
        // time.
        let maker = if mode == "resized" { "use frees.c" } else { "make frees.c" };
        let made_by = |maker: &str| objects.iter().find(|o| o["name"].to_string().contains(maker));
        let object = made_by(maker).unwrap_or_else(|| panic!("{mode}: {:#}", report["objects"]));
        let counts =
            |object: &Value| ["frees", "frees_by_others"].map(|field| object[field].as_u64().expect("a count"));
        let [all, others] = counts(object);
        // Of 300,000 blocks, or 1,000 large ones: how many events are lost depends on the machine.
        assert!(all >= if mode == "large" { 100 } else { 30_000 }, "{mode}: {object:#}");
        assert_eq!(others, if by_others { all } else { 0 }, "{mode}: {object:#}");
        let before = made_by("make frees.c").filter(|_| mode == "resized");
        assert!(before.is_none_or(|before| counts(before) == [0, 0]), "{before:#?}");
        let found: Value = serde_json::from_str(&fixes(&dir, mode, &["--json"])).expect("JSON");
        let fix = found.as_array().expect("a list").iter().find(|fix| fix["kind"] == "local-free");
        assert_eq!(fix.is_some(), is_found, "{mode}: {found:#}");
        let Some(fix) = fix else { continue };
        let why = fix["why"].as_str().expect("words");
        assert!(why.starts_with(&format!("{all} of {all} frees (100 %) are by another thread")), "{fix:#}");
        let source = std::fs::read_to_string(root().join("tests/cli/fixes/frees.c")).expect("a source of the tests");
        let line = 1 + source.lines().position(|l| l.contains("the call site")).expect("the line");
        assert_eq!(
            (&fix["places"][0]["role"], &fix["places"][0]["line"]),
            (&"allocation".into(), &line.into()),
            "{fix:#}"
        );
    }
}

/// A placement has a speed-up within its range; other changes say in words what is known, and `saves` is the same as
/// the speed-up.
fn check_gain(fix: &Value, text: &str) {
    let (gain, kind) = (&fix["gain"], fix["kind"].as_str().expect("a kind"));
    let is_priced = ["parallel-first-touch", "interleave"].contains(&kind);
    assert_eq!(gain["speedup"].is_number(), is_priced, "{fix:#}");
    assert_eq!(gain["note"] == "", is_priced, "{fix:#}");
    if kind == "huge-pages" {
        let [low, high] = ["low", "high"].map(|end| gain[end].as_f64().expect("an end of the range"));
        assert!(low == 1.0 && high > 1.0 && high <= 2.0, "{fix:#}");
        return;
    }
    let Some(speedup) = gain["speedup"].as_f64() else {
        assert!(gain["low"].is_null() && gain["high"].is_null() && fix["saves"].is_null(), "{fix:#}");
        return;
    };
    let [low, high] = ["low", "high"].map(|end| gain[end].as_f64().expect("an end of the range"));
    assert!(low < high && low <= speedup && speedup <= high, "{fix:#}");
    assert!(text.contains(&format!("expected {speedup:.2}x ({low:.2} to {high:.2}) on numa:4")), "{gain} {text}");
    assert!((fix["saves"].as_f64().expect("a share") - (1.0 - 1.0 / speedup)).abs() < 1e-9, "{fix:#}");
}

/// A policy with the rules of one object is all of the advised policy here.
fn the_only_change_gains_what_the_policy_is_predicted_to(dir: &Scratch, gain: &Value) {
    let ran = run(numamma(&["predict", "--nodes", "4", "--json", "first.prof"]).current_dir(dir));
    let predicted: Value = serde_json::from_str(&ran.success().stdout).expect("JSON");
    let advised = predicted["policies"].as_array().expect("policies").iter().find(|p| p["name"] == "advised");
    let advised = advised.expect("an advised policy");
    ["speedup", "low", "high"].iter().for_each(|field| assert_eq!(gain[*field], advised[*field], "{field}: {gain}"));
}

/// What readers of SARIF need: a rule for each result, and a line in a file that a URI names.
fn check_sarif(log: &Value) {
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().expect("rules");
    let results = run["results"].as_array().expect("results");
    assert_eq!(results.len(), 2, "{log:#}");
    for result in results {
        let index = result["ruleIndex"].as_u64().expect("a number") as usize;
        assert_eq!(rules[index]["id"], result["ruleId"], "{result:#}");
        assert!(result["message"]["text"].as_str().is_some_and(|text| text.contains("Gain: ")), "{result:#}");
        assert!(result["properties"]["gain"].is_object(), "{result:#}");
    }
    let at = &results[0]["locations"][0]["physicalLocation"];
    assert_eq!(at["region"]["startLine"], line("grid = malloc"), "{log:#}");
    assert!(at["artifactLocation"]["uri"].as_str().is_some_and(|uri| uri.ends_with("findings.c")), "{log:#}");
    assert!(results[0]["relatedLocations"].as_array().is_some_and(|all| all.len() == 2), "{log:#}");
}
