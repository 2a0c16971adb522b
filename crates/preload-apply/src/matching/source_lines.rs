//! Finds the code of rules that name their call site by a line of source code, in every loaded module.
//!
//! The table of a file is read once, and only when a rule needs it.

use numamma_plan::callsite::line::SourceLine;
use numamma_plan::callsite::wrapper;

use crate::matching::call_sites::{Ranges, merged};
use crate::matching::line_table::{self, Found, Lines};
use crate::matching::modules::{FileCache, Loaded};

/// Memory addresses of the wanted lines.
#[derive(Default)]
pub struct Sources {
    /// Return addresses of calls on each line.
    pub calls: Vec<Ranges>,
    /// Return addresses in functions from the sources of compilers' libraries: disjoint, ascending.
    pub libraries: Ranges,
    /// Messages about lines that have no code; true when no module has debugging information at all.
    pub problems: Vec<(String, bool)>,
}

/// The wanted lines in the line table of a file, or why that cannot be read.
pub type Read = Result<Option<Lines>, &'static str>;

/// Looks for `wanted` in `modules`; every call with the same cache must pass the same lines.
pub fn find(known: &mut FileCache<Read>, wanted: &[SourceLine], modules: &[Loaded]) -> Sources {
    let mut sources = Sources { calls: vec![Ranges::new(); wanted.len()], ..Sources::default() };
    if wanted.is_empty() {
        return sources;
    }
    let mut said = vec![Found::default(); wanted.len()];
    let (mut tables, mut unreadable) = (false, None);
    for module in modules {
        if wrapper::is_library_module(module.file_name()) {
            sources.libraries.push((module.start, module.end));
            continue;
        }
        match known.of(module, || line_table::look_up(&module.path, wanted)) {
            Ok(Some(lines)) => {
                tables = true;
                let returns = |range: &(u64, u64)| module.return_addresses(*range);
                sources.libraries.extend(lines.library_functions.iter().map(returns));
                for ((calls, said), found) in sources.calls.iter_mut().zip(&mut said).zip(&lines.found) {
                    calls.extend(found.code.iter().map(returns));
                    said.file |= found.file;
                    said.near = (said.near.0.or(found.near.0), said.near.1.or(found.near.1));
                }
            }
            Err(why) => unreadable = Some((module, *why)),
            Ok(None) => {}
        }
    }
    known.keep(modules);
    sources.libraries = merged(sources.libraries);
    for ((line, calls), found) in wanted.iter().zip(&sources.calls).zip(&said) {
        if calls.is_empty() {
            sources.problems.push((problem(line, found, tables, unreadable), !tables));
        }
    }
    sources
}

/// Why a line has no code, and how to change that.
fn problem(line: &SourceLine, found: &Found, tables: bool, unreadable: Option<(&Loaded, &str)>) -> String {
    match (unreadable, found.near) {
        (Some((module, why)), (None, None)) => format!(
            "{line}: the .debug_line of {} {why}; link with --compress-debug-sections=zlib or none",
            String::from_utf8_lossy(&module.path)
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
