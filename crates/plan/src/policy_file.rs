//! Reading the text of a policy file.
//!
//! A policy is a regular file: every process of a program reads it again, so a pipe (also `<(...)` of a shell and
//! /dev/stdin) would be empty for all but the first, and one without a writer would block the start for good.

use std::fs::OpenOptions;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use numamma_kernel::input_file::MOST_POLICY;

/// O_NONBLOCK of linux/fcntl.h on x86_64: opening a pipe without a writer returns at once.
const O_NONBLOCK: i32 = 0o4000;
/// O_NOCTTY of linux/fcntl.h on x86_64: a terminal does not become the one of this process.
const O_NOCTTY: i32 = 0o400;

/// The text of the policy at `path`.
///
/// # Errors
/// Of the system, or that `path` is no regular file or not UTF-8.
pub fn read(path: &Path) -> Result<String> {
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK | O_NOCTTY).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(Error::other("not a regular file, and each process reads the policy anew; write it to a file"));
    }
    let mut text = String::new();
    file.take(MOST_POLICY + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST_POLICY {
        return Err(Error::other(format!("larger than {} MiB, the most that is read", MOST_POLICY >> 20)));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_read() {
        let dir = std::env::temp_dir().join(format!("numamma-policy-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (file, link, pipe) = (dir.join("file"), dir.join("link"), dir.join("pipe"));
        std::fs::write(&file, "version = 1\n").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!((read(&file).unwrap(), read(&link).unwrap()), ("version = 1\n".into(), "version = 1\n".into()));
        for other in [&pipe, Path::new("/dev/null"), Path::new("/dev/zero")] {
            assert!(read(other).unwrap_err().to_string().contains("not a regular file"), "{}", other.display());
        }
        assert_eq!(read(&dir).unwrap_err().kind(), ErrorKind::IsADirectory);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
