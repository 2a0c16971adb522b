//! `--include` and `--exclude` of `report` and `advise`: which objects are shown and placed, by their names.

use std::path::Path;

use serde_json::Value;

use crate::common::{Ran, Scratch, compile, numamma, plain, run};

/// A profile of `slices`: the global `sliced`, and a block on the heap from `main` of slices.c.
fn profiled(dir: &Path) {
    let program = compile("gcc", "cli/profile/slices.c", dir.join("slices"), &["-O2", "-g", "-pthread"]);
    run(plain(&program).arg("0.01")).ended(7);
    let mut c = numamma(&["profile", "-q", "-F", "1000", "--", "./slices", "0.8"]);
    run(c.current_dir(dir)).ended(7);
}

fn command(dir: &Path, words: &[&str]) -> Ran {
    run(numamma(words).current_dir(dir)).success()
}

fn names(report: &Value) -> Vec<&str> {
    report["objects"].as_array().unwrap().iter().filter_map(|o| o["name"].as_str()).collect()
}

#[test]
fn objects_are_chosen_by_the_names_of_variables_functions_and_files() {
    let dir = Scratch::new("selection");
    profiled(&dir);
    let shown = |options: &[&str]| command(&dir, &[&["report", "--json"], options].concat());
    let all = shown(&[]).json();
    let (global, heap) =
        ("sliced", names(&all).into_iter().find(|n| n.starts_with("main slices.c:")).expect("a block"));
    assert!(names(&all).contains(&global));
    for (options, expected) in [
        (&["--include", "slic?d"][..], &[global][..]),
        (&["--include", "main"], &[heap]),
        (&["--include", "*slices.c"], &[heap]),
        (&["--include", "sliced", "--include", "main*"], &[global, heap]),
        (&["--include", "s*", "--include", "m*", "--exclude", "sliced"], &[heap]),
    ] {
        let report = shown(options).json();
        let mut got = names(&report);
        got.retain(|name| [global, heap].contains(name));
        got.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(got, expected, "{options:?}");
        // Shares are of the whole run, whatever is shown.
        for object in report["objects"].as_array().unwrap() {
            let same = all["objects"].as_array().unwrap().iter().find(|o| o["name"] == object["name"]).unwrap();
            assert_eq!(object["cost_share"], same["cost_share"]);
        }
    }
    let out = shown(&["--exclude", "slicd", "--exclude", "sliced"]);
    assert!(out.stderr.contains("slicd") && !out.stderr.contains("sliced"), "{}", out.stderr);
    let text = command(&dir, &["report", "--exclude", "sliced"]).stdout;
    assert!(text.contains("not in the table") && text.contains("--exclude"), "{text}");
}

#[test]
fn what_is_left_out_is_not_placed() {
    let dir = Scratch::new("selection-advise");
    profiled(&dir);
    let advised = |options: &[&str]| command(&dir, &[&["advise", "--nodes", "4", "--json"], options].concat()).json();
    let named = |advice: &Value| advice.to_string().contains("\"sliced\"");
    assert!(named(&advised(&[])));
    let without = advised(&["--exclude", "sliced"]);
    assert!(!named(&without) && without.to_string().contains("left out"), "{without}");
    let refused = run(numamma(&["advise", "--static", "./slices", "--exclude", "x"]).current_dir(&dir));
    assert_eq!(refused.code(), Some(2));
}
