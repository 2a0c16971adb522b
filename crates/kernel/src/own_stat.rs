//! /proc/self/stat (proc_pid_stat(5)): state, threads and exit status of this process.

use core::ffi::CStr;

use crate::held_file::{HeldFile, Of};
use crate::lines;

/// Bytes of the file, at most: 52 fields of up to 20 digits, and a name of up to 64 bytes.
pub const LONGEST: usize = 1200;

const PATH: &CStr = c"/proc/self/stat";
static FILE: HeldFile = HeldFile::new(Of::Process);

/// Opens the file, see [`HeldFile`]: while the process has one thread.
pub fn hold() {
    FILE.hold(PATH);
}

/// Its text, of the file that is held or else of one that is opened for that; `None` when it cannot be read. Allocates
/// nothing, changes errno.
pub fn read(text: &mut [u8; LONGEST]) -> Option<&str> {
    let mut len = 0;
    lines::for_each_part(&FILE, PATH, text, |part| {
        len = part.len();
        false
    });
    core::str::from_utf8(text.get(..len)?).ok().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_the_process() {
        let own = format!("{} (", std::process::id());
        let is_right = || read(&mut [0; LONGEST]).is_some_and(|text| text.starts_with(&own) && text.ends_with('\n'));
        assert!(is_right(), "it is not held");
        FILE.open(PATH);
        assert!(is_right());
    }
}
