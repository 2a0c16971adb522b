//! The checker on small trees of sources, to show that it fails when it must.

use crate::imports::{Tree, imports};
use crate::rules::{Broken, Room, check, compare_table};

const ROOMS: &[Room] = &[
    Room { name: "plan", folder: "crates/plan/src", knows: &[] },
    Room { name: "low", folder: "src/low", knows: &[] },
    Room { name: "high", folder: "src/high", knows: &["low", "plan"] },
    Room { name: "main", folder: "src/", knows: &["high"] },
];

/// A tree that keeps every rule, with `more` files added or replaced.
fn tree(more: &[(&str, &str)]) -> Tree {
    let kept = [
        ("crates/plan/src/lib.rs", "pub mod nodes;"),
        ("crates/plan/src/nodes.rs", "pub fn nodes() {}"),
        ("src/lib.rs", "pub mod high; pub mod low;"),
        ("src/main.rs", "fn main() { numamma::high::start() }"),
        (
            "src/high/mod.rs",
            "use crate::low::Thing;\nuse numamma_plan::nodes;\npub fn start(_: Thing) { nodes::nodes() }",
        ),
        ("src/low/mod.rs", "mod thing;\npub use thing::Thing;"),
        ("src/low/thing.rs", "pub struct Thing;"),
    ];
    kept.iter().chain(more).map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect()
}

fn broken(more: &[(&str, &str)]) -> Vec<Broken> {
    check(&tree(more), ROOMS, &[("src/low", 4)])
}

#[track_caller]
fn breaks(more: &[(&str, &str)], rule: &str, details: &str) {
    let all = broken(more);
    assert!(all.iter().any(|b| b.rule == rule && b.details.contains(details)), "{rule}: {details}\nin {all:#?}");
}

#[test]
fn a_tree_that_keeps_the_rules() {
    assert_eq!(broken(&[]), []);
}

#[test]
fn every_way_to_write_an_import_is_seen() {
    for (text, line) in [
        ("use crate::high;", 1),
        ("\nuse crate::{high::start, low};", 2),
        ("use super::super::high::*;", 1),
        ("fn f() {\n    crate::high::start();\n}", 2),
        ("fn f() { println!(\"{}\",\n crate::high::start()); }", 2),
        ("type T = Vec<super::super::high::T>;", 1),
        ("fn f(x: u8) { match x { crate::high::C => (), _ => () } }", 1),
        ("mod inner { use super::super::super::high; }", 1),
        ("#[derive(X)]\nstruct S {\n #[arg(value_parser = crate::high::start)]\n f: u8 }", 3),
        ("macro_rules! m { () => { $crate::high::start() } }", 1),
        ("use numamma::high;", 1),
    ] {
        breaks(&[("src/low/other.rs", text)], "low imports high", &format!("src/low/other.rs:{line}: "));
    }
}

#[test]
fn tests_and_documentation_are_left_out() {
    for (file, text) in [
        ("src/low/other.rs", "#[cfg(test)]\nmod tests { use crate::high; }"),
        ("src/low/other.rs", "#[cfg(test)]\nuse crate::high;"),
        ("src/low/other.rs", "#[cfg(all(test, unix))]\nfn f() { crate::high::start() }"),
        ("src/low/other.rs", "/// See [`crate::high`].\nfn f() { let _text = \"crate::high\"; }"),
        ("src/low/other_tests.rs", "use crate::high;"),
        ("src/low/tests.rs", "use crate::high;"),
    ] {
        assert_eq!(broken(&[(file, text)]), [], "{text}");
    }
    breaks(&[("src/low/other.rs", "#[cfg(not(test))]\nuse crate::high;")], "low imports high", "crate::high");
}

#[test]
fn a_crate_may_not_import_one_above_it() {
    breaks(&[("crates/plan/src/nodes.rs", "pub fn nodes() { numamma::low::f() }")], "plan imports low", "nodes.rs:1");
}

#[test]
fn knowing_a_room_that_is_not_imported_fails() {
    breaks(&[("src/high/mod.rs", "use crate::low;\npub fn start() {}")], "high knows plan", "shorten");
}

#[test]
fn the_list_is_an_order() {
    let circle =
        [Room { name: "a", folder: "src/a", knows: &["b"] }, Room { name: "b", folder: "src/b", knows: &["a"] }];
    let files = [("src/a/mod.rs", "use crate::b::X;"), ("src/b/mod.rs", "use crate::a::Y;\npub struct X;")];
    let tree: Tree = files.iter().map(|(f, t)| ((*f).to_owned(), (*t).to_owned())).collect();
    assert!(check(&tree, &circle, &[]).iter().any(|b| b.rule == "a knows b" && b.details.contains("before it")));
}

#[test]
fn a_folder_outside_the_list_fails() {
    breaks(&[("src/new/mod.rs", "")], "src/new/mod.rs is in no room", "");
}

const FOUR: [(&str, &str); 4] = [
    ("src/high/a.rs", "use super::b::B;\npub struct A;"),
    ("src/high/b.rs", "use super::c::C;\npub struct B;"),
    ("src/high/c.rs", "pub struct C;\nfn f() { super::d::d() }"),
    ("src/high/d.rs", "use super::a::A;\npub fn d() {}"),
];

#[test]
fn a_circle_of_four_files_fails_and_names_its_imports() {
    breaks(&FOUR, "circle in high", "4 files");
    breaks(&FOUR, "circle in high", "src/high/c.rs:2: super::d::d (src/high/d.rs)");
    let three = [FOUR[0], FOUR[1], ("src/high/c.rs", "use super::a::A;\npub struct C;")];
    assert_eq!(broken(&three), [], "a circle of three is small enough");
}

#[test]
fn names_are_followed_to_the_file_that_defines_them() {
    // The same circle, but d takes A through the module above, which only passes it on.
    let facade =
        "use crate::low::Thing;\nuse numamma_plan::nodes;\npub use a::A;\npub fn start(_: Thing) { nodes::nodes() }";
    let mut files = FOUR.to_vec();
    files[3].1 = "use super::A;\npub fn d() {}";
    files.push(("src/high/mod.rs", facade));
    breaks(&files, "circle in high", "4 files");
    files[3].1 = "use super::*;\npub fn d() {}";
    let through_glob = imports(&tree(&files));
    assert!(through_glob.iter().any(|i| i.from == "src/high/d.rs" && i.named == "src/high/mod.rs"));
}

#[test]
fn a_module_that_passes_names_on_needs_nothing_itself() {
    let through = |user: &'static str| {
        [
            ("src/low/mod.rs", "mod thing;\nmod b;\nmod c;\npub use thing::Thing;\npub use b::B;\npub use c::C;"),
            ("src/low/b.rs", user),
            ("src/low/c.rs", "pub struct C;"),
        ]
    };
    assert_eq!(broken(&through("use super::C;\npub struct B;")), []);
}

#[test]
fn too_many_files_in_a_folder_fail() {
    let files = ["a", "b", "c"].map(|n| format!("src/low/{n}.rs"));
    let more: Vec<(&str, &str)> = files.iter().map(|f| (f.as_str(), "")).collect();
    breaks(&more, "crowd in src/low", "5 files, at most 4");
    assert_eq!(broken(&more[..2]), []);
}

#[test]
fn the_table_must_say_what_the_list_says() {
    let table = "text\n| Room | What | Knows |\n| --- | --- | --- |\n| `plan` | x | nothing |\n| `low` | x | nothing |\n\
                 | `high` | x | `low`, `plan` |\n| `main` | x | `high` |\n\nmore\n";
    assert_eq!(compare_table(table, ROOMS), Vec::<String>::new());
    for (from, to, complaint) in [
        ("`low`, `plan`", "`low`", "high knows"),
        ("| `low` | x | nothing |\n", "", "no row for low"),
        ("`main`", "`other`", "a row for other"),
        ("| x | `high` |", "| `high` |", "not a row"),
    ] {
        let wrong = compare_table(&table.replace(from, to), ROOMS);
        assert!(wrong.iter().any(|w| w.contains(complaint)), "{complaint}: {wrong:?}");
    }
}
