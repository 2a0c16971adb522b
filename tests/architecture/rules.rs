//! The rules of the house, checked on a tree of sources.

use std::collections::{BTreeMap, BTreeSet};

use crate::imports::{self, Import, Tree};

/// Files that may import each other in a circle.
pub const MAX_CIRCLE: usize = 3;

/// A folder whose files belong together.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Name in messages, in `knows` and in the table of ARCHITECTURE.md.
    pub name: &'static str,
    /// Its folder below the repository; with a `/` at the end only the files directly in it.
    pub folder: &'static str,
    /// Rooms it imports; all of them stand before it in the list.
    pub knows: &'static [&'static str],
}

/// One rule that a tree breaks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Broken {
    /// What is wrong, without lines and numbers: the key of a known exception.
    pub rule: String,
    /// Where, with file, line and names.
    pub details: String,
}

fn broken(rule: impl Into<String>, details: impl Into<String>) -> Broken {
    Broken { rule: rule.into(), details: details.into() }
}

/// The room that `file` is in: the one with the longest folder.
pub fn room_of<'r>(rooms: &'r [Room], file: &str) -> Option<&'r Room> {
    let (folder, _) = file.rsplit_once('/')?;
    let holds = |room: &&Room| match room.folder.strip_suffix('/') {
        Some(only) => folder == only,
        None => folder == room.folder || folder.strip_prefix(room.folder).is_some_and(|rest| rest.starts_with('/')),
    };
    rooms.iter().filter(holds).max_by_key(|room| room.folder.len())
}

/// Every rule that `tree` breaks; `rooms` is the order, from the bottom up. `small` folders hold at most so many files.
pub fn check(tree: &Tree, rooms: &[Room], small: &[(&str, usize)]) -> Vec<Broken> {
    let imports = imports::imports(tree);
    let mut all = order_of_the_list(rooms);
    all.extend(homeless(tree, rooms));
    all.extend(between_rooms(&imports, rooms));
    all.extend(circles_inside(&imports, rooms));
    all.extend(crowded(tree, small));
    all
}

/// The list itself: a room knows only rooms that stand before it, which is what makes circles impossible.
fn order_of_the_list(rooms: &[Room]) -> Vec<Broken> {
    let mut all = Vec::new();
    for (i, room) in rooms.iter().enumerate() {
        for known in room.knows {
            if !rooms[..i].iter().any(|below| below.name == *known) {
                all.push(broken(format!("{} knows {known}", room.name), "the list has no such room before it"));
            }
        }
    }
    all
}

fn homeless(tree: &Tree, rooms: &[Room]) -> Vec<Broken> {
    let lost = tree.keys().filter(|file| room_of(rooms, file).is_none());
    lost.map(|file| broken(format!("{file} is in no room"), "list its folder")).collect()
}

fn between_rooms(imports: &[Import], rooms: &[Room]) -> Vec<Broken> {
    let mut all = Vec::new();
    let mut used: BTreeSet<(&str, &str)> = BTreeSet::new();
    for import in imports {
        let (Some(from), Some(to)) = (room_of(rooms, &import.from), room_of(rooms, &import.named)) else { continue };
        if from.name == to.name || import.facade {
            continue;
        }
        used.insert((from.name, to.name));
        if !from.knows.contains(&to.name) {
            let Import { from: file, line, path, named, .. } = import;
            all.push(broken(format!("{} imports {}", from.name, to.name), format!("{file}:{line}: {path} ({named})")));
        }
    }
    for room in rooms {
        for known in room.knows.iter().filter(|known| !used.contains(&(room.name, **known))) {
            all.push(broken(
                format!("{} knows {known}", room.name),
                "nothing in it imports that room: shorten the list",
            ));
        }
    }
    all
}

fn circles_inside(imports: &[Import], rooms: &[Room]) -> Vec<Broken> {
    let mut graphs: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for import in imports.iter().filter(|i| !i.facade && i.from != i.defined) {
        let (Some(from), Some(to)) = (room_of(rooms, &import.from), room_of(rooms, &import.defined)) else { continue };
        if from.name == to.name {
            graphs.entry(from.name).or_default().entry(&import.from).or_default().insert(&import.defined);
        }
    }
    let mut all = Vec::new();
    for (room, graph) in graphs {
        for circle in circles(&graph).into_iter().filter(|c| c.len() > MAX_CIRCLE) {
            let inside =
                imports.iter().filter(|i| !i.facade && circle.contains(&&*i.from) && circle.contains(&&*i.defined));
            let lines: Vec<String> = inside
                .filter(|i| i.from != i.defined)
                .map(|i| format!("    {}:{}: {} ({})", i.from, i.line, i.path, i.defined))
                .collect();
            let details = format!("{} files import each other:\n{}", circle.len(), lines.join("\n"));
            all.push(broken(format!("circle in {room}"), details));
        }
    }
    all
}

/// Groups of files that reach each other, each sorted.
fn circles<'t>(graph: &BTreeMap<&'t str, BTreeSet<&'t str>>) -> Vec<Vec<&'t str>> {
    let reach = |start: &'t str| -> BTreeSet<&'t str> {
        let mut seen = BTreeSet::new();
        let mut open = vec![start];
        while let Some(file) = open.pop() {
            open.extend(graph.get(file).into_iter().flatten().filter(|next| seen.insert(**next)));
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = graph.keys().map(|file| (*file, reach(file))).collect();
    let mut all: BTreeSet<Vec<&str>> = BTreeSet::new();
    for (file, from_here) in &reached {
        let back = from_here.iter().filter(|other| reached.get(**other).is_some_and(|r| r.contains(file)));
        let circle: Vec<&str> = back.copied().collect();
        if !circle.is_empty() {
            all.insert(circle);
        }
    }
    all.into_iter().collect()
}

fn crowded(tree: &Tree, small: &[(&str, usize)]) -> Vec<Broken> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for file in tree.keys().filter(|file| imports::is_production(file)) {
        if let Some((folder, _)) = file.rsplit_once('/') {
            *counts.entry(folder).or_default() += 1;
        }
    }
    let limit = |folder: &str| small.iter().find(|(root, _)| folder.starts_with(root)).map(|(_, most)| *most);
    let full = counts.into_iter().filter_map(|(folder, n)| Some((folder, n, limit(folder).filter(|most| n > *most)?)));
    full.map(|(folder, n, most)| broken(format!("crowd in {folder}"), format!("{n} files, at most {most}"))).collect()
}

/// What differs between the rooms and the table of ARCHITECTURE.md whose header begins with `| Room |`: folder, and
/// the rooms that each knows.
pub fn compare_table(document: &str, rooms: &[Room]) -> Vec<String> {
    let rows = document.lines().skip_while(|l| !l.starts_with("| Room |")).skip(2).take_while(|l| l.starts_with('|'));
    let words = |cell: &str| -> BTreeSet<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let mut table: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        match (words(cells[0]).into_iter().next(), cells.last()) {
            (Some(name), Some(knows)) if cells.len() == 3 => _ = table.insert(name, words(knows)),
            _ => wrong.push(format!("not a row `name` | text | knows: {row}")),
        }
    }
    for room in rooms {
        let knows: BTreeSet<String> = room.knows.iter().map(|k| (*k).to_owned()).collect();
        match table.remove(room.name) {
            Some(listed) if listed == knows => {}
            Some(listed) => wrong.push(format!("{} knows {knows:?}; the table says {listed:?}", room.name)),
            None => wrong.push(format!("no row for {}, which knows {knows:?}", room.name)),
        }
    }
    wrong.extend(table.keys().map(|name| format!("a row for {name}, which is no room")));
    wrong
}

/// Files that may write to stdout and stderr: what they write is escaped for terminals.
pub const WRITERS: [&str; 3] = ["src/launch/exit.rs", "src/cli/output.rs", "src/cli/progress.rs"];

/// Production code before its unit tests that prints past the [`WRITERS`], as `file:line: code`.
pub fn prints_unescaped(tree: &Tree) -> Vec<String> {
    let print = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        ["print!(", "println!(", "dbg!(", "stdout()", "stderr()"].iter().any(|call| {
            let called = |at: usize| !code[..at].ends_with(['_', '.']) && !code[at + call.len()..].starts_with(".is_");
            code.match_indices(call).any(|(at, _)| called(at))
        })
    };
    let mut all = Vec::new();
    for (file, text) in tree.iter().filter(|(file, _)| imports::is_production(file) && !file.ends_with("_tests.rs")) {
        if WRITERS.contains(&file.as_str()) {
            continue;
        }
        let production = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = production.lines().enumerate().filter(|(_, line)| print(line));
        all.extend(lines.map(|(at, line)| format!("{file}:{}: {}", at + 1, line.trim())));
    }
    all
}
