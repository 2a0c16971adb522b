//! /proc/self/statm: the memory of this process.

use core::ffi::CStr;

use crate::held_file::{HeldFile, Of};
use crate::sys::PAGE;

const PATH: &CStr = c"/proc/self/statm";
static FILE: HeldFile = HeldFile::new(Of::Process);

/// Bytes that the file has at most: seven numbers of up to twenty digits.
const LONGEST: usize = 7 * 21;

/// Memory of this process, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statm {
    /// All that is mapped.
    pub size: usize,
    /// Pages that exist.
    pub resident: usize,
    /// Resident pages of files and of shared memory.
    pub shared: usize,
    /// Private memory that can be written, whether its pages exist or not.
    pub data: usize,
}

impl Statm {
    /// Bytes that the process has asked for and not touched yet.
    pub fn untouched(&self) -> usize {
        self.data.saturating_sub(self.resident.saturating_sub(self.shared))
    }
}

/// Opens the file, see [`HeldFile`]: while the process has one thread.
pub fn hold() {
    FILE.hold(PATH);
}

/// What the kernel says now; `None` when the file cannot be read. Allocates nothing.
pub fn read() -> Option<Statm> {
    parse(FILE.read(PATH, &mut [0; LONGEST])?)
}

/// The first three numbers and the sixth one, in pages.
fn parse(text: &[u8]) -> Option<Statm> {
    let mut numbers = core::str::from_utf8(text).ok()?.split_ascii_whitespace().map(|n| n.parse::<usize>().ok());
    let (size, resident, shared, data) = (numbers.next()??, numbers.next()??, numbers.next()??, numbers.nth(2)??);
    let bytes = |pages: usize| pages.checked_mul(PAGE);
    Some(Statm { size: bytes(size)?, resident: bytes(resident)?, shared: bytes(shared)?, data: bytes(data)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_and_the_sixth_number_are_pages() {
        let expected = Statm { size: 1000 * PAGE, resident: 200 * PAGE, shared: 30 * PAGE, data: 600 * PAGE };
        assert_eq!(parse(b"1000 200 30 4 0 600 0\n"), Some(expected));
        assert_eq!(expected.untouched(), 430 * PAGE);
        assert_eq!([&b""[..], b"1 2 3 4 5", b"1 x 3 4 5 6 7", b"1 \xff"].map(parse), [None; 4]);
    }
}
