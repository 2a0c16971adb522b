//! The lines of a file of /proc, read without memory for the whole text: a process with many mappings has megabytes.

use core::ffi::{CStr, c_int};

use crate::sys;

/// Bytes of a line that are kept: what stands before a path has up to 75 in maps, and lines of smaps are shorter.
const KEPT: usize = 256;

/// Bytes read at a time.
const BUFFER: usize = 4096;

/// An open file, closed when dropped.
struct Open(c_int);

impl Drop for Open {
    fn drop(&mut self) {
        sys::close(self.0);
    }
}

/// Calls `visit` with the first [`KEPT`] bytes of each line until it returns false. A file that cannot be read has no
/// lines; lines that are not UTF-8 that far are left out.
pub fn for_each(path: &CStr, mut visit: impl FnMut(&str) -> bool) {
    let Some(file) = sys::open(path, libc::O_RDONLY).map(Open) else { return };
    let (mut buffer, mut line, mut len) = ([0_u8; BUFFER], [0_u8; KEPT], 0);
    while let Some(got @ 1..) = sys::read(file.0, &mut buffer) {
        for &byte in buffer.iter().take(got) {
            if byte != b'\n' {
                if let Some(place) = line.get_mut(len) {
                    (*place, len) = (byte, len + 1);
                }
                continue;
            }
            let text = line.get(..len).and_then(|kept| core::str::from_utf8(kept).ok());
            len = 0;
            if !text.is_none_or(&mut visit) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines_are_those_of_the_file() {
        let text = std::fs::read_to_string("/proc/self/status").unwrap();
        let mut names = Vec::new();
        super::for_each(c"/proc/self/status", |line| {
            names.push(line.split(':').next().unwrap().to_owned());
            names.len() < 20
        });
        let expected: Vec<&str> = text.lines().take(20).map(|line| line.split(':').next().unwrap()).collect();
        assert_eq!(names, expected);
        super::for_each(c"/proc/self/none", |_| panic!("there is no such file"));
    }
}
