//! The lines of a file of /proc, read without memory for the whole text: a process with many mappings has megabytes.

use core::ffi::{CStr, c_int};

use crate::held_file::HeldFile;
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
pub fn for_each(path: &CStr, visit: impl FnMut(&str) -> bool) {
    let mut lines = Lines { visit, line: [0; KEPT], len: 0 };
    parts_of(path, &mut [0; BUFFER], |part| lines.feed(part));
}

/// As [`for_each`], of the file that `held` holds, or else of the one at `path`.
pub fn for_each_of(held: &HeldFile, path: &CStr, visit: impl FnMut(&str) -> bool) {
    let mut lines = Lines { visit, line: [0; KEPT], len: 0 };
    for_each_part(held, path, &mut [0; BUFFER], |part| lines.feed(part));
}

/// Calls `visit` with the parts of the file that `held` holds, or else of the one at `path`, as they fit into `buffer`,
/// until it returns false.
pub fn for_each_part(held: &HeldFile, path: &CStr, buffer: &mut [u8], mut visit: impl FnMut(&[u8]) -> bool) {
    if !held.is_held(path) {
        return parts_of(path, buffer, visit);
    }
    let mut at = 0;
    while let Some(part) = held.read_at(path, buffer, at).filter(|part| !part.is_empty()) {
        at += part.len() as u64;
        if !visit(part) {
            return;
        }
    }
}

/// As [`for_each_part`], of a file that is opened for that.
fn parts_of(path: &CStr, buffer: &mut [u8], mut visit: impl FnMut(&[u8]) -> bool) {
    let Some(file) = sys::open(path, libc::O_RDONLY).map(Open) else { return };
    while let Some(got @ 1..) = sys::read(file.0, buffer) {
        if !visit(&buffer[..got]) {
            return;
        }
    }
}

/// Lines that are put together from parts of a file.
struct Lines<V> {
    visit: V,
    line: [u8; KEPT],
    len: usize,
}

impl<V: FnMut(&str) -> bool> Lines<V> {
    /// Adds a part; false when no more is wanted.
    fn feed(&mut self, part: &[u8]) -> bool {
        for &byte in part {
            if byte != b'\n' {
                if let Some(place) = self.line.get_mut(self.len) {
                    (*place, self.len) = (byte, self.len + 1);
                }
                continue;
            }
            let text = self.line.get(..self.len).and_then(|kept| core::str::from_utf8(kept).ok());
            self.len = 0;
            if !text.is_none_or(&mut self.visit) {
                return false;
            }
        }
        true
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
