//! The rooms of the house: no room imports one above it, no large circle of files inside a room, no overfull folder,
//! and a table in ARCHITECTURE.md that says the same.

mod house;
mod imports;
mod made_up_trees;
mod rules;

use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn imports_keep_the_order_of_the_rooms() {
    let broken = rules::check(&imports::read(root()), house::ROOMS, house::SMALL_FOLDERS);
    let known = |rule: &str| house::EXCEPTIONS.contains(&rule);
    let mut report: Vec<String> =
        broken.iter().filter(|b| !known(&b.rule)).map(|b| format!("{}: {}", b.rule, b.details)).collect();
    for exception in house::EXCEPTIONS.iter().filter(|e| !broken.iter().any(|b| b.rule == **e)) {
        report.push(format!("{exception}: this exception is no longer needed; remove it from house.rs"));
    }
    assert!(report.is_empty(), "tests/architecture/house.rs is not kept:\n{}", report.join("\n"));
}

#[test]
fn the_table_of_the_rooms_is_the_list() {
    let document = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let wrong = rules::compare_table(&document, house::ROOMS);
    assert!(wrong.is_empty(), "the table of ARCHITECTURE.md is not the list of house.rs:\n{}", wrong.join("\n"));
}

#[test]
fn only_the_writers_print() {
    let made_up = [
        ("src/a.rs", "fn f() {\n    eprintln!(\"{name}\");\n    std::io::stdout().lock();\n}\n"),
        ("src/cli/output.rs", "print!()"),
    ];
    let made_up = made_up.map(|(file, text)| (file.to_owned(), text.to_owned())).into_iter().collect();
    assert_eq!(rules::prints_unescaped(&made_up).len(), 2, "the rule sees what it must");
    let found = rules::prints_unescaped(&imports::read(root()));
    assert!(found.is_empty(), "print through one of {:?}, which escape names:\n{}", rules::WRITERS, found.join("\n"));
}
