//! Lines of source code that name call sites: what the loaded files say about them, and what to tell the user about
//! lines without code.

use numamma_plan::callsite::line::SourceLine;

use crate::matching::line_table::{self, Found, Lines};

/// The wanted lines in the line table of a file, or why that cannot be read.
pub type Read = Result<Option<Lines>, &'static str>;

/// Looks for `wanted` in the file at `path`, or in its debug file.
pub fn read(path: &[u8], wanted: &[SourceLine]) -> Read {
    line_table::look_up(path, wanted)
}

/// Messages about lines for which `has_code` is false; true when no file has debugging information at all. `files` are
/// the paths of the loaded files with what each says.
pub fn problems<'a>(
    wanted: &[SourceLine],
    has_code: impl Fn(usize) -> bool,
    files: impl Iterator<Item = (&'a [u8], &'a Read)>,
) -> Vec<(String, bool)> {
    let mut said = vec![Found::default(); wanted.len()];
    let (mut tables, mut unreadable) = (false, None);
    for (path, read) in files {
        match read {
            Ok(Some(lines)) => {
                tables = true;
                for (said, found) in said.iter_mut().zip(&lines.found) {
                    said.file |= found.file;
                    said.near = (said.near.0.or(found.near.0), said.near.1.or(found.near.1));
                }
            }
            Err(why) => unreadable = Some((path, *why)),
            Ok(None) => {}
        }
    }
    let without_code = wanted.iter().zip(&said).enumerate().filter(|(index, _)| !has_code(*index));
    without_code.map(|(_, (line, found))| (problem(line, found, tables, unreadable), !tables)).collect()
}

/// Why a line has no code, and how to change that.
fn problem(line: &SourceLine, found: &Found, tables: bool, unreadable: Option<(&[u8], &str)>) -> String {
    match (unreadable, found.near) {
        (Some((path, why)), (None, None)) => format!(
            "{line}: the .debug_line of {} {why}; link with --compress-debug-sections=zlib or none",
            String::from_utf8_lossy(path)
        ),
        _ if !tables => format!(
            "{line}: neither the program nor its libraries have lines; \
             compile with -g, install its debug package, or name the call by `function`"
        ),
        (_, (None, None)) if !found.file => format!(
            "{line}: no loaded module has code of {}; compile that file with -g (its library may be loaded later)",
            line.file()
        ),
        (_, (below, above)) => {
            let numbers: Vec<String> = [below, above].into_iter().flatten().map(|n| n.to_string()).collect();
            format!("{line}: this line has no code; the nearest ones with code: {}", numbers.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_what_to_do() {
        let line = SourceLine::parse("lu.c:120").unwrap();
        let none = Found::default();
        let near = Found { file: true, near: (Some(118), Some(121)), ..Found::default() };
        assert!(problem(&line, &none, false, None).contains("compile with -g"));
        assert!(problem(&line, &none, true, None).contains("code of lu.c"));
        assert!(problem(&line, &near, true, None).contains("118, 121"));
    }
}
