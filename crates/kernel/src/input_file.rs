//! Text files that a user names, read up to a limit: the name may lead to a device without an end, or to a file that is
//! something else.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Largest policy file, bytes: forty thousand rules of the size that `numamma advise` writes.
pub const MOST_POLICY: u64 = 16 << 20;
/// Largest description of a machine, bytes: lstopo writes about 2 KiB per CPU, and Linux has at most 8,192.
pub const MOST_MACHINE: u64 = 64 << 20;
/// Largest report of the apply library, bytes: one of the most rules that it takes has 8 MiB.
pub const MOST_REPORT: u64 = 64 << 20;

/// The text of a file of at most `most` bytes.
///
/// # Errors
/// Those of reading, and what is wrong with a file that is larger or no UTF-8.
pub fn text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(bytes(path, most)?).map_err(|e| {
        io::Error::new(io::ErrorKind::InvalidData, format!("no text in UTF-8 at byte {}", e.utf8_error().valid_up_to()))
    })
}

/// The bytes of a file of at most `most` bytes.
///
/// # Errors
/// Those of reading, and that the file is larger.
pub fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it is larger than {} MiB, the most that is read", most >> 20)));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_an_end_are_refused() {
        assert!(text(Path::new("/dev/zero"), 1 << 20).unwrap_err().to_string().contains("larger than 1 MiB"));
        assert_eq!(text(Path::new("/dev/null"), 1 << 20).unwrap(), "");
        assert_eq!(bytes(Path::new("/none"), 1).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
