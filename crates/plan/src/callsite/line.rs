//! A line of source code as a policy names it: `lu.c:120`, `src/lu.c:120`.
//!
//! Debug information contains paths in the form in which the compiler was called. A policy gives the last components of
//! a path, and only whole components are compared.

use std::fmt;

use crate::unusable::Unusable;

/// A file, by the end of its path, and a line in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLine {
    /// The last components of a path, without empty components and `.`.
    file: String,
    /// Line number, from 1.
    pub line: u64,
}

/// What a line of source code is.
const LINE: &str = "a line of source code; write file:line, for example \"lu.c:120\" or \"src/lu.c:120\"";

impl SourceLine {
    /// Reads `file:line`.
    ///
    /// # Errors
    /// A text without a file name, or without a line number from 1.
    pub fn parse(text: &str) -> Result<SourceLine, Unusable> {
        let bad = || Unusable::form(text, LINE);
        let (file, line) = text.trim().rsplit_once(':').ok_or_else(bad)?;
        let line = line.parse().ok().filter(|n| *n > 0).ok_or_else(bad)?;
        let parts: Vec<&str> = file.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.is_empty() {
            return Err(bad());
        }
        Ok(SourceLine { file: parts.join("/"), line })
    }

    /// The last components of the path, separated by `/`.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Whether this is line `line` of the file `path`.
    pub fn is(&self, path: &str, line: u64) -> bool {
        self.line == line && self.is_in(b"", path.as_bytes())
    }

    /// Whether the path of the file `name` in `directory` ends with these components.
    pub fn is_in(&self, directory: &[u8], name: &[u8]) -> bool {
        let directory = if name.starts_with(b"/") { b"" } else { directory };
        let mut have = from_its_end(name).chain(from_its_end(directory));
        from_its_end(self.file.as_bytes()).all(|component| have.next() == Some(component))
    }
}

/// Components of a path without empty ones and `.`, the last one first.
fn from_its_end(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.rsplit(|&b| b == b'/').filter(|component| !component.is_empty() && *component != b".")
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_parts_of_a_path_are_compared_from_its_end() {
        let line = SourceLine::parse("src/lu.c:120").unwrap();
        assert_eq!((line.file(), line.line), ("src/lu.c", 120));
        let is_in = |directory: &str, name: &str| line.is_in(directory.as_bytes(), name.as_bytes());
        assert!(is_in("/home/me/src", "lu.c") && is_in("/home/me", "src/lu.c") && is_in("", "/home/src/lu.c"));
        assert!(is_in("/home/me/src/.", "./lu.c") && is_in("src", "lu.c"));
        assert!(!is_in("/home/me", "lu.c") && !is_in("/home/mysrc", "lu.c") && !is_in("/home/src", "blu.c"));
        assert!(!is_in("/home/src", "/usr/lu.c"), "an absolute name has no other directory");
        let bare = SourceLine::parse(" ./lu.c:7").unwrap();
        assert!(bare.is_in(b"", b"lu.c") && bare.is_in(b"/any", b"lu.c") && !bare.is_in(b"/any", b"u.c"));
        assert_eq!(bare.to_string(), "lu.c:7");
    }

    #[test]
    fn what_is_no_line_is_named() {
        for bad in ["lu.c", "lu.c:", "lu.c:0", "lu.c:-3", ":12", "/:12", "lu.c:x"] {
            let e = SourceLine::parse(bad).unwrap_err().to_string();
            assert!(e.contains(&format!("`{bad}`")) && e.contains("lu.c:120"), "{e}");
        }
        assert_eq!(SourceLine::parse("C:x.f90:3").unwrap().file(), "C:x.f90");
    }
}
