//! The error of everything that reads a value of a policy: lists, sizes, frames, page maps, placements.

use std::fmt;

/// Why a value cannot be used and what to write instead, as one sentence for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable(String);

impl Unusable {
    /// `text` does not have the expected form; `expected` completes the sentence "`text` is not".
    pub(crate) fn form(text: &str, expected: &str) -> Unusable {
        Unusable(format!("`{text}` is not {expected}"))
    }
}

impl From<String> for Unusable {
    fn from(sentence: String) -> Unusable {
        Unusable(sentence)
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unusable {}
