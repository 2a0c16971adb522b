//! The documents say what works: every command that README.md, the help and the pages in `FOLLOWED` show is run as it
//! is typed, every policy is parsed, and every option is looked up.
//!
//! In these documents a fenced block without a language holds commands for a shell, or a session whose commands have
//! `$ ` before them. Output has the language `text`.

mod book;
mod desk;
mod markdown;
mod options;
mod typed;

use std::collections::BTreeSet;
use std::path::PathBuf;

use numamma_plan::check;

use crate::common::{beside_others, numamma, root, run};
use crate::synthetic;
use desk::Desk;
use typed::HELP;

/// Documents whose commands are run, and how many lines of each at least: as many as there were when this was written.
const FOLLOWED: [(&str, usize); 9] = [
    ("README.md", 18),
    ("docs/first-hour.md", 8),
    ("docs/policy.md", 4),
    ("docs/mpi.md", 5),
    ("docs/placing.md", 9),
    ("docs/profiling.md", 20),
    ("docs/json.md", 4),
    ("docs/export.md", 9),
    (HELP, 11),
];

/// Subcommands that are run for none of the documents, and the reason.
const NOT_RUN: [(&str, &str); 1] = [("tune", "see `LEFT_OUT`; tests/lab/tune.rs runs it")];

/// Options that stand alone in a code span and belong to another tool.
const OF_OTHERS: [(&str, &str); 6] = [
    ("--bind-to", "mpirun"),
    ("--memory-access-mode", "sysbench"),
    ("--cap-add", "docker"),
    ("--security-opt", "docker"),
    ("--cpuset-cpus", "docker"),
    ("--cpuset-mems", "docker"),
];

/// Options and policies that are found in the documents at least.
const LOOKED_UP: usize = 80;
const POLICIES: usize = 4;

/// Files of the source tree in `folder` with this ending, relative to the root; at least one.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(root().join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let mut found: Vec<PathBuf> = all.map(|entry| entry.expect("an entry").path()).collect();
    found.retain(|path| path.extension().is_some_and(|e| e == ending));
    assert!(!found.is_empty(), "no .{ending} in {folder}");
    found.iter().map(|path| path.strip_prefix(root()).expect("a file of the tree").to_owned()).collect()
}

/// All documents by name: README.md, ARCHITECTURE.md, docs/*.md and the help.
fn documents() -> Vec<String> {
    let files = files("docs", "md").into_iter().map(|path| path.display().to_string());
    ["README.md", "ARCHITECTURE.md", HELP].map(str::to_owned).into_iter().chain(files).collect()
}

/// Runs the commands of a document in its order; what they print.
fn follow(document: &str) -> String {
    let _order = beside_others();
    let desk = Desk::new(&format!("documents-{}", document.trim_matches('-').replace('/', "-")));
    let mut printed = String::new();
    for block in typed::run_lines(document) {
        let lines: Vec<String> = block.iter().map(|line| typed::replaced(line)).collect();
        printed += &desk.run_block(&lines).unwrap_or_else(|failed| panic!("{document}: {failed}"));
    }
    printed
}

#[test]
fn the_commands_of_the_readme_work() {
    follow("README.md");
}

#[test]
fn the_commands_of_the_first_hour_work() {
    let printed = book::marks(&follow("docs/first-hour.md"));
    let blocks = markdown::blocks(&typed::text("docs/first-hour.md")).into_iter().filter(|b| b.language == "text");
    let shown: BTreeSet<String> = blocks.flat_map(|block| book::marks(&block.lines.join("\n"))).collect();
    let gone: Vec<&String> = shown.difference(&printed).collect();
    assert!(shown.len() >= 9 && gone.is_empty(), "of {shown:#?} no command prints {gone:#?}");
}

#[test]
fn the_commands_about_policies_work() {
    follow("docs/policy.md");
}

#[test]
fn the_commands_about_mpi_work() {
    follow("docs/mpi.md");
}

#[test]
fn the_commands_about_placing_work() {
    follow("docs/placing.md");
}

#[test]
fn the_commands_about_profiling_work() {
    follow("docs/profiling.md");
}

#[test]
fn the_commands_of_the_help_work() {
    follow(HELP);
}

#[test]
fn what_is_left_out_is_little() {
    let mut seen = Vec::new();
    for (document, least) in FOLLOWED {
        let lines = typed::run_lines(document).concat();
        assert!(lines.len() >= least, "{document} has fewer commands that are run: {lines:#?}");
        seen.extend(lines);
    }
    let is_run = |name: &str| seen.iter().any(|line| format!("{line} ").contains(&format!("numamma {name} ")));
    let not_run = |name: &str| NOT_RUN.iter().any(|(other, _)| *other == name);
    for name in typed::subcommands() {
        assert_ne!(is_run(&name), not_run(&name), "numamma {name}: in a document, or in NOT_RUN");
    }
    let all: Vec<String> = FOLLOWED.iter().flat_map(|(document, _)| typed::commands(document).concat()).collect();
    assert_eq!(typed::unneeded(&all), [""; 0], "rules that no line needs any more");
}

/// The policy in a block: all of one of that language, and else from the first line like one to the end or `...`.
fn policy(block: markdown::Block) -> Option<String> {
    let begins = |line: &String| line.starts_with("version = ") || line.starts_with('[');
    let start = if block.language == "toml" { 0 } else { block.lines.iter().position(begins)? };
    let lines: Vec<String> = block.lines.into_iter().skip(start).take_while(|line| line != "...").collect();
    let is_whole = lines.iter().any(|line| line.starts_with("version = "));
    Some(format!("{}{}", if is_whole { "" } else { "version = 1\n" }, lines.join("\n")))
}

#[test]
fn policies_are_accepted() {
    let in_documents = documents().into_iter().flat_map(|document| {
        let policies = markdown::blocks(&typed::text(&document)).into_iter().filter_map(policy);
        policies.map(move |policy| (document.clone(), policy))
    });
    let in_documents: Vec<_> = in_documents.collect();
    assert!(in_documents.len() >= POLICIES, "{in_documents:#?}");
    let shipped = files("policies", "toml").into_iter().map(|path| path.display().to_string());
    let shipped = shipped.map(|path| (path.clone(), typed::text(&path)));
    for (document, policy) in in_documents.into_iter().chain(shipped) {
        check::parse(&policy).unwrap_or_else(|e| panic!("{document}: {e} in\n{policy}"));
    }
}

/// Names of fields in `value`, with those of the first element of each list.
fn fields(value: &serde_json::Value, names: &mut BTreeSet<String>) {
    if let Some(list) = value.as_array() {
        list.first().iter().for_each(|first| fields(first, names));
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        names.insert(name.clone());
        // The machine is that of `numamma topology --json`; figures are explained by the evidence.
        if !["nodes", "figures"].contains(&name.as_str()) {
            fields(value, names);
        }
    }
}

#[test]
fn every_field_of_the_report_in_json_is_documented() {
    let profile = synthetic::write("documents-json", &synthetic::lu());
    let report = run(numamma(&["report", "--json", profile.to_str().unwrap()])).success().json();
    let (mut names, text) = (BTreeSet::new(), typed::text("docs/json.md"));
    fields(&report, &mut names);
    let documented: BTreeSet<String> = text.lines().flat_map(markdown::spans).collect();
    let missing: Vec<&String> = names.difference(&documented).collect();
    assert!(names.len() > 60 && missing.is_empty(), "not in docs/json.md: {missing:?}");
}

#[test]
fn every_field_of_a_difference_in_json_is_documented() {
    let profile = synthetic::write("documents-json-diff", &synthetic::lu());
    let profile = profile.to_str().unwrap();
    let condition = "by_others > +5pp";
    let difference = run(numamma(&["diff", "--json", "--fail-if", condition, profile, profile])).success().json();
    let (mut names, text) = (BTreeSet::new(), typed::text("docs/json.md"));
    fields(&difference, &mut names);
    let documented: BTreeSet<String> = text.lines().flat_map(markdown::spans).collect();
    let missing: Vec<&String> = names.difference(&documented).collect();
    assert!(names.len() > 35 && missing.is_empty(), "not in docs/json.md: {missing:?}");
}

#[test]
fn the_commands_about_json_work() {
    follow("docs/json.md");
}

#[test]
fn the_commands_about_exports_work() {
    follow("docs/export.md");
}

#[test]
fn options_exist() {
    let known = options::known();
    let (mut looked_up, mut unknown) = (0, Vec::new());
    for document in documents() {
        let examples = if document == HELP { typed::commands(HELP).concat() } else { Vec::new() };
        let examples = examples.iter().flat_map(|line| options::of_line(line));
        for (subcommand, option) in options::mentioned(&typed::text(&document)).into_iter().chain(examples) {
            let exists = match &subcommand {
                Some(name) => known.get(name).is_some_and(|options| options.contains(&option)),
                None => known.values().any(|o| o.contains(&option)) || OF_OTHERS.iter().any(|(o, _)| *o == option),
            };
            looked_up += 1;
            if !exists {
                unknown.push(format!("{document}: numamma {} {option}", subcommand.as_deref().unwrap_or("...")));
            }
        }
    }
    assert_eq!(unknown, [""; 0], "options that no help lists");
    assert!(looked_up >= LOOKED_UP, "only {looked_up} options were found in the documents");
}
