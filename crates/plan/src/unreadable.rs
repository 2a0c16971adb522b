//! The error of the readers of small notations: the text that was refused, and what belongs there.

use std::fmt;

/// A text that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The text, or the part of it that cannot be read.
    text: String,
    /// What it should be and how that is written, to follow "is not".
    expected: &'static str,
}

impl Unreadable {
    pub(crate) fn new(text: &str, expected: &'static str) -> Unreadable {
        Unreadable { text: text.to_owned(), expected }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not {}", self.text, self.expected)
    }
}

impl std::error::Error for Unreadable {}
