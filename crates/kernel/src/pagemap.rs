//! /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst): a 64-bit word for each page.

use core::ffi::{CStr, c_int};

use crate::held_file::{HeldFile, Of};
use crate::pages::BATCH;
use crate::sys::{self, PAGE};

/// The page is mapped by one process only; since Linux 4.2.
pub const EXCLUSIVE: u64 = 1 << 56;
/// The page belongs to a file or to shared memory.
pub const FILE: u64 = 1 << 61;
/// The page is swapped out, if [`PRESENT`] is not set.
pub const SWAPPED: u64 = 1 << 62;
/// The page is in memory.
pub const PRESENT: u64 = 1 << 63;

const PATH: &CStr = c"/proc/self/pagemap";
static HELD: HeldFile = HeldFile::new(Of::Process);

/// Opens the file for all that read it, see [`HeldFile`]: while the process has one thread.
pub fn hold() {
    HELD.hold(PATH);
}

/// /proc/self/pagemap, opened at the first read where it is not held.
#[derive(Debug, Default)]
pub struct Pagemap {
    file: Option<Option<c_int>>,
}

impl Drop for Pagemap {
    fn drop(&mut self) {
        self.file.flatten().inspect(|&fd| sys::close(fd));
    }
}

impl Pagemap {
    /// Fills `words` with the words of `pages`, consecutive page addresses; all words are 0 when the file cannot be
    /// read.
    pub fn read(&mut self, pages: &[usize], words: &mut [u64; BATCH]) {
        words.fill(0);
        let Some(&first) = pages.first() else { return };
        let mut bytes = [0_u8; BATCH * 8];
        let wanted = &mut bytes[..pages.len().min(BATCH) * 8];
        let len = wanted.len();
        if self.read_at(wanted, (first / PAGE * 8) as u64) == Some(len) {
            for (word, bytes) in words.iter_mut().zip(wanted.chunks_exact(8)) {
                *word = bytes.try_into().map_or(0, u64::from_le_bytes);
            }
        }
    }
}

impl Pagemap {
    fn read_at(&mut self, bytes: &mut [u8], offset: u64) -> Option<usize> {
        if self.file.is_none() && HELD.is_held(PATH) {
            return HELD.read_at(PATH, bytes, offset).map(<[u8]>::len);
        }
        let file = *self.file.get_or_insert_with(|| sys::open(PATH, libc::O_RDONLY));
        sys::read_at(file?, bytes, offset)
    }
}

/// Fills `bytes` with the words of the pages from `first` on, if the file is held; false where it is not, or cannot be
/// read.
pub fn read_held(first: usize, bytes: &mut [u8]) -> bool {
    let wanted = bytes.len();
    HELD.read_at(PATH, bytes, (first / PAGE * 8) as u64).is_some_and(|read| read.len() == wanted)
}

/// Whether the page with this word is in memory.
pub fn present(word: u64) -> bool {
    word & PRESENT != 0
}

/// Whether the page with this word is swapped out.
pub fn swapped(word: u64) -> bool {
    word & (SWAPPED | PRESENT) == SWAPPED
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mappings::map_aligned;

    #[test]
    fn a_touched_page_is_present_and_exclusive() {
        let base = map_aligned(4 * PAGE, PAGE).unwrap();
        // SAFETY: the mapping belongs to this test and is writable.
        unsafe { (base as *mut u8).write(1) };
        let mut words = [0; BATCH];
        Pagemap::default().read(&[base, base + PAGE], &mut words);
        assert_eq!(words[0] & (PRESENT | FILE | EXCLUSIVE | SWAPPED), PRESENT | EXCLUSIVE);
        assert_eq!(words[1] & (PRESENT | SWAPPED), 0);
        assert!(swapped(SWAPPED) && !swapped(PRESENT) && !swapped(0) && present(words[0]));
    }
}
