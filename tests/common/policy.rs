//! Policy files.

use std::fmt::Write;
use std::path::PathBuf;

use super::Scratch;

/// The text of a policy file, built up line by line.
#[derive(Clone)]
pub struct Policy(String);

impl Policy {
    /// For every program.
    pub fn new() -> Policy {
        Policy("version = 1\n".into())
    }

    /// For programs of that name.
    pub fn of(program: &str) -> Policy {
        Policy::new().lines(&format!("[program]\npath = \"{program}\""))
    }

    /// Adds lines as they are: `[threads]`, `[[phase]]`, whole rules.
    pub fn lines(mut self, lines: &str) -> Policy {
        writeln!(self.0, "{lines}").expect("a String takes all text");
        self
    }

    /// Adds a rule: `key` says which object is meant, `place` is what stands in the braces.
    pub fn rule(self, key: &str, place: &str) -> Policy {
        self.lines(&format!("[[object]]\n{key}\nplace = {{ {place} }}"))
    }

    /// Writes it to `dir` and returns the path.
    pub fn write(&self, dir: &Scratch, name: &str) -> PathBuf {
        dir.write(name, &self.0)
    }
}
