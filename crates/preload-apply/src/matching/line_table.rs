//! The code of source lines in one module, from its DWARF line table (versions 2 to 5).
//!
//! A policy may name an allocation by the line of its call. The line table maps addresses to lines, and its units
//! follow one another, so no other debugging information is read. The table is in the module or in its separate debug
//! file. Addresses here are those of the file.

use std::borrow::Cow;

use gimli::{AttributeValue, DebugLine, DebugLineOffset, EndianSlice, IncompleteLineProgram, LittleEndian};
use numamma_plan::callsite::line::SourceLine;
use numamma_plan::callsite::wrapper;

use crate::matching::elf::Elf;
use crate::matching::name_table::Kind;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// What a line table says about one wanted line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Addresses of its code.
    pub code: Vec<(u64, u64)>,
    /// Whether any code comes from the file of the line.
    pub file: bool,
    /// The nearest lines of the file that have code: below and above the wanted line.
    pub near: (Option<u64>, Option<u64>),
}

/// What the line tables of a module say.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// One for each wanted line.
    pub found: Vec<Found>,
    /// Functions from the sources of compilers' libraries.
    pub library_functions: Vec<(u64, u64)>,
}

/// Looks up `wanted` in the module at `path`; `None` when it has no line table.
///
/// # Errors
/// The reason why the table cannot be read.
pub fn look_up(path: &[u8], wanted: &[SourceLine]) -> Result<Option<Lines>, &'static str> {
    let Some(elf) = Elf::open(path) else { return Ok(None) };
    if elf.contents(b".debug_line")?.is_some() {
        return read(&elf, wanted);
    }
    elf.debug_file(path).map_or(Ok(None), |elf| read(&elf, wanted))
}

fn read(elf: &Elf, wanted: &[SourceLine]) -> Result<Option<Lines>, &'static str> {
    let Some(table) = elf.contents(b".debug_line")? else { return Ok(None) };
    let strings = Strings {
        line: elf.contents(b".debug_line_str")?.unwrap_or_default(),
        other: elf.contents(b".debug_str")?.unwrap_or_default(),
    };
    let mut reading = Reading { wanted, found: vec![Found::default(); wanted.len()], library: Vec::new() };
    let section = DebugLine::new(&table, LittleEndian);
    let mut at = 0;
    while at < table.len() {
        let program = section.program(DebugLineOffset(at), 8, None, None).map_err(|_| "is damaged")?;
        let header = program.header();
        at = at.saturating_add(header.unit_length()).saturating_add(usize::from(header.format().initial_length_size()));
        let files = reading.files(&program, &strings);
        // Rows before the damaged part of a unit are kept.
        let _ = reading.run(program, &files);
    }
    reading.library.sort_unstable();
    let mut library_functions = Vec::new();
    elf.symbols(|s| {
        if s.kind == Kind::Function && holds(&reading.library, s.address) {
            library_functions.push((s.address, s.address.saturating_add(s.size)));
        }
    });
    Ok(Some(Lines { found: reading.found, library_functions }))
}

fn holds(ranges: &[(u64, u64)], address: u64) -> bool {
    let after = ranges.partition_point(|&(start, _)| start <= address);
    after.checked_sub(1).and_then(|i| ranges.get(i)).is_some_and(|&(_, end)| address < end)
}

/// The sections that hold names of files and directories.
struct Strings<'a> {
    line: Cow<'a, [u8]>,
    other: Cow<'a, [u8]>,
}

impl Strings<'_> {
    fn get<'s>(&'s self, value: &AttributeValue<Slice<'s>>) -> &'s [u8] {
        let (section, at) = match value {
            AttributeValue::String(text) => return text.slice(),
            AttributeValue::DebugLineStrRef(at) => (&self.line, at.0),
            AttributeValue::DebugStrRef(at) => (&self.other, at.0),
            _ => return b"",
        };
        section.get(at..).and_then(|rest| rest.split(|&b| b == 0).next()).unwrap_or_default()
    }
}

/// What is looked for in one source file.
#[derive(Default)]
struct File {
    /// Indices of wanted lines in it.
    wanted: Vec<usize>,
    library: bool,
}

struct Reading<'a> {
    wanted: &'a [SourceLine],
    found: Vec<Found>,
    /// Code from the sources of compilers' libraries.
    library: Vec<(u64, u64)>,
}

impl Reading<'_> {
    /// The files of a unit, by their number.
    fn files<'s>(&self, program: &IncompleteLineProgram<Slice<'s>>, strings: &'s Strings<'_>) -> Vec<File> {
        let header = program.header();
        let file = |number: u64| {
            let Some(entry) = header.file(number) else { return File::default() };
            let name = strings.get(&entry.path_name());
            let directory = entry.directory(header);
            let directory = directory.as_ref().map_or(&b""[..], |d| strings.get(d));
            let wanted = self.wanted.iter().enumerate().filter(|(_, w)| w.is_in(directory, name)).map(|(i, _)| i);
            let path = if name.starts_with(b"/") { name } else { directory };
            let library = wrapper::is_library_source(path);
            File { wanted: wanted.collect(), library }
        };
        // Version 5 counts from 0, those before from 1.
        (0..=header.file_names().len() as u64).map(file).collect()
    }

    /// Runs the line program of a unit. A row holds up to the address of the next row.
    fn run(&mut self, program: IncompleteLineProgram<Slice<'_>>, files: &[File]) -> gimli::Result<()> {
        if files.iter().all(|f| f.wanted.is_empty() && !f.library) {
            return Ok(());
        }
        let mut rows = program.rows();
        let mut before: Option<(u64, u64, u64)> = None;
        while let Some((_, row)) = rows.next_row()? {
            if let Some((start, file, line)) = before
                && start < row.address()
                && let Some(file) = files.get(file as usize)
            {
                self.note(file, line, start, row.address());
            }
            // Code that the linker removed has address 0 or 1.
            let counts = !row.end_sequence() && row.address() > 1;
            before = counts.then(|| (row.address(), row.file_index(), row.line().map_or(0, |n| n.get())));
        }
        Ok(())
    }

    fn note(&mut self, file: &File, line: u64, start: u64, end: u64) {
        if file.library {
            match self.library.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => self.library.push((start, end)),
            }
        }
        for &index in &file.wanted {
            let (Some(found), Some(wanted)) = (self.found.get_mut(index), self.wanted.get(index)) else { continue };
            found.file = true;
            let (below, above) = &mut found.near;
            match line.cmp(&wanted.line) {
                core::cmp::Ordering::Equal => found.code.push((start, end)),
                core::cmp::Ordering::Less if line > 0 => *below = Some(below.map_or(line, |b| b.max(line))),
                core::cmp::Ordering::Less => {}
                core::cmp::Ordering::Greater => *above = Some(above.map_or(line, |a| a.min(line))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_files_lines_are_found() {
        let path = std::env::current_exe().unwrap();
        let path = path.as_os_str().as_encoded_bytes();
        let here = u64::from(line!());
        let wanted = ["matching/line_table.rs:1", &format!("line_table.rs:{here}"), "no_such.rs:7"]
            .map(|t| SourceLine::parse(t).unwrap());
        let lines = look_up(path, &wanted).unwrap().expect("tests have line tables");
        let [first, own, missing] = &lines.found[..] else { panic!("three were asked for") };
        assert!(first.file && first.code.is_empty() && first.near.0.is_none() && first.near.1 > Some(1));
        assert!(own.file && !own.code.is_empty() && own.code.iter().all(|(start, end)| start < end));
        assert_eq!(missing, &Found::default());
        assert!(!lines.library_functions.is_empty(), "the standard library is linked in");
        assert!(look_up(b"/etc/passwd", &wanted).unwrap().is_none());
    }
}
