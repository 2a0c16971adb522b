//! The files that a command line names, and which of them are profiles of one program on one kind of machine.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::profile::file::{FileError, Reader};
use crate::profile::records::{Header, Record};
use crate::profile::summary::base_name;

/// Ending of the profiles that are taken from a directory; older ones end in `.old`.
const ENDING: &str = "prof";

/// A file that is not part of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// One line: the file and why.
    pub why: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; left out", self.why)
    }
}

/// The profiles behind names: files as they are, of directories every regular file ending in `.prof`, in the order of
/// the numbers in their names. A file that is named twice counts once.
pub fn listed(names: &[PathBuf]) -> (Vec<PathBuf>, Vec<LeftOut>) {
    let (mut files, mut left_out) = (Vec::new(), Vec::new());
    for name in names {
        if !name.is_dir() {
            files.push(name.clone());
            continue;
        }
        let entries = match std::fs::read_dir(name) {
            Ok(entries) => entries,
            Err(e) => {
                left_out.push(LeftOut { why: format!("{}: {e}", name.display()) });
                continue;
            }
        };
        let mut own: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
        // A link that leads nowhere is kept: that it cannot be read is worth a message.
        own.retain(|p| p.extension().is_some_and(|e| e == ENDING) && p.metadata().map_or(true, |m| m.is_file()));
        own.sort_by_cached_key(|p| numeric(&p.to_string_lossy()));
        if own.is_empty() {
            left_out.push(LeftOut {
                why: format!("{}: no regular file in this directory ends in .{ENDING}", name.display()),
            });
        }
        files.extend(own);
    }
    let mut seen = std::collections::HashSet::new();
    files.retain(|f| seen.insert(std::fs::canonicalize(f).unwrap_or_else(|_| f.clone())));
    (files, left_out)
}

/// A name in pieces that sort by the value of its numbers: text and number in turn.
fn numeric(name: &str) -> Vec<(String, u64)> {
    let mut pieces: Vec<(String, u64)> = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, from) = rest.split_at(digits);
        let end = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
        pieces.push((text.to_owned(), from[..end].parse().unwrap_or(u64::MAX)));
        rest = &from[end..];
    }
    pieces
}

/// A profile that can be read, and what tells whether it counts as one with others.
#[derive(Debug, Clone)]
struct Found {
    file: PathBuf,
    /// The program by its build-id, without one by its name.
    program: String,
    /// Nodes with their CPUs and distances, and the size of a page; how much memory a node has may differ.
    machine: String,
    /// The program and the machine in words.
    words: [String; 2],
}

impl Found {
    fn of(file: PathBuf, header: &Header) -> Found {
        let Header { program, topology, page_size, host, .. } = header;
        let build = program.build_id.as_ref().map(|id| format!("build-id {id}"));
        let identity = build.unwrap_or_else(|| format!("without build-id, {}", base_name(&program.path)));
        let nodes = topology.nodes.iter().map(|n| (n.id, &n.cpus, &n.distances));
        let (count, cpus) = (topology.nodes.len(), topology.cpu_count());
        Found {
            file,
            machine: format!("{page_size} {:?}", nodes.collect::<Vec<_>>()),
            words: [
                format!("{} ({identity})", program.path),
                format!("{host} (NUMA nodes: {count}, CPUs: {cpus}, bytes of a page: {page_size})"),
            ],
            program: identity,
        }
    }
}

/// The header of a profile.
fn header(path: &Path) -> Result<Header, FileError> {
    match Reader::open(path)?.next() {
        Some(Record::Header(header)) => Ok(header),
        _ => Err(FileError::Empty(path.into())),
    }
}

/// The files that are profiles of the program and the kind of machine of most of them (of as many, of the first).
pub(super) fn of_one_program(files: Vec<PathBuf>, left_out: &mut Vec<LeftOut>) -> Vec<PathBuf> {
    let mut found: Vec<Found> = Vec::new();
    for file in files {
        match header(&file) {
            Ok(header) => found.push(Found::of(file, &header)),
            Err(e) => left_out.push(LeftOut { why: e.to_string() }),
        }
    }
    let other_program = |own: &Found, usual: &Found| {
        format!(
            "{}: a profile of {}, but {} is of {}; read the profiles of each program and build by themselves",
            own.file.display(),
            own.words[0],
            usual.file.display(),
            usual.words[0]
        )
    };
    let other_machine = |own: &Found, usual: &Found| {
        format!(
            "{}: recorded on {}, but {} on {}; read the profiles of each kind of machine by themselves, with --target for \
             advice on another one",
            own.file.display(),
            own.words[1],
            usual.file.display(),
            usual.words[1]
        )
    };
    let found = alike(found, |f| &f.program, other_program, left_out);
    let found = alike(found, |f| &f.machine, other_machine, left_out);
    found.into_iter().map(|f| f.file).collect()
}

/// The profiles that most have this `key` in common with; the others are left out for a reason.
fn alike(
    found: Vec<Found>,
    key: impl Fn(&Found) -> &str,
    why: impl Fn(&Found, &Found) -> String,
    left_out: &mut Vec<LeftOut>,
) -> Vec<Found> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    found.iter().for_each(|f| *counts.entry(key(f)).or_default() += 1);
    let most = counts.values().copied().max().unwrap_or(0);
    let Some(usual) = found.iter().find(|f| counts.get(key(f)) == Some(&most)).cloned() else { return Vec::new() };
    let (same, others): (Vec<Found>, Vec<Found>) = found.into_iter().partition(|f| key(f) == key(&usual));
    left_out.extend(others.iter().map(|f| LeftOut { why: why(f, &usual) }));
    same
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_sort_by_value() {
        let mut names = ["a.10.prof", "a.9.prof", "a.2.prof", "a.prof", "b.1.prof", "a.0.prof"];
        names.sort_by_cached_key(|n| numeric(n));
        assert_eq!(names, ["a.0.prof", "a.2.prof", "a.9.prof", "a.10.prof", "a.prof", "b.1.prof"]);
    }
}
