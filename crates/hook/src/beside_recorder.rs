//! What a preload finds out about its process for the recorder, with plain system calls: the first hook may come before
//! libc is initialised.

use core::ffi::CStr;

use crate::sys;

/// The pid of this process in the namespace that /proc shows. That is the recorder's: the channel is only opened
/// through a /proc in which the recorder has its own pid. Another namespace may give this process the pid of another
/// one.
pub fn pid_for_recorder() -> Option<u32> {
    last_number(c"/proc/self")
}

/// The id of this thread in the namespace that /proc shows.
pub fn tid_for_recorder() -> Option<u32> {
    last_number(c"/proc/thread-self")
}

/// The number at the end of the target of a symbolic link.
fn last_number(link: &CStr) -> Option<u32> {
    let mut target = [0_u8; 64];
    // SAFETY: a C string, and an array of the given length.
    let len = unsafe {
        libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, link.as_ptr(), target.as_mut_ptr(), target.len())
    };
    let digits = target.get(..usize::try_from(len).ok()?)?.rsplit(|b| *b == b'/').next()?;
    core::str::from_utf8(digits).ok()?.parse().ok()
}

/// Value of an environment variable this process was started with, as a C string in `value`; `None` when it
/// is not set, empty or too long.
pub fn variable<'a>(name: &[u8], value: &'a mut [u8]) -> Option<&'a CStr> {
    let fd = sys::open(c"/proc/self/environ", libc::O_RDONLY)?;
    let mut search = Search { name, matched: 0, failed: false, len: 0, done: false };
    let mut buffer = [0_u8; 512];
    while let Some(n @ 1..) = sys::read(fd, &mut buffer) {
        for &byte in buffer.iter().take(n) {
            search.feed(byte, value);
        }
        if search.done {
            break;
        }
    }
    sys::close(fd);
    if search.done { CStr::from_bytes_until_nul(value).ok() } else { None }
}

/// Finds `NAME=value\0` in an environment block, byte by byte.
struct Search<'n> {
    name: &'n [u8],
    /// Bytes of `name` and the `=` seen in this entry.
    matched: usize,
    failed: bool,
    len: usize,
    done: bool,
}

impl Search<'_> {
    fn feed(&mut self, byte: u8, value: &mut [u8]) {
        if self.done {
            return;
        }
        let in_value = self.matched > self.name.len();
        match byte {
            0 if in_value && !self.failed && self.len > 0 => self.done = true,
            0 => (self.matched, self.failed, self.len) = (0, false, 0),
            _ if self.failed => {}
            // The last byte of the buffer stays 0, so a value that fills it is refused.
            _ if in_value => match value.split_last_mut().and_then(|(_, room)| room.get_mut(self.len)) {
                Some(cell) => {
                    *cell = byte;
                    self.len += 1;
                }
                None => {
                    value.fill(0);
                    self.failed = true;
                }
            },
            _ if byte == *self.name.get(self.matched).unwrap_or(&b'=') => self.matched += 1,
            _ => self.failed = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(block: &[u8], name: &[u8]) -> Option<Vec<u8>> {
        let mut value = [0_u8; 8];
        let mut search = Search { name, matched: 0, failed: false, len: 0, done: false };
        for &byte in block {
            search.feed(byte, &mut value);
        }
        search.done.then(|| CStr::from_bytes_until_nul(&value).unwrap().to_bytes().to_vec())
    }

    #[test]
    fn variables_are_found_exactly() {
        let block = b"AB=1\0A=\0ABC=2=3\0XA=9\0LONG=12345678\0SEVEN=1234567\0";
        assert_eq!(find(block, b"AB").unwrap(), b"1");
        assert_eq!(find(block, b"ABC").unwrap(), b"2=3");
        assert_eq!(find(block, b"A"), None);
        assert_eq!(find(block, b"LONG"), None);
        assert_eq!(find(block, b"SEVEN").unwrap(), b"1234567");
        assert_eq!(find(block, b"B"), None);
    }
}
