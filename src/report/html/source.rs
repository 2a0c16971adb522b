//! Lines of source around allocations and accesses, where the files are there when the page is made.
//!
//! A profile names the files, and a stranger may have written it. So only files below directories that the user
//! named, or the working directory, are read, and only those whose names end as source does.

use std::path::{Component, Path, PathBuf};

use numamma_kernel::input_file;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::profile::records::Location;

/// Endings of source, in lower case.
const ENDINGS: [&str; 22] = [
    "c", "h", "cc", "hh", "cpp", "hpp", "cxx", "hxx", "c++", "inl", "ipp", "tpp", "cu", "cuh", "f", "for", "f77",
    "f90", "f95", "f03", "f08", "rs",
];
/// Largest file of source, and files read for one page.
const MOST_FILE: u64 = 4 << 20;
const MOST_FILES: usize = 100;
/// Lines before and after the one that is meant.
const AROUND: usize = 3;
/// Characters of a line; generated code has lines without an end.
const MOST_WIDTH: usize = 160;
/// Bytes of all excerpts of a page: a tenth of it.
const MOST_BYTES: usize = 512 << 10;

/// Files of source that were read.
#[derive(Debug)]
pub(super) struct Sources {
    /// Directories that may be read, without links.
    roots: Vec<PathBuf>,
    /// Seconds since 1970 when the run started.
    started_unix: u64,
    files: FxHashMap<String, Option<File>>,
    /// Excerpts by file and line, and their place in the list.
    known: FxHashMap<(String, u32), usize>,
    list: Vec<Value>,
    bytes: usize,
}

#[derive(Debug)]
struct File {
    lines: Vec<String>,
    is_newer: bool,
}

impl Sources {
    /// Below these directories. The root of all files is none: it would allow everything.
    pub fn below(directories: &[PathBuf], started_unix: u64) -> Sources {
        let real = |path: &PathBuf| path.canonicalize().ok().filter(|path| path.parent().is_some());
        Sources {
            roots: directories.iter().filter_map(real).collect(),
            started_unix,
            files: FxHashMap::default(),
            known: FxHashMap::default(),
            list: Vec::new(),
            bytes: 0,
        }
    }

    /// Number of the excerpt around a place; none when its file cannot be read or there is no room.
    pub fn excerpt(&mut self, place: &Location) -> Option<usize> {
        let (name, line) = (place.file.as_ref()?, place.line.filter(|line| *line > 0)?);
        let key = (name.clone(), line);
        if let Some(number) = self.known.get(&key) {
            return Some(*number);
        }
        if !self.files.contains_key(name) {
            let file = if self.files.len() < MOST_FILES { self.read(name) } else { None };
            self.files.insert(name.clone(), file);
        }
        let file = self.files.get(name)?.as_ref()?;
        let at = line as usize - 1;
        let first = at.saturating_sub(AROUND);
        let lines = file.lines.get(first..(at + AROUND + 1).min(file.lines.len())).filter(|_| at < file.lines.len())?;
        let bytes = lines.iter().map(String::len).sum::<usize>();
        if self.bytes + bytes > MOST_BYTES {
            return None;
        }
        self.bytes += bytes;
        let number = self.list.len();
        self.list.push(json!({
            "file": name, "line": line, "first": first + 1, "lines": lines, "newer": file.is_newer,
        }));
        self.known.insert(key, number);
        Some(number)
    }

    /// All excerpts.
    pub fn list(self) -> Vec<Value> {
        self.list
    }

    fn read(&self, name: &str) -> Option<File> {
        let path = self.find(Path::new(name))?;
        let metadata = path.metadata().ok().filter(|m| m.is_file())?;
        let bytes = input_file::bytes(&path, MOST_FILE).ok()?;
        let changed = metadata.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
        let cut = |line: &str| line.replace('\t', "    ").chars().take(MOST_WIDTH).collect();
        Some(File {
            lines: String::from_utf8_lossy(&bytes).lines().map(cut).collect(),
            is_newer: changed.is_some_and(|t| t.as_secs() > self.started_unix),
        })
    }

    /// The file below one of the directories: under its own name, or, in a tree that was moved, under the longest end
    /// of it.
    fn find(&self, name: &Path) -> Option<PathBuf> {
        let ending = name.extension()?.to_str()?.to_lowercase();
        if !ENDINGS.contains(&ending.as_str()) {
            return None;
        }
        let inside = |path: PathBuf| {
            let real = path.canonicalize().ok()?;
            let is_source = real.extension().is_some_and(|e| e.eq_ignore_ascii_case(&ending));
            (is_source && self.roots.iter().any(|root| real.starts_with(root))).then_some(real)
        };
        if let Some(path) = name.is_absolute().then(|| inside(name.to_path_buf())).flatten() {
            return Some(path);
        }
        let parts: Vec<_> = name.components().filter(|c| matches!(c, Component::Normal(_))).collect();
        let ends = (0..parts.len()).map(|from| parts[from..].iter().collect::<PathBuf>());
        ends.flat_map(|end| self.roots.iter().map(move |root| root.join(&end))).find_map(inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(file: &Path, line: u32) -> Location {
        Location { function: None, file: Some(file.to_str().unwrap_or_default().into()), line: Some(line) }
    }

    #[test]
    fn only_source_below_the_directories_is_read() {
        let dir = std::env::temp_dir().join(format!("numamma-source-{}", std::process::id()));
        let (own, other) = (dir.join("own/src"), dir.join("other"));
        std::fs::create_dir_all(&own).expect("a writable directory");
        std::fs::create_dir_all(&other).expect("a writable directory");
        let text: String = (1..=9).map(|i| format!("line {i}\n")).collect();
        for file in [own.join("a.c"), own.join("secret.txt"), other.join("b.c")] {
            std::fs::write(file, &text).expect("a writable directory");
        }
        std::os::unix::fs::symlink(other.join("b.c"), own.join("link.c")).expect("a writable directory");
        std::os::unix::fs::symlink(own.join("secret.txt"), own.join("key.c")).expect("a writable directory");
        let mut sources = Sources::below(&[dir.join("own")], 1);
        let moved = Path::new("/build/of/somebody/src/a.c");
        assert_eq!(sources.excerpt(&place(&own.join("a.c"), 2)), Some(0));
        assert_eq!(sources.excerpt(&place(moved, 9)), Some(1));
        assert_eq!(sources.excerpt(&place(moved, 9)), Some(1), "not twice");
        let refused =
            [own.join("secret.txt"), other.join("b.c"), own.join("link.c"), own.join("key.c"), own.join("none.c")];
        for file in refused.iter().chain([&own.join("../../other/b.c")]) {
            assert_eq!(sources.excerpt(&place(file, 1)), None, "{}", file.display());
        }
        assert_eq!(sources.excerpt(&place(moved, 10)), None, "no such line");
        let list = sources.list();
        assert_eq!(
            (&list[0]["first"], &list[0]["lines"][1], &list[0]["newer"]),
            (&1.into(), &"line 2".into(), &true.into())
        );
        assert_eq!(list[1]["lines"].as_array().map(Vec::len), Some(4));
        let _ = std::fs::remove_dir_all(dir);
    }
}
