//! Exit statuses, the error that carries one, and diagnostics on stderr.

use std::path::Path;
use std::{fmt, io};

/// Exit status of a command line or input that cannot be used.
pub const EXIT_USAGE: u8 = 2;
/// Exit status when the program cannot be executed (as shells do).
pub const EXIT_CANNOT_EXECUTE: u8 = 126;
/// Exit status when the program does not exist (as shells do).
pub const EXIT_NOT_FOUND: u8 = 127;

/// A command that failed: the diagnostic and the exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// [`EXIT_USAGE`], [`EXIT_CANNOT_EXECUTE`] or [`EXIT_NOT_FOUND`].
    pub exit: u8,
    /// One line.
    pub message: String,
}

impl Failure {
    /// A command line or input that cannot be used.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { exit: EXIT_USAGE, message: message.into() }
    }

    /// A program that cannot be executed.
    pub fn cannot_execute(message: impl Into<String>) -> Failure {
        Failure { exit: EXIT_CANNOT_EXECUTE, message: message.into() }
    }

    /// What execve(2) or spawning `program` failed with.
    pub fn of_exec(program: &Path, error: &io::Error) -> Failure {
        let exit = if error.kind() == io::ErrorKind::NotFound { EXIT_NOT_FOUND } else { EXIT_CANNOT_EXECUTE };
        Failure { exit, message: format!("{}: cannot execute: {error}", program.display()) }
    }

    /// A program that does not exist.
    pub fn not_found(message: impl Into<String>) -> Failure {
        Failure { exit: EXIT_NOT_FOUND, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Prints one diagnostic on stderr.
pub fn say(message: impl fmt::Display) {
    eprintln!("numamma: {message}");
}
