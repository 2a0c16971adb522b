//! docs/ as a book: docs/SUMMARY.md lists the pages, links lead somewhere, and what is shown is what is printed today.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::{documents, files, markdown, typed};
use crate::common::root;

const SUMMARY: &str = "docs/SUMMARY.md";
/// The page whose output is that of the golden files, which the tests of the report keep up to date.
const READING: &str = "docs/reading.md";
/// Languages of blocks in which somebody types commands; those of the last two are not run.
const TYPED: [&str; 3] = ["", "sh", "console"];

/// A link of a document, as it is written: a path relative to the document, and what stands behind `#`.
struct Link {
    path: String,
    anchor: Option<String>,
}

/// The links in the text outside of fenced blocks and code spans, without those to the web.
fn links(text: &str) -> Vec<Link> {
    let without_code = |paragraph: String| paragraph.split('`').step_by(2).collect::<String>();
    let text: String = markdown::paragraphs(text).into_iter().map(without_code).collect::<Vec<_>>().join("\n");
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let targets = targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
    let link = |target: &str| match target.split_once('#') {
        Some((path, anchor)) => Link { path: path.into(), anchor: Some(anchor.into()) },
        None => Link { path: target.into(), anchor: None },
    };
    targets.map(link).collect()
}

/// The anchor that GitHub and mdBook give a heading, which may hold code and emphasis.
fn slug(heading: &str) -> String {
    let kept = |c: char| match c {
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        c if c.is_whitespace() => Some('-'),
        _ => None,
    };
    heading.trim().to_lowercase().chars().filter_map(kept).collect()
}

/// The anchors of a document; a repeated heading gets a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen = BTreeMap::<String, usize>::new();
    let mut fenced = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if fenced || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let slug = slug(heading);
        let count = seen.entry(slug.clone()).or_default();
        anchors.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
        *count += 1;
    }
    anchors
}

/// The path without `.` and `..`.
fn resolved(document: &str, link: &str) -> PathBuf {
    let folder = Path::new(document).parent().unwrap_or(Path::new(""));
    let mut path = PathBuf::new();
    for part in folder.join(link).components() {
        match part {
            Component::ParentDir => assert!(path.pop(), "{document}: {link} leaves the tree"),
            part => path.push(part),
        }
    }
    path
}

/// Why a link of a document is broken.
fn broken(document: &str, link: &Link) -> Option<String> {
    let path = if link.path.is_empty() { document.into() } else { resolved(document, &link.path) };
    let name = path.display().to_string();
    let in_tree = root().join(&path);
    if !in_tree.exists() {
        return Some(format!("{document}: {name} does not exist"));
    }
    if document.starts_with("docs/") && !path.starts_with("docs") {
        return Some(format!("{document}: {name} is no part of the book"));
    }
    let anchor = link.anchor.as_deref()?;
    let has = path.extension().is_some_and(|e| e == "md") && anchors(&typed::text(&name)).contains(anchor);
    (!has).then(|| format!("{document}: {name} has no heading #{anchor}"))
}

#[test]
fn the_book_has_all_pages() {
    let listed: Vec<PathBuf> = links(&typed::text(SUMMARY)).iter().map(|link| resolved(SUMMARY, &link.path)).collect();
    let pages: BTreeSet<PathBuf> = files("docs", "md").into_iter().filter(|page| page != Path::new(SUMMARY)).collect();
    assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), pages, "{SUMMARY} and the files in docs");
    assert_eq!(listed.len(), pages.len(), "{SUMMARY} lists a page twice");
    let book: toml::Table = typed::text("book.toml").parse().expect("book.toml is TOML");
    assert_eq!(book["book"]["src"].as_str(), Some("docs"));
}

#[test]
fn links_lead_to_files_and_headings() {
    let (mut looked_up, mut wrong) = (0, Vec::new());
    for document in documents().into_iter().filter(|document| document != typed::HELP) {
        let links = links(&typed::text(&document));
        looked_up += links.len();
        wrong.extend(links.iter().filter_map(|link| broken(&document, link)));
    }
    assert_eq!(wrong, [""; 0], "links that lead nowhere");
    assert!(looked_up > 20, "only {looked_up} links were found");
}

#[test]
fn anchors_are_those_of_github() {
    let text = "# One `numamma report --json`\n```\n# no heading\n```\n## A, B: c_d\n## A, B: c_d\n#[not]\n";
    let expected = ["one-numamma-report---json", "a-b-c_d", "a-b-c_d-1"].map(str::to_owned);
    assert_eq!(anchors(text), BTreeSet::from(expected));
}

/// The words behind `numamma` where that is the command of a line.
fn called(line: &str) -> Vec<String> {
    let line = line.strip_prefix("$ ").unwrap_or(line).split(" #").next().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    let calls = words.windows(2).filter(|pair| pair[0] == "numamma" && !pair[1].starts_with('-'));
    calls.map(|pair| pair[1].trim_matches([';', '`']).to_owned()).collect()
}

#[test]
fn subcommands_exist() {
    let known = typed::subcommands();
    let (mut looked_up, mut unknown) = (0, Vec::new());
    for document in documents().into_iter().filter(|document| document != typed::HELP) {
        let text = typed::text(&document);
        let blocks = markdown::blocks(&text).into_iter().filter(|block| TYPED.contains(&block.language.as_str()));
        let typed = blocks.flat_map(|block| block.lines).filter(|line| !line.starts_with('#'));
        let spans = text.lines().flat_map(markdown::spans).filter(|span| span.starts_with("numamma "));
        for name in typed.chain(spans).flat_map(|line| called(&line)) {
            looked_up += 1;
            // Words for the reader's choice are in capitals.
            if !known.contains(&name) && name.chars().any(char::is_lowercase) {
                unknown.push(format!("{document}: numamma {name}"));
            }
        }
    }
    assert_eq!(unknown, [""; 0], "subcommands that no help lists");
    assert!(looked_up > 80, "only {looked_up} commands were found");
}

#[test]
fn the_report_that_is_explained_is_that_of_today() {
    let golden = ["lu-100.txt", "lu-cvar.txt"].map(|name| typed::text(&format!("tests/golden/{name}")));
    let blocks = markdown::blocks(&typed::text(READING));
    let shown: Vec<String> = blocks.iter().filter(|b| b.language == "text").map(|b| b.lines.join("\n")).collect();
    assert!(shown.len() >= 3, "{READING} shows no report");
    for shown in shown {
        assert!(golden.iter().any(|text| text.contains(&shown)), "{READING}: tests/golden has no longer\n{shown}");
    }
}

/// What stays the same in output of two runs: columns of tables, and labels at the left. Names of variables have a `_`.
pub fn marks(output: &str) -> BTreeSet<String> {
    let lines: Vec<&str> = output.lines().collect();
    let is_rule = |line: &str| line.len() > 9 && line.trim().chars().all(|c| c == '-');
    let headings = lines.windows(2).filter(|pair| is_rule(pair[1])).map(|pair| pair[0]);
    // How many columns there are depends on the width that the names leave.
    let columns = headings.flat_map(|line| line.split("  ")).map(|column| column.trim().to_owned());
    let label = |line: &&str| {
        let (label, _) = line.strip_prefix("  ")?.split_once("  ")?;
        let is_word = label.starts_with(char::is_lowercase) && !label.contains('_') || label == "move_pages";
        is_word.then(|| label.to_owned())
    };
    columns.chain(lines.iter().filter_map(label)).filter(|mark| !mark.is_empty()).collect()
}

/// The sources below a folder in one string, with literals that go on in the next line joined.
fn sources(folder: &Path, into: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder of the tree").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            sources(&entry, into);
        } else if entry.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&entry).expect("a source");
            let mut lines = text.lines();
            while let Some(line) = lines.next() {
                let mut line = line.to_owned();
                while line.ends_with('\\') {
                    line.pop();
                    line += lines.next().unwrap_or_default().trim_start();
                }
                *into += &(line + "\n");
            }
        }
    }
}

#[test]
fn messages_of_the_troubleshooting_are_those_of_the_code() {
    let mut code = String::new();
    ["src", "crates"].iter().for_each(|folder| sources(&root().join(folder), &mut code));
    let text = typed::text("docs/troubleshooting.md");
    let first = |line: &str| line.strip_prefix("| `")?.split_once('`').map(|(message, _)| message.to_owned());
    let messages: Vec<String> = text.lines().filter_map(first).collect();
    let is_said = |message: &&String| message.split("...").all(|part| code.contains(part.trim()));
    let unsaid: Vec<&String> = messages.iter().filter(|message| !is_said(message)).collect();
    assert!(messages.len() > 25 && unsaid.is_empty(), "of {} messages no source has {unsaid:#?}", messages.len());
}
