//! The error of parsers of short notations such as lists and sizes: the invalid text, and the expected form.

use std::fmt;

/// A text that does not have the expected form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The text, or the invalid part of it.
    text: String,
    /// The expected form and how to write it; completes the sentence "`text` is not".
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
